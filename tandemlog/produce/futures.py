"""The futures of single sends, a group for each request.

    SendFuture ── (group, index) ──▶ SyncGroup: one condition, one answer for the request

A concurrent future with a lock, a condition and lists of its own costs more than framing a
message. All futures of a request are answered at the same moment, so a future is only a place in
its group, and an answer is noted once for thousands of them. The group does not hold its futures;
those with a callback, or in concurrent.futures.wait, are notified one by one.

`concurrent.futures.wait`, `as_completed` and `asyncio.wrap_future` work as on any other future:
what their code reads and writes (`_state`, `_waiters`, ...) is there, as properties.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, CANCELLED_AND_NOTIFIED, FINISHED, PENDING
from typing import Any

from ..errors import ForkedClientError, TandemlogError
from ..forks import watch
from ..message import SendResult
from ..put_answer import PutAnswer

_DONE = (FINISHED, CANCELLED, CANCELLED_AND_NOTIFIED)


class SendFuture(Future[SendResult]):
    """The outcome of one send, for any thread. Cancelling stops the waiting, not the message."""

    __slots__ = ("_group", "_index")

    # Set by the group, without the base's __init__: that would make a condition and lists for each.
    _group: "SyncGroup"
    _index: int

    def result(self, timeout: float | None = None) -> SendResult:
        self._wait(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._wait(timeout)
        return super().exception(0)

    def _wait(self, timeout: float | None) -> None:
        """The base waits for one notification; that may have been for others of the group."""
        if self._state in _DONE:
            return
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._condition:
            while self._state not in _DONE:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return
                self._condition.wait(left)

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        return self._group.condition

    @property
    def _state(self) -> str:
        own: str | None = self.__dict__.get("own_state")
        return own or (FINISHED if self._group.is_known(self._index) else PENDING)

    @_state.setter
    def _state(self, state: str) -> None:
        self.__dict__["own_state"] = state

    @property
    def _result(self) -> SendResult | None:  # type: ignore[override]
        return self._group.result(self._index)

    @property
    def _exception(self) -> TandemlogError | None:  # type: ignore[override]
        error: TandemlogError | None = self.__dict__.get("own_error")
        if error is None and (shared := self._group.error(self._index)) is not None:
            error = self.__dict__["own_error"] = shared.copy()
        return error

    @property
    def _waiters(self) -> list[Any]:  # type: ignore[override]
        return self._list("waiters")

    @property
    def _done_callbacks(self) -> list[Callable[["SendFuture"], object]]:
        return self._list("callbacks")

    def _list(self, name: str) -> list[Any]:
        """Under the condition; created when a caller first wants to be notified."""
        found: list[Any] | None = self.__dict__.get(name)
        if found is None:
            found = self.__dict__[name] = []
            self._group.interested[self._index] = self
        return found


_new_future = SendFuture.__new__


class SyncGroup:
    """The outcome of one request, for SendFutures 0 .. count-1 of it."""

    __slots__ = (
        "__weakref__",
        "_answer",
        "_error",
        "_errors",
        "_places",
        "condition",
        "interested",
    )

    divisible = True

    def __init__(self) -> None:
        self.condition = threading.Condition()
        self.interested: dict[int, SendFuture] = {}
        self._answer: PutAnswer | None = None
        self._error: TandemlogError | None = None
        # Only where a message of the request was refused alone: its error, and where the others
        # stand in what is left of the request.
        self._errors: dict[int, TandemlogError] = {}
        self._places: dict[int, int] | None = None
        watch(self)

    def in_child(self, error: ForkedClientError) -> None:
        """After a fork, in the child: no thread is left to answer, or to release the lock."""
        self.condition = threading.Condition()
        self.interested.clear()
        if self._answer is None and self._error is None:
            self._error = error

    def add(self, index: int) -> SendFuture:
        future = _new_future(SendFuture)
        future._group = self
        future._index = index
        return future

    def is_known(self, index: int) -> bool:
        return self._answer is not None or self._error is not None or index in self._errors

    def result(self, index: int) -> SendResult | None:
        if self._answer is None or index in self._errors:
            return None
        return SendResult(self._answer, index if self._places is None else self._places[index])

    def error(self, index: int) -> TandemlogError | None:
        return self._errors.get(index, self._error)

    def acknowledged(self, answer: PutAnswer) -> None:
        with self.condition:
            self._answer = answer
            notified = self._tell_locked()
        self._call_back(notified)

    def failed(self, error: TandemlogError) -> None:
        with self.condition:
            self._error = error
            notified = self._tell_locked()
        self._call_back(notified)

    def without(
        self, kept: Sequence[int], dropped: Sequence[int], error: TandemlogError
    ) -> "SyncGroup":
        with self.condition:
            everything = range(len(kept) + len(dropped))
            before = everything if self._places is None else self._original_indexes()
            for place in dropped:
                self._errors[before[place]] = error
            self._places = {before[place]: new for new, place in enumerate(kept)}
            told = self._tell_locked()
        self._call_back(told)
        return self

    def _original_indexes(self) -> list[int]:
        assert self._places is not None
        return sorted(self._places, key=self._places.__getitem__)

    def _tell_locked(self) -> list[SendFuture]:
        """Wakes those who wait, and returns whose callbacks are to be called."""
        notified = []
        for index, future in list(self.interested.items()):
            if not self.is_known(index):
                continue
            del self.interested[index]
            if future._state == FINISHED:
                notified.append(future)
                for waiter in future._waiters:
                    if future._exception is None:
                        waiter.add_result(future)
                    else:
                        waiter.add_exception(future)
                self.interested.pop(index, None)
        self.condition.notify_all()
        return notified

    @staticmethod
    def _call_back(futures: list[SendFuture]) -> None:
        for future in futures:
            future._invoke_callbacks()  # type: ignore[attr-defined]


class AsyncGroup:
    """The asyncio futures of one request; all in one event loop."""

    divisible = True

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.futures: list[asyncio.Future[SendResult]] = []
        watch(self)

    def in_child(self, error: ForkedClientError) -> None:
        """After a fork, in the child: no thread is left to answer."""
        for future in self.futures:
            if not future.done():
                future.set_exception(error.copy())
                future.exception()  # the program need not ask for it

    def add(self, index: int) -> asyncio.Future[SendResult]:
        future: asyncio.Future[SendResult] = self._loop.create_future()
        self.futures.append(future)
        return future

    def acknowledged(self, answer: PutAnswer) -> None:
        for index, future in enumerate(self.futures):
            if not future.done():
                future.set_result(SendResult(answer, index))

    def failed(self, error: TandemlogError) -> None:
        for future in self.futures:
            if not future.done():
                future.set_exception(error.copy())

    def without(
        self, kept: Sequence[int], dropped: Sequence[int], error: TandemlogError
    ) -> "AsyncGroup":
        for index in dropped:
            if not self.futures[index].done():
                self.futures[index].set_exception(error.copy())
        group = AsyncGroup(self._loop)
        group.futures = [self.futures[index] for index in kept]
        return group
