"""The driver's side of a stream, called as Spark calls it: where it starts, ends and waits."""

import inspect
import json
import pickle

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from fakes.live_stream import ALL, cluster, held, only, reader, spans, t
from fakes.live_topics import PlainCluster
from tandemlog.spark.cluster.cluster_errors import DataLossError, OffsetsError
from tandemlog.spark.cluster.live_options import Use
from tandemlog.spark.cluster.option_reading import read_options
from tandemlog.spark.cluster.resolve_offsets import Held
from tandemlog.spark.live.live_schema import LIVE
from tandemlog.spark.live.live_stream import LiveStreamReader


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
    assert only(stream.initialOffset()) == t(10, 4)
    plain.grow(t0=20)
    assert only(stream.initialOffset()) == t(10, 4)
    assert only(stream.latestOffset(t(10, 4), ALL)) == t(20, 4)
    assert stream.reportLatestOffset() == t(20, 4)
    assert spans(stream.partitions(t(10, 4), t(20, 4))) == [["t/0 10..20"]]


def test_the_earliest_is_what_is_left() -> None:
    plain = PlainCluster({("t", 0): held(5, 9)})
    assert only(reader(plain, startingOffsets="earliest").initialOffset()) == t(5)


def test_a_group_keeps_the_first_offset_over_a_restart() -> None:
    plain = cluster(t0=10)
    first = reader(plain, groupId="g")
    assert only(first.initialOffset()) == t(10)
    plain.grow(t0=30)
    end = first.latestOffset(t(10), ALL)
    # The batch is planned, and the driver dies before it is done: Spark plans the same again.
    plain.grow(t0=50)
    again = reader(plain, groupId="g")
    assert only(again.initialOffset()) == t(10)
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
    assert only(reader(plain, groupId="g").initialOffset()) == t(4, 10)
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
    assert only(stream.latestOffset(t(0), limit)) == t(6)
    assert only(stream.latestOffset(t(6), limit)) == t(10)
    assert only(stream.latestOffset(t(10), limit)) == t(10)


def test_available_now_starts_before_it_looks_for_the_end() -> None:
    plain = cluster(t0=10)
    stream = reader(plain)
    stream.prepareForTriggerAvailableNow()
    plain.grow(t0=20)
    assert only(stream.latestOffset(stream.initialOffset(), ALL)) == t(10)


def test_available_now_goes_on_from_its_checkpoint_whatever_starting_offsets_says() -> None:
    """Of offsets that retention has left behind, or that lack a queue of the topic by now."""
    plain = cluster(t0=10)
    stream = reader(plain, startingOffsets='{"t":{"0":0}}', groupId="g")
    stream.prepareForTriggerAvailableNow()
    end = stream.latestOffset(stream.initialOffset(), ALL)
    assert only(end) == t(10)
    plain.now = {("t", 0): Held(5, 15, 1000), ("t", 1): Held(0, 3, 1000)}
    again = reader(plain, startingOffsets='{"t":{"0":0}}', groupId="g")
    again.prepareForTriggerAvailableNow()
    assert only(again.latestOffset(end, ALL)) == t(15, 3)
    assert ("t", 1) not in plain.groups["g"], "nothing is begun anew"


