"""Lanes join while little comes, divide when much comes, and never hold a queue twice or a finished
one."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.fake_cluster import FakeCluster
from tandemlog import EARLIEST, AsyncConsumer, AsyncProducer, FollowOptions
from tandemlog.consume.following.lanes import JOIN_AFTER, LARGE_BYTES, Lane, Lanes
from tandemlog.consume.reading.positions import Queue
from tandemlog.format.calls import MAX_POSITIONS


def queues_of(count: int) -> list[Queue]:
    return [("t", number) for number in range(count)]


def made(count: int, most: int = 2) -> tuple[Lanes, list[Lane]]:
    lanes = Lanes(most)
    return lanes, lanes.add(queues_of(count), count)


async def test_queues_are_shared_out() -> None:
    lanes, (one, other) = made(5)
    assert (len(one.queues), len(other.queues)) == (3, 2)
    assert {*one.queues, *other.queues} == set(queues_of(5))
    assert lanes.add([("u", 0)], 6) == []
    assert len(other.queues) == 3


@pytest.mark.parametrize(("queues", "lanes"), [(0, 0), (1, 1), (2, 2), (2 * MAX_POSITIONS + 1, 3)])
async def test_there_are_as_many_lanes_as_pulls_are_needed(queues: int, lanes: int) -> None:
    assert len(made(queues)[1]) == lanes


async def test_lanes_with_small_answers_join_and_a_large_one_divides_them() -> None:
    lanes, (one, other) = made(4)
    pull = asyncio.create_task(other.pull.result(asyncio.Event().wait()))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    for _ in range(JOIN_AFTER):
        assert len(one.queues) == 2
        lanes.answered(other, 10)
        lanes.answered(one, 0)
    assert set(one.queues) == set(queues_of(4))
    assert not other.queues
    assert await pull is None, "it asks for what is not its own any more"
    other.filled.clear()
    lanes.answered(one, LARGE_BYTES)
    assert (len(one.queues), len(other.queues)) == (2, 2)
    assert other.filled.is_set()


async def test_a_lane_with_large_answers_is_left_alone() -> None:
    lanes, (one, other) = made(4)
    for _ in range(3 * JOIN_AFTER):
        lanes.answered(one, 10)
        lanes.answered(other, LARGE_BYTES)
    assert (len(one.queues), len(other.queues)) == (2, 2)


async def test_what_one_pull_cannot_name_stays_divided() -> None:
    lanes, (one, other) = made(MAX_POSITIONS + 1)
    for _ in range(3 * JOIN_AFTER):
        lanes.answered(one, 0)
        lanes.answered(other, 0)
    assert len(one.queues) + len(other.queues) == MAX_POSITIONS + 1
    assert one.queues
    assert other.queues


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0, LARGE_BYTES])), max_size=120))
def test_every_queue_is_in_one_lane_whatever_comes(answers: list[tuple[int, int]]) -> None:
    async def play() -> None:
        lanes, every = made(7, most=4)
        for number, size in answers:
            lanes.answered(every[number], size)
            held = [queue for lane in every for queue in lane.queues]
            assert sorted(held) == queues_of(7)

    asyncio.run(play())


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Two queues with much, in one lane, and two with little."""
    async with FakeCluster(slaves=0) as cluster:
        cluster.log.create_topic("orders", 4)
        async with AsyncProducer(cluster.endpoints) as producer:
            for queue, count in enumerate([20, 1, 45, 1]):
                await producer.send_many("orders", [b"x" * 65_536] * count, queues=[queue] * count)
        yield cluster


async def test_a_stream_that_ends_does_not_wait_at_the_end_of_a_queue(
    cluster: FakeCluster,
) -> None:
    """One lane has finished its queues when the other one gets a large answer, and could be given
    a queue that is finished too: a long poll would wait for what never comes."""
    options = FollowOptions(max_bytes=2 << 20, wait_ms=600_000)
    count = 0
    async with (
        AsyncConsumer(cluster.endpoints) as consumer,
        await consumer.follow("orders", start=EARLIEST, until_end=True, options=options) as stream,
    ):
        while (batch := await stream.next_batch(timeout_ms=20_000)) is not None:
            count += len(batch)
    assert count == 67
