"""The driver's side of a stream, called as Spark calls it."""

import inspect
import json
import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from fakes.live_topics import PlainCluster
from tandemlog.spark.cluster.errors import ClusterError, DataLossError, OffsetsError
from tandemlog.spark.cluster.offsets_resolve import Held
from tandemlog.spark.cluster.option_reading import read_options
from tandemlog.spark.cluster.options import Use
from tandemlog.spark.live.schema import LIVE
from tandemlog.spark.live.stream import LiveStreamReader

Json = dict[str, Any]


def held(first: int, end: int) -> Held:
    return Held(first, end, 1_000)


def cluster(**ends: int) -> PlainCluster:
    plain = PlainCluster({})
    plain.grow(**ends)
    return plain


def reader(plain: PlainCluster, **options: str) -> LiveStreamReader:
    given = {"endpoint": "a", "topic": "t"} | options
    return LiveStreamReader(read_options(given, Use.STREAM), LIVE, plain)  # type: ignore[arg-type]


def t(*offsets: int) -> Json:
    return {"t": {str(queue): offset for queue, offset in enumerate(offsets)}}


def spans(found: list[Any]) -> list[list[str]]:
    return [[str(span) for span in partition.spans] for partition in found]


ALL = ReadAllAvailable()


def test_spark_sees_its_limits_by_the_signature() -> None:
    assert len(inspect.signature(LiveStreamReader.latestOffset).parameters) == 3


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"maxBytesPerTrigger": "5k"}, ReadMaxBytes(5120)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
    ],
)
def test_the_limit_that_spark_is_told(options: dict[str, str], limit: object) -> None:
    assert reader(cluster(t0=0), **options).getDefaultReadLimit() == limit


def test_the_first_offset_stays_though_messages_come() -> None:
    plain = cluster(t0=10, t1=4)
    stream = reader(plain)
    assert stream.initialOffset() == t(10, 4)
    plain.grow(t0=20)
    assert stream.initialOffset() == t(10, 4)
    assert stream.latestOffset(t(10, 4), ALL) == t(20, 4)
    assert stream.reportLatestOffset() == t(20, 4)
    assert spans(stream.partitions(t(10, 4), t(20, 4))) == [["t/0 10..20"]]


def test_the_earliest_is_what_is_left() -> None:
    plain = PlainCluster({("t", 0): held(5, 9)})
    assert reader(plain, startingOffsets="earliest").initialOffset() == t(5)


def test_a_group_keeps_the_first_offset_over_a_restart() -> None:
    plain = cluster(t0=10)
    first = reader(plain, groupId="g")
    assert first.initialOffset() == t(10)
    plain.grow(t0=30)
    end = first.latestOffset(t(10), ALL)
    # The batch is planned, and the driver dies before it is done: Spark plans the same again.
    plain.grow(t0=50)
    again = reader(plain, groupId="g")
    assert again.initialOffset() == t(10)
    assert spans(again.partitions(t(10), end)) == [["t/0 10..30"]]


def test_without_a_group_such_a_restart_is_refused_and_says_why() -> None:
    plain = cluster(t0=10)
    stream = reader(plain)
    start = stream.initialOffset()
    with pytest.raises(OffsetsError, match="groupId"):
        stream.partitions(start, t(30))


@pytest.mark.parametrize("options", [{"startingOffsets": "earliest"}, {"groupId": "g"}])
def test_a_start_that_stands_still_may_be_planned_again(options: dict[str, str]) -> None:
    stream = reader(cluster(t0=10), **options)
    start = stream.initialOffset()
    planned = [spans(stream.partitions(start, t(10))) for _ in range(2)]
    assert planned[0] == planned[1]
    assert planned[0] == ([["t/0 0..10"]] if "startingOffsets" in options else [])


def test_a_group_that_stands_somewhere_is_gone_on_with() -> None:
    plain = cluster(t0=10, t1=10)
    plain.groups["g"] = {("t", 0): 4}
    assert reader(plain, groupId="g").initialOffset() == t(4, 10)
    assert plain.groups["g"] == {("t", 0): 4, ("t", 1): 10}


def test_progress_is_noted_one_batch_late_and_may_fail() -> None:
    plain = cluster(t0=10)
    stream = reader(plain, groupId="g")
    stream.commit(t(7))
    assert plain.groups["g"] == {("t", 0): 7}
    plain.broken = True
    stream.commit(t(9))
    reader(plain).commit(t(9))
    assert plain.groups["g"] == {("t", 0): 7}


