"""How appended bytes become readable and durable, and what happens when they do not.

    append          commit             flush
    wrote     ->    committed    ->    flushed
    direct:   pwrite at append, so committed follows wrote at once
    buffered: append fills memory, commit joins neighbours and pwrites; readers see no further than
              committed

Each of the three is published only after it is true, and at any time wrote >= committed >= flushed.
After a failed fsync, or a failed write of the commit stage, the log accepts no more writes,
permanently: the kernel may have dropped the pages that it could not write, so a later successful
fsync would prove nothing. Every waiter gets the reason.
"""

import errno
import logging
import os
import threading
from collections import deque
from collections.abc import Iterator

from ..clock import Clock
from ..disk.mapped_file_queue import MappedFileQueue
from ..disk_errors import crowded, is_crowded
from ..errors import FlushFailedError, StoreError, StoreReadOnlyError
from ..positions import Position
from ..stats import LatencyHistogram
from .log_reader import LogReader

logger = logging.getLogger(__name__)

SLOW_FLUSH_S = 1.0
JOINED_BYTES = 1 << 20


class WriteBuffer:
    """Appended bytes that have not been given to the operating system yet, in the order in which
    they were appended: the buffered mode, which RocketMQ calls the transient store pool.

    One thread adds, one at a time takes, so a deque needs no further lock. Bytes of a failed write
    stay at the front.
    """

    def __init__(self) -> None:
        self._stretches: deque[tuple[int, bytes]] = deque()

    def add(self, offset: int, data: bytes) -> None:
        self._stretches.append((offset, data))

    def __len__(self) -> int:
        return len(self._stretches)

    def drain(self, file_size: int) -> Iterator[tuple[int, bytes]]:
        """(offset, bytes) to write, each within one file; each is removed only when the next is
        asked for, so a write that raises leaves it here."""
        while self._stretches:
            offset, first = self._stretches[0]
            joined, size = [first], len(first)
            limit = min(JOINED_BYTES, file_size - offset % file_size)
            for index in range(1, len(self._stretches)):
                at, data = self._stretches[index]
                if at != offset + size or size + len(data) > limit:
                    break
                joined.append(data)
                size += len(data)
            yield offset, joined[0] if len(joined) == 1 else b"".join(joined)
            for _ in joined:
                self._stretches.popleft()

    def clear(self) -> None:
        self._stretches.clear()


class LogStages(LogReader):
    """The three positions of the log in `mapped`, all at `end`; `buffered` as the module says.

    Lock order: the writer's lock, flush_lock, commit_lock.
    """

    def __init__(self, mapped: MappedFileQueue, clock: Clock, *, buffered: bool) -> None:
        self.wrote = Position("wrote", mapped.end)
        self.committed = Position("committed", mapped.end)
        self.flushed = Position("flushed", mapped.end)
        self.buffer = WriteBuffer() if buffered else None
        self.failure: StoreError | None = None
        """Why no write is taken any more, or None."""
        self.flush_latency = LatencyHistogram()
        """How long each fdatasync took, with the commit before it."""
        self.store_timestamp = 0
        """Store time (ms) of the newest record; slaves, who only copy bytes, set it from reput."""
        self.flushed_timestamp = 0
        """Store time (ms) of the newest record known to be durable."""
        self.flush_lock = threading.Lock()
        self.commit_lock = threading.Lock()
        self._clock = clock
        super().__init__(mapped, self.committed)

    def publish(self, end: int) -> None:
        """Bytes up to `end` are appended."""
        self.wrote.advance(end)
        if self.buffer is None:
            self.committed.advance(end)

    def retreat(self, offset: int) -> None:
        """Nothing from `offset` on is there any more."""
        for position in (self.flushed, self.committed, self.wrote):
            if position.value > offset:
                position.retreat(offset)

    def begin_at(self, offset: int) -> None:
        """The log is empty and begins at `offset`."""
        for position in (self.wrote, self.committed, self.flushed):
            position.retreat(offset)

    def commit(self) -> int:
        """Buffered mode: give the operating system what waits in memory. Returns `committed`.

        Raises FlushFailedError if a write fails; the failure is permanent. StoreBusyError if the
        file cannot be opened now.
        """
        if self.buffer is not None:
            with self.commit_lock:
                self.require_writable()
                try:
                    for offset, data in self.buffer.drain(self._mapped.file_size):
                        self._mapped.write(offset, data)
                        self.committed.advance(offset + len(data))
                except OSError as error:
                    raise self.flush_failed("write", error) from error
        return self.committed.value

    def flush(self) -> int:
        """Make everything appended so far durable; returns `flushed`.

        Raises FlushFailedError if that fails, or failed before: a failure is permanent.
        StoreBusyError if there is no descriptor for it now: nothing was tried.
        """
        with self.flush_lock:
            self.require_writable()
            began = self._clock.monotonic()
            # in this order: the time must not be newer than what is flushed
            timestamp = self.store_timestamp
            target, start = self.commit(), self.flushed.value
            if target > start:
                try:
                    self._mapped.sync(start, target)
                except OSError as error:
                    raise self.flush_failed("fdatasync", error) from error
                took = self._clock.monotonic() - began
                self.flush_latency.record(took)
                if took > SLOW_FLUSH_S:
                    logger.warning("slow flush: bytes=%d seconds=%.1f", target - start, took)
                self.flushed_timestamp = timestamp
                self.flushed.advance(target)
            return self.flushed.value

    def require_writable(self) -> None:
        """Raises the failure after which no write is taken."""
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    def flush_failed(self, call: str, error: OSError) -> StoreError:
        """What a failed `call` means: the end of writing, unless it was not even tried."""
        if is_crowded(error):
            return crowded(f"{call} of the log has to wait at {self.flushed.value}", error)
        if error.errno in (errno.EACCES, errno.EPERM):
            return self.fail(
                StoreReadOnlyError(
                    f"{error.filename or 'the log'} may not be written by user {os.geteuid()}: "
                    "give the files of the store to that user, then restart the node"
                )
            )
        return self.fail(
            FlushFailedError(
                f"{call} of the log failed at {self.flushed.value}: {error}; bytes up to "
                f"{self.wrote.value} may be lost: repair the disk, then restart the node, "
                "which continues with what is on the disk"
            )
        )

    def fail(self, failure: StoreError) -> StoreError:
        """Accept no more writes; returns why: the first failure, but a failed fsync before any
        other, because after that nothing counts as durable."""
        fatal = isinstance(failure, FlushFailedError)
        if self.failure is None or (fatal and not isinstance(self.failure, FlushFailedError)):
            logger.error("the log accepts no more writes: %s", failure)
            self.failure = failure
            self.flushed.fail(failure)
        return self.failure
