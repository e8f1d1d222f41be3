"""The volatile write cache of a disk, as the block layer of an operating system sees one.

    write ──▶ cache: every write since the last flush, in order ──flush──▶ medium
    read  ◀── what was written last, flushed or not
    cut       of the cached writes a choice has reached the medium, the others are gone

A flush makes durable what was written before it began, and nothing that comes while it runs. What a
disk does between two flushes is its own affair: it may put any cached write on the medium, at any
time, in any order, whole or in part. A sector is never in part.

So after a cut each sector holds what it held at the last flush, or one of the versions that were
written since. A newer version that has reached the medium is never replaced by an older one: that
would be the same as if it had not reached the medium.
"""

import random
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

SECTOR = 512

ODDS = (0.0, 0.1, 0.5, 0.9, 1.0)
"""How likely a cached write is to have reached the medium: one of these for each cut. With one half
for all cuts, a cut of many writes would never keep nearly all or nearly none of them."""


class Medium(Protocol):
    """What keeps its bytes without power."""

    size: int

    def read(self, offset: int, size: int) -> bytes: ...

    def write(self, offset: int, data: bytes) -> None: ...


@dataclass(frozen=True, slots=True)
class CachedWrite:
    number: int
    offset: int
    data: bytes

    def sectors(self) -> Iterator[tuple[int, bytes]]:
        """The number of each sector, and its bytes."""
        first = self.offset // SECTOR
        for index in range(len(self.data) // SECTOR):
            yield first + index, self.data[index * SECTOR : (index + 1) * SECTOR]


@dataclass(frozen=True, slots=True)
class CutCounts:
    """How many of the cached writes were on the medium in whole, in part, or not."""

    whole: int = 0
    torn: int = 0
    lost: int = 0


class WriteCache:
    """Writes are whole sectors; offsets and sizes are in bytes. It is not for several threads."""

    def __init__(self, medium: Medium) -> None:
        self._medium = medium
        self._writes: deque[CachedWrite] = deque()
        self._newest: dict[int, tuple[int, bytes]] = {}  # by sector: number of the write, bytes
        self._next = 0

    @property
    def writes(self) -> tuple[CachedWrite, ...]:
        return tuple(self._writes)

    def write(self, offset: int, data: bytes) -> None:
        if offset % SECTOR or len(data) % SECTOR or offset + len(data) > self._medium.size:
            raise ValueError(f"{len(data)} bytes at {offset} are no sectors of the disk")
        write = CachedWrite(self._next, offset, data)
        self._next += 1
        self._writes.append(write)
        for sector, content in write.sectors():
            self._newest[sector] = (write.number, content)

    def read(self, offset: int, size: int) -> bytes:
        """Fewer bytes than `size` at the end of the disk."""
        end = min(offset + size, self._medium.size)
        if end <= offset:
            return b""
        first, last = offset // SECTOR, -(-end // SECTOR)
        content = bytearray(self._medium.read(first * SECTOR, (last - first) * SECTOR))
        if self._newest:
            for sector in range(first, last):
                cached = self._newest.get(sector)
                if cached is not None:
                    at = (sector - first) * SECTOR
                    content[at : at + SECTOR] = cached[1]
        begin = offset - first * SECTOR
        return bytes(content[begin : begin + end - offset])

    def begin_flush(self) -> int:
        """What `end_flush` needs to know which writes came before the flush."""
        return self._next

    def end_flush(self, mark: int) -> None:
        """Writes before `mark` are durable from here on."""
        while self._writes and self._writes[0].number < mark:
            write = self._writes.popleft()
            self._medium.write(write.offset, write.data)
            for sector, _ in write.sectors():
                cached = self._newest.get(sector)
                if cached is not None and cached[0] < mark:
                    del self._newest[sector]

    def cut(self, rng: random.Random) -> CutCounts:
        """Lose the cache, save what `rng` says has reached the medium by then."""
        counts = {"whole": 0, "torn": 0, "lost": 0}
        for fate, pieces in fates(self._writes, rng):
            counts[fate] += 1
            for offset, data in pieces:
                self._medium.write(offset, data)
        self._writes.clear()
        self._newest.clear()
        return CutCounts(**counts)


def fates(
    writes: Iterable[CachedWrite], rng: random.Random
) -> Iterator[tuple[str, list[tuple[int, bytes]]]]:
    """Of each write: whole, torn or lost, and the pieces (offset, bytes) that are on the medium."""
    likely = rng.choice(ODDS)
    for write in writes:
        if len(write.data) > SECTOR and 0 < likely < 1 and rng.random() < 0.25:
            yield "torn", _torn(write, rng)
        elif rng.random() < likely:
            yield "whole", [(write.offset, write.data)]
        else:
            yield "lost", []


def _torn(write: CachedWrite, rng: random.Random) -> list[tuple[int, bytes]]:
    """Some sectors but not all: the first ones, or any."""
    sectors = [(sector * SECTOR, content) for sector, content in write.sectors()]
    count = rng.randrange(1, len(sectors))
    if rng.random() < 0.5:
        return sectors[:count]
    return [sectors[each] for each in sorted(rng.sample(range(len(sectors)), count))]
