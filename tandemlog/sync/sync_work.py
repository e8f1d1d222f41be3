"""What `Consumer.work` returns: deliveries of a work queue without asyncio.

    with Consumer("10.0.0.1:10911") as consumer:
        with consumer.work("orders", group="billing") as work:
            for delivery in work:
                ...
                delivery.ack()

The loop's thread receives, renews leases and settles. Callers take what has arrived in their own
threads, any number of them, and change to the loop's thread only to wait: so this is by hand, as
Stream is.
"""

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from ..consume.work.async_work import AsyncWork
from ..consume.work.delivery import Delivery
from ..consume.work.handlers import is_coroutine_function
from ..consume.work.signals import error_text
from ..consume.work.work_core import NOT_SETTLED
from ..consume.work.work_statistics import WorkStatistics
from ..errors import InvalidArgumentError
from ..forks import inherited, watch
from .loop_thread import LoopThread


class Work:
    """The result of `work`; any number of threads may take deliveries. Nothing is received before
    the first delivery is asked for. Close it, or use `with`: what was received and not delivered
    is given back at once, and what was delivered and not settled comes again by the group's
    policy."""

    def __init__(self, thread: LoopThread, work: AsyncWork) -> None:
        if work.handler is not None and is_coroutine_function(work.handler):
            raise InvalidArgumentError(
                "a handler that is a coroutine function needs AsyncConsumer", field="handler"
            )
        self._thread = thread
        self._work = work
        self._core = work.core
        watch(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not inherited(self):
            text = NOT_SETTLED if error is None else error_text(error)
            self._thread.run(self._core.close(text))

    def run(self) -> None:
        """Calls the handler for each message, `concurrency` at a time in threads of their own,
        until `stop`; returns when the last handler has ended and the node has confirmed the
        outcomes. What a handler returns is not used; see `work` for what it may raise. An interrupt
        (Ctrl-C) ends it in the same way."""
        self._thread.run(self._work.run())

    def poll(self, timeout_ms: float | None = None) -> Delivery | None:
        """The next delivery; None after `timeout_ms` without one, and once stopped."""
        self._check_iterated()
        return self._next(None if timeout_ms is None else timeout_ms / 1e3)

    def deliveries(self, timeout_ms: float | None = None) -> Iterator[Delivery]:
        """Deliveries as they come; ends after `timeout_ms` without one, and once stopped."""
        self._check_iterated()
        return self._deliveries(None if timeout_ms is None else timeout_ms / 1e3)

    def __iter__(self) -> Iterator[Delivery]:
        return self.deliveries()

    def _deliveries(self, timeout_s: float | None) -> Iterator[Delivery]:
        while (delivery := self._next(timeout_s)) is not None:
            yield delivery

    def _next(self, timeout_s: float | None) -> Delivery | None:
        core = self._core
        while (taken := core.take()) is None:
            try:
                if not self._thread.run(core.ready(timeout_s)):
                    return None
            except TimeoutError:
                return None
        return Delivery(*taken)

    def stop(self) -> None:
        """No delivery from now on: loops and `run` end, and what was received and not delivered is
        given back. Deliveries may still be settled until `close`. Any thread may call it, also a
        signal handler."""
        self._work.stop()

    def close(self) -> None:
        """Stops, and waits until the node has confirmed what was settled. What was delivered and
        not settled comes again."""
        if not inherited(self):
            self._thread.run(self._work.close())

    def statistics(self) -> WorkStatistics:
        """What became of its messages. Any thread may call it."""
        return self._work.statistics()

    def _check_iterated(self) -> None:
        if self._work.handler is not None:
            raise InvalidArgumentError(
                "this work has a handler, which gets its deliveries: call `run`", field="handler"
            )
