"""The synchronous producer: the same core, from plain threads."""

import asyncio
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, as_completed, wait

import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster
from fakes.fake_node import Fault
from tandemlog import (
    ConnectionOptions,
    Consumer,
    Message,
    Producer,
    ProducerOptions,
    SendResult,
    errors,
)


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with running_cluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 4)
        yield cluster


def test_a_future_for_each_message(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        futures: list[Future[SendResult]] = [
            producer.send(Message("orders", b"%d" % number, queue_id=0)) for number in range(1000)
        ]
        producer.flush()
        assert all(future.done() for future in futures)
        assert [future.result().queue_offset for future in futures] == list(range(1000))
        assert len(wait(futures).done) == 1000
        assert len(list(as_completed(futures[:10]))) == 10
    assert cluster.log.bodies("orders", 0) == [b"%d" % number for number in range(1000)]


def test_many_threads_share_a_producer(cluster: ThreadedCluster) -> None:
    options = ProducerOptions(batch_bytes=3_000, max_in_flight_bytes=10_000, linger_ms=1)
    with Producer(cluster.endpoints, options) as producer:
        cluster.call(lambda: cluster.cluster.master.faults.extend([Fault.DROP_AFTER] * 3))

        def work(name: int) -> None:
            for number in range(200):
                producer.send(Message("orders", b"%d-%d" % (name, number), sharding_key=str(name)))

        threads = [threading.Thread(target=work, args=(name,)) for name in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    bodies = cluster.log.bodies("orders")
    assert len(bodies) == len(set(bodies)) == 1000
    for name in range(5):
        mine = [body for body in bodies if body.startswith(b"%d-" % name)]
        assert mine == [b"%d-%d" % (name, number) for number in range(200)]


def test_send_many_has_one_answer(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints, ProducerOptions(batch_bytes=2_000)) as producer:
        result = producer.send_many("orders", [b"%d" % number for number in range(100)], queues=1)
        assert (result.count, result.queue_offsets.tolist()) == (100, list(range(100)))
        with pytest.raises(errors.UnknownTopicError):
            producer.send_many("nope", [b""])
        assert producer.send_many("orders", []).count == 0


def test_the_traceback_of_what_is_refused_is_that_of_the_program(
    cluster: ThreadedCluster,
) -> None:
    """It had 75 lines, most of them of the event loop and of retries."""
    with (
        Consumer(cluster.endpoints) as consumer,
        pytest.raises(errors.UnknownTopicError) as caught,
    ):
        consumer.follow("nope")
    assert len(traceback.format_exception(caught.value)) < 10


def test_what_cannot_be_sent_is_raised_at_once(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        with pytest.raises(errors.UnknownTopicError):
            producer.send(Message("nope", b""))
        with pytest.raises(errors.ReservedPropertyError):
            producer.send(Message("orders", b"", properties={"DELAY": "3"}))
        with pytest.raises(errors.MessageTooLargeError):
            producer.send(Message("orders", b"x" * (2 << 20)))


def test_back_pressure_blocks_the_thread(cluster: ThreadedCluster) -> None:
    options = ProducerOptions(max_in_flight_bytes=1_000, max_block_ms=30, linger_ms=0)
    with Producer(cluster.endpoints, options) as producer:
        cluster.call(lambda: cluster.cluster.master.faults.append(Fault.ANSWER_LATE))
        message = Message("orders", b"x" * 700)
        future = producer.send(message)
        with pytest.raises(errors.BufferFullError):
            producer.send(message)
        cluster.call(cluster.cluster.master.late.set)
        future.result(10)
        producer.send(message).result(10)


def test_no_master_is_an_error_of_the_constructor() -> None:
    options = ProducerOptions(connection=ConnectionOptions(retry_timeout_ms=1))
    with pytest.raises(errors.NoMasterError):
        Producer("127.0.0.1:1", options)


async def test_a_sync_future_can_be_awaited() -> None:
    with running_cluster() as cluster:
        cluster.log.create_topic("orders", 1)
        with Producer(cluster.endpoints) as producer:
            result = await asyncio.wrap_future(producer.send(Message("orders", b"")))
    assert result.queue_offset == 0
