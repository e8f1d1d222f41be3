"""The synchronous clients: the same core, from plain threads."""

import asyncio
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, as_completed, wait
from typing import Any

import pytest

from fakes.fake_broker import Fault, ThreadedCluster, running_cluster
from tandemlog import (
    Admin,
    ConnectionOptions,
    Consumer,
    FollowOptions,
    Message,
    Producer,
    ProducerOptions,
    SendResult,
    errors,
)
from tandemlog.sync.loop_thread import LoopThread


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


def test_a_closed_client_says_so(cluster: ThreadedCluster) -> None:
    producer = Producer(cluster.endpoints, ProducerOptions(linger_ms=10_000))
    future = producer.send(Message("orders", b"last"))
    producer.close()
    producer.close()
    assert future.result(0).queue_offset == 0
    with pytest.raises(errors.ClientClosedError):
        producer.send(Message("orders", b""))
    with pytest.raises(errors.ClientClosedError):
        producer.send(Message("bills", b""))
    consumer = Consumer(cluster.endpoints)
    consumer.close()
    consumer.close()
    with pytest.raises(errors.ClientClosedError):
        consumer.ranges()
    admin = Admin(cluster.endpoints)
    admin.close()
    with pytest.raises(errors.ClientClosedError):
        admin.topics()


def test_no_master_is_an_error_of_the_constructor() -> None:
    options = ProducerOptions(connection=ConnectionOptions(retry_timeout_ms=1))
    with pytest.raises(errors.NoMasterError):
        Producer("127.0.0.1:1", options)


def test_a_callback_must_not_call_the_client_again(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        seen: list[BaseException] = []
        told = threading.Event()

        def again(_: object) -> None:
            try:
                producer.flush()
            except RuntimeError as error:
                seen.append(error)
            told.set()

        producer.send(Message("orders", b"")).add_done_callback(again)
        assert told.wait(10)
        assert "callback" in str(seen[0])


def test_following_messages_and_batches(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        producer.send_many(
            None, [Message("orders", b"%d" % n, tags="ab"[n % 2]) for n in range(100)]
        )
    with Consumer(cluster.endpoints, group="g", read_from="slave") as consumer:
        with consumer.follow("orders", until_end=True, tags="a") as stream:
            assert sorted(int(message.body) for message in stream) == list(range(0, 100, 2))
        assert sum(consumer.committed("orders").values()) == 100
        with consumer.follow("orders", queues=range(4), until_end=True, start="earliest") as stream:
            assert sum(len(batch) for batch in stream.batches()) == 100
            assert sum(stream.positions.values()) == 100
        full = max(consumer.ranges("orders"), key=lambda each: each.max_offset)
        batch = consumer.pull("orders", full.queue_id, full.max_offset - 2)
        last = full.max_offset
        assert [message.queue_offset for message in batch] == [last - 2, last - 1]
        consumer.commit({("orders", 0): 7})
        assert consumer.committed()["orders", 0] == 7


def test_a_loop_that_is_left_is_gone_on_with(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        producer.send_many("orders", [b"%d" % number for number in range(10)], queues=0)
    with Consumer(cluster.endpoints) as consumer, consumer.follow("orders") as stream:
        for message in stream:
            if message.queue_offset == 3:
                break
        for message in stream:
            assert message.queue_offset == 4
            break
        batch = stream.next_batch()
        assert batch is not None
        assert [int(message.body) for message in batch] == [5, 6, 7, 8, 9]


def test_an_interrupt_while_waiting_loses_nothing(
    cluster: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes when the messages have crossed over and the caller has not got them yet."""
    with Producer(cluster.endpoints) as producer:
        producer.send_many("orders", [b"%d" % number for number in range(10)], queues=0)
    run = LoopThread.run

    def interrupted(thread: LoopThread, work: Any) -> Any:
        run(thread, work)
        raise KeyboardInterrupt

    with Consumer(cluster.endpoints) as consumer, consumer.follow("orders") as stream:
        with monkeypatch.context() as patch:
            patch.setattr(LoopThread, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                stream.next_batch()
        batch = stream.next_batch(timeout_ms=10_000)
        assert batch is not None
        assert batch[0].body == b"0"


def test_committing_by_hand(cluster: ThreadedCluster) -> None:
    with Producer(cluster.endpoints) as producer:
        producer.send_many("orders", [b"%d" % number for number in range(10)], queues=0)
    by_hand = FollowOptions(auto_commit_ms=None)
    with Consumer(cluster.endpoints, group="g", options=by_hand) as consumer:
        with consumer.follow("orders") as stream:
            for message in stream:
                if message.queue_offset == 4:
                    stream.commit()
                    break
        committed = consumer.committed()
        assert committed.pop(("orders", 0)) == 5
        assert set(committed.values()) == {0}
        with consumer.follow("orders") as stream:
            batch = stream.next_batch()
            assert batch is not None
            assert batch[0].body == b"5"
            with pytest.raises(TimeoutError):
                stream.next_batch(timeout_ms=1)


def test_administration(cluster: ThreadedCluster) -> None:
    with Admin(cluster.endpoints) as admin, Producer(cluster.endpoints) as producer:
        admin.create_topic("bills", 1)
        result = producer.send(Message("bills", b"x", keys="k")).result()
        assert {topic.name for topic in admin.topics()} == {"bills", "orders"}
        assert admin.topic("bills").read_queues == 1
        found = admin.query_by_id(result.msg_id)
        assert found is not None
        assert found.body == b"x"
        assert [each.body for each in admin.query_by_key("bills", "k")] == [b"x"]
        assert len(admin.messages_at([result.physical_offset])) == 1
        assert admin.search_offset("bills", 1) == {("bills", 0): 0}
        assert [each.max_offset for each in admin.ranges("bills")] == [1]
        admin.commit("g", {("bills", 0): 1})
        assert (admin.groups(), admin.committed("g")) == (["g"], {("bills", 0): 1})
        assert admin.cluster().master is not None
        assert admin.stats()["puts_total"] == 1
        assert producer.producer_id is not None
        assert admin.producer(producer.producer_id) is not None
        admin.delete_topic("bills")


async def test_a_sync_future_can_be_awaited() -> None:
    with running_cluster() as cluster:
        cluster.log.create_topic("orders", 1)
        with Producer(cluster.endpoints) as producer:
            result = await asyncio.wrap_future(producer.send(Message("orders", b"")))
    assert result.queue_offset == 0
