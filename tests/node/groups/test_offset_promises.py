"""A group's first offset in a queue, and one that moves back: saved at once, if the disk takes it,
and answered once every node that may lead next has it."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from fakes.stores import Bench
from sim.served_node import AllKnown, Turns
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.groups.offset_promises import OffsetPromises
from tandemlog_server.node.services.group_service import GroupService
from tandemlog_server.storage.metadata.topics import MetadataError


class Slaves:
    """The role of a master: its slaves have a table when the test says so, or never."""

    def __init__(self) -> None:
        self.away = False
        self.held = asyncio.Event()
        self.held.set()
        self.confirmed: list[str] = []
        self.versions: list[int | None] = []

    @property
    def role(self) -> "Slaves":
        return self

    async def confirm_table(self, table: str, version: int | None = None) -> None:
        self.versions.append(version)
        if self.away:
            raise RequestRefusedError(common_pb2.OUTCOME_UNKNOWN, "not acknowledged in time")
        await self.held.wait()
        self.confirmed.append(table)


class Free:
    """No queue has an owner."""

    def __init__(self, bench: Bench, slaves: Slaves) -> None:
        role: Any = slaves
        self.promises = OffsetPromises(bench.store.consumer_offsets, role)

    def lead(self, what: str, group: str) -> None:
        return

    def commit_by_hand(
        self, group: str, queues: Sequence[object], commit: Callable[[int], None], **_: Any
    ) -> None:
        for index in range(len(queues)):
            commit(index)


class Activity:
    def committed(self, group: str, peer: str) -> None:
        return


def service(bench: Bench, slaves: Slaves) -> GroupService:
    parts: Any = (bench.store, Free(bench, slaves), AllKnown(), Turns(), Activity())
    return GroupService(*parts)


async def commit(
    groups: GroupService, queue_id: int, offset: int = 1, *, group: str = "g", dry_run: bool = False
) -> broker_pb2.CommitOffsetsResponse:
    place = broker_pb2.QueuePosition(topic="T", queue_id=queue_id, queue_offset=offset)
    request = broker_pb2.CommitOffsetsRequest(group=group, offsets=[place], dry_run=dry_run)
    return await groups.commit(request, Caller())


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    for queue_id in (0, 0, 0, 1):
        bench.put(queue_id=queue_id)
    bench.settle()
    return bench


async def test_a_full_disk_keeps_no_group_from_a_queue(bench: Bench) -> None:
    groups = service(bench, Slaves())
    assert not (await commit(groups, 0)).error.code
    bench.files.fail("atomic_replace", errno.ENOSPC, name="consumerOffset.json")
    assert not (await commit(groups, 1)).error.code
    assert bench.store.consumer_offsets.offset("g", "T", 1) == 1


async def test_only_what_begins_or_moves_back_waits_for_the_slaves(bench: Bench) -> None:
    slaves = Slaves()
    groups = service(bench, slaves)
    waited = []
    for offset in (1, 2, 3, 3, 2, 3):
        before = len(slaves.confirmed)
        await commit(groups, 0, offset)
        waited.append(len(slaves.confirmed) - before)
    assert waited == [1, 0, 0, 0, 1, 0]
    assert set(slaves.confirmed) == {"consumer-offsets"}


@pytest.mark.parametrize("offset", [1, 0])
async def test_it_is_answered_only_once_the_slaves_have_it(bench: Bench, offset: int) -> None:
    slaves = Slaves()
    groups = service(bench, slaves)
    if not offset:
        await commit(groups, 0, 3)
    slaves.held.clear()
    answer = asyncio.create_task(commit(groups, 0, offset))
    repeated = asyncio.create_task(commit(groups, 0, offset))
    later = asyncio.create_task(commit(groups, 0, offset + 1))
    read = asyncio.create_task(groups.offsets_confirmed("g"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not any(each.done() for each in (answer, repeated, later, read))
    await groups.offsets_confirmed("another")
    slaves.held.set()
    await asyncio.gather(answer, repeated, later, read)
    slaves.held.clear()
    await asyncio.wait_for(commit(groups, 0, 3), 10)
    await asyncio.wait_for(groups.offsets_confirmed("g"), 10)


async def test_what_no_slave_has_taken_is_no_commit_however_often_it_is_repeated(
    bench: Bench,
) -> None:
    slaves = Slaves()
    groups = service(bench, slaves)
    slaves.away = True
    for offset in (1, 1, 2):
        with pytest.raises(RequestRefusedError, match="every in-sync replica") as refused:
            await commit(groups, 0, offset)
        # a member may repeat it: a commit is the same however often it comes
        assert refused.value.code == common_pb2.NOT_IN_SYNC
    with pytest.raises(RequestRefusedError):
        await groups.offsets_confirmed("g")
    slaves.away = False
    await commit(groups, 0, 2)
    assert slaves.confirmed == ["consumer-offsets"]


async def test_a_repetition_waits_for_the_table_of_the_first_time(bench: Bench) -> None:
    """Under many commits of others, the present one would never be on the slaves in time."""
    slaves = Slaves()
    groups = service(bench, slaves)
    slaves.away = True
    for _ in range(3):
        with pytest.raises(RequestRefusedError):
            await commit(groups, 0)
        bench.store.consumer_offsets.commit("other", "T", 0, bench.store.consumer_offsets.version)
    assert len({*slaves.versions}) == 1


async def test_a_new_master_does_not_take_for_safe_what_it_has_found(bench: Bench) -> None:
    slaves = Slaves()
    coordinator = Free(bench, slaves)
    parts: Any = (bench.store, coordinator, AllKnown(), Turns(), Activity())
    groups = GroupService(*parts)
    await commit(groups, 0)
    coordinator.promises.begin_term()
    del slaves.confirmed[:]
    await commit(groups, 0)
    assert slaves.confirmed == ["consumer-offsets"]
    await commit(groups, 0)
    assert slaves.confirmed == ["consumer-offsets"], "from then on it knows"


async def test_a_term_that_begins_while_somebody_waits_is_not_settled_by_the_one_before(
    bench: Bench,
) -> None:
    slaves = Slaves()
    coordinator = Free(bench, slaves)
    parts: Any = (bench.store, coordinator, AllKnown(), Turns(), Activity())
    groups = GroupService(*parts)
    slaves.held.clear()
    first = asyncio.create_task(commit(groups, 0))
    await asyncio.sleep(0)
    coordinator.promises.begin_term()
    slaves.held.set()
    await first
    del slaves.confirmed[:]
    await commit(groups, 0)
    assert slaves.confirmed == ["consumer-offsets"]


async def test_a_row_that_finds_no_room_leaves_nothing_open(bench: Bench) -> None:
    slaves = Slaves()
    groups = service(bench, slaves)
    bench.store.consumer_offsets._max_rows = 0
    with pytest.raises(MetadataError):
        await commit(groups, 0)
    await groups.offsets_confirmed("another")
    await groups.offsets_confirmed("g")
    del slaves.confirmed[:]
    await groups.offsets_confirmed("g")
    assert not slaves.confirmed


async def test_what_only_looks_waits_for_nobody(bench: Bench) -> None:
    slaves = Slaves()
    slaves.away = True
    await commit(service(bench, slaves), 0, dry_run=True)


async def test_an_offset_that_moves_back_is_on_disk_when_it_is_answered(bench: Bench) -> None:
    groups = service(bench, Slaves())
    await commit(groups, 0, 3)
    await commit(groups, 0, 1)
    bench.kill()
    assert bench.store.consumer_offsets.offset("g", "T", 0) == 1
