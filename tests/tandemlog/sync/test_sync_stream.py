"""The synchronous stream: the same reading, from a plain thread."""

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster
from helpers.running import wait_until
from tandemlog import Consumer, FollowOptions, Message, Producer, errors
from tandemlog.sync.loop_thread import LoopThread

ZERO, ONE = ("orders", 0), ("orders", 1)


@pytest.fixture
def cluster() -> Iterator[ThreadedCluster]:
    with running_cluster(slaves=1) as cluster:
        cluster.log.create_topic("orders", 4)
        yield cluster


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
            with pytest.raises(TimeoutError, match="no message came within"):
                stream.next_batch(timeout_ms=1)


def test_what_a_filter_left_out_behind_dropped_messages_does_not_count_as_read() -> None:
    """The caller's thread holds two batches and one that the tags have emptied; the queue is paused
    behind the first message, so the others are dropped, and come again."""
    with running_cluster() as cluster, Producer(cluster.endpoints) as producer:
        cluster.log.create_topic("orders", 1)
        producer.send_many("orders", [Message("orders", b"", tags="a")] * 4)
        options = FollowOptions(max_messages=2)
        with (
            Consumer(cluster.endpoints, options=options) as consumer,
            consumer.follow("orders", tags="a") as stream,
        ):
            wait_until("two batches", lambda: cluster.cluster.master.pulls == 3)
            producer.send_many("orders", [Message("orders", b"", tags="b")] * 4)
            wait_until("an empty one", lambda: cluster.cluster.master.pulls == 4)
            first = stream.poll(10_000)
            assert first is not None
            stream.pause([ZERO])
            assert stream.poll(10) is None
            assert stream.positions == {ZERO: 1}
            stream.resume([ZERO])
            rest = [stream.poll(10_000) for _ in range(3)]
            assert [each.queue_offset for each in rest if each is not None] == [1, 2, 3]


def test_another_thread_wakes_a_reader() -> None:
    with running_cluster() as cluster:
        cluster.log.create_topic("orders", 1)
        with Producer(cluster.endpoints) as producer:
            producer.send(Message("orders", b"one")).result()
        with Consumer(cluster.endpoints, group="g") as reader:
            stream = reader.follow("orders")
            seen, ended = [], []

            def read() -> None:
                try:
                    for body in (message.body for message in stream):
                        seen.append(body)  # noqa: PERF402 - one by one, as they come
                except errors.ClientClosedError as error:
                    ended.append(error)

            thread = threading.Thread(target=read)
            thread.start()
            wait_until("the first message", lambda: stream.positions == {ZERO: 1})
            stream.seek(ZERO, 0)
            wait_until("it again", lambda: seen == [b"one", b"one"])
            stream.close()
            thread.join(20)
        assert seen == [b"one", b"one"]
        assert len(ended) == 1
        assert cluster.cluster.groups.group("g").members == {}


def test_the_sync_stream_has_it_all() -> None:
    with running_cluster() as cluster:
        cluster.log.create_topic("orders", 2)
        with Producer(cluster.endpoints) as producer:
            producer.send_many(
                None, [Message("orders", b"%d" % n, queue_id=n % 2) for n in range(20)]
            )
        calls: list[Any] = []
        caller = threading.get_ident()

        def revoked(stream: Any, queues: Any) -> None:
            stream.commit()
            calls.append(("revoked", queues, threading.get_ident() == caller))

        with Consumer(cluster.endpoints, group="g") as reader:
            with reader.follow(
                "orders",
                on_assigned=lambda _, queues: calls.append(
                    ("assigned", queues, threading.get_ident() == caller)
                ),
                on_revoked=revoked,
            ) as stream:
                first = stream.poll(10_000)
                assert first is not None
                assert stream.poll(10_000) is not None
                stream.commit_async(first).result(10)
                mine = ("orders", first.queue_id)
                assert reader.committed()[mine] == 1
                stream.pause([mine])
                others = {message.queue_id for message in stream.messages(timeout_ms=100)}
                assert first.queue_id not in others
                stream.resume([mine])
                stream.seek(mine, "earliest")
                again = islice(stream.messages(timeout_ms=10_000), 10)
                assert [message.queue_offset for message in again] == list(range(10))
                assert stream.poll(100) is None
                assert {each.messages for each in stream.lag().values()} == {0}
                with pytest.raises(TimeoutError):
                    stream.next_batch(timeout_ms=1)
            both = [ZERO, ONE]
            assert calls == [("assigned", both, True), ("revoked", both, True)]
            assert reader.committed() == {ZERO: 10, ONE: 10}
