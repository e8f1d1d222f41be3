"""What a failed call becomes: a typed error whose text is one line."""

import grpc
import pytest
from grpc import aio

from tandemlog.connection import rpc_error
from tandemlog.errors import (
    BatchTooLargeError,
    InvalidArgumentError,
    NodeUnavailableError,
    RefusedError,
    TandemlogError,
)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (grpc.StatusCode.UNAVAILABLE, NodeUnavailableError),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, BatchTooLargeError),
        (grpc.StatusCode.UNIMPLEMENTED, InvalidArgumentError),
        (grpc.StatusCode.PERMISSION_DENIED, RefusedError),
    ],
)
def test_a_failed_call_says_where_and_why_in_one_line(
    status: grpc.StatusCode, kind: type[TandemlogError]
) -> None:
    fault = aio.AioRpcError(
        status, aio.Metadata(), aio.Metadata(), details="one\n  two", debug_error_string="x\ny"
    )
    error = rpc_error(fault, "h:1")
    assert type(error) is kind
    words = status.name.lower().replace("_", " ")
    assert str(error).splitlines()[0].startswith(f"h:1: {words}: one two")
    assert "\n" not in str(error)
