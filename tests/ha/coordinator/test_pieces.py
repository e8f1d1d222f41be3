"""Options, values, rotation and verdicts of the coordinator's client."""

import grpc
import pytest

from tandemlog_server.ha.coordinator.coordinator_errors import (
    CoordinatorRefusedError,
    CoordinatorUnavailableError,
    UnknownOutcomeError,
)
from tandemlog_server.ha.coordinator.options import CoordinatorOptions
from tandemlog_server.ha.coordinator.rotation import Rotation
from tandemlog_server.ha.coordinator.values import (
    Compare,
    Delete,
    Get,
    KeyRange,
    Put,
    Relation,
    Subject,
    Txn,
    absent,
    prefix_end,
    with_prefix,
)
from tandemlog_server.ha.coordinator.verdicts import Verdict, verdict_of

Code = grpc.StatusCode


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"endpoints": ()}, "endpoint"),
        ({"endpoints": ("a:1", "a:1")}, "twice"),
        ({"attempt_s": 3.0}, "attempt_s"),
        ({"attempt_s": 0.0}, "attempt_s"),
        ({"probe_s": 0.0}, "probe_s"),
        ({"keepalive_s": 2.0}, "keepalive_s"),
        ({"user": "u"}, "password"),
    ],
)
def test_wrong_options_are_named(settings: dict[str, object], named: str) -> None:
    values = {"endpoints": ("a:1",), **settings}
    with pytest.raises(ValueError, match=named):
        CoordinatorOptions(**values)  # type: ignore[arg-type]


def test_secrets_do_not_show() -> None:
    options = CoordinatorOptions(("a:1",), user="u", password="secret-word")
    assert "secret" not in repr(options)


def test_the_end_of_a_prefix() -> None:
    assert prefix_end(b"a/") == b"a0"
    assert prefix_end(b"a\xff\xff") == b"b"
    for endless in (b"", b"\xff"):
        with pytest.raises(ValueError, match="prefix"):
            prefix_end(endless)


def test_what_a_range_holds() -> None:
    prefixed = with_prefix(b"a/")
    assert b"a/" in prefixed
    assert b"a/\xff\xff" in prefixed
    assert b"a0" not in prefixed
    assert b"b" in KeyRange(b"b")
    assert b"ba" not in KeyRange(b"b")


def test_a_value_is_compared_with_bytes_alone() -> None:
    with pytest.raises(ValueError, match="value"):
        Compare(b"k", Subject.VALUE, Relation.EQUAL, 1)
    with pytest.raises(ValueError, match="version"):
        Compare(b"k", Subject.VERSION, Relation.EQUAL, b"1")


def test_which_transactions_may_write() -> None:
    read = Get(KeyRange(b"k"))
    assert not Txn((absent(b"k"),), (read,), (read,)).may_write
    assert Txn((absent(b"k"),), (read,), (Put(b"k", b""),)).may_write
    assert Txn((), (Delete(KeyRange(b"k")),)).may_write


def test_endpoints_take_turns() -> None:
    rotation = Rotation(("a", "b", "c"))
    assert rotation.current == "a"
    rotation.leave("a")
    rotation.leave("a")  # somebody else has left it already
    assert rotation.current == "b"
    assert not rotation.round_ended
    rotation.leave("b")
    rotation.leave("c")
    assert rotation.current == "a"
    assert rotation.round_ended


@pytest.mark.parametrize(
    ("code", "details", "verdict"),
    [
        (Code.UNAVAILABLE, "etcdserver: no leader", Verdict.ELSEWHERE),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: too many requests", Verdict.ELSEWHERE),
        (Code.RESOURCE_EXHAUSTED, "Concurrent RPC limit exceeded!", Verdict.ELSEWHERE),
        (Code.UNAVAILABLE, "coordinator: streams: 3, the limit is 2", Verdict.ELSEWHERE),
        (Code.UNAVAILABLE, "Socket closed", Verdict.AMBIGUOUS),
        (Code.UNAVAILABLE, "etcdserver: request timed out", Verdict.AMBIGUOUS),
        (Code.DEADLINE_EXCEEDED, "Deadline Exceeded", Verdict.AMBIGUOUS),
        (Code.UNKNOWN, "", Verdict.AMBIGUOUS),
        (Code.INTERNAL, "received a bad frame", Verdict.AMBIGUOUS),
        # the answer was too long to be received: the request may have been carried out
        (Code.RESOURCE_EXHAUSTED, "CLIENT: Received message larger", Verdict.AMBIGUOUS),
        (Code.RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", Verdict.REFUSED),
        (Code.RESOURCE_EXHAUSTED, "coordinator: the value has 9 bytes", Verdict.REFUSED),
        (
            Code.RESOURCE_EXHAUSTED,
            "grpc: received message larger than max (9 vs. 8)",
            Verdict.REFUSED,
        ),
        (Code.PERMISSION_DENIED, "etcdserver: permission denied", Verdict.REFUSED),
        (Code.UNIMPLEMENTED, "unknown service", Verdict.REFUSED),
        (Code.NOT_FOUND, "etcdserver: requested lease not found", Verdict.LEASE_LOST),
        (Code.UNAUTHENTICATED, "etcdserver: invalid auth token", Verdict.TOKEN),
        (Code.INVALID_ARGUMENT, "etcdserver: revision of auth store is old", Verdict.TOKEN),
    ],
)
def test_what_a_failed_attempt_means(code: grpc.StatusCode, details: str, verdict: Verdict) -> None:
    assert verdict_of(code, details) is verdict


def test_an_unknown_outcome_is_never_taken_for_an_unavailable_coordinator() -> None:
    assert not issubclass(UnknownOutcomeError, CoordinatorUnavailableError)
    assert issubclass(CoordinatorRefusedError, CoordinatorUnavailableError)
