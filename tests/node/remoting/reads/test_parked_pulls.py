"""Pulls that wait without a task on a whole node: answered as those of a task, and never left."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fakes.inner_node import until
from fakes.reading_node import ReadingNode, pull_header, reading_node
from fakes.remoting_calls import Connected, call_of, records_in
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall, RemotingRefusedError
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.errors import StoreBusyError
from tandemlog_server.storage.reads.results import GetResult
from tandemlog_server.storage.shares import Shares

PARK = 2
NOT_FOUND = 19


class Client(Connected):
    """A connection that ends."""

    def __init__(self) -> None:
        self.closing: list[Callable[[], None]] = []

    def on_close(self, callback: Callable[[], None]) -> None:  # type: ignore[override]
        self.closing.append(callback)


@dataclass
class Parking:
    """`ends`: the answers, and why there is none, in the order in which they came."""

    door: ReadingNode
    client: Client = field(default_factory=Client)
    ends: list[tuple[Command | None, Exception | None]] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        return self.door.node.reads.waiting

    def begin(self, offset: int, *, oneway: bool = False, **fields: object) -> bool:
        header = {**pull_header(offset, sysFlag=PARK), **fields}
        call = call_of(11, oneway=oneway, caller=Caller(Client.peer), **header)  # type: ignore[arg-type]
        call.connection = self.client
        return self.door.read.pulls.begin(call, self._ended)

    def _ended(
        self, call: RemotingCall, response: Command | None, problem: Exception | None
    ) -> None:
        self.ends.append((response, problem))

    async def answer(self) -> Command:
        await until(lambda: bool(self.ends))
        [(answer, problem)] = self.ends
        assert problem is None
        assert answer is not None
        return answer


@pytest.fixture
async def parking(tmp_path: Path) -> AsyncIterator[Parking]:
    async with reading_node(tmp_path / "n0") as door:
        yield Parking(door)


async def test_a_message_answers_a_pull_that_has_no_task(parking: Parking) -> None:
    await parking.door.send(b"a")
    tasks = asyncio.all_tasks()
    assert parking.begin(1)
    assert asyncio.all_tasks() == tasks
    assert (parking.waiting, parking.ends) == (1, [])
    await parking.door.send(b"b")
    answer = await parking.answer()
    by_task = await parking.door.pull(1, sysFlag=PARK)
    assert (answer.code, answer.fields, answer.body) == (0, by_task.fields, by_task.body)
    assert parking.waiting == 0


async def test_the_first_message_of_a_queue_answers_it(parking: Parking) -> None:
    assert parking.begin(0, queueId=3)
    await parking.door.send(b"elsewhere", queue_id=1)
    assert (parking.waiting, parking.ends) == (1, [])
    await parking.door.send(b"a", queue_id=3)
    assert [each.body for each in records_in((await parking.answer()).body)] == [b"a"]


async def test_a_pull_is_answered_at_its_time_as_by_a_task(parking: Parking) -> None:
    await parking.door.send(b"a")
    for queue_id, offset in ((0, 1), (2, 0)):
        parking.ends.clear()
        assert parking.begin(offset, queueId=queue_id, suspendTimeoutMillis=1)
        answer = await parking.answer()
        by_task = await parking.door.pull(offset, queueId=queue_id)
        assert (answer.code, answer.remark) == (NOT_FOUND, by_task.remark)
        assert answer.fields == by_task.fields
    assert parking.waiting == 0


async def test_what_is_not_in_memory_is_read_by_a_task(
    parking: Parking, monkeypatch: pytest.MonkeyPatch
) -> None:
    def not_now(*_: object) -> GetResult | None:
        return None

    await parking.door.send(b"a")
    assert parking.begin(1)
    monkeypatch.setattr(parking.door.node.reads._store, "get_in_memory", not_now)
    await parking.door.send(b"b")
    assert [each.body for each in records_in((await parking.answer()).body)] == [b"b"]


@pytest.mark.parametrize("leading", [0, None])
async def test_every_parked_pull_is_answered_at_a_stop(
    parking: Parking, leading: int | None
) -> None:
    parking.door.readers.in_sync = () if leading is None else (3,)
    for number in range(100):
        assert parking.begin(0, queueId=number % 4)
    parking.door.read.pulls.on_stop()
    await until(lambda: len(parking.ends) == 100)
    assert parking.waiting == 0
    for answer, problem in parking.ends:
        if leading is None:
            assert isinstance(problem, RemotingRefusedError)
        else:
            assert answer is not None
            assert (answer.code, answer.fields["suggestWhichBrokerId"]) == (NOT_FOUND, "3")


async def test_a_new_role_answers_it(parking: Parking) -> None:
    assert parking.begin(0)
    parking.door.read.pulls.on_role_change()
    assert (await parking.answer()).code == NOT_FOUND


async def test_no_pull_outlives_its_connection(parking: Parking) -> None:
    for number in range(3):
        assert parking.begin(0, queueId=number)
    [closed] = parking.client.closing
    closed()
    assert (len(parking.ends), parking.waiting) == (3, 0)
    await parking.door.send(b"a")
    assert len(parking.ends) == 3


async def test_a_pull_too_many_is_refused_by_name(parking: Parking) -> None:
    parking.door.node.reads._places._polls = Shares(1)
    assert parking.begin(0)
    with pytest.raises(RequestRefusedError, match="1 pulls are waiting on this node"):
        parking.begin(0, queueId=1)
    assert (parking.waiting, parking.ends) == (1, [])


async def test_who_needs_a_task_is_not_parked(parking: Parking) -> None:
    await parking.door.send(b"a")
    assert not parking.begin(1, oneway=True)
    assert not parking.begin(9)  # beyond the end
    flag = PARK | 4
    assert not parking.begin(1, subscription="a > 1", expressionType="SQL92", sysFlag=flag)
    assert parking.waiting == 0


async def test_a_pull_for_a_tag_waits_until_there_is_one(parking: Parking) -> None:
    await parking.door.send(b"a")
    tasks = asyncio.all_tasks()
    assert parking.begin(1, subscription="wanted || also", sysFlag=PARK | 4)
    assert asyncio.all_tasks() == tasks
    await parking.door.send(b"b", tags="wanted")
    answer = await parking.answer()
    assert [each.body for each in records_in(answer.body)] == [b"b"]
    assert parking.waiting == 0


async def test_a_damaged_queue_refuses_who_is_parked(parking: Parking) -> None:
    await parking.door.send(b"a")
    assert parking.begin(1)
    store = parking.door.node.store
    store.reput.stop()  # it would rebuild the queue at once
    dense = store.queue_table.get("t", 0)
    store.queues.mark_damaged(dense, "for the test")
    parking.door.node.reads._long_polling.on_dispatch([dense])
    await until(lambda: bool(parking.ends))
    [(answer, problem)] = parking.ends
    assert answer is None
    assert isinstance(problem, StoreBusyError)
    with pytest.raises(StoreBusyError):
        parking.begin(1)
    assert parking.waiting == 0


async def test_no_pull_for_a_tag_outlives_its_connection(tmp_path: Path) -> None:
    async with reading_node(tmp_path / "n0") as door:
        parking = Parking(door)
        assert parking.begin(0, subscription="wanted", sysFlag=PARK | 4)
        await door.send(b"a", tags="other")
        await until(lambda: bool(door.node.reads._parked._reading))
        await asyncio.sleep(0.05)  # the task has looked, and waits on
        assert (parking.waiting, parking.ends) == (1, [])
        [closed] = parking.client.closing
        closed()
        await until(lambda: parking.waiting == 0)
        assert parking.ends == [(None, None)]
