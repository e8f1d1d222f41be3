"""Calls of strangers end before their request is received, so that it takes no memory.

gRPC receives the whole request of a call, up to the size of the largest put, before it asks a
method that is no stream. A caller that is not known could fill the memory with requests that are
refused one by one. An interceptor is asked earlier, and sees the headers alone: the token. A
caller that shows a certificate instead has passed TLS, and is left to the door. Health
checks that need no identity pass with bounds of their own (probes.py).

The status comes a moment later than it could: a client whose call has ended while it still
writes reports that its write has failed, and not why.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import grpc
from grpc import aio

from ..access.access_refusals import NotKnownError
from ..access.doorkeeper import Doorkeeper
from .permissions import RULES
from .probes import Probes

REFUSAL_DELAY_S = 0.05


async def refuse(context: Any, reason: str, *, writes: bool = True) -> None:
    """End a call of a caller that is not known, or not any more; `writes` says that it may be
    writing meanwhile."""
    if writes:
        await asyncio.sleep(REFUSAL_DELAY_S)
    await context.abort(grpc.StatusCode.UNAUTHENTICATED, reason)


class StrangerInterceptor(aio.ServerInterceptor):
    """See the module. `watches` of strangers' health checks may be open at a time."""

    def __init__(self, keeper: Doorkeeper, watches: int = 1) -> None:
        self._keeper = keeper
        self._probes = Probes(watches)

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> Any:
        details: Any = handler_call_details
        path = _text(details.method).removeprefix("/")
        rule = RULES.get(path)
        if rule is not None and rule.open_to_probes and self._keeper.open_health:
            return self._probes.bounded(await continuation(details))
        try:
            self._keeper.check_token(authorization_of(details.invocation_metadata))
        except NotKnownError as error:
            # the name of an unknown method is a stranger's choice, and stays out of the log
            name = path.rpartition("/")[2] if rule is not None else "(no such method)"
            return self._refusing(name, str(error))
        return await continuation(details)

    def _refusing(self, name: str, reason: str) -> Any:
        """A handler that asks for no request."""

        async def serve(_: Any, context: Any) -> None:
            self._keeper.audit.refused(name, "", context.peer(), reason)
            await refuse(context, reason)

        return grpc.stream_stream_rpc_method_handler(cast("Any", serve))


def authorization_of(metadata: Any) -> str:
    """The value of the header `authorization`; empty if there is none. Repeated headers are joined,
    which never equals a token: a proxy in between might have checked another of them."""
    return ", ".join(_text(value) for key, value in metadata or () if key == "authorization")


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode("ascii", "replace")
