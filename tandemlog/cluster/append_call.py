"""A stream of puts to a node, by gRPC or by a data connection of its own.

    write ─▶ AppendRequest ─▶ node ─▶ AppendResponse ─▶ read       in the order of the requests

Both are one stream to the sender: it writes from one task, reads from another one, and `cancel`
ends both, `read` with a CancelledError. What a stream ended with is raised by `read`, as an error
of this package.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from google.protobuf.message import DecodeError

from ..errors import TandemlogError
from ..transport import own_grpc
from ..v1 import broker_pb2
from .answer_errors import error_from_rpc
from .data_link import DataLink, DataLinkError, DataStatusError

if TYPE_CHECKING:
    import grpc
    from grpc import aio

APPEND: Final = f"/{broker_pb2.DESCRIPTOR.services_by_name['Broker'].full_name}/Append"

Failure = Callable[["grpc.StatusCode", "str | None"], Awaitable[TandemlogError]]
"""The typed error for the status with which a call has ended."""


class CallOverError(Exception):
    """Nothing can be written any more; `read` says why."""


class AppendCall(Protocol):
    """See the module."""

    async def write(self, request: Sequence[bytes | memoryview]) -> None:
        """An encoded AppendRequest in parts. Raises CallOverError."""
        ...

    async def read(self) -> broker_pb2.AppendResponse | None:
        """The next response; None once the node has ended the stream. Raises TandemlogError."""
        ...

    def cancel(self) -> None:
        """End the stream now."""
        ...


class GrpcAppendCall:
    """By gRPC."""

    def __init__(self, call: "aio.StreamStreamCall[Any, Any]", failure: Failure) -> None:
        self._call = own_grpc.note_call(call)
        self._failure = failure

    async def write(self, request: Sequence[bytes | memoryview]) -> None:
        try:
            await self._call.write(b"".join(request))
        except (own_grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
            raise CallOverError from error

    async def read(self) -> broker_pb2.AppendResponse | None:
        try:
            response: Any = await self._call.read()
        except own_grpc.aio.AioRpcError as error:
            raise await self._failure(error.code(), error.details()) from None
        return None if response is own_grpc.aio.EOF else response

    def cancel(self) -> None:
        self._call.cancel()


class DataAppendCall:
    """By a data connection of its own, which ends with it."""

    def __init__(self, link: DataLink, endpoint: str, authorization: str, failure: Failure) -> None:
        """Raises DataLinkError."""
        self._link = link
        self._endpoint = endpoint
        self._authorization = authorization
        self._failure = failure
        self._cancelled = False
        self._number, self._answers = link.start_call()

    async def write(self, request: Sequence[bytes | memoryview]) -> None:
        try:
            await self._link.append(self._number, request, self._authorization)
        except DataLinkError as error:
            raise CallOverError from error

    async def read(self) -> broker_pb2.AppendResponse | None:
        try:
            return broker_pb2.AppendResponse.FromString(bytes(await self._answers.next()))
        except DataStatusError as error:
            if not error.code:
                return None
            raise await self._failure(status_of(error.code), error.text) from None
        except (DataLinkError, DecodeError) as error:
            if self._cancelled:
                raise asyncio.CancelledError from None
            unavailable = own_grpc.grpc.StatusCode.UNAVAILABLE
            raise error_from_rpc(unavailable, str(error), self._endpoint) from None

    def cancel(self) -> None:
        self._cancelled = True
        self._link.close()


@cache
def _by_number() -> "dict[int, grpc.StatusCode]":
    return {status.value[0]: status for status in own_grpc.grpc.StatusCode}


def status_of(code: int) -> "grpc.StatusCode":
    """By its number; UNKNOWN for one that gRPC does not have."""
    return _by_number().get(code, own_grpc.grpc.StatusCode.UNKNOWN)