def test_available_now_ends_where_it_was_when_it_began() -> None:
    plain = cluster(t0=10)
    stream = reader(plain, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    stream.prepareForTriggerAvailableNow()
    plain.grow(t0=99, t1=5)
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset(t(0), limit) == t(6)
    assert stream.latestOffset(t(6), limit) == t(10)
    assert stream.latestOffset(t(10), limit) == t(10)


def test_available_now_starts_before_it_looks_for_the_end() -> None:
    plain = cluster(t0=10)
    stream = reader(plain)
    stream.prepareForTriggerAvailableNow()
    plain.grow(t0=20)
    assert stream.latestOffset(stream.initialOffset(), ALL) == t(10)


def test_available_now_after_a_restart_beyond_its_target() -> None:
    plain = cluster(t0=10)
    stream = reader(plain, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    plain.grow(t0=20)
    assert stream.latestOffset(t(12), ALL) == t(12)


def test_rows_are_limited_in_proportion() -> None:
    stream = reader(cluster(t0=900, t1=100), maxOffsetsPerTrigger="100")
    assert stream.latestOffset(t(0, 0), stream.getDefaultReadLimit()) == t(90, 10)
    assert stream.latestOffset(t(0, 0), ALL) == t(900, 100)


def test_bytes_are_limited_by_the_size_of_messages() -> None:
    plain = cluster(t0=1000, t1=0)
    plain.sizes = {("t", 0): 512.0}
    stream = reader(plain, maxBytesPerTrigger="50k")
    assert stream.latestOffset(t(0, 0), stream.getDefaultReadLimit()) == t(100, 0)


def test_a_batch_waits_for_enough_rows() -> None:
    plain = cluster(t0=5)
    stream = reader(plain, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    assert stream.latestOffset(t(0), limit) == t(5)
    plain.grow(t0=9)
    assert stream.latestOffset(t(5), limit) == t(5)
    plain.grow(t0=15)
    assert stream.latestOffset(t(5), limit) == t(15)


def test_a_queue_that_is_new_is_read_from_its_beginning() -> None:
    plain = cluster(t0=10)
    stream = reader(plain)
    start = stream.initialOffset()
    plain.now["t", 1] = held(3, 8)
    end = stream.latestOffset(start, ALL)
    assert end == t(10, 8)
    assert spans(stream.partitions(start, end)) == [["t/1 3..8"]]


def test_slaves_that_are_behind_do_not_send_the_stream_back() -> None:
    plain = cluster(t0=10)
    plain.sure = False
    stream = reader(plain)
    assert stream.latestOffset(t(20), ALL) == t(20)


def test_a_master_whose_log_was_cut_is_a_loss() -> None:
    plain = cluster(t0=10)
    with pytest.raises(DataLossError, match="t/0 ends at 10, the stream has read up to 20"):
        reader(plain).latestOffset(t(20), ALL)
    assert reader(plain, failOnDataLoss="false").latestOffset(t(20), ALL) == t(10)


def test_messages_deleted_before_they_were_read() -> None:
    plain = PlainCluster({("t", 0): held(5, 9)})
    stream = reader(plain, startingOffsets="earliest")
    with pytest.raises(DataLossError, match=r"t/0 has no offset 2, it holds 5\.\.9"):
        stream.partitions(t(2), t(9))
    lenient = reader(plain, startingOffsets="earliest", failOnDataLoss="false")
    assert spans(lenient.partitions(t(2), t(9))) == [["t/0 2..9"]]


def test_without_a_master_nothing_is_judged_to_be_gone() -> None:
    plain = PlainCluster({("t", 0): held(5, 9)})
    plain.sure = False
    stream = reader(plain, startingOffsets="earliest")
    assert spans(stream.partitions(t(2), t(9))) == [["t/0 2..9"]]
    beyond = reader(plain, startingOffsets='{"t": {"0": 12}}', failOnDataLoss="false")
    with pytest.raises(ClusterError, match=r"holds 5\.\.9\. But there is no master now"):
        beyond.initialOffset()


def test_small_queues_share_a_partition_unless_it_is_asked_otherwise() -> None:
    plain = cluster(t0=5, t1=5)
    assert spans(reader(plain).partitions(t(0, 0), t(5, 5))) == [["t/0 0..5", "t/1 0..5"]]
    split = reader(plain, minPartitions="2").partitions(t(0, 0), t(5, 5))
    assert spans(split) == [["t/0 0..5"], ["t/1 0..5"]]


def test_the_reader_travels_to_tasks() -> None:
    given = read_options({"endpoint": "a", "topicsPattern": "t.*"}, Use.STREAM)
    copy = pickle.loads(pickle.dumps(LiveStreamReader(given, LIVE)))
    assert list(copy.read(None)) == []


def test_offsets_are_the_same_text_for_the_same_place() -> None:
    plain = PlainCluster({("t", 10): held(0, 1), ("t", 9): held(0, 2)})
    first = json.dumps(reader(plain).initialOffset())
    turned = PlainCluster(dict(reversed(list(plain.now.items()))))
    assert json.dumps(reader(turned).initialOffset()) == first
