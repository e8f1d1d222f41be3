"""One attempt of a request at one endpoint: connected, logged in, answered, believed.

    connection ready ─▶ token, where there is a user ─▶ send ─▶ answer ─▶ guard

`hasleader` makes a member that has lost its quorum say so at once, where it would let the request
wait for seconds, or answer from what it last knew.

A change is sent only to an endpoint that has given a believed answer over its present connection:
otherwise one read goes before, so that a foreign or rolled back store is found out before it is
changed, not after.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from grpc import aio

from tandemlog.v1 import coordinator_pb2 as pb

from .connections import Connections
from .guard import AnswerGuard, Seen
from .login import Login
from .methods import AUTHENTICATE, RANGE, Answer, Method, Request
from .options import CoordinatorOptions
from .verdicts import (
    AUTH_NOT_ENABLED,
    AttemptError,
    Verdict,
    attempt_error,
    ended,
    unless_cancelled,
)

Each = TypeVar("Each")
Metadata = tuple[tuple[str, str], ...]


class Attempts:
    """See the module. `monotonic` gives seconds; the time left of an attempt is counted by it."""

    def __init__(self, options: CoordinatorOptions, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._monotonic = monotonic
        self._connections = Connections(options)
        self._login = Login(self._log_in, monotonic)
        self._auth_is_off = False
        self._trusted: set[str] = set()
        self._closed = asyncio.Event()
        self.guard = AnswerGuard()

    async def close(self) -> None:
        self._closed.set()
        self._login.close()
        await self._connections.close()

    async def unary(
        self,
        endpoint: str,
        method: Method[Request, Answer],
        request: Request,
        *,
        seconds: float,
        changes: bytes = b"",
        linearizable: bool = True,
    ) -> Answer:
        """The answer, within `seconds`. A request that changes something names in `changes` a key
        that it touches. Raises AttemptError."""
        until = self._monotonic() + seconds
        if changes:
            await self._logged_in(endpoint, until)
            if endpoint not in self._trusted:
                await self._prove(endpoint, changes, until)
        return await self._believed(endpoint, method, request, until, linearizable=linearizable)

    async def keep_alive(
        self, endpoint: str, method: Method[Request, Answer], request: Request, *, seconds: float
    ) -> tuple[Answer, float]:
        """The first answer of a stream, with the time before its request was sent."""
        until = self._monotonic() + seconds
        channel, token = await self._logged_in(endpoint, until)
        before = self.guard.seen(endpoint)
        call = _stream(channel, method, token, self._left(endpoint, until))
        try:
            sent = self._monotonic()
            await self._unless_closed(endpoint, call.write(request))
            answer = await self._unless_closed(endpoint, call.read())
        except aio.AioRpcError as error:
            raise self._failed(attempt_error(endpoint, error), token) from error
        except asyncio.InvalidStateError as error:
            raise self._failed(await ended(endpoint, call), token) from error
        except asyncio.CancelledError as error:
            raise unless_cancelled(endpoint) from error
        finally:
            call.cancel()
        if answer is aio.EOF:
            raise self._failed(await ended(endpoint, call), token)
        self.believe(endpoint, answer.header, before, linearizable=False)
        return answer, sent

    async def open_stream(
        self, endpoint: str, method: Method[Request, Answer], *, seconds: float
    ) -> tuple[Any, str]:
        """A stream without a deadline, and the token it was opened with; connecting and the login
        take `seconds` at most."""
        channel, token = await self._logged_in(endpoint, self._monotonic() + seconds)
        return _stream(channel, method, token, None), token

    def believe(
        self, endpoint: str, header: pb.ResponseHeader, before: Seen, *, linearizable: bool
    ) -> None:
        """Take over what an answer tells. Raises AttemptError where it must not be believed: what
        it answers was done there all the same."""
        fault = self.guard.fault(endpoint, header, before, linearizable=linearizable)
        if fault:
            self.distrust(endpoint)
            raise AttemptError(Verdict.AMBIGUOUS, endpoint, fault)
        self.guard.believe(endpoint, header)

    def distrust(self, endpoint: str) -> None:
        """Before the next change there, a read comes first."""
        self._trusted.discard(endpoint)

    def forget(self, token: str) -> None:
        """It was refused: the next attempt logs in again, unless that has been done since."""
        self._login.forget(token)

    async def _prove(self, endpoint: str, key: bytes, until: float) -> None:
        request = pb.RangeRequest(key=key, count_only=True)
        try:
            await self._believed(endpoint, RANGE, request, until, linearizable=True)
        except AttemptError as error:
            if error.verdict is Verdict.AMBIGUOUS:
                error.verdict = Verdict.ELSEWHERE  # the change itself has not been sent
            raise

    async def _believed(
        self,
        endpoint: str,
        method: Method[Request, Answer],
        request: Request,
        until: float,
        *,
        linearizable: bool,
    ) -> Answer:
        before = self.guard.seen(endpoint)
        channel, token = await self._logged_in(endpoint, until)
        answer = await self._call(endpoint, channel, method, request, token, until)
        header: pb.ResponseHeader = answer.header  # type: ignore[attr-defined]
        self.believe(endpoint, header, before, linearizable=linearizable)
        if linearizable:
            self._trusted.add(endpoint)
        return answer

    async def _call(
        self,
        endpoint: str,
        channel: aio.Channel,
        method: Method[Request, Answer],
        request: Request,
        token: str,
        until: float,
    ) -> Answer:
        call: Any = channel.unary_unary(
            method.path,
            request_serializer=method.request.SerializeToString,
            response_deserializer=method.answer.FromString,
        )
        seconds = self._left(endpoint, until)
        try:
            asked = call(request, metadata=_metadata(token), timeout=seconds)
            answer: Answer = await self._unless_closed(endpoint, asked)
        except aio.AioRpcError as error:
            raise self._failed(attempt_error(endpoint, error), token) from error
        except asyncio.CancelledError as error:
            raise unless_cancelled(endpoint) from error
        return answer

    async def _logged_in(self, endpoint: str, until: float) -> tuple[aio.Channel, str]:
        """A channel that is ready, and the token for it, empty if none is needed."""
        channel, new = await self._connections.ready(endpoint, self._left(endpoint, until))
        if new:
            self.distrust(endpoint)
        if not self._options.user or self._auth_is_off:
            return channel, ""
        return channel, await self._login.wait(endpoint, self._left(endpoint, until))

    async def _log_in(self, endpoint: str, seconds: float) -> str:
        """Nothing that was asked for has been sent yet, so no failure here leaves a doubt."""
        until = self._monotonic() + seconds
        channel, new = await self._connections.ready(endpoint, seconds)
        if new:
            self.distrust(endpoint)
        request = pb.AuthenticateRequest(name=self._options.user, password=self._options.password)
        try:
            answer = await self._call(endpoint, channel, AUTHENTICATE, request, "", until)
        except AttemptError as error:
            if AUTH_NOT_ENABLED in str(error):
                self._auth_is_off = True
                return ""
            if error.verdict is Verdict.AMBIGUOUS:
                error.verdict = Verdict.ELSEWHERE
            raise
        return answer.token

    async def _unless_closed(self, endpoint: str, waiting: Awaitable[Each]) -> Each:
        """What `waiting` gives. Closing a channel ends most of the calls on it, but not one whose
        first bytes are not sent yet. Raises AttemptError if this client was closed meanwhile."""
        asked = asyncio.ensure_future(waiting)
        closing = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((asked, closing), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise AttemptError(Verdict.AMBIGUOUS, endpoint, "this client was closed")
            return await asked
        finally:
            asked.cancel()
            closing.cancel()

    def _failed(self, error: AttemptError, token: str) -> AttemptError:
        if error.verdict is Verdict.AMBIGUOUS:
            self.distrust(error.endpoint)
        elif error.verdict is Verdict.TOKEN:
            self.forget(token)
        return error

    def _left(self, endpoint: str, until: float) -> float:
        seconds = until - self._monotonic()
        if seconds <= 0:
            raise AttemptError(Verdict.ELSEWHERE, endpoint, "no time left to ask")
        return seconds


def _stream(
    channel: aio.Channel, method: Method[Request, Answer], token: str, timeout: float | None
) -> Any:
    call = channel.stream_stream(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.answer.FromString,
    )
    return call(metadata=_metadata(token), timeout=timeout)


def _metadata(token: str) -> Metadata:
    leader = ("hasleader", "true")
    return (leader, ("token", token)) if token else (leader,)
