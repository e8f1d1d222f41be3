"""Messages as Arrow columns: a batch, and a scan of a span that other libraries read."""

import asyncio
import gc
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pytest

from tandemlog import (
    AsyncConsumer,
    Consumer,
    FollowOptions,
    Message,
    Producer,
    ProducerOptions,
    ReceivedBatch,
    errors,
)
from tandemlog.arrow.arrow_columns import NAMES
from tandemlog.arrow.message_schema import DEFAULT, MESSAGE_TYPES
from tandemlog.consume import scan
from tandemlog.consume.received import lazy_arrow
from tandemlog.format.constants import PRODUCER_MARK
from tandemlog.testing import Cluster

COUNT = 600
QUEUES = 3
OPTIONS = FollowOptions(max_bytes=4096)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """`orders`: 600 messages in 3 queues, every seventh compressed, half of them a day later."""
    with Cluster(topics={"orders": QUEUES, "other": 1, "empty": 2}) as cluster:
        for half in range(2):
            plain = Producer(cluster.endpoint, ProducerOptions(linger_ms=0))
            small = Producer(cluster.endpoint, ProducerOptions(linger_ms=0, compress_above=1))
            with plain, small:
                for number in range(half * COUNT // 2, (half + 1) * COUNT // 2):
                    producer = small if number % 7 == 0 else plain
                    message = Message(
                        "orders",
                        b"%d " % number * 30,
                        keys=f"k{number}",
                        tags="even" if number % 2 == 0 else "odd",
                        properties={"number": str(number)} if number % 3 else None,
                        queue_id=number % QUEUES,
                        born_timestamp=1_700_000_000_000 + number,
                    )
                    future = producer.send(message)
                    if number % 7 in (0, 6):  # the next one is sent by the other producer
                        future.result(10)
            cluster.clock.advance(timedelta(days=1))
        with Producer(cluster.endpoint) as producer:
            producer.send(Message("other", b"x")).result(10)
        yield cluster


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[Consumer]:
    with Consumer(cluster.endpoint, options=OPTIONS) as consumer:
        yield consumer


def pulled(consumer: Consumer, topic: str = "orders", queue_id: int = 0) -> ReceivedBatch:
    return consumer.pull(topic, queue_id, 0, max_bytes=1 << 20, wait_ms=5_000)


def numbers(table: pa.Table) -> list[int]:
    return [int(body.split()[0]) for body in table.column("body").to_pylist()]


def test_a_batch_has_what_its_messages_have(consumer: Consumer) -> None:
    batch = pulled(consumer)
    assert len(batch) == COUNT // QUEUES
    made = batch.to_arrow(list(MESSAGE_TYPES))
    made.validate(full=True)
    rows = made.to_pylist()
    for row, message in zip(rows, batch, strict=True):
        record: Any = message.record
        for name in set(NAMES) - {"body", "keys", "properties", "size", "version"}:
            value = row[name]
            if isinstance(value, datetime):
                value = round(value.timestamp() * 1000)
            assert value == getattr(record, name), name
        assert row["body"] == message.body
        assert row["keys"].split() == message.keys
        own = {k: v for k, v in message.properties.items() if k != PRODUCER_MARK}
        assert dict(row["properties"]) == own
        assert row["size"] == message.size


def test_the_default_columns(consumer: Consumer) -> None:
    made = pulled(consumer).to_arrow()
    assert made.schema.names == list(DEFAULT)
    assert made.schema.field("born_timestamp").type == pa.timestamp("ms", tz="UTC")
    assert made.schema.field("body").type == pa.binary()
    assert made.column("born_timestamp")[1].as_py() == datetime.fromtimestamp(
        1_700_000_000.003, UTC
    )
    assert set(MESSAGE_TYPES) == set(NAMES)


def test_chosen_columns_have_their_order(consumer: Consumer) -> None:
    assert pulled(consumer).to_arrow(["tags", "queue_offset"]).schema.names == [
        "tags",
        "queue_offset",
    ]


def test_an_empty_batch(consumer: Consumer) -> None:
    made = consumer.pull("empty", 0, 0).to_arrow()
    assert (made.num_rows, made.schema.names) == (0, list(DEFAULT))


@pytest.mark.parametrize("wrong", [["nope"], [], ["body", "body"], "body"])
def test_columns_that_do_not_exist(consumer: Consumer, wrong: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="topic, queue_id"):
        pulled(consumer).to_arrow(wrong)
    with pytest.raises(errors.InvalidArgumentError, match="topic, queue_id"):
        consumer.scan("orders", columns=wrong)


@pytest.mark.parametrize("row", [0, 7, COUNT // QUEUES - 1])
def test_a_damaged_record_is_named(consumer: Consumer, row: int) -> None:
    batch = pulled(consumer)
    data = bytearray(batch.records)
    data[int(batch.headers.body_start[row])] ^= 1
    with pytest.raises(errors.BadRecordError, match=f"orders/0 offset {row}: .*CRC differs"):
        replace(batch, records=bytes(data)).to_arrow(["queue_offset"])
    data = bytearray(batch.records)
    data[int(batch.positions[row]) + 3] ^= 1  # its size
    with pytest.raises(errors.BadRecordError, match=f"orders/0 offset {row}: .*hold together"):
        replace(batch, records=bytes(data)).to_arrow(["queue_offset"])


def test_a_damaged_record_of_a_window_is_named(consumer: Consumer) -> None:
    first, second = pulled(consumer, queue_id=0), pulled(consumer, queue_id=2)
    data = bytearray(second.records)
    data[int(second.headers.body_start[5])] ^= 1
    window = [first, replace(second, records=bytes(data))]
    with pytest.raises(errors.BadRecordError, match="orders/2 offset 5: "):
        lazy_arrow.as_arrow(window, lazy_arrow.schema_of(["body"]))


def test_a_scan_has_every_message_once_in_order(consumer: Consumer) -> None:
    reader = consumer.scan("orders")
    table = reader.read_all()
    table.validate(full=True)
    assert sorted(numbers(table)) == list(range(COUNT))
    for queue_id in range(QUEUES):
        mine = table.filter(pa.compute.equal(table.column("queue_id"), queue_id))
        assert mine.column("queue_offset").to_pylist() == list(range(COUNT // QUEUES))
        assert numbers(mine) == list(range(queue_id, COUNT, QUEUES))


def test_a_scan_between_two_times(consumer: Consumer) -> None:
    stored = consumer.scan("orders", columns=["store_timestamp"]).read_all()
    newest = max(stored.column("store_timestamp").to_pylist())
    middle = newest - timedelta(hours=12)
    old = consumer.scan("orders", end=middle).read_all()
    new = consumer.scan("orders", start=middle).read_all()
    assert sorted(numbers(old)) == list(range(COUNT // 2))
    assert sorted(numbers(new)) == list(range(COUNT // 2, COUNT))
    both = consumer.scan("orders", start=middle, end=newest + timedelta(days=1)).read_all()
    assert both.num_rows == COUNT // 2
    assert consumer.scan("orders", start=newest + timedelta(days=1)).read_all().num_rows == 0


def test_a_scan_between_offsets_of_some_queues(consumer: Consumer) -> None:
    reader = consumer.scan(
        "orders", start={("orders", 1): 10}, end={("orders", 1): 13}, columns=["queue_offset"]
    )
    assert reader.read_all().column("queue_offset").to_pylist() == [10, 11, 12]
    only = consumer.scan("orders", queues=[2], columns=["queue_id"]).read_all()
    assert set(only.column("queue_id").to_pylist()) == {2}


def test_a_scan_by_tags(consumer: Consumer) -> None:
    table = consumer.scan("orders", tags="odd", columns=["tags", "body"]).read_all()
    assert sorted(numbers(table)) == list(range(1, COUNT, 2))
    assert set(table.column("tags").to_pylist()) == {"odd"}


def test_a_scan_of_several_topics(consumer: Consumer) -> None:
    table = consumer.scan(["orders", "other", "empty"], columns=["topic"]).read_all()
    assert sorted(table.column("topic").to_pylist()) == ["orders"] * COUNT + ["other"]
    assert consumer.scan("empty").read_all().num_rows == 0


def test_what_cannot_be_scanned(consumer: Consumer) -> None:
    with pytest.raises(errors.UnknownTopicError):
        consumer.scan("missing")
    with pytest.raises(errors.InvalidArgumentError, match="end must be latest"):
        consumer.scan("orders", end="committed")
    with pytest.raises(errors.InvalidArgumentError, match="time zone"):
        consumer.scan("orders", end=datetime(2030, 1, 1))


def test_a_scan_leaves_a_group_alone(cluster: Cluster) -> None:
    with Consumer(cluster.endpoint, group="reports") as consumer:
        assert consumer.scan("orders").read_all().num_rows == COUNT
        consumer.commit({("orders", 0): 150})
        rest = consumer.scan("orders", start="committed", queues=[0]).read_all()
        assert rest.num_rows == COUNT // QUEUES - 150
        assert consumer.committed("orders") == {("orders", 0): 150}


def test_a_scan_that_is_not_read_to_its_end(consumer: Consumer) -> None:
    reader = consumer.scan("orders")
    assert reader.read_next_batch().num_rows > 0
    del reader
    gc.collect()
    assert consumer.scan("orders").read_all().num_rows == COUNT


async def test_a_scan_by_asyncio(cluster: Cluster) -> None:
    async with AsyncConsumer(cluster.endpoint, options=OPTIONS) as consumer:
        async with await consumer.scan("orders", columns=["body"]) as scan:
            assert scan.schema.names == ["body"]
            table = await scan.read_all()
        assert sorted(numbers(table)) == list(range(COUNT))
        scan = await consumer.scan("orders", queues=[0])
        first = await scan.next_batch()
        assert first is not None
        rest = sum([batch.num_rows async for batch in scan])
        assert first.num_rows + rest == COUNT // QUEUES
        empty = await asyncio.wait_for((await consumer.scan("empty")).read_all(), 10)
        assert (empty.num_rows, empty.schema.names) == (0, list(DEFAULT))


def test_windows_are_bounded(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tandemlog.consume.scan.WINDOW", 10_000)
    sizes = [
        pa.compute.sum(batch.column("size")).as_py()
        for batch in consumer.scan("orders", columns=["size"])
    ]
    assert len(sizes) > 3
    assert max(sizes) <= 10_000


def test_polars_duckdb_and_pandas_read_it(consumer: Consumer) -> None:
    frame = polars.DataFrame(consumer.scan("orders", columns=["queue_id", "tags", "body"]))
    assert frame.group_by("tags").len().sort("tags").rows() == [("even", 300), ("odd", 300)]
    orders = consumer.scan("orders", columns=["queue_id", "keys", "store_timestamp"])
    asked = duckdb.sql("SELECT queue_id, count(*) FROM orders GROUP BY ALL ORDER BY ALL")
    assert asked is not None
    found = asked.fetchall()
    assert found == [(queue_id, COUNT // QUEUES) for queue_id in range(QUEUES)]
    del orders
    table = consumer.scan("orders", columns=["queue_id", "store_timestamp"]).read_pandas()
    assert table["queue_id"].value_counts().to_dict() == dict.fromkeys(
        range(QUEUES), COUNT // QUEUES
    )
    assert str(table["store_timestamp"].dtype) == "datetime64[ms, UTC]"


def test_without_arrow(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pulled(consumer)
    for name in list(sys.modules):
        if name == "pyarrow" or name.startswith("tandemlog.arrow."):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    lazy_arrow._module.cache_clear()
    try:
        with pytest.raises(errors.InvalidArgumentError, match=r"tandemlog\[arrow\]"):
            batch.to_arrow()
    finally:
        lazy_arrow._module.cache_clear()
    assert isinstance(batch.headers.queue_offset, np.ndarray)


async def test_what_was_fetched_before_a_cut_is_read_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log is cut above what the scan has given: it gives each message once, and ends."""
    monkeypatch.setattr(scan, "WINDOW", 1)
    async with AsyncConsumer(cluster.endpoint, options=OPTIONS) as consumer:
        reading = await consumer.scan("orders", columns=["queue_id", "queue_offset"])
        rows: list[dict[str, Any]] = []
        while not reading._taken:
            batch = await reading.next_batch()
            assert batch is not None
            rows += batch.to_pylist()
        follower = reading._follower
        for queue, position in follower.progress.delivered.items():
            follower.cuts._cut(queue, position + 2)
        async with asyncio.timeout(30):
            async for batch in reading:
                rows += batch.to_pylist()
    places = [(row["queue_id"], row["queue_offset"]) for row in rows]
    assert sorted(places) == [(q, n) for q in range(QUEUES) for n in range(COUNT // QUEUES)]


async def test_a_cut_below_what_was_given_ends_a_scan_with_an_error(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "WINDOW", 1)
    options = replace(OPTIONS, on_data_loss="error")
    async with AsyncConsumer(cluster.endpoint, options=options) as consumer:
        reading = await consumer.scan("orders")
        first = await reading.next_window()
        reading._follower.cuts._cut(first[0].queue, 1)
        with pytest.raises(errors.LogCutError, match="messages that were read before"):
            await asyncio.wait_for(reading.read_all(), 30)
