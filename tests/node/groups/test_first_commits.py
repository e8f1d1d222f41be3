"""A group's first offset in a queue is saved at once, if the disk takes it."""

import errno
from collections.abc import Callable, Sequence
from typing import Any

from fakes.stores import Bench
from node.access.caller import Caller
from node.services.group_service import GroupService
from sim.served_node import AllKnown, Turns
from tandemlog.v1 import broker_pb2


class Free:
    """No queue has an owner."""

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


async def commit(bench: Bench, queue_id: int) -> broker_pb2.CommitOffsetsResponse:
    parts: Any = (bench.store, Free(), AllKnown(), Turns(), Activity())
    place = broker_pb2.QueuePosition(topic="T", queue_id=queue_id, queue_offset=1)
    request = broker_pb2.CommitOffsetsRequest(group="g", offsets=[place])
    return await GroupService(*parts).commit(request, Caller())


async def test_a_full_disk_keeps_no_group_from_a_queue() -> None:
    bench = Bench()
    for queue_id in range(2):
        bench.put(queue_id=queue_id)
    bench.settle()
    assert not (await commit(bench, 0)).error.code
    bench.files.fail("atomic_replace", errno.ENOSPC, name="consumerOffset.json")
    assert not (await commit(bench, 1)).error.code
    assert bench.store.consumer_offsets.offset("g", "T", 1) == 1
