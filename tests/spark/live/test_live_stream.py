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
from tandemlog.format.files.log_history import NO_CUT, LogHistory, LogTerm
from tandemlog.spark.cluster.cluster_errors import ClusterError, DataLossError, OffsetsError
from tandemlog.spark.cluster.live_options import Use
from tandemlog.spark.cluster.option_reading import read_options
from tandemlog.spark.cluster.resolve_offsets import Held
from tandemlog.spark.cluster.stream_offset import StreamOffset, queues_in
from tandemlog.spark.live.live_schema import LIVE
from tandemlog.spark.live.live_stream import CHECK_TOPICS_S, LiveStreamReader

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


def only(offset: Json) -> Json:
    """The queues of an offset, without what else it says."""
    return queues_in(offset)


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


def test_no_progress_is_noted_of_messages_that_were_cut() -> None:
    """The group would skip those that have their offsets now."""
    plain = with_log(t0=10, t1=10)
    stream = reader(plain, groupId="g", startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    plain.begin_log(1, (1, 0), (2, 500), t0=6)
    plain.grow(t0=20, t1=20)
    stream.commit(end)
    assert plain.groups["g"] == {("t", 0): 0, ("t", 1): 10}


def test_a_start_is_committed_in_the_log_in_which_it_was_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = with_log(t0=10)
    ask = plain.held
    asked: list[object] = []

    def held_before(queues: Any = ()) -> Any:
        found = ask(queues)
        if not asked:  # a change of master, which has lost some and got others
            plain.begin_log(1, (1, 0), (2, 500), t0=6)
            plain.grow(t0=12)
        asked.append(found)
        return found

    monkeypatch.setattr(plain, "held", held_before)
    assert only(reader(plain, groupId="g").initialOffset()) == t(12)
    assert plain.groups["g"] == {("t", 0): 12}


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


def test_a_queue_that_has_lost_its_beginning_before_the_stream_saw_it() -> None:
    plain = cluster(t0=10)
    start = reader(plain).initialOffset()
    plain.now["t", 1] = held(969, 1_050)
    with pytest.raises(DataLossError, match=r"t/1 is new .* begins at 969: .* 0\.\.969 are gone"):
        reader(plain).latestOffset(start, ALL)
    lenient = reader(plain, failOnDataLoss="false")
    end = lenient.latestOffset(start, ALL)
    assert spans(lenient.partitions(start, end)) == [["t/1 969..1050"]]
    plain.now["t", 1] = held(1_000, 1_050)  # planned again after a restart: the same batch
    assert spans(reader(plain, failOnDataLoss="false").partitions(start, end)) == [
        ["t/1 969..1050"]
    ]
    plain.sure = False
    unsure = reader(plain)
    end = unsure.latestOffset(start, ALL)
    assert spans(unsure.partitions(start, end)) == [["t/1 0..1050"]]


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


def test_a_planned_batch_of_an_older_version_that_retention_has_passed() -> None:
    plain = PlainCluster({("t", 0): held(150, 200)})
    stream = reader(plain, startingOffsets="earliest")
    with pytest.raises(DataLossError, match=r"the batch ends at 100, and the first .* is 150"):
        stream.partitions(stream.initialOffset(), t(100))
    lenient = reader(plain, startingOffsets="earliest", failOnDataLoss="false")
    assert lenient.partitions(lenient.initialOffset(), t(100)) == []


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


def test_offsets_of_a_newer_version_are_refused() -> None:
    offset = StreamOffset({("t", 0): 4}, begins={("t", 0): 1}, cut={("t", 0): 2})
    assert StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))) == offset
    with pytest.raises(OffsetsError, match=r"newer version .* @shape"):
        StreamOffset.from_json(t(4) | {"@shape": 1})


def with_log(**ends: int) -> PlainCluster:
    plain = cluster(**ends)
    plain.begin_log(1, (1, 0))
    return plain


