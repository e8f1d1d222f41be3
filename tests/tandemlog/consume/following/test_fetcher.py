"""Several queues through one fetcher: none waits while another one is read twice."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.cluster.connection import ConnectionOptions
from tandemlog.cluster.pull_answer import PullAnswer, PullPart
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.following.fetcher import Fetcher
from tandemlog.consume.reading.reader import NodeOrder
from tandemlog.consume.reading.selector import Selector
from tandemlog.errors import UnreadableError
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import broker_pb2, common_pb2

if TYPE_CHECKING:
    from tandemlog.consume.reading.positions import Positions, Queue
    from tandemlog.consume.reading.reader import Reader

SIZE = len(encode_record(topic="t", body=b"b", queue_id=0, queue_offset=0))


class FilledNode:
    """Has `counts` messages in each queue of "t", and reads the positions of a request in their
    order until its answer is full, as nodes do. `asked`: the queues of each request, and those that
    it brought messages of."""

    endpoint = "n:1"

    def __init__(self, counts: Mapping[int, int]) -> None:
        self.counts = dict(counts)
        self.asked: list[tuple[list[int], list[int]]] = []
        self.at_end = asyncio.Event()

    async def pull(self, request: broker_pb2.PullRequest, _: int) -> PullAnswer:
        left, parts, brought = request.max_bytes // SIZE, [], []
        for index, position in enumerate(request.positions):
            count = min(left, self.counts[position.queue_id] - position.queue_offset)
            left -= count
            if count:
                brought.append(position.queue_id)
                parts.append(self._part(index, position, count))
        if not parts:
            self.at_end.set()
            await asyncio.Event().wait()  # the long poll
        self.asked.append(([each.queue_id for each in request.positions], brought))
        return PullAnswer(tuple(parts), False, common_pb2.Error())

    def _part(self, index: int, position: broker_pb2.QueuePosition, count: int) -> PullPart:
        offsets = range(position.queue_offset, position.queue_offset + count)
        records = [
            encode_record(topic="t", body=b"b", queue_id=position.queue_id, queue_offset=offset)
            for offset in offsets
        ]
        head = broker_pb2.QueueRecords(
            position_index=index,
            status=broker_pb2.FOUND,
            next_offset=offsets.stop,
            max_offset=self.counts[position.queue_id],
            count=count,
            sizes=SIZE.to_bytes(4, "little") * count,
        )
        return PullPart(head, b"".join(records))


class SkippingNode(FilledNode):
    """Each answer has passed a message of each queue, and brings none: so filters do."""

    async def pull(self, request: broker_pb2.PullRequest, _: int) -> PullAnswer:
        self.asked.append(([each.queue_id for each in request.positions], []))
        parts = [
            PullPart(
                broker_pb2.QueueRecords(
                    position_index=index,
                    status=broker_pb2.OFFSET_OVERFLOW_ONE,
                    next_offset=position.queue_offset + 1,
                    max_offset=position.queue_offset + 1,
                ),
                b"",
            )
            for index, position in enumerate(request.positions)
        ]
        if len(self.asked) == 1_000:
            self.at_end.set()
            await asyncio.Event().wait()
        return PullAnswer(tuple(parts), False, common_pb2.Error(), filtered=True)


class OneNode:
    """As a Reader: of one node."""

    order = NodeOrder(ReadFrom.MASTER)

    def __init__(self, node: FilledNode) -> None:
        self.node = node
        self.connection = SimpleNamespace(options=ConnectionOptions())

    async def ask(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        return await call(self.node)

    def hint(self, suggest_slave: bool) -> None: ...


async def order_of_batches(node: FilledNode, max_bytes: int, lanes: int = 1) -> list[int]:
    """The queues of all batches, in the order in which a caller gets them."""
    options = FollowOptions(max_bytes=max_bytes, parallel_pulls=lanes)
    fetcher = Fetcher(cast("Reader", OneNode(node)), cast("Positions", None), options)
    starts: dict[Queue, int] = {("t", queue_id): 0 for queue_id in node.counts}
    fetcher.read_from(starts, lambda _: 1)
    async with asyncio.timeout(60):
        await node.at_end.wait()
    await fetcher.close()
    assert fetcher.failure is None
    return [fetcher.pop()[0].queue_id for _ in range(len(fetcher.buffer))]


def overtaken(order: list[int], asked: list[int]) -> list[tuple[int, int]]:
    """Queues (a, b) of which a second batch of a came before the first one of b."""
    firsts = {queue: order.index(queue) for queue in asked if queue in order}
    seconds = {q: order.index(q, at + 1) for q, at in firsts.items() if order.count(q) > 1}
    return [(a, b) for a, second in seconds.items() for b, at in firsts.items() if second < at]


@given(
    st.lists(st.integers(0, 12), min_size=2, max_size=5), st.integers(1, 9), st.integers(0, SIZE)
)
def test_no_queue_is_read_twice_before_another_one_that_was_asked_for_with_it(
    counts: list[int], most: int, more: int
) -> None:
    async def play() -> None:
        node = FilledNode(dict(enumerate(counts)))
        order = await order_of_batches(node, most * SIZE + more % SIZE)
        assert [queues for _, brought in node.asked for queues in brought] == order
        assert overtaken(order, list(node.counts)) == []
        for number in range(len(node.asked)):
            behind = [queue for _, brought in node.asked[number:] for queue in brought]
            assert overtaken(behind, node.asked[number][0]) == [], node.asked

    asyncio.run(play())


async def test_a_backlog_is_not_read_on_before_the_other_queue() -> None:
    """One has much more than an answer holds, the other one a message."""
    order = await order_of_batches(FilledNode({0: 30, 1: 1}), 10 * SIZE)
    assert order.index(1) <= 1


@pytest.mark.parametrize("lanes", [1, 2])
async def test_every_message_comes_once(lanes: int) -> None:
    node = FilledNode({0: 30, 1: 3, 2: 0, 3: 7})
    order = await order_of_batches(node, 4 * SIZE, lanes)
    assert set(order) == {0, 1, 3}


async def test_batches_without_messages_are_not_taken_without_end() -> None:
    node = SkippingNode({0: 0, 1: 0})
    fetcher = Fetcher(
        cast("Reader", OneNode(node)),
        cast("Positions", None),
        FollowOptions(prefetch_bytes=10_000),
        selector=Selector(where="a = 5"),
    )
    fetcher.read_from({("t", 0): 0, ("t", 1): 0}, lambda _: 1)
    for _ in range(10_000):
        await asyncio.sleep(0)
    assert 2 < len(fetcher.buffer) < 30
    asked = len(node.asked)
    while fetcher.buffer:
        fetcher.pop()
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(node.asked) > asked
    await fetcher.close()


class OldNode(FilledNode):
    """Of a version without filters: it returns everything."""

    async def pull(self, request: broker_pb2.PullRequest, _: int) -> PullAnswer:
        self.asked.append(([], []))
        return PullAnswer((self._part(0, request.positions[0], 1),), False, common_pb2.Error())


class Alternating(OneNode):
    """As a Reader whose retries are over after one node: it had the long poll."""

    def __init__(self, *nodes: FilledNode) -> None:
        super().__init__(nodes[0])
        self.nodes = nodes
        self.calls = 0

    async def ask(self, call: Callable[[Any], Awaitable[Any]]) -> Any:
        self.calls += 1
        return await call(self.nodes[(self.calls - 1) % len(self.nodes)])


def filtered(reader: OneNode) -> Fetcher:
    fetcher = Fetcher(
        cast("Reader", reader),
        cast("Positions", None),
        FollowOptions(prefetch_bytes=1),
        selector=Selector(where="a = 5"),
    )
    fetcher.read_from({("t", 0): 0}, lambda _: 1)
    return fetcher


async def test_after_a_node_that_knows_no_filters_another_one_is_asked() -> None:
    old, new = OldNode({0: 9}), SkippingNode({0: 9})
    old.endpoint = "old:1"
    fetcher = filtered(Alternating(old, new))
    for _ in range(20):
        await asyncio.sleep(0)
        if fetcher.buffer:
            fetcher.pop()
    assert fetcher.failure is None
    assert len(old.asked) > 1
    assert len(new.asked) > 1
    await fetcher.close()


async def test_where_no_node_knows_filters_the_reading_ends() -> None:
    old, older = OldNode({0: 9}), OldNode({0: 9})
    older.endpoint = "older:1"
    fetcher = filtered(Alternating(old, older))
    for _ in range(20):
        await asyncio.sleep(0)
    assert isinstance(fetcher.failure, UnreadableError)
    assert (len(old.asked), len(older.asked)) == (2, 1)
    await fetcher.close()
