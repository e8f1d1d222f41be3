"""The threads that make appended bytes durable, and the rule when.

    SYNC    at once: the thread sleeps until something is appended, then one fdatasync serves
            every put that came in meanwhile (group commit). While it runs the next ones gather.
    ASYNC   every interval, if enough pages are dirty or the last flush is long ago; at once
            where a quarter of what may be dirty is (else puts would have to wait)

    buffered mode has a commit stage before it, with the same rule; a flush drives it as well, so
    SYNC works there too

`flush_due` decides when. A failed fsync ends the service: the log has told every waiter, and
accepts no more writes.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from tandemlog.format.constants import PAGE

from ..clock import Clock
from ..config import FlushMode, StoreConfig
from ..errors import FlushFailedError, StoreBusyError, StoreError
from .commit_log import CommitLog

logger = logging.getLogger(__name__)

COMMIT_THOROUGH_MS = 200
URGENT_PART = 4
"""Flush at once when this part of max_dirty_bytes is dirty."""
JOIN_TIMEOUT_S = 30.0
BUSY_LINE_S = 10.0


def flush_due(
    start: int, end: int, *, least_pages: int, since_last_ms: float, thorough_ms: float
) -> bool:
    """Whether bytes start..end should go to disk now (RocketMQ's least pages, section 6.3).

    `least_pages` counts whole pages between the two; after `thorough_ms` a single byte is enough.
    """
    if end <= start:
        return False
    return since_last_ms >= thorough_ms or end // PAGE - start // PAGE >= least_pages


@dataclass(slots=True)
class _Stage:
    """One thread's loop: wait at most `interval_ms`, or until woken, then `turn(woken)`."""

    name: str
    interval_ms: int
    turn: Callable[[bool], object]
    wake: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None


class FlushService:
    """Flushes `log`; `run_once` and `commit_once` are the threads' turns, for tests as well."""

    def __init__(self, log: CommitLog, config: StoreConfig, clock: Clock) -> None:
        self._log = log
        self._config = config
        self._clock = clock
        self._urgent_bytes = max(config.max_dirty_bytes // URGENT_PART, 1)
        now = clock.monotonic()
        self._last_flush = now
        self._last_commit = now
        self._next_busy_line = float("-inf")
        self._closing = False
        self._stages = [
            _Stage("log-flush", config.flush_interval_ms, lambda woken: self.run_once(forced=woken))
        ]
        if config.buffered:
            interval_ms = config.commit_interval_ms
            self._stages.append(
                _Stage("log-commit", interval_ms, lambda _woken: self.commit_once())
            )
        self._stop_listening: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start the threads."""
        # Behind `committed` where that follows at once: what is flushed is committed by then.
        position = self._log.wrote if self._config.buffered else self._log.committed
        self._stop_listening = position.listen(self._appended)
        for stage in self._stages:
            stage.thread = threading.Thread(
                target=self._loop, args=(stage,), name=stage.name, daemon=True
            )
            stage.thread.start()

    def flush(self) -> int:
        """Flush everything now, in the caller's thread; returns the durable offset.

        Raises FlushFailedError.
        """
        durable = self._log.flush()
        self._last_flush = self._clock.monotonic()
        return durable

    def wake(self) -> None:
        """Let the flush thread flush as soon as it can."""
        self._stages[0].wake.set()

    def run_once(self, *, forced: bool = False) -> bool:
        """Flush if that is due, or `forced`; returns whether it was. Raises FlushFailedError."""
        log, config = self._log, self._config
        start, end = log.flushed.value, log.wrote.value
        sync = config.flush is FlushMode.SYNC
        full = start // log.file_size != end // log.file_size
        if end == start or not (
            forced
            or sync
            or full
            or end - start >= self._urgent_bytes
            or flush_due(
                start,
                end,
                least_pages=config.flush_least_pages,
                since_last_ms=(self._clock.monotonic() - self._last_flush) * 1000,
                thorough_ms=config.flush_thorough_interval_ms,
            )
        ):
            return False
        self.flush()
        return True

    def commit_once(self) -> bool:
        """Buffered mode: commit if that is due; whether it was. Raises FlushFailedError."""
        now = self._clock.monotonic()
        due = flush_due(
            self._log.committed.value,
            self._log.wrote.value,
            least_pages=self._config.commit_least_pages,
            since_last_ms=(now - self._last_commit) * 1000,
            thorough_ms=COMMIT_THOROUGH_MS,
        )
        if due:
            self._log.commit()
            self._last_commit = now
        return due

    def close(self) -> None:
        """Stop the threads and flush what is left. Raises FlushFailedError if that fails."""
        self._closing = True
        self._stop_listening()
        for stage in self._stages:
            stage.wake.set()
        for stage in self._stages:
            if stage.thread is not None:
                stage.thread.join(JOIN_TIMEOUT_S)
                stage.thread = None
        if self._log.failure is None:
            self.flush()

    def _appended(self) -> None:
        """In the appender's thread: wake who has to act now."""
        if self._config.flush is FlushMode.SYNC or (
            self._log.wrote.value - self._log.flushed.value >= self._urgent_bytes
        ):
            self._stages[0].wake.set()

    def _say_busy(self, name: str, error: StoreBusyError) -> None:
        """Once a while: the next turn tries again."""
        now = self._clock.monotonic()
        if now >= self._next_busy_line:
            self._next_busy_line = now + BUSY_LINE_S
            logger.warning("%s waits: %s", name, error)

    def _loop(self, stage: _Stage) -> None:
        while not self._closing and self._log.failure is None:
            woken = stage.wake.wait(stage.interval_ms / 1000)
            stage.wake.clear()
            if self._closing:
                return
            try:
                stage.turn(woken)
            except StoreBusyError as error:
                self._say_busy(stage.name, error)
            except StoreError as error:
                # the log has told every waiter, and why
                logger.error("%s ends: %s", stage.name, error)
            except Exception as error:
                logger.exception("%s ends", stage.name)
                self._log.fail(FlushFailedError(f"{stage.name} ended: {error!r}"))