def test_offsets_say_in_which_log_they_are_some() -> None:
    plain = with_log(t0=10)
    stream = reader(plain, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    assert plain.history is not None
    assert start["@log"] == end["@log"] == plain.history.to_json()
    assert StreamOffset.from_json(json.loads(json.dumps(end))).history == plain.history
    # A planned change of master: a term more, and all offsets mean the same.
    plain.begin_log(1, (1, 0), (2, 5_000))
    stream = reader(plain)
    assert stream.latestOffset(end, ALL) is end
    plain.grow(t0=15)
    following = stream.latestOffset(end, ALL)
    assert following["@log"] == plain.history.to_json()
    assert spans(stream.partitions(end, following)) == [["t/0 10..15"]]


def test_a_log_that_was_cut_below_what_the_stream_has_read() -> None:
    plain = with_log(t0=12, t1=4)
    stream = reader(plain, startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    # A forced failover; the new master has 0..6 of t/0, and more than was read by now.
    plain.begin_log(1, (1, 0), (3, 600), t0=6, t1=4)
    plain.grow(t0=20)
    words = r"log was cut.* t/0 was read up to 12, .* from 6 on. .* read 6 of .*; failOnDataLoss="
    with pytest.raises(DataLossError, match=words):
        reader(plain).latestOffset(end, ALL)
    lenient = reader(plain, failOnDataLoss="false")
    following = lenient.latestOffset(end, ALL)
    assert only(following) == t(20, 4)
    assert following["@cut"] == t(6)
    planned = [["t/0 6..20"]]
    assert spans(lenient.partitions(end, following)) == planned
    assert spans(reader(plain, failOnDataLoss="false").partitions(end, following)) == planned
    # From then on it reads that log.
    plain.grow(t0=21)
    last = reader(plain).latestOffset(following, ALL)
    assert "@cut" not in last
    assert spans(reader(plain).partitions(following, last)) == [["t/0 20..21"]]


def test_a_cut_is_noticed_though_nothing_is_new() -> None:
    plain = with_log(t0=12)
    stream = reader(plain, startingOffsets="earliest", failOnDataLoss="false")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    plain.begin_log(1, (1, 0), (3, 600), t0=12)
    assert stream.latestOffset(end, ALL) is end
    plain.begin_log(1, (1, 0), (4, 500), t0=5)
    plain.now["t", 0] = held(0, 5)
    following = stream.latestOffset(end, ALL)
    assert (only(following), following["@cut"]) == (t(5), t(7))
    assert stream.partitions(end, following) == []
    plain.now["t", 0] = held(0, 12)
    assert spans(stream.partitions(following, stream.latestOffset(following, ALL))) == [
        ["t/0 5..12"]
    ]


def test_a_checkpoint_on_another_cluster() -> None:
    plain = with_log(t0=12)
    stream = reader(plain, startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    plain.begin_log(2, (1, 0), t0=0)
    with pytest.raises(DataLossError, match=r"of another log .0{15}1, this one is 0{15}2"):
        reader(plain).latestOffset(end, ALL)
    lenient = reader(plain, failOnDataLoss="false")
    following = lenient.latestOffset(end, ALL)
    assert spans(lenient.partitions(end, following)) == [["t/0 0..12"]]


def test_a_planned_batch_whose_end_was_cut_before_a_restart() -> None:
    plain = with_log(t0=12)
    stream = reader(plain, startingOffsets="earliest")
    start = stream.initialOffset()
    end = stream.latestOffset(start, ALL)
    plain.begin_log(1, (1, 0), (3, 600), t0=6)
    plain.grow(t0=20)
    with pytest.raises(DataLossError, match="t/0 was read up to 12"):
        reader(plain).partitions(start, end)
    lenient = reader(plain, failOnDataLoss="false")
    assert spans(lenient.partitions(start, end)) == [["t/0 0..6"]]
    following = lenient.latestOffset(end, ALL)
    assert spans(lenient.partitions(end, following)) == [["t/0 6..20"]]


def test_a_new_term_between_two_answers_is_no_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ends are those of the log that is kept beside them."""
    plain = with_log(t0=10)
    stream = reader(plain, startingOffsets="earliest")
    start = stream.initialOffset()
    ask = plain.held
    asked: list[object] = []

    def held_before(queues: Any = ()) -> Any:
        found = ask(queues)
        if not asked:  # a change of master, and messages, just behind the answer
            plain.begin_log(1, (1, 0), (2, 500))
            plain.grow(t0=15)
        asked.append(found)
        return found

    monkeypatch.setattr(plain, "held", held_before)
    end = stream.latestOffset(start, ALL)
    assert plain.history is not None
    assert (only(end), end["@log"]) == (t(15), plain.history.to_json())


def test_without_a_master_only_the_same_log_is_read_on() -> None:
    plain = with_log(t0=10)
    stream = reader(plain)
    end = stream.latestOffset(stream.initialOffset(), ALL)
    same = plain.history
    plain.sure = False
    plain.grow(t0=15)
    plain.slaves = same
    assert only(stream.latestOffset(end, ALL)) == t(15)
    plain.begin_log(1, (1, 0), (2, 500), t0=8)
    plain.slaves = plain.history
    assert stream.latestOffset(end, ALL) is end
    ending = reader(plain, startingOffsets="earliest")
    ending.prepareForTriggerAvailableNow()
    with pytest.raises(ClusterError, match="once the cluster has a master"):
        ending.latestOffset(end, ALL)


def test_offsets_of_an_older_version_go_on_and_learn_their_log() -> None:
    plain = with_log(t0=15)
    stream = reader(plain)
    following = stream.latestOffset(t(10), ALL)
    assert spans(stream.partitions(t(10), following)) == [["t/0 10..15"]]
    assert plain.history is not None
    assert following["@log"] == plain.history.to_json()


def test_of_a_long_history_the_newest_terms_are_kept() -> None:
    terms = tuple(LogTerm(epoch, epoch * 10, epoch) for epoch in range(1, 300))
    offset = StreamOffset({("t", 0): 1}, LogHistory(7, terms))
    kept = StreamOffset.from_json(json.loads(json.dumps(offset.to_json()))).history
    assert kept == LogHistory(7, terms[-64:])
    assert kept.cut_against(LogHistory(7, terms)) == NO_CUT
    with pytest.raises(OffsetsError, match="damaged"):
        StreamOffset.from_json(t(4) | {"@log": {"terms": 3}})


def test_a_topic_that_was_deleted_ends_the_stream(caplog: pytest.LogCaptureFixture) -> None:
    plain = cluster(t0=10)
    start = reader(plain).initialOffset()
    plain.deleted = "t"
    with pytest.raises(DataLossError, match=r"there is no topic t any more, .* was deleted"):
        reader(plain).latestOffset(start, ALL)
    lenient = reader(plain, failOnDataLoss="false")
    assert lenient.latestOffset(start, ALL) is start
    assert "was deleted" in caplog.text


def test_topics_are_looked_for_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("tandemlog.spark.live.live_stream.time.monotonic", lambda: now[0])
    plain = cluster(t0=10)
    stream = reader(plain)
    start = stream.latestOffset(stream.initialOffset(), ALL)
    plain.deleted = "t"
    now[0] += CHECK_TOPICS_S - 1
    stream.latestOffset(start, ALL)
    now[0] += 1
    with pytest.raises(DataLossError):
        stream.latestOffset(start, ALL)


def test_slaves_that_are_behind_do_not_send_the_stream_back() -> None:
    plain = cluster(t0=10)
    plain.sure = False
    stream = reader(plain)
    assert only(stream.latestOffset(t(20), ALL)) == t(20)


def test_a_master_whose_log_was_cut_is_a_loss() -> None:
    plain = cluster(t0=10)
    with pytest.raises(DataLossError, match="t/0 ends at 10, the stream has read up to 20"):
        reader(plain).latestOffset(t(20), ALL)
    assert only(reader(plain, failOnDataLoss="false").latestOffset(t(20), ALL)) == t(10)


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
