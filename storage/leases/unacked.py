"""The messages of one queue that a group has begun and not ended, as columns.

    offset      41     42     45     46    ...   ascending
    state       LEASED GONE   READY  LEASED
    lease       7      -      3      7           number of the delivery that has it
    visible     +29 s  -      -      +29 s       when it comes again
    attempts    1      -      2      1

A row lives from the first delivery until the message is done; then it is GONE, and when most rows
are, the others move together. Some fifty bytes for a message and no object: a group may have a
million of them.
"""

from bisect import bisect_left
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
Rows = NDArray[np.int64]

_COLUMNS: Final = {
    "offset": np.int64,
    "state": np.uint8,
    "lease": np.uint32,
    "visible": np.int64,
    "attempts": np.uint16,
    "first_ms": np.int64,
    "log_offset": np.int64,
    "fingerprint": np.uint32,
    "owner": np.uint16,
    "key": np.uint32,
    "changed": np.bool_,
}
_LEAST: Final = 64
NOT_KNOWN: Final = -1
"""The log offset of a message that this node has not read: only the log's records say that it was
tried."""

NO_LEASE: Final = 0
"""Of a message that its consumer has given back: what it says of the message later is too late.
The number of no delivery."""


class State:
    """LEASED: a consumer has it until `visible`. WAITING: it comes again then. READY: for the next
    consumer. GIVEN_UP: it becomes a dead letter. BURYING: its copy is on the way to them. Plain
    numbers: an IntEnum costs a microsecond at each use."""

    GONE: Final = 0
    LEASED: Final = 1
    WAITING: Final = 2
    READY: Final = 3
    GIVEN_UP: Final = 4
    BURYING: Final = 5
    COUNT: Final = 6


class Unacked:
    """See the module. Row numbers are valid until the next `add` or `tidy`."""

    def __init__(self) -> None:
        self._room: dict[str, NDArray[Any]] = {
            name: np.empty(0, kind) for name, kind in _COLUMNS.items()
        }
        self._size = 0
        self.live = 0
        """Rows that are not GONE."""
        self._view()

    def _view(self) -> None:
        room, size = self._room, self._size
        self.offset: I64 = room["offset"][:size]
        self.state: NDArray[np.uint8] = room["state"][:size]
        self.lease: NDArray[np.uint32] = room["lease"][:size]
        self.visible: I64 = room["visible"][:size]
        self.attempts: NDArray[np.uint16] = room["attempts"][:size]
        self.first_ms: I64 = room["first_ms"][:size]
        self.log_offset: I64 = room["log_offset"][:size]
        self.fingerprint: NDArray[np.uint32] = room["fingerprint"][:size]
        self.owner: NDArray[np.uint16] = room["owner"][:size]
        self.key: NDArray[np.uint32] = room["key"][:size]
        self.changed: NDArray[np.bool_] = room["changed"][:size]

    def __len__(self) -> int:
        return self._size

    def add(self, offsets: I64, **columns: NDArray[Any] | int) -> None:
        """Rows for `offsets`, which ascend and have none yet. A column that is not named is 0."""
        count = len(offsets)
        if not count:
            return
        columns["offset"] = offsets
        first_new, old = int(offsets[0]), self._size
        self._grow(old + count)
        for name, room in self._room.items():
            room[old : self._size] = columns.get(name, 0)
        self._view()
        self.live += count
        if old and first_new < int(self.offset[old - 1]):
            self._take(np.argsort(self.offset, kind="stable"))

    def _grow(self, size: int) -> None:
        have = len(self._room["offset"])
        if size > have:
            more = max(size, have + (have >> 1), _LEAST)
            for name, room in self._room.items():
                grown = np.empty(more, room.dtype)
                grown[: self._size] = room[: self._size]
                self._room[name] = grown
        self._size = size

    def _take(self, rows: Rows) -> None:
        for name, room in self._room.items():
            self._room[name] = room[: self._size][rows]
        self._size = len(rows)
        self._view()

    def find(self, offsets: I64) -> tuple[Rows, NDArray[np.bool_]]:
        """For each of `offsets`, in any order: a row number, and whether it is that of a live row
        with this offset."""
        count = len(offsets)
        if not count or not self._size:
            return np.zeros(count, np.int64), np.zeros(count, np.bool_)
        # nearly always they are consecutive: comparing costs less than searching each
        at = self.position(int(offsets[0]))
        part = self.offset[at : at + count]
        if len(part) == count and (part == offsets).all():
            return np.arange(at, at + count), self.state[at : at + count] != State.GONE
        rows = np.minimum(self.offset.searchsorted(offsets), self._size - 1)
        found = (self.offset[rows] == offsets) & (self.state[rows] != State.GONE)
        return rows, found

    def position(self, offset: int) -> int:
        """The first row with this offset or a higher one. (A search by numpy lets other threads run
        meanwhile, and waits for them longer than it searches.)"""
        if not self._size or offset > self.offset[-1]:
            return self._size
        return bisect_left(self.offset, offset)

    def first_from(self, offset: int) -> int | None:
        """The first offset from there on that has a live row."""
        at = self.position(offset)
        live = self.state[at:].nonzero()[0]
        return int(self.offset[at + int(live[0])]) if len(live) else None

    def in_state(self, *states: int) -> Rows:
        """The rows in one of these states, ascending."""
        chosen: NDArray[np.bool_] = self.state == states[0]
        for each in states[1:]:
            chosen |= self.state == each
        return chosen.nonzero()[0]

    def end(self, rows: Rows) -> None:
        """These live rows, each named once, are done."""
        self.state[rows] = State.GONE
        self.live -= len(rows)

    def tidy(self) -> None:
        """Move the live rows together when most are gone."""
        if self.live * 2 < self._size and self._size > _LEAST:
            self._take(self.state.nonzero()[0])

    @property
    def bytes(self) -> int:
        """Of memory."""
        return sum(room.nbytes for room in self._room.values())