def test_available_now_after_a_restart_beyond_its_target() -> None:
    plain = cluster(t0=10)
    stream = reader(plain, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    plain.grow(t0=20)
    assert only(stream.latestOffset(t(12), ALL)) == t(12)


def test_rows_are_limited_in_proportion() -> None:
    stream = reader(cluster(t0=900, t1=100), maxOffsetsPerTrigger="100")
    assert only(stream.latestOffset(t(0, 0), stream.getDefaultReadLimit())) == t(90, 10)
    assert only(stream.latestOffset(t(0, 0), ALL)) == t(900, 100)


def test_bytes_are_limited_by_the_size_of_messages() -> None:
    plain = cluster(t0=1000, t1=0)
    plain.sizes = {("t", 0): 512.0}
    stream = reader(plain, maxBytesPerTrigger="50k")
    assert only(stream.latestOffset(t(0, 0), stream.getDefaultReadLimit())) == t(100, 0)


def test_a_batch_waits_for_enough_rows() -> None:
    plain = cluster(t0=5)
    stream = reader(plain, minOffsetsPerTrigger="10", maxTriggerDelay="1h")
    limit = stream.getDefaultReadLimit()
    assert only(stream.latestOffset(t(0), limit)) == t(5)
    plain.grow(t0=9)
    assert only(stream.latestOffset(t(5), limit)) == t(5)
    plain.grow(t0=15)
    assert only(stream.latestOffset(t(5), limit)) == t(15)


def test_a_queue_that_is_new_is_read_from_its_beginning() -> None:
    plain = cluster(t0=10)
    stream = reader(plain)
    start = stream.initialOffset()
    plain.grow(t1=8)
    end = stream.latestOffset(start, ALL)
    assert only(end) == t(10, 8)
    assert spans(stream.partitions(start, end)) == [["t/1 0..8"]]
    plain.grow(t1=9, t2=4)
    following = stream.latestOffset(end, ALL)
    assert following["@from"] == {"t": {"2": 0}}
    assert spans(stream.partitions(end, following)) == [["t/1 8..9", "t/2 0..4"]]


@pytest.mark.parametrize("position", ["earliest", "latest"])
def test_a_first_batch_is_planned_again_from_where_it_began(position: str) -> None:
    plain = cluster(t0=10)
    stream = reader(plain, startingOffsets=position)
    start = stream.initialOffset()
    plain.grow(t0=100)
    end = stream.latestOffset(start, ALL)
    planned = spans(stream.partitions(start, end))
    assert planned == [[f"t/0 {0 if position == 'earliest' else 10}..100"]]
    plain.grow(t0=150)
    again = reader(plain, startingOffsets=position)
    moved = again.initialOffset()
    assert spans(again.partitions(moved, end)) == planned
    # Meanwhile retention has taken some of the batch, then all of it.
    for first in (40, 120):
        plain.now["t", 0] = held(first, 150)
        again = reader(plain, startingOffsets=position)
        moved = again.initialOffset()
        with pytest.raises(DataLossError, match=f"it holds {first}..150"):
            again.partitions(moved, end)


def test_an_offset_stays_the_same_text_while_nothing_comes() -> None:
    plain = cluster(t0=10)
    stream = reader(plain)
    start = stream.initialOffset()
    assert stream.latestOffset(start, ALL) is start
    assert stream.partitions(start, start) == []
    plain.grow(t0=12)
    end = stream.latestOffset(start, ALL)
    assert stream.latestOffset(end, ALL) is end
    older = t(12)
    assert stream.latestOffset(older, ALL) is older


def test_small_queues_share_a_partition_unless_it_is_asked_otherwise() -> None:
    plain = cluster(t0=5, t1=5)
    assert spans(reader(plain).partitions(t(0, 0), t(5, 5))) == [["t/0 0..5", "t/1 0..5"]]
    split = reader(plain, minPartitions="2").partitions(t(0, 0), t(5, 5))
    assert spans(split) == [["t/0 0..5"], ["t/1 0..5"]]


def test_a_batch_of_an_older_version_keeps_its_partitions() -> None:
    plain = PlainCluster({("t", number): held(0, 5) for number in range(150)})
    stream = reader(plain, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert len(stream.partitions(start, end)) == 2
    assert len(stream.partitions(start, only(end))) == 1


def test_the_reader_travels_to_tasks() -> None:
    given = read_options({"endpoint": "a", "topicsPattern": "t.*"}, Use.STREAM)
    copy = pickle.loads(pickle.dumps(LiveStreamReader(given, LIVE)))
    assert list(copy.read(None)) == []


def test_offsets_are_the_same_text_for_the_same_place() -> None:
    plain = PlainCluster({("t", 10): held(0, 1), ("t", 9): held(0, 2)})
    first = json.dumps(reader(plain).initialOffset())
    turned = PlainCluster(dict(reversed(list(plain.now.items()))))
    assert json.dumps(reader(turned).initialOffset()) == first
