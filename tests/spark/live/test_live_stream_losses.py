"""Messages and topics that a stream should have read and cannot."""

import pytest

from fakes.live_stream import ALL, cluster, held, only, reader, spans, t
from fakes.live_topics import PlainCluster
from tandemlog.spark.cluster.cluster_errors import ClusterError, DataLossError
from tandemlog.spark.live.live_stream import CHECK_TOPICS_S


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


def test_a_planned_batch_of_an_older_version_that_retention_has_passed() -> None:
    plain = PlainCluster({("t", 0): held(150, 200)})
    stream = reader(plain, startingOffsets="earliest")
    with pytest.raises(DataLossError, match=r"the batch ends at 100, and the first .* is 150"):
        stream.partitions(stream.initialOffset(), t(100))
    lenient = reader(plain, startingOffsets="earliest", failOnDataLoss="false")
    assert lenient.partitions(lenient.initialOffset(), t(100)) == []


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
