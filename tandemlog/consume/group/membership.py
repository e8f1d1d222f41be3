"""Keeps a stream a member of its group: heartbeats to the master, and what they ask for.

    report ──GroupHeartbeat, a long poll──▶ master ──▶ session ─▶ take      fetch offsets ─▶ read
      ▲ at once after a change                                   ─▶ give up  let go ─▶ commit
      └───────────────────────────────────────────────────────── ─▶ lost     stop reading now

A long poll that a change interrupts is cancelled, and the next request does not wait: its response
has the whole assignment, whatever became of the cancelled one. While no master responds the stream
reads on until its session must have timed out (group_session.py). A caller that does not come back
for max_poll_interval_ms counts as stuck: the member leaves, and joins again when it comes.
"""

import asyncio
import contextlib
import logging
import os
import random
import socket
import uuid
from collections.abc import Collection, Coroutine, Mapping
from typing import Any, Protocol

from ...cluster.connection import Connection
from ...cluster.node import left_if_it_fails
from ...errors import (
    FencedInstanceError,
    FencedMemberError,
    InternalError,
    InvalidArgumentError,
    OutcomeUnknownError,
    TandemlogError,
)
from ...v1 import broker_pb2
from ..follow_options import FollowOptions
from ..interruptible import Interruptible
from ..reading.positions import Queue
from .group_admin import NOT_KNOWN_THERE
from .group_session import GroupSession, Todo

logger = logging.getLogger(__name__)

_GOODBYE_MS = 2_000
"""For the master to hear that a member leaves; its session ends by itself otherwise."""
_FASTEST_S = 0.02
"""Between two reports where nothing changed."""


class Reading(Protocol):
    """What the member reads with."""

    async def starts(self, queues: Collection[Queue]) -> Mapping[Queue, int]:
        """The offsets at which the group continues in `queues`."""

    def assigned(self, starts: Mapping[Queue, int]) -> None:
        """Read these too."""

    def parts(self, queues: frozenset[Queue]) -> list[frozenset[Queue]]:
        """Queues that can be given up together: those in the caller's hands take longer."""

    async def give_up(self, queues: Collection[Queue]) -> None:
        """Stop delivering; returns when the caller has nothing of them, and they are committed."""

    def lost(self, queues: Collection[Queue], reason: str, former: tuple[str, int]) -> None:
        """Stop delivering. Further commits of them are in the name of the `former` member (id and
        epoch), and count unless another one has owned them since."""

    async def before_join(self) -> None:
        """Save what is done of lost queues: from the next report on, others may own them."""

    def failed(self, error: TandemlogError) -> None:
        """The stream ends."""

    def assignment_changed(self) -> None:
        """Called after each change of what is owned, or may be."""

    def caller_step(self) -> object | None:
        """A value that changes each time the caller comes back; None while it waits for
        messages."""


