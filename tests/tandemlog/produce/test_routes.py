from collections.abc import Sequence
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster, running_cluster
from tandemlog import Message, Producer, ProducerOptions, errors
from tandemlog.errors import UnknownQueueError
from tandemlog.produce.producer import AsyncProducer
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
        self.asked: list[list[str]] = []

    async def fetch(self, names: Sequence[str]) -> list[admin_pb2.Topic]:
        self.asked.append(list(names))
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


async def test_many_routes_are_asked_for_together() -> None:
    names = [f"t{number}" for number in range(50)]
    master = Master(**{name: admin_pb2.Topic(name=name, write_queues=2, perm=6) for name in names})
    table = RouteTable(master.fetch, lambda _: 1)
    await table.load_all(names)
    await table.refresh()
    assert all(table.get(name) for name in names)
    assert master.asked == [names, names]


async def test_one_topic_that_is_gone_stands_for_itself() -> None:
    """A node answers a request for several topics with an error if it does not know one."""
    names = ["a", "gone", "b"]
    master = Master(**{name: admin_pb2.Topic(name=name, write_queues=2, perm=6) for name in names})

    async def fetch(asked: Sequence[str]) -> list[admin_pb2.Topic]:
        found = await master.fetch(asked)
        if len(found) < len(asked):
            raise errors.UnknownTopicError("there is no topic 'gone'")
        return found

    table = RouteTable(fetch, lambda _: 1)
    await table.load_all(names)
    del master.topics["gone"]
    for name in ("a", "b"):
        master.topics[name].write_queues = 5
    await table.refresh()
    queues = {name: route.queues for name in names if (route := table.get(name))}
    assert queues == {"a": 5, "b": 5}
    with pytest.raises(errors.UnknownTopicError, match="gone"):
        await table.load_all(names)


async def test_a_topic_that_may_no_longer_be_seen_keeps_no_other_from_a_refresh() -> None:
    """A node refuses the whole request, and names one topic."""
    master = Master(
        a=admin_pb2.Topic(name="a", write_queues=2, perm=6),
        secret=admin_pb2.Topic(name="secret", write_queues=2, perm=6),
    )
    denied: set[str] = set()

    async def fetch(asked: Sequence[str]) -> list[admin_pb2.Topic]:
        if denied.intersection(asked):
            raise errors.PermissionDeniedError("no right to see 'secret'")
        return await master.fetch(asked)

    table = RouteTable(fetch, lambda _: 1)
    await table.load_all(["a", "secret"])
    denied.add("secret")
    master.topics["a"].write_queues = 8
    await table.refresh()
    route = table.get("a")
    assert route is not None
    assert route.queues == 8


async def test_a_refresh_takes_no_route_back_that_is_newer() -> None:
    """The topic was created again with fewer queues while a refresh was under way."""
    master = Master(
        a=admin_pb2.Topic(name="a", write_queues=8, perm=6),
        b=admin_pb2.Topic(name="b", write_queues=8, perm=6),
    )
    older = [*master.topics.values()]

    async def fetch(asked: Sequence[str]) -> list[admin_pb2.Topic]:
        if len(asked) > 1 and master.topics["a"].write_queues == 2:
            table.forget(["a"])
            await table.load("a")
            return older
        return await master.fetch(asked)

    table = RouteTable(fetch, lambda _: 1)
    await table.load_all(["a", "b"])
    master.topics["a"] = admin_pb2.Topic(name="a", write_queues=2, perm=6)
    await table.refresh()
    route = table.get("a")
    assert route is not None
    assert route.queues == 2


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


@pytest.mark.parametrize("how", ["send", "messages", "bodies", "rows"])
async def test_messages_without_a_key_are_spread_within_a_request(how: str) -> None:
    """10,000 short lines give work to each member of a group."""
    async with FakeCluster() as cluster:
        cluster.log.create_topic("lines", 8)
        lines = [b"line %d" % number for number in range(2_000)]
        patient = ProducerOptions(linger_ms=1_000)
        async with AsyncProducer(cluster.endpoints, patient) as producer:
            if how == "send":
                futures = [await producer.send(Message("lines", line)) for line in lines]
                await producer.flush()
                assert all(future.done() for future in futures)
            elif how == "bodies":
                await producer.send_many("lines", lines)
            else:
                extra: dict[str, Any] = (
                    {"properties": {"a": "b"}, "flag": 1} if how == "rows" else {}
                )
                many = [Message("lines", line, **extra) for line in lines]
                await producer.send_many(None, many)
        counts = [len(cluster.log.bodies("lines", queue)) for queue in range(8)]
        assert sum(counts) == 2_000
        assert min(counts) > 50
        assert max(counts) < 600


@pytest.mark.parametrize("how", ["send", "messages", "bodies", "rows"])
async def test_a_queue_that_the_producer_does_not_know_is_asked_for(how: str) -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 2)
        async with AsyncProducer(cluster.endpoints) as producer:
            await (await producer.send(Message("orders", b"first", queue_id=1)))

            async def send(queue_id: int) -> None:
                if how == "send":
                    await (await producer.send(Message("orders", b"new", queue_id=queue_id)))
                elif how == "bodies":
                    await producer.send_many("orders", [b"new"], queues=queue_id)
                else:
                    extra: dict[str, Any] = {"properties": {"a": "b"}} if how == "rows" else {}
                    message = Message("orders", b"new", queue_id=queue_id, **extra)
                    await producer.send_many(None, [message])

            cluster.log.create_topic("orders", 4)
            await send(3)
            assert cluster.log.bodies("orders", 3) == [b"new"]
            with pytest.raises(UnknownQueueError, match=r"0\.\.3, not 4"):
                await send(4)


def test_a_synchronous_producer_asks_too() -> None:
    with running_cluster() as cluster:
        cluster.call(lambda: cluster.log.create_topic("orders", 2))
        with Producer(cluster.endpoints) as producer:
            producer.send(Message("orders", b"first", queue_id=1)).result(10)
            cluster.call(lambda: cluster.log.create_topic("orders", 4))
            assert producer.send(Message("orders", b"new", queue_id=3)).result(10).queue_id == 3
            cluster.call(lambda: cluster.log.create_topic("orders", 6))
            producer.send_many("orders", [b"new"], queues=5)
            with pytest.raises(UnknownQueueError, match=r"0\.\.5, not 6"):
                producer.send(Message("orders", b"new", queue_id=6))


@pytest.mark.parametrize("how", ["send", "messages", "rows"])
@pytest.mark.parametrize("keys", ["a b", ["a b"], ["a", "b c"]])
async def test_a_key_with_a_space_is_not_silently_two(how: str, keys: Any) -> None:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 2)
        async with AsyncProducer(cluster.endpoints) as producer:
            message = Message("orders", b"x", keys, flag=1 if how == "rows" else 0)
            call = (
                producer.send(message)
                if how == "send"
                else producer.send_many(None, [message, message])
            )
            with pytest.raises(errors.InvalidMessageError, match=r"keys=\['a', 'b'\]"):
                await call
        assert cluster.log.records == []
