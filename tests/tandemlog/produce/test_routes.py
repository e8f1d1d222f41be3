from collections.abc import Sequence

import pytest

from tandemlog import errors
from tandemlog.produce.routes import Route, RouteTable, shard
from tandemlog.v1 import admin_pb2


def test_batches_go_round_the_queues() -> None:
    route = Route("t", 3, 0)
    picked = [route.queue_for(None, None, generation) for generation in (0, 0, 1, 1, 2, 3)]
    assert picked == [1, 1, 2, 2, 0, 1]


def test_a_queue_that_is_named_must_be_there() -> None:
    route = Route("t", 3, 0)
    assert route.queue_for(2, "key", 0) == 2
    with pytest.raises(errors.UnknownQueueError, match=r"0\.\.2, not 3") as caught:
        route.queue_for(3, None, 0)
    assert caught.value.limit == 3


def test_a_sharding_key_goes_where_rocketmq_sends_it() -> None:
    # Java: Math.abs("order-17".hashCode() % 8), and a hash of Integer.MIN_VALUE
    assert shard("order-17", 8) == abs(_java_hash("order-17")) % 8
    assert shard("polygenelubricants", 7) == (1 << 31) % 7
    with pytest.raises(errors.InvalidMessageError):
        shard("", 4)


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (value * 31 + ord(character)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


class Master:
    def __init__(self, **topics: admin_pb2.Topic) -> None:
        self.topics = topics

    async def fetch(self, names: Sequence[str]) -> list[admin_pb2.Topic]:
        return [self.topics[name] for name in names if name in self.topics]


async def test_routes_are_loaded_refreshed_and_forgotten() -> None:
    master = Master(t=admin_pb2.Topic(name="t", write_queues=2, perm=6))
    table = RouteTable(master.fetch, lambda _: 1, pick=lambda count: 0)
    route = await table.load("t")
    assert table.get("t") is route
    await table.refresh()
    assert table.get("t") is route
    master.topics["t"].write_queues = 5
    await table.refresh()
    found = table.get("t")
    assert found is not None
    assert found.queues == 5
    table.forget(["t"])
    assert table.get("t") is None


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (admin_pb2.Topic(name="t", write_queues=2, perm=4), errors.TopicNotWritableError),
        (admin_pb2.Topic(name="t", write_queues=0, perm=6), errors.TopicNotWritableError),
        (admin_pb2.Topic(name="other"), errors.UnknownTopicError),
    ],
)
async def test_topics_without_a_route(topic: admin_pb2.Topic, error: type[Exception]) -> None:
    table = RouteTable(Master(**{topic.name: topic}).fetch, lambda _: 1)
    with pytest.raises(error):
        await table.load("t")
    assert table.get("t") is None
