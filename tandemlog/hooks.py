"""Hooks: code of the program around each send, each acknowledgement and each batch that is read.

    send(message) ─▶ on_send ─▶ framed ─▶ request ─▶ on_acknowledged | on_failed
    stream        ─▶ batch ─▶ on_receive ─▶ its messages

A message passes `on_send` by itself, since it may be changed there; everything else is told once
for each request or batch. A client without hooks asks for them once for each of these, and one
`if` is what a message then costs.

Tracing (tracing.py) is not a hook: a span ends with the outcome of its own message, and knows the
message's place, while a hook hears of whole requests. Were each message reported to hooks, every
hook would cost as much as tracing does.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from .errors import InvalidArgumentError
from .message import Message

logger = logging.getLogger(__name__)


class ClientHook:
    """Subclass it, with the methods that you need, for `ProducerOptions(hooks=[...])` and
    `FollowOptions(hooks=[...])`. Several hooks are called in the order of the list.

    One object may serve several clients, and `on_send` is called by every thread that sends: guard
    what it counts. Never call a client in a hook.
    """

    def on_send(self, message: Message) -> Message | None:
        """In the thread (or task) of the caller of `send`, or of `send_many` with Message objects,
        before the message is checked and framed. Returns the message to send instead, or None for
        this one. What it raises is raised to the caller, and the message is not sent; a
        `send_many` then ends as with an invalid message. Columns of a `send_many` are not seen."""
        return None

    def on_acknowledged(
        self, queues: Sequence[tuple[str, int]], count: int, latency_ms: float
    ) -> None:
        """In the client's thread, after each request: `count` messages for `queues` (topic, queue
        id) are acknowledged, `latency_ms` after the first of them was sent. An exception is logged,
        once for each kind."""

    def on_failed(self, count: int, error: Exception) -> None:
        """In the client's thread: `count` messages of a request ended in `error`, a
        TandemlogError. An exception is logged, once for each kind."""

    def on_receive(self, batch: Any) -> None:
        """In the thread (or task) that reads a stream: `batch`, a ReceivedBatch with messages of
        one queue, before the first of them is delivered. `pull` and `scan` are not seen. An
        exception is logged, once for each kind."""


class Hooks:
    """The hooks of one client, each event with those that override its method. Raises
    InvalidArgumentError for an object that is not a hook."""

    def __init__(self, hooks: Sequence[ClientHook]) -> None:
        check_hooks(hooks)
        self._logged: set[tuple[type, str, type]] = set()
        self._send = [hook.on_send for hook in hooks if _has(hook, "on_send")]
        self._acknowledged = [hook for hook in hooks if _has(hook, "on_acknowledged")]
        self._failed = [hook for hook in hooks if _has(hook, "on_failed")]
        self._receive = [hook for hook in hooks if _has(hook, "on_receive")]

    @property
    def on_send(self) -> Callable[[Message], Message] | None:
        """What to call with each message; None: nothing."""
        return self._sent if self._send else None

    @property
    def on_receive(self) -> Callable[[Any], None] | None:
        """What to call with each batch; None: nothing."""
        return self._received if self._receive else None

    @property
    def hear_of_requests(self) -> bool:
        """Whether one wants to know what became of requests."""
        return bool(self._acknowledged or self._failed)

    def acknowledged(
        self, queues: Sequence[tuple[str, int]], count: int, latency_ms: float
    ) -> None:
        """A request of `count` messages has its answer."""
        for hook in self._acknowledged:
            try:
                hook.on_acknowledged(queues, count, latency_ms)
            except Exception as error:
                self._log(hook, "on_acknowledged", error)

    def failed(self, count: int, error: Exception) -> None:
        """`count` messages of a request ended in `error`."""
        for hook in self._failed:
            try:
                hook.on_failed(count, error)
            except Exception as problem:
                self._log(hook, "on_failed", problem)

    def _sent(self, message: Message) -> Message:
        for on_send in self._send:
            changed = on_send(message)
            message = message if changed is None else changed
        return message

    def _received(self, batch: Any) -> None:
        for hook in self._receive:
            try:
                hook.on_receive(batch)
            except Exception as error:
                self._log(hook, "on_receive", error)

    def _log(self, hook: ClientHook, method: str, error: Exception) -> None:
        kind = (type(hook), method, type(error))
        if kind not in self._logged:
            self._logged.add(kind)
            logger.exception(
                "%s of %s failed; further failures of this kind are not logged", method, hook
            )


def check_hooks(hooks: Sequence[ClientHook]) -> None:
    """Raises InvalidArgumentError for anything else, such as a class instead of an object."""
    for hook in hooks:
        if not isinstance(hook, ClientHook):
            raise InvalidArgumentError(
                f"hooks are objects of subclasses of ClientHook, not {hook!r}", field="hooks"
            )


def _has(hook: ClientHook, name: str) -> bool:
    """Whether `hook` has a method of its own under this name."""
    return getattr(getattr(hook, name), "__func__", None) is not getattr(ClientHook, name)
