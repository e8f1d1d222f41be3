"""The request of a call: waited for, and decoded."""

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tandemlog.v1 import common_pb2

from ..error_status import RequestRefusedError

MAX_REQUEST_BYTES = 1 << 20
"""Of one request that is not a put. Decoding takes some 10 ms a MiB at the worst, in the loop."""
RECEIVE_S = 60.0

Request = TypeVar("Request", bound=Message)


async def received(requests: AsyncIterator[bytes]) -> bytes:
    """The one request of a call. Raises RequestRefusedError if it does not come."""
    try:
        async with asyncio.timeout(RECEIVE_S):
            async for data in requests:
                return data
    except TimeoutError:
        reason = f"the request did not come within {RECEIVE_S:g} s"
    else:
        reason = "the call has no request"
    raise RequestRefusedError(common_pb2.INVALID_ARGUMENT, reason, field="request")


def decoded(kind: type[Request], data: bytes) -> Request:
    """The request in `data`. Raises RequestRefusedError for one that is too large, or none."""
    name = kind.DESCRIPTOR.name
    if len(data) > MAX_REQUEST_BYTES:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            f"a {name} may have at most {MAX_REQUEST_BYTES} bytes, not {len(data)}; split the "
            "request",
            field="request",
            limit=MAX_REQUEST_BYTES,
            actual=len(data),
        )
    try:
        return kind.FromString(data)
    except DecodeError:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT, f"the request is not a valid {name}", field="request"
        ) from None
