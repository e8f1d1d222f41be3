"""Pages of a node that does not have all of a queue's messages yet: a slave behind its master."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tandemlog.consume.reading.positions import QueueRange
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.errors import UnavailableError
from tandemlog.format.record.record import encode_record
from tandemlog_server.node.console.walk import Page, Walk

MASTERS_END = 20


class Lagging:
    """A node's queues, each up to its `ends`; `arrives` come while a reader waits."""

    def __init__(self, ends: Mapping[int, int], arrives: int = 0) -> None:
        self.ends = dict(ends)
        self.arrives = arrives

    async def pull(
        self, topic: str, queue_id: int, at: int, *, max_messages: int, wait_ms: int = 0, **_: Any
    ) -> ReceivedBatch:
        if wait_ms and at >= self.ends[queue_id]:
            self.ends[queue_id] += self.arrives
        end = min(self.ends[queue_id], at + max_messages)
        records = [
            encode_record(
                topic=topic, body=b"", queue_id=queue_id, queue_offset=each,
                physical_offset=each * 1000 + queue_id,
            )
            for each in range(at, end)
        ]  # fmt: skip
        sizes = np.array([len(each) for each in records], np.uint32)
        status = "FOUND" if records else "OFFSET_OVERFLOW"
        found = max(at, end) if records else min(at, self.ends[queue_id])
        return ReceivedBatch(
            topic, queue_id, status, found, 0, self.ends[queue_id], b"".join(records), sizes
        )


async def page(node: Lagging, places: Mapping[int, int], *, back: bool, count: int = 50) -> Page:
    ranges = {each: QueueRange("t", each, 0, MASTERS_END, 0, 0) for each in node.ends}
    consumer: Any = node
    walk = Walk(consumer, "t", places, ranges, back=back)
    return await walk.page(count)


async def test_forward_comes_as_far_as_the_node_has_them_and_is_not_at_the_end() -> None:
    node = Lagging({0: 12, 1: 20})
    found = await page(node, {0: 0, 1: 0}, back=False)
    assert len(found.rows) == 32
    assert (found.behind, found.ended, found.looked_at) == ({0: 12, 1: 20}, False, 32)
    # what comes later is on the next page
    node.ends[0] = MASTERS_END
    after = await page(node, found.behind, back=False)
    assert [row["queue_offset"] for row in after.rows] == [*range(12, MASTERS_END)]
    assert after.ended


async def test_forward_where_nothing_is_there_yet() -> None:
    found = await page(Lagging({0: 12}), {0: 15}, back=False)
    assert (found.rows, found.behind, found.ended) == ([], {0: 15}, False)


async def test_back_does_not_skip_what_the_node_does_not_have_yet() -> None:
    with pytest.raises(UnavailableError, match=r"does not have them yet: .* 1 .* 12 "):
        await page(Lagging({0: 20, 1: 12}), {0: 20, 1: 20}, back=True)
    # older ones are there
    found = await page(Lagging({0: 20, 1: 12}), {0: 5, 1: 5}, back=True)
    assert (len(found.rows), found.ended) == (10, True)


async def test_back_waits_a_moment_for_what_is_on_its_way() -> None:
    found = await page(Lagging({0: 18}, arrives=2), {0: 20}, back=True)
    assert [row["queue_offset"] for row in found.rows] == [*reversed(range(20))]
