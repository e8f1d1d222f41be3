"""What a program sees of a work queue: the same of a node process, of tandemlog.testing, and of the
rules without an engine (fakes/fake_work.py).

A subclass gives the fixture `endpoint`. Each test has a topic of its own with two queues, and a
group of its own.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tandemlog import (
    Admin,
    AsyncConsumer,
    AsyncDelivery,
    Backoff,
    Consumer,
    Delivery,
    GroupPolicy,
    Message,
    Ordering,
    Producer,
    ProducerOptions,
    Reject,
    RetryAfter,
    Work,
    WorkAdmin,
    WorkOptions,
    errors,
)

NUMBERS = itertools.count(1)
OPTIONS = WorkOptions(linger_ms=0)
WAIT_MS = 30_000


def next_of(work: Work) -> Delivery:
    delivery = work.poll(WAIT_MS)
    assert delivery is not None
    return delivery


class WorkSuite:
    """See the module."""

    @pytest.fixture
    def topic(self, endpoint: str) -> str:
        name = f"work-{next(NUMBERS)}"
        with Admin(endpoint) as admin:
            admin.create_topic(name, 2)
        return name

    @pytest.fixture
    def producer(self, endpoint: str) -> Iterator[Producer]:
        with Producer(endpoint, ProducerOptions(linger_ms=0)) as producer:
            yield producer

    @pytest.fixture
    def consumer(self, endpoint: str, topic: str) -> Iterator[Consumer]:
        with Consumer(endpoint, group=f"group-{topic}") as consumer:
            yield consumer

    @pytest.fixture
    def admin(self, endpoint: str) -> Iterator[WorkAdmin]:
        with WorkAdmin(endpoint) as admin:
            yield admin

    def fill(self, producer: Producer, topic: str, count: int, **fields: Any) -> None:
        producer.send_many(
            None, [Message(topic, b"%d" % n, queue_id=n % 2, **fields) for n in range(count)]
        )

    def test_each_message_is_done_once(
        self, producer: Producer, consumer: Consumer, admin: WorkAdmin, topic: str
    ) -> None:
        self.fill(producer, topic, 50)
        seen: list[int] = []
        with consumer.work(topic, options=OPTIONS) as work:
            while len(seen) < 50:
                delivery = next_of(work)
                assert (delivery.topic, delivery.attempt) == (topic, 1)
                seen.append(int(delivery.body))
                delivery.ack()
        assert sorted(seen) == list(range(50))
        assert work.statistics().acked == 50
        with consumer.work(topic, options=OPTIONS) as work:
            assert work.poll(200) is None
        found = admin.group_work(f"group-{topic}")
        assert (found.leased, found.ready, found.waiting_retry) == (0, 0, 0)

    def test_consumers_of_a_group_share_and_groups_do_not(
        self, endpoint: str, producer: Producer, consumer: Consumer, topic: str
    ) -> None:
        self.fill(producer, topic, 6)
        works = [consumer.work(topic, prefetch=1, options=OPTIONS) for _ in range(3)]
        held = [next_of(work) for work in works]
        assert len({each.body for each in held}) == 3
        other = consumer.work(topic, group=f"other-{topic}", options=OPTIONS)
        with other:
            assert len({next_of(other).body for _ in range(6)}) == 6
        for delivery in held:
            delivery.ack(sync=True)
        for work in works:
            work.close()

    def test_what_failed_comes_again_and_then_is_a_dead_letter(
        self, producer: Producer, consumer: Consumer, admin: WorkAdmin, topic: str
    ) -> None:
        group = f"group-{topic}"
        producer.send(Message(topic, b"poison", keys=["k1"], properties={"a": "b"})).result(60)
        with consumer.work(topic, max_attempts=3, backoff=0, options=OPTIONS) as work:
            for attempt in (1, 2, 3):
                delivery = next_of(work)
                assert delivery.attempt == attempt
                assert delivery.last_error == (f"attempt {attempt - 1}" if attempt > 1 else None)
                delivery.retry(error=f"attempt {attempt}")
            assert work.poll(200) is None
        letters = self.letters(admin, group, 1)
        assert (letters[0].origin_topic, letters[0].attempts) == (topic, 3)
        assert letters[0].last_error == "attempt 3"
        assert admin.dead_letter(group, letters[0].queue_offset).body == b"poison"
        assert admin.group_work(group).dead_letters == 1

    def letters(self, admin: WorkAdmin, group: str, count: int) -> list[Any]:
        deadline = time.monotonic() + WAIT_MS / 1000
        while len(found := admin.dead_letters(group)) < count:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return found

    def test_dead_letters_are_sent_again_and_purged(
        self, producer: Producer, consumer: Consumer, admin: WorkAdmin, topic: str
    ) -> None:
        group = f"group-{topic}"
        self.fill(producer, topic, 3)
        with consumer.work(topic, options=OPTIONS) as work:
            for _ in range(3):
                next_of(work).reject("malformed")
        first, *_ = self.letters(admin, group, 3)
        assert first.last_error == "malformed"
        assert len(admin.resend_dead_letters(group, dry_run=True)) == 3
        [sent] = admin.resend_dead_letters(group, [first.queue_offset])
        assert (sent.topic, sent.refusal) == (topic, "")
        with consumer.work(topic, options=OPTIONS) as work:
            again = next_of(work)
            assert (again.attempt, again.last_error) == (1, None)
            again.ack(sync=True)
        rest = [each for each in admin.dead_letters(group) if each != first]
        assert len(rest) == 2
        assert admin.purge_dead_letters(group, dry_run=True) >= 2
        assert admin.purge_dead_letters(group) >= 2
        assert admin.dead_letters(group) == []
        with pytest.raises(errors.UnknownGroupError):
            admin.group_work("of-no-one")

    def test_a_retry_waits(self, producer: Producer, consumer: Consumer, topic: str) -> None:
        producer.send(Message(topic, b"x")).result(60)
        with consumer.work(topic, options=OPTIONS) as work:
            next_of(work).retry(after=0.3, sync=True)
            began = time.monotonic()
            again = next_of(work)
            assert time.monotonic() - began > 0.15
            assert again.attempt == 2
            again.ack()

    def test_a_release_is_no_attempt(
        self, producer: Producer, consumer: Consumer, topic: str
    ) -> None:
        producer.send(Message(topic, b"x")).result(60)
        with consumer.work(topic, options=OPTIONS) as work:
            next_of(work).release()
            assert next_of(work).attempt == 1

    def test_a_lease_that_ends_is_another_attempt(
        self, endpoint: str, producer: Producer, consumer: Consumer, topic: str
    ) -> None:
        producer.send(Message(topic, b"x")).result(60)
        with consumer.work(topic, lease=1, options=OPTIONS) as forgetful:
            delivery = next_of(forgetful)
            del delivery  # it is not renewed any more
            with Consumer(endpoint, group=consumer.group) as other, other.work(topic) as work:
                again = next_of(work)
                assert again.attempt == 2
                again.ack(sync=True)
            assert forgetful.statistics().dropped == 1

    def test_a_lease_is_renewed_while_a_handler_runs(
        self, endpoint: str, producer: Producer, consumer: Consumer, topic: str
    ) -> None:
        producer.send(Message(topic, b"x")).result(60)
        with consumer.work(topic, lease=1, options=OPTIONS) as work:
            delivery = next_of(work)
            with Consumer(endpoint, group=consumer.group) as other, other.work(topic) as idle:
                assert idle.poll(1_500) is None
            delivery.extend(60)
            delivery.ack(sync=True)

    def test_the_policy_of_a_group(self, consumer: Consumer, admin: WorkAdmin, topic: str) -> None:
        group = f"group-{topic}"
        with consumer.work(topic, max_attempts=4, backoff=[1, 2], ordered="key") as work:
            assert work.poll(50) is None
        policy = GroupPolicy(4, Backoff((1_000, 2_000)), Ordering.KEY)
        assert admin.group_work(group).policy == policy
        change = admin.set_policy(group, max_attempts=9, ordered=False, dry_run=True)
        assert (change.before, change.after.max_attempts) == (policy, 9)
        assert admin.group_work(group).policy == policy
        assert admin.set_policy(group, backoff=5).after.backoff == Backoff((), 5_000)

    def test_one_message_of_a_queue_at_a_time(
        self, producer: Producer, consumer: Consumer, topic: str
    ) -> None:
        self.fill(producer, topic, 6)
        seen: list[tuple[int, int]] = []
        with consumer.work(topic, ordered="queue", backoff=0, options=OPTIONS) as work:
            while len(seen) < 6:
                delivery = next_of(work)
                if delivery.queue_offset == 1 and delivery.attempt == 1:
                    delivery.retry(sync=True)
                    continue
                seen.append((delivery.queue_id, delivery.queue_offset))
                delivery.ack()
        for queue_id in range(2):
            assert [offset for each, offset in seen if each == queue_id] == [0, 1, 2]

    def test_one_message_of_a_key_at_a_time(
        self, producer: Producer, consumer: Consumer, topic: str
    ) -> None:
        for number in range(4):
            message = Message(topic, b"%d" % number, sharding_key="ab"[number % 2], queue_id=0)
            producer.send(message).result(60)
        seen: list[bytes] = []
        with consumer.work(topic, ordered="key", backoff=0, options=OPTIONS) as work:
            while len(seen) < 4:
                delivery = next_of(work)
                if delivery.body == b"0" and delivery.attempt == 1:
                    delivery.retry(sync=True)
                    continue
                seen.append(delivery.body)
                delivery.ack()
        assert seen.index(b"0") < seen.index(b"2")
        assert seen.index(b"1") < seen.index(b"3")

    def test_tags_and_filters_select_and_the_rest_is_done(
        self, producer: Producer, consumer: Consumer, admin: WorkAdmin, topic: str
    ) -> None:
        # "Aa" and "BB" have the same hash
        for tag in ("Aa", "BB", "paid"):
            message = Message(topic, tag.encode(), tags=tag, properties={"n": str(len(tag))})
            producer.send(message).result(60)
        with consumer.work(topic, tags="Aa", options=OPTIONS) as work:
            delivery = next_of(work)
            assert delivery.body == b"Aa"
            delivery.ack()
            assert work.poll(200) is None
        with consumer.work(topic, group=f"other-{topic}", where="n > 3", options=OPTIONS) as work:
            assert next_of(work).message.tags == "paid"
        bad = consumer.work(topic, where="n >", options=OPTIONS)
        with pytest.raises(errors.InvalidArgumentError, match="too early"):
            bad.poll(WAIT_MS)
        bad.close()

    def test_handlers(self, producer: Producer, consumer: Consumer, topic: str) -> None:
        self.fill(producer, topic, 20)
        lock, done = threading.Lock(), []

        def handle(delivery: Delivery) -> None:
            if delivery.body == b"3":
                raise Reject("three")
            if delivery.attempt == 1 and delivery.body == b"4":
                raise RetryAfter(0)
            if delivery.attempt == 1 and delivery.body == b"5":
                raise ValueError("five")
            with lock:
                done.append(delivery.body)
                if len(done) == 19:
                    work.stop()

        work = consumer.work(topic, handler=handle, concurrency=4, backoff=0, options=OPTIONS)
        work.run()
        assert sorted(done) == sorted(b"%d" % n for n in range(20) if n != 3)
        statistics = work.statistics()
        assert (statistics.acked, statistics.rejected, statistics.retried) == (19, 1, 2)

    async def test_handlers_of_asyncio(self, endpoint: str, topic: str, producer: Producer) -> None:
        self.fill(producer, topic, 20)
        barrier, done = asyncio.Barrier(4), []

        async def handle(delivery: AsyncDelivery) -> None:
            done.append(delivery.body)
            if len(done) <= 4:
                await barrier.wait()
            if len(done) == 20:
                work.stop()

        async with AsyncConsumer(endpoint, group=f"group-{topic}") as consumer:
            work = consumer.work(topic, handler=handle, concurrency=4, options=OPTIONS)
            async with asyncio.timeout(60):
                await work
        assert len(set(done)) == 20
        assert work.statistics().acked == 20

    def test_an_unknown_topic(self, consumer: Consumer) -> None:
        with consumer.work("no-such-topic") as work, pytest.raises(errors.UnknownTopicError):
            work.poll(WAIT_MS)
