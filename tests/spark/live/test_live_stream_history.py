"""A stream compares its offsets with the log's history: cuts, other logs, changes of master."""

import json

import pytest

from fakes.live_stream import ALL, change_after_held, held, only, reader, spans, t, with_log
from tandemlog.spark.cluster.cluster_errors import ClusterError, DataLossError
from tandemlog.spark.cluster.stream_offset import StreamOffset


def test_no_progress_is_noted_of_messages_that_were_cut() -> None:
    """The group would skip those that have their offsets now."""
    plain = with_log(t0=10, t1=10)
    stream = reader(plain, groupId="g", startingOffsets="earliest")
    end = stream.latestOffset(stream.initialOffset(), ALL)
    plain.begin_log(1, (1, 0), (2, 500), t0=6)
    plain.grow(t0=20, t1=20)
    stream.commit(end)
    assert plain.groups["g"] == {("t", 0): 0, ("t", 1): 10}


def test_a_start_is_committed_in_the_log_in_which_it_was_found() -> None:
    plain = with_log(t0=10)

    def lead_again() -> None:  # a change of master, which has lost some and got others
        plain.begin_log(1, (1, 0), (2, 500), t0=6)
        plain.grow(t0=12)

    change_after_held(plain, lead_again)
    assert only(reader(plain, groupId="g").initialOffset()) == t(12)
    assert plain.groups["g"] == {("t", 0): 12}


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


def test_a_new_term_between_two_answers_is_no_cut() -> None:
    """The ends are those of the log that is kept beside them."""
    plain = with_log(t0=10)
    stream = reader(plain, startingOffsets="earliest")
    start = stream.initialOffset()

    def lead_again() -> None:  # a change of master, and messages, just behind the answer
        plain.begin_log(1, (1, 0), (2, 500))
        plain.grow(t0=15)

    change_after_held(plain, lead_again)
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
