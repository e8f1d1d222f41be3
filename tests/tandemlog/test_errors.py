"""What a failed call becomes: a typed error whose text is one line."""

import grpc
import pytest
from grpc import aio

from tandemlog import errors
from tandemlog.cluster.answer_errors import error_from_rpc
from tandemlog.errors import (
    AuthenticationError,
    BatchTooLargeError,
    InvalidArgumentError,
    NodeUnavailableError,
    PermissionDeniedError,
    RefusedError,
    TandemlogError,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, NodeUnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, BatchTooLargeError),
        (grpc.StatusCode.UNIMPLEMENTED, InvalidArgumentError),
        (grpc.StatusCode.UNAUTHENTICATED, AuthenticationError),
        (grpc.StatusCode.PERMISSION_DENIED, PermissionDeniedError),
        (grpc.StatusCode.FAILED_PRECONDITION, RefusedError),
    ],
)
def test_a_failed_call_says_where_and_why_in_one_line(
    status: grpc.StatusCode, kind: type[TandemlogError]
) -> None:
    fault = aio.AioRpcError(
        status, aio.Metadata(), aio.Metadata(), details="one\n  two", debug_error_string="x\ny"
    )
    error = error_from_rpc(fault.code(), fault.details(), "h:1")
    assert type(error) is kind
    words = status.name.lower().replace("_", " ")
    assert str(error).splitlines()[0].startswith(f"h:1: {words}: one two")
    assert "\n" not in str(error)


REFUSED = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
    "Failed to connect to remote host: Connection refused"
)
UNRESOLVED = (
    "errors resolving x.invalid:1: [field:hostname lookup error:address lookup failed for "
    "x.invalid:1: Domain name not found]"
)
CLOSED = (
    "failed to connect to all addresses; last error: UNAVAILABLE: ipv4:127.0.0.1:1: Socket closed"
)


@pytest.mark.parametrize(
    ("status", "details", "reason"),
    [
        (grpc.StatusCode.UNAVAILABLE, REFUSED, "connection refused"),
        (grpc.StatusCode.UNAVAILABLE, UNRESOLVED, "name not resolved"),
        (grpc.StatusCode.UNAVAILABLE, CLOSED, "no gRPC without TLS there: socket closed"),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", "socket closed"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "no answer in time"),
        (grpc.StatusCode.UNIMPLEMENTED, "Method not found!", "no tandemlog node"),
        (grpc.StatusCode.PERMISSION_DENIED, "", "no details"),
    ],
)
def test_a_failed_call_has_a_short_reason(
    status: grpc.StatusCode, details: str, reason: str
) -> None:
    error = error_from_rpc(status, details, "h:1")
    assert error.reason == reason
    assert error.copy().reason == reason


def test_what_the_cluster_cannot_do_now_has_one_class() -> None:
    """A web service answers 503 to it."""
    now = {name for name in dir(errors) if _is(name, errors.UnavailableError)}
    assert now >= {"NoMasterError", "NoNodeError", "BusyError", "NotInSyncError", "NotMasterError"}
    retryable = {
        name for name in dir(errors) if _is(name, errors.TandemlogError) and _kind(name).retryable
    }
    assert retryable == now


def _kind(name: str) -> type[errors.TandemlogError]:
    kind: type[errors.TandemlogError] = getattr(errors, name)
    return kind


def _is(name: str, base: type) -> bool:
    return isinstance(getattr(errors, name), type) and issubclass(getattr(errors, name), base)
