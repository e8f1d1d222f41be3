"""What `AsyncConsumer.work` returns: deliveries as they come, or a handler that gets each of them.

async for delivery in consumer.work("orders", group="billing"):
    ...
    await delivery.ack()

await consumer.work("orders", group="billing", handler=bill, concurrency=8)
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Sequence
from types import TracebackType
from typing import Any, Self

from ...cluster.connection import Connection
from ...errors import InvalidArgumentError
from ...forks import inherited, watch
from ...format.constants import group_fault
from ..left_open import close_later
from ..reading.selector import Selector
from .delivery import AsyncDelivery
from .handlers import HandlerRun
from .signals import error_text
from .work_calls import WorkCalls
from .work_core import NOT_SETTLED, WorkCore
from .work_options import Handler, WantedPolicy, WorkOptions, checked_prefetch, lease_in_ms
from .work_statistics import WorkStatistics


class AsyncWork:
    """The result of `work`. Nothing is received before the first delivery is asked for. Close it,
    or use `async with`: what was received and not delivered is given back at once, and what was
    delivered and not settled comes again by the group's policy."""

    def __init__(
        self, core: WorkCore, handler: Handler | None, concurrency: int, consumer: object = None
    ) -> None:
        if handler is not None and not callable(handler):
            raise InvalidArgumentError(f"handler={handler!r}: it cannot be called", field="handler")
        self._core = core
        self._handler = handler
        self._concurrency = concurrency
        self._consumer = consumer  # kept alive: its connection is used
        watch(self)

    @property
    def core(self) -> WorkCore:
        """It does the work."""
        return self._core

    @property
    def handler(self) -> Handler | None:
        """What each delivery is given to, by `run`."""
        return self._handler

    def __del__(self) -> None:
        """A loop that was left early keeps leases that no caller wants."""
        core = getattr(self, "_core", None)
        if core is None or inherited(self) or core.loop is None or core.stopping:
            return
        close_later(core, core.loop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not inherited(self):
            await self._core.close(NOT_SETTLED if error is None else error_text(error))

    def __await__(self) -> Generator[Any, None, None]:
        return self.run().__await__()

    async def run(self) -> None:
        """Calls the handler for each message, `concurrency` at a time, until `stop`; returns when
        the last handler has ended and the node has confirmed the outcomes. What a handler returns
        is not used; see `work` for what it may raise. If this call is cancelled, it ends in the
        same way before it raises CancelledError."""
        if self._handler is None:
            raise InvalidArgumentError("work without a handler has nothing to run", field="handler")
        await HandlerRun(self._core, self._handler, self._concurrency).run()

    async def poll(self, timeout_ms: float | None = None) -> AsyncDelivery | None:
        """The next delivery; None after `timeout_ms` without one, and once stopped."""
        self._check_iterated()
        try:
            taken = await self._core.next(None if timeout_ms is None else timeout_ms / 1e3)
        except TimeoutError:
            return None
        return None if taken is None else AsyncDelivery(*taken)

    def deliveries(self, timeout_ms: float | None = None) -> AsyncIterator[AsyncDelivery]:
        """Deliveries as they come; ends after `timeout_ms` without one, and once stopped. A step
        that is cancelled ends nothing."""
        self._check_iterated()
        return _Deliveries(self, timeout_ms)

    def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        return self.deliveries()

    def stop(self) -> None:
        """No delivery from now on: loops and `run` end, and what was received and not delivered is
        given back. Deliveries may still be settled until `close`. Any thread may call it, also a
        signal handler of the event loop."""
        core = self._core
        if core.loop is None:
            core.stopping = True
        elif _running_loop() is core.loop:
            core.stop()
        else:
            core.loop.call_soon_threadsafe(core.stop)

    async def close(self) -> None:
        """Stops, and waits until the node has confirmed what was settled. What was delivered and
        not settled comes again."""
        if not inherited(self):
            await self._core.close()

    def statistics(self) -> WorkStatistics:
        """What became of its messages. Any thread may call it."""
        return self._core.statistics()

    def _check_iterated(self) -> None:
        if self._handler is not None:
            raise InvalidArgumentError(
                "this work has a handler, which gets its deliveries: await it, or call `run`",
                field="handler",
            )


class _Deliveries(AsyncIterator[AsyncDelivery]):
    """Not a generator: one that is cancelled while it waits cannot continue."""

    __slots__ = ("_core", "_timeout_s", "_work")

    def __init__(self, work: AsyncWork, timeout_ms: float | None) -> None:
        self._work = work
        self._core = work.core
        self._timeout_s = None if timeout_ms is None else timeout_ms / 1e3

    async def __anext__(self) -> AsyncDelivery:
        try:
            taken = await self._core.next(self._timeout_s)
        except TimeoutError:
            taken = None
        if taken is None:
            raise StopAsyncIteration
        return AsyncDelivery(*taken)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def new_core(
    connection: Connection,
    group: str,
    topics: str | Sequence[str],
    *,
    selector: Selector,
    wanted: WantedPolicy,
    lease: float,
    prefetch: int | None,
    concurrency: int,
    options: WorkOptions | None,
) -> WorkCore:
    """See AsyncConsumer.work. Raises InvalidArgumentError."""
    names = [topics] if isinstance(topics, str) else list(topics)
    if not names:
        raise InvalidArgumentError("work needs a topic", field="topics")
    fault = group_fault(group, new=False)
    if fault is not None:
        raise InvalidArgumentError(f"group {group!r}: {fault}", field="group")
    return WorkCore(
        WorkCalls(connection, group),
        names,
        selector=selector,
        wanted=wanted,
        lease_ms=lease_in_ms(lease),
        prefetch=checked_prefetch(prefetch, concurrency),
        options=options or WorkOptions(),
    )
