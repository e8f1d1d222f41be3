from collections.abc import AsyncIterator, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fakes.fake_cluster import FakeCluster
from fakes.fake_log import RefusedError
from fakes.fake_node import Fault
from tandemlog import errors
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.v1 import common_pb2

SMALL = ProducerOptions(batch_bytes=2_000, linger_ms=1_000)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 4)
        yield cluster


def bodies(cluster: FakeCluster) -> list[bytes]:
    return cluster.log.bodies("orders")


async def test_a_list_has_one_answer_with_all_places(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints, SMALL) as producer:
        given = [b"%d" % number for number in range(100)]
        result = await producer.send_many("orders", given, keys="k", tags="x")
    assert bodies(cluster) == given
    stored = cluster.log.decoded()
    assert (result.count, result.duplicates) == (100, 0)
    assert result.requests > 5
    assert result.queue_ids.tolist() == [record.queue_id for record in stored]
    assert result.queue_offsets.tolist() == [record.queue_offset for record in stored]
    assert result.physical_offsets.tolist() == [record.physical_offset for record in stored]
    assert result.byte_size == sum(record.size for record in stored)
    assert result.msg_id(3) == stored[3].msg_id
    assert len(set(result.queue_ids.tolist())) == 4


@pytest.mark.parametrize(
    "given",
    [
        pa.array([b"a", b"b", b"c"]),
        pa.chunked_array([[b"a"], [b"b", b"c"]]),
        np.array([b"a", b"b", b"c"]),
        np.frombuffer(b"abc", np.uint8).reshape(3, 1),
        (np.frombuffer(b"abc", np.uint8), np.arange(4)),
        [b"a", b"b", b"c"],
        ["a", "b", "c"],
        iter([b"a", b"b", b"c"]),
        (body for body in (b"a", b"b", b"c")),
        pa.table({"body": [b"a", b"b", b"c"]}),
        [Message("orders", b"a"), Message("orders", b"b"), Message("orders", b"c")],
        iter([Message("orders", b"a"), Message("orders", b"b"), Message("orders", b"c")]),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_everything_that_holds_bodies(cluster: FakeCluster, given: object) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        result = await producer.send_many("orders", given)
    assert (result.count, bodies(cluster)) == (3, [b"a", b"b", b"c"])


async def test_a_table_brings_its_keys_tags_and_queues(cluster: FakeCluster) -> None:
    table = pa.table(
        {
            "queue": pa.array([3, 0, 3], pa.int32()),
            "body": [b"a", b"b", b"c"],
            "tags": pa.array(["x", None, "y"]).dictionary_encode(),
            "keys": ["k1", "k2 k3", ""],
        }
    )
    async with AsyncProducer(cluster.endpoints) as producer:
        result = await producer.send_many("orders", table, properties={"p": "1"})
    stored = cluster.log.decoded()
    assert [record.queue_id for record in stored] == [3, 0, 3]
    assert [record.tags for record in stored] == ["x", None, "y"]
    assert [record.keys for record in stored] == ["k1", "k2 k3", None]
    assert {record.properties["p"] for record in stored} == {"1"}
    assert result.queue_offsets.tolist() == [0, 0, 1]


async def test_messages_of_several_topics(cluster: FakeCluster) -> None:
    cluster.log.create_topic("bills", 1)

    def messages() -> Iterator[Message]:
        for number in range(50):
            yield Message("bills" if number % 2 else "orders", b"%d" % number, keys="k")

    async with AsyncProducer(cluster.endpoints, SMALL) as producer:
        result = await producer.send_many(None, messages())
    assert result.count == 50
    assert len(cluster.log.bodies("bills")) == 25


async def test_single_sends_and_many_keep_their_order(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints, SMALL) as producer:
        await producer.send(Message("orders", b"first", queue_id=0))
        await producer.send_many("orders", [b"second", b"third"], queues=0)
        await producer.send(Message("orders", b"fourth", queue_id=0))
    assert bodies(cluster) == [b"first", b"second", b"third", b"fourth"]


async def test_nothing_to_send(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        nothings: tuple[Any, ...] = ([], iter([]), pa.array([], pa.binary()))
        for nothing in nothings:
            result = await producer.send_many("orders", nothing)
            assert (result.count, result.requests, len(result.queue_offsets)) == (0, 0, 0)


async def test_broken_streams_store_nothing_twice(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints, SMALL) as producer:
        cluster.master.faults.extend([Fault.ANSWER_TWICE, Fault.DROP_AFTER, Fault.DROP_BEFORE])
        given = [b"%d" % number for number in range(200)]
        result = await producer.send_many("orders", given, queues=0)
    assert bodies(cluster) == given
    assert result.queue_offsets.tolist() == list(range(200))
    assert 0 < result.duplicates < 200


async def test_what_was_stored_before_a_refusal_is_told(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints, SMALL) as producer:
        cluster.master.faults.extend(
            [Fault.ANSWER_TWICE, Fault.ANSWER_TWICE, RefusedError(common_pb2.BAD_RECORD, "no good")]
        )
        given = [b"%d" % number for number in range(100)]
        with pytest.raises(errors.SendManyError, match="no good") as caught:
            await producer.send_many("orders", given, queues=0)
    result = caught.value.result
    assert isinstance(caught.value.errors[0], errors.BadRecordError)
    missing = [index for index, at in enumerate(result.physical_offsets.tolist()) if at < 0]
    assert result.count == 100 - len(missing) == len(bodies(cluster))
    assert [given[index] for index in range(100) if index not in missing] == bodies(cluster)


async def test_one_request_that_is_refused_raises_why(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        cluster.master.faults.append(RefusedError(common_pb2.BAD_RECORD, "no good"))
        with pytest.raises(errors.BadRecordError):
            await producer.send_many("orders", [b"a"])


async def test_what_is_wrong_with_the_input_is_named(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        with pytest.raises(errors.UnknownTopicError):
            await producer.send_many("nope", [b"a"])
        with pytest.raises(errors.InvalidArgumentError, match="topic"):
            await producer.send_many(None, [b"a"])
        with pytest.raises(errors.InvalidArgumentError, match="body"):
            await producer.send_many("orders", pa.table({"x": [1]}))
        with pytest.raises(errors.InvalidArgumentError, match="iterator"):
            await producer.send_many("orders", iter([b"a"]), keys=["k"])
        with pytest.raises(errors.InvalidArgumentError, match="their own"):
            await producer.send_many("orders", [Message("orders", b"")], tags="x")
        with pytest.raises(errors.InvalidArgumentError, match="several topics"):
            await producer.send_many("orders", [Message("other", b"")])
        with pytest.raises(errors.ReservedPropertyError, match="DELAY"):
            await producer.send_many("orders", [b"a"], properties={"DELAY": "1"})
        with pytest.raises(errors.MessageTooLargeError):
            await producer.send_many("orders", [b"x" * (2 << 20)])
        with pytest.raises(errors.UnknownQueueError):
            await producer.send_many("orders", [b"x"], queues=4)
    assert bodies(cluster) == []


async def test_an_iterator_that_fails_ends_the_sending(cluster: FakeCluster) -> None:
    def broken() -> Iterator[bytes]:
        yield b"a"
        raise OSError("the disk")

    async with AsyncProducer(cluster.endpoints) as producer:
        with pytest.raises(OSError, match="the disk"):
            await producer.send_many("orders", broken())