class Membership:
    """One member, until `leave`. One event loop."""

    def __init__(
        self,
        connection: Connection,
        reading: Reading,
        options: FollowOptions,
        *,
        group: str,
        topics: Collection[str],
        instance_id: str = "",
    ) -> None:
        self._connection = connection
        self._reading = reading
        self._max_poll_s = options.max_poll_interval_ms / 1e3
        self._session = GroupSession(
            group=group,
            member_id=_new_id(),
            topics=tuple(sorted(topics)),
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.rebalance_timeout_ms,
            instance_id=instance_id,
            client_id=f"{socket.gethostname()}@{os.getpid()}",
        )
        self._call: Interruptible[broker_pb2.GroupHeartbeatResponse] = Interruptible()
        self.last_failure = ""
        self._caller_since = self._now()
        self._present = asyncio.Event()
        self._present.set()
        self._moves: set[asyncio.Task[None]] = set()
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._guard(self._report()), name="tandemlog-heartbeat"),
            loop.create_task(self._guard(self._watch()), name="tandemlog-member-watch"),
        ]

    @property
    def identity(self) -> tuple[str, int]:
        """Member id and epoch, for commits."""
        return self._session.member_id, self._session.epoch

    @property
    def deadline(self) -> float | None:
        """The time of the loop's clock from which on nothing may be delivered; None while nothing
        is owned."""
        return self._session.deadline

    @property
    def settled(self) -> bool:
        """Whether the member has its share among the group's present members."""
        return self._session.settled

    def set_topics(self, topics: Collection[str]) -> None:
        """The subscription, if that changed."""
        wanted = tuple(sorted(topics))
        if wanted != self._session.topics:
            self._session.topics = wanted
            self._call.interrupt()

    def check(self) -> None:
        """Ask the master at once: it refused what this member believed to own. Also gives up what
        is out of time."""
        self._apply(self._session.out_of_time(self._now()), "its session timed out")
        self._call.interrupt()

    def caller_is_here(self) -> bool:
        """A member that left because its caller was stuck joins again. Returns whether it had
        left."""
        had_left = not self._present.is_set()
        self._caller_since = self._now()
        if had_left:
            logger.info("the caller is back: joining group %s again", self._session.group)
            self._present.set()
        return had_left

    async def leave(self) -> None:
        """The queues are free for others at once; those of a static member wait for it."""
        await self._stop()
        await self._say_goodbye(self._session.goodbye())

    async def _stop(self) -> None:
        tasks = [*self._tasks, *self._moves]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self.joined.done():
            self.joined.cancel()

    async def _say_goodbye(self, goodbye: broker_pb2.GroupHeartbeatRequest) -> None:
        with contextlib.suppress(TandemlogError, TimeoutError):
            async with asyncio.timeout(_GOODBYE_MS / 1e3):
                await self._ask(goodbye, _GOODBYE_MS)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:
            if not isinstance(error, TandemlogError):
                logger.exception("a member of a group failed")
                error = TandemlogError(f"the client failed: {error!r}")
            self._apply(self._session.fenced(_new_id()), str(error))
            self._reading.failed(error)
            if not self.joined.done():
                self.joined.set_exception(error.copy())

    async def _report(self) -> None:
        """Keeps sending heartbeats; raises what ends the membership."""
        wait, failures, idle = False, 0, 0
        while True:
            await self._present.wait()
            try:
                if not self._session.is_member:
                    await self._reading.before_join()
                request, sent_at = self._session.request(wait=wait), self._now()
                response = await self._interruptible(request)
            except FencedMemberError as error:
                logger.warning("member of group %s joins again: %s", self._session.group, error)
                self._apply(self._session.fenced(_new_id()), str(error))
                wait, failures = False, failures + 1
                await asyncio.sleep(_backoff_s(failures))
                continue
            except TandemlogError as error:
                # a heartbeat may be repeated, also one whose outcome is not known
                passing = error.retryable or isinstance(error, InternalError | OutcomeUnknownError)
                if not passing:
                    raise self._explained(error) from error
                logger.info("no heartbeat in group %s: %s", self._session.group, error)
                self.last_failure = str(error)
                wait, failures = False, failures + 1
                await asyncio.sleep(_backoff_s(failures))
                continue
            failures, wait = 0, False
            if response is None or not self._present.is_set():
                continue
            todo = self._session.heard(request.number, sent_at, response)
            changed = bool(todo.take or todo.give_up)
            self._apply(todo, "")
            if self._session.is_member and not self.joined.done():
                self.joined.set_result(None)
            wait = not changed
            early = self._now() - sent_at < _FASTEST_S
            idle = idle + 1 if wait and early else 0
            if idle > 1:
                await asyncio.sleep(_FASTEST_S)

    async def _interruptible(
        self, request: broker_pb2.GroupHeartbeatRequest
    ) -> broker_pb2.GroupHeartbeatResponse | None:
        """The response; None if a change at this end interrupted the call."""
        silence_ms = min(
            self._connection.options.request_timeout_ms,
            max(self._session.session_timeout_ms // 3, 500),
        )
        return await self._call.result(self._ask(request, request.wait_ms + silence_ms))

    async def _ask(
        self, request: broker_pb2.GroupHeartbeatRequest, timeout_ms: int
    ) -> broker_pb2.GroupHeartbeatResponse:
        node = await self._connection.master()
        with left_if_it_fails(node, self._connection.forget_master):
            return await node.ask(node.broker.GroupHeartbeat, request, timeout_ms)

    def _explained(self, error: TandemlogError) -> TandemlogError:
        if isinstance(error, InvalidArgumentError) and error.reason == NOT_KNOWN_THERE:
            return InvalidArgumentError(
                f"the master is too old to share topics among the members of group "
                f"{self._session.group!r}: update the nodes to 0.2, or name the queues of each "
                f"consumer with queues= ({error})",
                field="group",
                reason=error.reason,
            )
        if isinstance(error, FencedInstanceError):
            return error.restated(
                f"another process took over instance_id {self._session.instance_id!r} of group "
                f"{self._session.group!r}: {error}"
            )
        return error

    def _apply(self, todo: Todo, reason: str) -> None:
        if todo.lost or not self._session.is_member:
            for task in self._moves:
                task.cancel()
        if todo.lost:
            self._reading.lost(todo.lost, reason, todo.former)
        for part in self._reading.parts(todo.give_up):
            self._move(self._give_up(part))
        if todo.take:
            self._move(self._take(todo.take))
        self._reading.assignment_changed()

    def _move(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guard(work), name="tandemlog-move")
        self._moves.add(task)
        task.add_done_callback(self._moves.discard)

    async def _take(self, queues: Mapping[Queue, int]) -> None:
        failures = 0
        while True:
            queues = self._session.still_taking(queues)
            if not queues:
                return
            try:
                starts = await self._reading.starts(queues.keys())
                break
            except TandemlogError as error:
                if not (error.retryable or isinstance(error, FencedMemberError)):
                    raise
                logger.info("queues of group %s wait: %s", self._session.group, error)
                failures += 1
                await asyncio.sleep(_backoff_s(failures))
        mine = self._session.took({queue: queues[queue] for queue in starts})
        if mine:
            self._reading.assigned({queue: starts[queue] for queue in mine})
        self._reading.assignment_changed()
        self._call.interrupt()

    async def _give_up(self, queues: Collection[Queue]) -> None:
        await self._reading.give_up(queues)
        self._apply(self._session.gave_up(queues), "")
        self._call.interrupt()

    async def _watch(self) -> None:
        """Gives up what is out of time, and leaves the group if the caller does not come back."""
        step_s = min(self._max_poll_s / 20, self._session.session_timeout_ms / 1e4)
        seen: object | None = None
        while True:
            now, deadline = self._now(), self._session.deadline
            await asyncio.sleep(step_s if deadline is None else max(0, min(step_s, deadline - now)))
            now = self._now()
            self._apply_lost(self._session.out_of_time(now), "its session timed out")
            at = self._reading.caller_step()
            if at is None and not self._present.is_set():
                self.caller_is_here()  # it lost nothing, so it waits for messages without asking
            if at is None or at != seen or not self.joined.done():
                seen, self._caller_since = at, now
            elif now - self._caller_since >= self._max_poll_s and self._present.is_set():
                await self._leave_for_the_caller()

    def _apply_lost(self, todo: Todo, reason: str) -> None:
        if todo.lost:
            self._apply(todo, reason)
            self._call.interrupt()

    async def _leave_for_the_caller(self) -> None:
        reason = f"the caller did not ask for more in {self._max_poll_s:g} s (max_poll_interval_ms)"
        logger.warning("member leaves group %s: %s", self._session.group, reason)
        self._present.clear()
        self._call.interrupt()
        goodbye = self._session.goodbye()
        self._apply(self._session.fenced(_new_id()), reason)
        await self._say_goodbye(goodbye)


def _new_id() -> str:
    return str(uuid.uuid4())


def _backoff_s(failures: int) -> float:
    """More and more, and not all members at once."""
    return min(0.05 * float(1 << min(failures, 4)), 0.5) * random.uniform(0.5, 1)
