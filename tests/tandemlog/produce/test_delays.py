"""Messages that come later, on their way out: alone, and in one request with others."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta, timezone

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import AsyncProducer, Message, ProducerOptions, errors
from tandemlog.delayed import Later
from tandemlog.format.constants import TIMER_TOPIC, UNIQ_KEY
from tandemlog.format.delay.handle import decode_handle
from tandemlog.format.delay.timing import timer_due_ms
from tandemlog.produce.delays import later_of

TOGETHER = ProducerOptions(linger_ms=200)


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 2)
        cluster.log.create_topic("gone", 2)
        yield cluster


def test_what_a_caller_may_say() -> None:
    assert later_of(None, None) is None
    assert later_of(timedelta(), None) is None, "it comes at once"
    assert later_of(timedelta(days=40, microseconds=999), None) == Later(delay_ms=3_456_000_000)
    at = datetime(2026, 11, 26, 10, 0, 0, 1, tzinfo=timezone(timedelta(hours=1)))
    # never before the time, so up
    assert later_of(None, at) == Later(due_ms=1_795_683_600_001)
    assert later_of(None, at.astimezone(UTC)) == later_of(None, at)
    assert later_of(None, 5) == Later(due_ms=5)


@pytest.mark.parametrize(
    ("delay", "deliver_at"),
    [(5, None), (None, "soon"), (None, True), (None, 1.5), (timedelta(-1), None), (None, -1)],
)
def test_what_a_caller_may_not_say(delay: object, deliver_at: object) -> None:
    with pytest.raises(errors.InvalidMessageError):
        later_of(delay, deliver_at)  # type: ignore[arg-type]


async def test_one_request_carries_both(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints, TOGETHER) as producer:
        now = await producer.send(Message("orders", b"now", queue_id=1))
        later = await producer.send(
            Message("orders", b"later", keys="k", queue_id=1), delay=timedelta(seconds=90)
        )
        last = await producer.send(Message("orders", b"last", queue_id=1))
        results = [await now, await later, await last]
    assert [each.queue_offset for each in results] == [0, -1, 1]
    assert [each.topic for each in results] == ["orders"] * 3
    assert [each.queue_id for each in results] == [1, 1, 1]
    assert results[0].deliver_at_ms is None
    assert results[0].recall_handle == ""
    _, record, _ = cluster.log.decoded()
    assert (record.topic, record.keys) == (TIMER_TOPIC, "k")
    assert results[1].deliver_at_ms == timer_due_ms(record.properties, results[1].store_timestamp)
    handle = decode_handle(results[1].recall_handle)
    assert (handle.topic, handle.key) == ("orders", record.properties[UNIQ_KEY])
    assert handle.log_offset == record.physical_offset == results[1].physical_offset


async def test_without_unique_ids_a_message_can_be_called_back_still(cluster: FakeCluster) -> None:
    options = ProducerOptions(unique_ids=False)
    async with AsyncProducer(cluster.endpoints, options) as producer:
        later = await producer.send(Message("orders", b"x"), delay=timedelta(seconds=90))
        await producer.recall("orders", (await later).recall_handle)
    (record,) = cluster.log.decoded()
    assert record.uniq_key


async def test_a_topic_that_went_fails_its_messages_alone(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints, TOGETHER) as producer:
        await (await producer.send(Message("gone", b"")))
        del cluster.log.topics["gone"]
        later = timedelta(seconds=90)
        sent = [
            await producer.send(Message(topic, topic.encode(), queue_id=0), delay=delay)
            for topic, delay in [
                ("orders", later), ("gone", later), ("orders", None), ("gone", later),
                ("orders", later),
            ]
        ]  # fmt: skip
        for index in (1, 3):
            with pytest.raises(errors.UnknownTopicError):
                await sent[index]
        results = [await sent[index] for index in (0, 2, 4)]
    assert [each.queue_offset for each in results] == [-1, 0, -1]
    handles = [decode_handle(results[index].recall_handle).key for index in (0, 2)]
    waiting = [each.uniq_key for each in cluster.log.decoded() if each.topic == TIMER_TOPIC]
    assert handles == waiting


async def test_a_recall_of_nothing_says_so(cluster: FakeCluster) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        later = await producer.send(Message("orders", b"x"), delay=timedelta(seconds=90))
        handle = (await later).recall_handle
        cluster.log.records.clear()
        with pytest.raises(errors.NotWaitingError):
            await producer.recall("orders", handle)
