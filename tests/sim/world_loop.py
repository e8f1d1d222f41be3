"""An event loop in a world's time: the asyncio code of nodes and clients runs, nothing waits.

    world: clock.advance(0.03) ──▶ timers that are due, then all that is ready ──▶ quiet again

Each process of a world has a loop of its own: one that stands still (SIGSTOP) is a loop that is not
run, and what came meanwhile, timers too, is there when it goes on. What a thread would do is done
at once. Tasks have numbers for hashes, so that a set of them has the same order in every run.
"""

import asyncio
import contextlib
import itertools
import selectors
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextvars import Context
from random import Random
from typing import Any, TypeVar, TypeVarTuple
from unittest.mock import patch

from fakes.clock import FakeClock
from sim.ha_nodes import ViolationError

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")
MANY_TURNS = 20_000


class NumberedTask(asyncio.Task[Any]):
    """See the module."""

    _numbers = itertools.count()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._number = next(self._numbers)
        super().__init__(*arguments, **more)

    def __hash__(self) -> int:
        return self._number


class NoSockets(selectors.SelectSelector):
    """Nothing ever comes from outside."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []


class WorldLoop(asyncio.SelectorEventLoop):
    """See the module; `run_ready` is all that makes it run."""

    _ready: deque[asyncio.Handle]
    _scheduled: list[asyncio.TimerHandle]

    def __init__(self, clock: FakeClock) -> None:
        self._world = clock
        super().__init__(NoSockets())
        self.set_task_factory(lambda loop, work, **more: NumberedTask(work, loop=loop, **more))
        self.set_exception_handler(self._failed)
        self.failure: BaseException | None = None

    def time(self) -> float:
        return self._world.monotonic()

    def call_soon_threadsafe(
        self,
        callback: Callable[[*Arguments], object],
        *args: *Arguments,
        context: Context | None = None,
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(  # type: ignore[override]
        self, executor: object, work: Callable[..., T], *arguments: Any
    ) -> asyncio.Future[T]:
        """What a thread does is done now."""
        done: asyncio.Future[T] = self.create_future()
        try:
            done.set_result(work(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done

    @property
    def is_ready(self) -> bool:
        return bool(self._ready) or self._is_due()

    @property
    def next_timer(self) -> float:
        """When it has something to do again; of a loop that waits for time alone."""
        return self._scheduled[0].when()

    def _is_due(self) -> bool:
        scheduled = self._scheduled
        return bool(scheduled) and scheduled[0].when() <= self.time()

    def run_ready(self) -> None:
        """Until nothing is left to do at this moment. Raises what a callback has raised."""
        for _ in range(MANY_TURNS):
            if not self.is_ready:
                return
            self.call_soon(self.stop)
            self.run_forever()
            if self.failure is not None:
                failure, self.failure = self.failure, None
                raise failure
        raise ViolationError("a loop does not come to rest")

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """From outside of the loop; what it raises, `run_ready` does."""
        task = self.create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            self.failure = self.failure or task.exception()

    def abandon(self) -> None:
        """The process is gone; what a task does at its end changes nothing any more."""
        for task in asyncio.all_tasks(self):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError):
                work = task.get_coro()
                assert work is not None
                work.close()
        self._ready.clear()
        self._scheduled.clear()
        self.close()

    def _failed(self, loop: object, about: dict[str, Any]) -> None:
        error = about.get("exception")
        if isinstance(error, ViolationError) or (error is not None and "handle" in about):
            self.failure = self.failure or error


@contextlib.contextmanager
def world_time(clock: FakeClock, seed: int) -> Iterator[None]:
    """The clock and the chance that the real code asks for are the world's."""
    chance = Random(f"chance of {seed}")
    with (
        patch("time.monotonic", clock.monotonic),
        patch("random.uniform", chance.uniform),
        patch("random.random", chance.random),
    ):
        yield
