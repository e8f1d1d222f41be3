"""One watch: a position that moves through the revisions, over whatever stream there is.

    next revision ──▶ stream at some endpoint ──▶ events: yield, next = their last revision + 1
          ▲                    │ it ended, it is silent, it is not believed: the next endpoint
          └────────────────────┘
                               │ compacted: events are gone, the caller lists the range

A quiet stream is asked for its progress every `probe_s`; one that does not answer within
`attempt_s` is left, since a paused member keeps its connections. The events of one revision come in
one message, so a stream that breaks off never splits a transaction.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from grpc import aio

from tandemlog.v1 import coordinator_pb2 as pb

from .attempts import Attempts
from .coordinator_errors import CoordinatorRefusedError
from .etcd_messages import changes, watch_request
from .methods import WATCH
from .options import CoordinatorOptions
from .rotation import Rotation
from .values import Changes, KeyRange
from .verdicts import AttemptError, Verdict, attempt_error, ended, unless_cancelled

logger = logging.getLogger(__name__)

_PROGRESS = pb.WatchRequest(progress_request=pb.WatchProgressRequest())
_DENIED = "permission denied"


class Watching:
    """See the module. `updates` runs until the watch ends, or `compacted` is set."""

    def __init__(
        self,
        keys: KeyRange,
        from_revision: int,
        attempts: Attempts,
        rotation: Rotation,
        options: CoordinatorOptions,
        pause: Callable[[float], Awaitable[None]],
    ) -> None:
        self._keys = keys
        self._next = from_revision
        self._attempts = attempts
        self._rotation = rotation
        self._options = options
        self._pause = pause
        self._call: Any = None
        self._token = ""
        self._ended = False
        self._denied = 0
        self.compacted = False

    def end(self) -> None:
        """No more updates; the open stream is cancelled."""
        self._ended = True
        if self._call is not None:
            self._call.cancel()

    def relisted(self, revision: int) -> None:
        """The caller knows the range as it was at `revision`."""
        self._next = max(self._next, revision + 1)
        self.compacted = False

    async def updates(self) -> AsyncGenerator[Changes, None]:
        """Changes, across streams. Raises CoordinatorRefusedError."""
        while not (self._ended or self.compacted):
            endpoint = self._rotation.current
            try:
                async with aclosing(self._stream(endpoint)) as stream:
                    async for each in stream:
                        yield each
            except AttemptError as error:
                if self._ended:
                    return
                self._check(error)
                logger.debug("watch: %s", error)
                self._rotation.leave(endpoint)
                await self._pause(self._options.pause_s)

    async def _stream(self, endpoint: str) -> AsyncGenerator[Changes, None]:
        before = self._attempts.guard.seen(endpoint)
        self._call, self._token = await self._attempts.open_stream(
            endpoint, WATCH, seconds=self._options.attempt_s
        )
        reading: asyncio.Task[Any] | None = None
        try:
            await self._write(endpoint, watch_request(self._keys, self._next))
            # the answer that the watch was created is awaited as long as one to a probe
            asked = True
            while True:
                reading = reading or asyncio.create_task(self._call.read())
                patience = self._options.attempt_s if asked else self._options.probe_s
                done, _ = await asyncio.wait((reading,), timeout=patience)
                if done:
                    answer = await self._answer(endpoint, reading)
                    reading, asked = None, False
                    self._attempts.believe(endpoint, answer.header, before, linearizable=False)
                    self._note_cancellation(endpoint, answer)
                    if self.compacted:
                        return
                    if answer.events:
                        update = Changes(answer.events[-1].kv.mod_revision, changes(answer.events))
                        self._next = update.revision + 1
                        yield update
                elif asked:
                    raise AttemptError(Verdict.AMBIGUOUS, endpoint, "the watch is silent")
                else:
                    await self._write(endpoint, _PROGRESS)
                    asked = True
        finally:
            self._call.cancel()
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)

    async def _write(self, endpoint: str, request: pb.WatchRequest) -> None:
        try:
            async with asyncio.timeout(self._options.attempt_s):
                await self._call.write(request)
        except aio.AioRpcError as error:
            raise attempt_error(endpoint, error) from error
        except asyncio.InvalidStateError as error:
            raise await ended(endpoint, self._call) from error
        except asyncio.CancelledError as error:
            raise unless_cancelled(endpoint) from error
        except TimeoutError as error:
            raise AttemptError(Verdict.AMBIGUOUS, endpoint, "the watch takes no request") from error

    async def _answer(self, endpoint: str, reading: "asyncio.Task[Any]") -> pb.WatchResponse:
        if reading.cancelled():
            raise AttemptError(Verdict.AMBIGUOUS, endpoint, "the watch was cancelled")
        problem = reading.exception()
        if isinstance(problem, aio.AioRpcError):
            raise attempt_error(endpoint, problem) from problem
        if problem is not None:
            raise problem
        answer = reading.result()
        if answer is aio.EOF:
            raise await ended(endpoint, self._call)
        if not isinstance(answer, pb.WatchResponse):
            raise TypeError(f"a watch answered {type(answer)}")
        return answer

    def _note_cancellation(self, endpoint: str, answer: pb.WatchResponse) -> None:
        if answer.compact_revision:
            self.compacted = True
            return
        if answer.canceled:
            reason = answer.cancel_reason or "the watch is refused"
            denied = _DENIED in reason
            raise AttemptError(Verdict.TOKEN if denied else Verdict.AMBIGUOUS, endpoint, reason)
        self._denied = 0

    def _check(self, error: AttemptError) -> None:
        """etcd says "permission denied" for a token that is too old: log in again once."""
        if error.verdict is Verdict.REFUSED:
            raise CoordinatorRefusedError(f"watch is refused: {error}") from error
        if error.verdict is Verdict.TOKEN:
            self._denied += 1
            self._attempts.forget(self._token)
            if self._denied > 1:
                raise CoordinatorRefusedError(f"watch is refused: {error}") from error
