"""A disk that loses power, has bad places, and is slow, for several threads.

    power     cut_power: the cache is lost, every call of that life fails from then on, and
              the next life begins with what is durable
    bad       calls (read, write) that touch a bad range answer EIO
    flushes   answered after a delay, held until told otherwise, failed, or answered without being
              done: a disk that lies, by which tests show that they would find a loss

Who uses the disk names the life for which it was opened: what the kernel still does for the life
before never reaches the next one.
"""

import errno
import os
import random
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from helpers.simulated_disk.write_cache import CutCounts, Medium, WriteCache


class Flushes(StrEnum):
    ANSWERED = "answered"
    HELD = "held"
    FAILED = "failed"
    LIES = "lies"


@dataclass(frozen=True, slots=True)
class BadRange:
    """Bytes from `start` to before `end` of the disk, for one kind of call: read or write."""

    call: str
    start: int
    end: int


@dataclass(slots=True)
class Calls:
    """How often each was asked of the disk; `waiting` are flushes without an answer yet."""

    reads: int = 0
    writes: int = 0
    flushes: int = 0
    waiting: int = 0
    refused: int = 0


class ImageFile:
    """A medium in a file."""

    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.size = os.fstat(self._handle).st_size

    def read(self, offset: int, size: int) -> bytes:
        return os.pread(self._handle, size, offset)

    def write(self, offset: int, data: bytes) -> None:
        written = os.pwrite(self._handle, data, offset)
        if written != len(data):
            raise OSError(errno.ENOSPC, f"{written} of {len(data)} bytes at {offset}")


class Device:
    def __init__(self, medium: Medium) -> None:
        self.size = medium.size
        self.life = 0
        self.calls = Calls()
        self._cache = WriteCache(medium)
        self._changed = threading.Condition()
        self._bad: list[BadRange] = []
        self._flushes = Flushes.ANSWERED
        self._delay_s = 0.0

    def read(self, life: int, offset: int, size: int) -> bytes:
        with self._changed:
            self.calls.reads += 1
            self._check(life, "read", offset, size)
            return self._cache.read(offset, size)

    def write(self, life: int, offset: int, data: bytes) -> None:
        with self._changed:
            self.calls.writes += 1
            self._check(life, "write", offset, len(data))
            self._cache.write(offset, data)

    def flush(self, life: int) -> None:
        """Returns when what was written before it is durable, or raises OSError (EIO)."""
        with self._changed:
            self.calls.flushes += 1
            self._check(life, "flush", 0, 0)
            mark = self._cache.begin_flush()
            self.calls.waiting += 1
            try:
                if self._delay_s:
                    self._changed.wait_for(lambda: self.life != life, self._delay_s)
                self._changed.wait_for(
                    lambda: self.life != life or self._flushes is not Flushes.HELD
                )
            finally:
                self.calls.waiting -= 1
            self._check(life, "flush", 0, 0)
            if self._flushes is Flushes.FAILED:
                raise self._refusal("flush", 0, 0)
            if self._flushes is not Flushes.LIES:
                self._cache.end_flush(mark)

    def cut_power(self, seed: int) -> CutCounts:
        """Bad places stay bad; flushes are answered again."""
        with self._changed:
            counts = self._cache.cut(random.Random(seed))
            self.life += 1
            self._flushes, self._delay_s = Flushes.ANSWERED, 0.0
            self._changed.notify_all()
            return counts

    def set_flushes(self, mode: Flushes, delay_s: float = 0.0) -> None:
        with self._changed:
            self._flushes, self._delay_s = mode, delay_s
            self._changed.notify_all()

    def set_bad(self, ranges: Iterable[BadRange]) -> None:
        """In place of those that were bad before."""
        with self._changed:
            self._bad = list(ranges)

    def counts(self) -> dict[str, int]:
        with self._changed:
            return asdict(self.calls)

    def _check(self, life: int, call: str, offset: int, size: int) -> None:
        gone = life != self.life
        if gone or any(
            bad.call == call and offset < bad.end and bad.start < offset + size for bad in self._bad
        ):
            raise self._refusal(call, offset, size)

    def _refusal(self, call: str, offset: int, size: int) -> OSError:
        self.calls.refused += 1
        return OSError(errno.EIO, f"{call} of {size} bytes at {offset}")
