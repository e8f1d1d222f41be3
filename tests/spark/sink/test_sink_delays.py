"""Rows that are to come later are framed as a producer frames them, and repeated ones known."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster
from fakes.fake_log import RefusedError
from fakes.live_topics import cluster_options
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.constants import REAL_QUEUE_ID
from tandemlog.format.delay.framing import PLACE_OF_TIMERS, after, at
from tandemlog.format.record.properties import decode_properties
from tandemlog.spark.cluster.cluster_errors import RepeatMismatchError, RowError, SinkError
from tandemlog.spark.cluster.live_options import WriteOptions
from tandemlog.spark.sink.sink_columns import Rows, rows_of
from tandemlog.spark.sink.writer import Written, write_partition
from tandemlog.spark.sink.writer_name import WriterName
from tandemlog.v1 import common_pb2

NOW = 1_700_000_000_000
TIME = pa.timestamp("us", tz="UTC")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NAME = WriterName("query:3", 7, 3)


def rows(**columns: Any) -> Rows:
    return rows_of(pa.record_batch(columns), "a", {"a": 4, "b": 3}.__getitem__, 1, lambda: NOW)


def properties(found: Rows) -> list[dict[str, str]]:
    column = found.properties
    assert isinstance(column, ByteColumn)
    ends = zip(column.offsets[:-1].tolist(), column.offsets[1:].tolist(), strict=True)
    return [decode_properties(column.data[begin:end].tobytes()) for begin, end in ends]


def places(found: Rows) -> list[tuple[str, int]]:
    return [
        (found.topics[int(found.queue_topics[entry])], int(found.queue_ids[entry]))
        for entry in found.entries.tolist()
    ]


def test_rows_wait_as_a_producers_messages_do() -> None:
    found = rows(
        body=["1", "2", "3", "4"],
        queue_id=pa.array([3, None, 2, None], pa.int32()),
        deliver_at=pa.array([EPOCH + timedelta(milliseconds=NOW + 90_250), *[None] * 3], TIME),
        delay=pa.array([None, timedelta(seconds=5), None, timedelta(0)], pa.duration("us")),
        sharding_key=[None, None, "k", None],
    )
    assert found.waiting
    assert places(found) == [PLACE_OF_TIMERS, PLACE_OF_TIMERS, ("a", 2), ("a", 1)]
    assert properties(found) == [
        at("a", 3, NOW + 90_250),
        after("a", 1, 5_000, NOW),
        {"__SHARDINGKEY": "k"},
        {},
    ]


def test_topics_of_a_column() -> None:
    chunk = pa.record_batch(
        {"body": ["1", "2", "3"], "topic": ["b", "a", "b"], "delay": pa.array([7, None, 0])}
    )
    found = rows_of(chunk, None, {"a": 4, "b": 3}.__getitem__, 0, lambda: NOW)
    assert places(found) == [PLACE_OF_TIMERS, ("a", 0), ("b", 0)]
    assert properties(found) == [after("b", 0, 7, NOW), {}, {}]


def test_times_between_milliseconds() -> None:
    found = rows(
        body=["1", "2"],
        deliver_at=pa.array([EPOCH + timedelta(microseconds=1), None], TIME),
        delay=pa.array([None, timedelta(microseconds=1_999)], pa.duration("us")),
    )
    assert properties(found) == [at("a", 1, 1), after("a", 1, 1, NOW)]


def test_rows_that_all_come_at_once_are_as_they_were() -> None:
    columns: dict[str, Any] = {"body": ["x"], "delay": pa.array([0]), "tags": ["t"]}
    found = rows(**columns, deliver_at=pa.array([None], TIME))
    assert (found.waiting, found.properties, found.topics) == (False, None, ("a",))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"deliver_at": pa.array([None, EPOCH], TIME), "delay": [1, 1]},
            "row 1 .*it has a deliver_at and a delay: make one of them null",
        ),
        ({"delay": [1, -5]}, "row 1 .*a delay of -5 ms is negative"),
        ({"delay": [1, 1 << 60]}, "row 1 .*is more than .* the year 9999"),
        (
            {"deliver_at": pa.array([EPOCH, EPOCH - timedelta(days=1)], TIME)},
            "row 1 .*deliver_at: the time -86400000 ms is negative",
        ),
    ],
)
def test_rows_that_say_no_time(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(RowError, match=words):
        rows(body=["x", "y"], **columns)


@pytest.fixture
def running() -> Iterator[ThreadedCluster]:
    with running_cluster() as cluster:
        cluster.log.create_topic("t", 2)
        yield cluster


def write(running: ThreadedCluster, count: int, now_ms: int, **columns: Any) -> Written:
    batch = pa.record_batch({"body": [str(number) for number in range(count)], **columns})
    options = WriteOptions(cluster_options(running), topic="t", batch_messages=4)
    return write_partition(options, NAME, iter([batch]), lambda: now_ms)


def test_a_task_that_runs_again_later_is_stored_once(running: ThreadedCluster) -> None:
    delays = pa.array([60_000, None, 90_000, None, 5, 6])
    assert write(running, 6, NOW, delay=delays).duplicates == 0
    stored = len(running.log.records)
    again = write(running, 6, NOW + 3_600_000, delay=delays)
    assert (again.requests, again.duplicates) == (2, 2)
    assert len(running.log.records) == stored


def test_a_queue_that_was_added_meanwhile_changes_nothing(running: ThreadedCluster) -> None:
    keys = ["a", "b", "a", "b"]
    write(running, 4, NOW, delay=[60_000] * 4, sharding_key=keys)
    assert {each.properties[REAL_QUEUE_ID] for each in running.log.decoded()} == {"0", "1"}
    running.log.create_topic("t", 64)
    assert write(running, 4, NOW, delay=[60_000] * 4, sharding_key=keys).duplicates == 1


@pytest.mark.parametrize("delays", [[60_000, 60_001], [60_000, None], [60_000, 0]])
def test_another_delay_is_another_row(running: ThreadedCluster, delays: list[int | None]) -> None:
    write(running, 2, NOW, delay=pa.array([60_000, 60_000]))
    with pytest.raises(RepeatMismatchError, match="written before with other rows"):
        write(running, 2, NOW, delay=pa.array(delays, pa.int64()))


@pytest.mark.parametrize(("delay", "more"), [(60_000, True), (None, False)])
def test_a_master_that_knows_no_delays(
    running: ThreadedCluster, delay: int | None, more: bool
) -> None:
    refusal = RefusedError(common_pb2.INVALID_TOPIC_NAME)
    running.call(lambda: running.cluster.master.faults.append(refusal))
    with pytest.raises(SinkError) as caught:
        write(running, 1, NOW, delay=pa.array([delay], pa.int64()))
    assert ("a master older than 0.2 knows no messages" in str(caught.value)) is more
