"""Runs a handler for each message, some at a time, and settles by how it ends.

    core ──message──▶ worker 1 .. concurrency ─▶ handler ─▶ returns              ack
                                                        ─▶ Reject                dead letter
                                                        ─▶ RetryAfter            again, then
                                                        ─▶ any other exception   again, by policy

A coroutine function runs in the event loop, any other one in a thread of its own pool, with the
context of the worker. What a handler settles by itself stays so.

When the interpreter ends while a handler's message is on its way to a thread, no thread takes it:
the message is given back, and that is a stop. It is no failed attempt.

A stop is graceful: handlers that run end, messages that no handler has seen are given back.
Handlers that run for longer than stop_timeout_ms are cancelled, and their messages count as failed.
"""

import asyncio
import contextvars
import inspect
import logging
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from .delivery import AsyncDelivery, Delivery, LeasedMessage
from .leased_batch import ACKED, REJECTED, RELEASED, RETRIED, TAKEN, Taken
from .signals import Reject, RetryAfter, error_text
from .work_core import WorkCore
from .work_options import Handler

logger = logging.getLogger(__name__)

STOPPED = "the consumer was stopped while this message was handled"


class NoThreadError(Exception):
    """No handler was called: the pool's threads are gone, since the interpreter ends."""


class HandlerRun:
    """See the module. One event loop."""

    def __init__(self, core: WorkCore, handler: Handler, concurrency: int) -> None:
        self._core = core
        self._handler = handler
        self._concurrency = concurrency
        self._threads: ThreadPoolExecutor | None = None
        if not is_coroutine_function(handler):
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="tandemlog-handler")

    async def run(self) -> None:
        """Until the core is stopped. Raises what ended it. If it is cancelled it stops first."""
        loop = asyncio.get_running_loop()
        self._core.start()
        workers = [
            loop.create_task(self._work(), name="tandemlog-handler")
            for _ in range(self._concurrency)
        ]
        stopped = loop.create_task(self._core.stopped.wait(), name="tandemlog-handlers-end")
        try:
            # a worker ends when the core has stopped, or by an error
            await asyncio.wait([*workers, stopped], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._core.stop()
            await stopped
            failures = await self._end(workers)
        for failure in failures:
            if isinstance(failure, Exception):
                raise failure

    async def _end(self, workers: "list[asyncio.Task[None]]") -> list[BaseException | None]:
        """Let the handlers end that run, for a time; what the workers have raised."""
        _, late = await asyncio.wait(workers, timeout=self._core.options.stop_timeout_ms / 1e3)
        for task in late:
            task.cancel()
        failures = await asyncio.gather(*workers, return_exceptions=True)
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        await self._core.close(STOPPED)
        return failures

    async def _work(self) -> None:
        core = self._core
        while (taken := await core.next()) is not None:
            await self._handle(taken)

    async def _handle(self, taken: Taken) -> None:
        delivery: LeasedMessage
        try:
            if self._threads is None:
                delivery = AsyncDelivery(*taken)
                await self._handler(delivery)  # type: ignore[misc]
            else:
                delivery = Delivery(*taken)
                await self._in_thread(delivery)
        except NoThreadError as ended:
            logger.warning("group %s: %s", self._core.calls.group, ended)
            self._settle(taken, RELEASED, None, "")
            self._core.stop()
            return
        except Reject as reason:
            self._settle(taken, REJECTED, None, error_text(reason))
        except RetryAfter as later:
            error = error_text(later.error) if later.error else ""
            self._settle(taken, RETRIED, later.delay_ms, error)
        except Exception as error:
            self._core.counters.failed += 1
            logger.warning(
                "group %s: attempt %d of %s/%d %d failed",
                self._core.calls.group,
                delivery.attempt,
                delivery.topic,
                delivery.queue_id,
                delivery.queue_offset,
                exc_info=error,
            )
            self._settle(taken, RETRIED, None, error_text(error))
        else:
            self._settle(taken, ACKED, None, "")
        if self._core.crowded:
            await self._core.room_to_settle()

    async def _in_thread(self, delivery: Delivery) -> None:
        assert self._threads is not None
        call = partial(contextvars.copy_context().run, self._handler, delivery)
        try:
            running = self._threads.submit(call)
        except RuntimeError as error:
            raise NoThreadError(f"work stops, since no thread can begin: {error}") from error
        result: Any = await asyncio.wrap_future(running)
        if inspect.isawaitable(result):
            await result

    def _settle(self, taken: Taken, state: int, delay_ms: int | None, error: str) -> None:
        """Unless the handler has done it, or the lease has ended: the log has a line about that."""
        batch, row = taken
        if batch.states[row] == TAKEN:
            self._core.settle(taken, state, delay_ms=delay_ms, error=error)


def is_coroutine_function(handler: Handler) -> bool:
    """Of a function, or of an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    call = getattr(handler, "__call__", None)  # noqa: B004 - the method itself is looked at
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(call)
