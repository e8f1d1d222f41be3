"""An endpoint that is another cluster, or whose data went back, is not believed."""

from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.ha.coordinator.guard import AnswerGuard


def header(revision: int, term: int = 3, cluster: int = 7) -> pb.ResponseHeader:
    return pb.ResponseHeader(cluster_id=cluster, revision=revision, raft_term=term)


def guard_that_saw(revision: int) -> AnswerGuard:
    guard = AnswerGuard()
    assert not guard.fault("a:1", header(revision), guard.seen("a:1"), linearizable=True)
    guard.believe("a:1", header(revision))
    return guard


def test_another_cluster() -> None:
    guard = guard_that_saw(10)
    fault = guard.fault("b:1", header(10, cluster=8), guard.seen("b:1"), linearizable=False)
    assert "cluster 8" in fault
    assert "b:1" in fault


def test_another_cluster_while_the_first_answer_is_awaited() -> None:
    guard = AnswerGuard()
    before = guard.seen("b:1")
    guard.believe("a:1", header(10))
    assert guard.fault("b:1", header(10, cluster=8), before, linearizable=True)


def test_a_term_that_went_back_at_the_same_endpoint() -> None:
    guard = guard_that_saw(10)
    assert guard.fault("a:1", header(10, term=2), guard.seen("a:1"), linearizable=False)
    assert not guard.fault("b:1", header(10, term=2), guard.seen("b:1"), linearizable=False)


def test_a_revision_that_went_back() -> None:
    guard = guard_that_saw(10)
    assert guard.fault("b:1", header(9), guard.seen("b:1"), linearizable=True)
    assert not guard.fault("b:1", header(10), guard.seen("b:1"), linearizable=True)


def test_members_may_lag_where_the_answer_is_not_linearizable() -> None:
    guard = guard_that_saw(10)
    assert not guard.fault("b:1", header(9), guard.seen("b:1"), linearizable=False)


def test_answers_may_overtake_each_other() -> None:
    guard = guard_that_saw(10)
    before = guard.seen("a:1")
    guard.believe("a:1", header(12, term=4))
    assert not guard.fault("a:1", header(11), before, linearizable=True)


def test_a_late_answer_takes_nothing_back() -> None:
    guard = guard_that_saw(10)
    guard.believe("a:1", header(12, term=4))
    guard.believe("a:1", header(11, term=3))
    assert guard.fault("a:1", header(11, term=4), guard.seen("a:1"), linearizable=True)
    assert guard.fault("a:1", header(12, term=3), guard.seen("a:1"), linearizable=True)
