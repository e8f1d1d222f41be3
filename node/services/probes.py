"""Health checks that need no identity: what all strangers together may hold by them.

    request still on its way   at most READING at a time ┐
    a Watch that is open       at most the given number  ┴─ a new one takes the place of the oldest

gRPC receives a whole request before it calls a method that is no stream, and a request may be as
large as a put. So these methods are registered as streams and read their one request here. A probe
sends it together with its headers and waits for no other; who holds requests back, or opens one
Watch after the other, ends its own. Refusing new ones would let a stranger lock out the probes of
an orchestrator, which would then restart the node.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import grpc

READING = 16
NO_REQUEST = "the call has no request"
TOO_MANY = "too many health checks without an identity are open; the oldest ones end"


class Places:
    """At most `limit` calls at a time: the oldest one is ended for a new one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._taken: dict[asyncio.Task[Any], None] = {}

    @asynccontextmanager
    async def one(self, context: Any) -> AsyncIterator[None]:
        """A place for the current task, which serves the call of `context`."""
        task = asyncio.current_task()
        assert task is not None
        while len(self._taken) >= self._limit:
            oldest = next(iter(self._taken))
            del self._taken[oldest]
            oldest.cancel()
        self._taken[task] = None
        try:
            yield
        except asyncio.CancelledError:
            if task in self._taken:
                raise
            # gRPC keeps what it has received of a call that is cancelled without a status
            task.uncancel()
            await context.abort(grpc.StatusCode.UNAVAILABLE, TOO_MANY)
        finally:
            self._taken.pop(task, None)


class Probes:
    """See the module. `watches` may be open at a time."""

    def __init__(self, watches: int) -> None:
        self._reading = Places(READING)
        self._watching = Places(watches)

    def bounded(self, handler: Any) -> Any:
        """The same method, which takes bytes, within these bounds."""
        encode = handler.response_serializer

        async def unary(requests: Any, context: Any) -> Any:
            return await handler.unary_unary(await self._request(requests, context), context)

        async def unary_stream(requests: Any, context: Any) -> AsyncIterator[Any]:
            async with self._watching.one(context):
                request = await self._request(requests, context)
                async for answer in handler.unary_stream(request, context):
                    yield answer

        if handler.response_streaming:
            return grpc.stream_stream_rpc_method_handler(
                cast("Any", unary_stream), response_serializer=encode
            )
        return grpc.stream_unary_rpc_method_handler(cast("Any", unary), response_serializer=encode)

    async def _request(self, requests: Any, context: Any) -> bytes:
        async with self._reading.one(context):
            async for data in requests:
                return cast("bytes", data)
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, NO_REQUEST)
        raise AssertionError("an aborted call goes no further")
