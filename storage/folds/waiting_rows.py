"""Records that wait for a time: a million of them in arrays, found by log offset and by time.

    log offset   900   1100   1300   2000  ...     ascending, as the records stand in the log
    due (ms)    5000   1200   9000   1300  ...
    counted      yes     no    yes    yes  ...     due after a delay, and not at a time
    key hash, size of the record
    state       WAITS  ENDED  WAITS  TAKEN ...

    near    rows that are due within NEAR_MS, by time: what a look at the clock needs
    far     all others; once in a while one pass over the columns brings the next into near

A row is appended when its record is dispatched and ends when a later record names it. Ended rows
stay until they are half of all; then the arrays are written again.

TAKEN is the word of a master alone: it has appended the record that ends the row, and dispatch has
not come to it yet. It is no part of the state that the log gives: a snapshot says WAITS for it, and
a node that stops being the master releases it.

Times are of the clock that the caller goes by; nothing here looks at one. When that clock is set,
what counts from its record's store time is shifted with it. Not thread-safe.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

WAITS: Final = 0
TAKEN: Final = 1
ENDED: Final = 2

NEAR_MS: Final = 10_000
_FEWEST: Final = 1024
_NEVER: Final = -(1 << 62)
_NO_ROWS: Final = np.empty(0, np.int64)
_ROW_BYTES: Final = 29

Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class NewRows:
    """n records that begin to wait: log offsets, due times (ms), hashes of keys (i8[n] each), the
    records' sizes i4[n], and bool[n] which are due after a delay, counted from their store time."""

    offsets: Numbers
    due_ms: Numbers
    keys: Numbers
    sizes: NDArray[np.int32]
    counted: NDArray[np.bool_]

    @classmethod
    def empty(cls, count: int) -> Self:
        """Room for `count` rows."""
        return cls(
            np.empty(count, np.int64),
            np.empty(count, np.int64),
            np.empty(count, np.int64),
            np.empty(count, np.int32),
            np.empty(count, np.bool_),
        )

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def columns(self) -> tuple[NDArray[np.generic], ...]:
        return (self.offsets, self.due_ms, self.keys, self.sizes, self.counted)

    def taken(self, rows: Numbers | NDArray[np.bool_] | slice) -> "NewRows":
        """Some of them."""
        return NewRows(
            self.offsets[rows],
            self.due_ms[rows],
            self.keys[rows],
            self.sizes[rows],
            self.counted[rows],
        )

    def put(self, begin: int, rows: "NewRows") -> None:
        """Write `rows` over those from `begin` on."""
        for column, new in zip(self.columns, rows.columns, strict=True):
            column[begin : begin + len(rows)] = new


class WaitingRows:
    """See the module; log offsets in bytes, times in ms."""

    def __init__(self) -> None:
        self.version = 0
        """Another one after each change of what the log says."""
        self._make(_FEWEST)
        self._used = 0
        self._ended = 0
        self._forget_near()

    def _make(self, capacity: int) -> None:
        self._rows = NewRows.empty(capacity)
        self._states = np.empty(capacity, np.uint8)

    @property
    def _offsets(self) -> Numbers:
        return self._rows.offsets

    @property
    def _due(self) -> Numbers:
        return self._rows.due_ms

    @property
    def _keys(self) -> Numbers:
        return self._rows.keys

    def _forget_near(self) -> None:
        self._near_end = _NEVER
        self._near = _NO_ROWS
        self._near_due = _NO_ROWS
        self._near_begin = 0
        self._arrived: list[Numbers] = []

    def __len__(self) -> int:
        """Those that have not ended, taken ones among them."""
        return self._used - self._ended

    @property
    def first_offset(self) -> int | None:
        """Of the oldest record that has not ended; None without one."""
        alive = self._states[: self._used] != ENDED
        if not len(alive) or not alive.any():
            return None
        return int(self._offsets[int(alive.argmax())])

    @property
    def byte_size(self) -> int:
        """Of the arrays."""
        columns = (*self._rows.columns, self._states, self._near, self._near_due)
        return sum(each.nbytes for each in columns)

    # ---- the log

    def append(self, rows: NewRows) -> None:
        """Records, ascending by log offset and behind all others, wait until they are due."""
        count = len(rows)
        if not count:
            return
        self.version += 1
        if self._used + count > len(self._rows):
            self._make_anew(np.arange(self._used), count)
        self._rows.put(self._used, rows)
        self._states[self._used : self._used + count] = WAITS
        near = (rows.due_ms < self._near_end).nonzero()[0]
        if len(near):
            self._arrived.append(near + self._used)
        self._used += count

    def _make_anew(self, kept: Numbers, more: int) -> None:
        """Arrays with the rows `kept` and room for `more`, and for as many again."""
        rows, states = self._rows.taken(kept), self._states[kept]
        self._make(max(_FEWEST, 2 * (len(kept) + more)))
        self._rows.put(0, rows)
        self._states[: len(kept)] = states

    def end(self, offsets: Numbers) -> Numbers:
        """A later record names those at `offsets`. Returns those among them that had not ended, in
        their order; the others say nothing here."""
        rows = self._places(offsets)
        return self._end_rows(rows[rows >= 0])

    def end_keys(self, keys: Numbers, behind: Numbers) -> Numbers:
        """As `end`, by the hashes of their keys: every record with one of `keys` that stands before
        the log offset beside it in `behind`; a key of 0 ends none."""
        order = np.lexsort((behind, keys))
        keys, behind = keys[order], behind[order]
        # of each key the last record that ends it
        last = np.append(keys[1:] != keys[:-1], True)[: len(keys)] & (keys != 0)
        keys, behind = keys[last], behind[last]
        if not len(keys):
            return _NO_ROWS
        known = self._keys[: self._used]
        found = np.minimum(keys.searchsorted(known), len(keys) - 1)
        mine = (keys[found] == known) & (self._offsets[: self._used] < behind[found])
        mine &= self._states[: self._used] != ENDED
        return self._end_rows(mine.nonzero()[0])

    def end_older(self, key: int, log_offset: int) -> Numbers:
        """As `end`, all records with this hash below a log offset."""
        end = int(self._offsets[: self._used].searchsorted(log_offset))
        rows = (self._keys[:end] == key).nonzero()[0] if key else _NO_ROWS
        return self._end_rows(rows)

    def end_below(self, log_offset: int) -> Numbers:
        """As `end`, all records below a log offset."""
        rows = np.arange(int(self._offsets[: self._used].searchsorted(log_offset)))
        return self._end_rows(rows)

    def _end_rows(self, rows: Numbers) -> Numbers:
        rows = rows[self._states[rows] != ENDED]
        if len(rows) > 1:
            rows = np.unique(rows)
        self.version += bool(len(rows))
        self._states[rows] = ENDED
        self._ended += len(rows)
        offsets: Numbers = self._offsets[rows]
        if self._ended > _FEWEST and 2 * self._ended > self._used:
            self._compact()
        return offsets

    def _compact(self) -> None:
        alive = (self._states[: self._used] != ENDED).nonzero()[0]
        self._make_anew(alive, 0)
        self._used, self._ended = len(alive), 0
        self._forget_near()

    def shift(self, step_ms: int, before: int) -> None:
        """The clock of the store times was set by `step_ms` behind the records below log offset
        `before`: what counts from one of theirs is due when it would have been without that."""
        self.version += 1
        end = int(self._offsets[: self._used].searchsorted(before))
        mine = self._rows.counted[:end]
        self._due[:end][mine] += step_ms
        self._forget_near()

    def clear(self) -> None:
        """Know no record."""
        self.__init__()  # type: ignore[misc]

    # ---- a master

    def waits(self, offsets: Numbers) -> NDArray[np.bool_]:
        """Which of the records at `offsets` wait, and are not taken."""
        rows = self._places(offsets)
        found: NDArray[np.bool_] = rows >= 0
        found[found] = self._states[rows[found]] == WAITS
        return found

    def known(self, offsets: Numbers) -> NDArray[np.bool_]:
        """Which of the records at `offsets` have not ended, taken or not."""
        rows = self._places(offsets)
        found: NDArray[np.bool_] = rows >= 0
        found[found] = self._states[rows[found]] != ENDED
        return found

    def take(self, offsets: Numbers) -> None:
        """Of records that wait: the record that ends them is appended, or is about to be."""
        self._states[self._places(offsets)] = TAKEN

    def taken(self) -> Numbers:
        """Log offsets of the records that are taken, ascending."""
        found: Numbers = self._offsets[: self._used][self._states[: self._used] == TAKEN]
        return found

    def release(self, offsets: Numbers) -> None:
        """Taken records wait again: what was to end them was not appended."""
        rows = self._places(offsets)
        rows = rows[rows >= 0]
        self._states[rows[self._states[rows] == TAKEN]] = WAITS
        self._near_begin = 0

    def release_all(self) -> None:
        states = self._states[: self._used]
        states[states == TAKEN] = WAITS
        self._near_begin = 0

    # ---- looking

    def due(self, now_ms: int, limit: int) -> NewRows:
        """The first records, at most `limit`, that wait and are due, by time and then in log
        order."""
        self._look(now_ms)
        end = int(self._near_due.searchsorted(now_ms, side="right"))
        while self._near_begin < end:
            # a piece at a time: of a million that are due only the first are wanted
            piece = self._near[self._near_begin : min(self._near_begin + 2 * limit, end)]
            mine = piece[self._states[piece] == WAITS][:limit]
            if len(mine):
                return self._rows.taken(mine)
            self._near_begin += len(piece)
        return self._rows.taken(_NO_ROWS)

    def next_due_ms(self, now_ms: int) -> int | None:
        """When to look again: no record that waits is due before. None if none waits."""
        self._look(now_ms)
        rest = self._near[self._near_begin :]
        waiting = self._states[rest] == WAITS
        if waiting.any():
            return int(self._near_due[self._near_begin + int(waiting.argmax())])
        return self._near_end if len(self) else None

    def counts_by_due(self, ends_ms: Sequence[int]) -> list[int]:
        """How many records that have not ended are due by each time of `ends_ms`, ascending, and
        after the one before it; then how many are due after all of them."""
        due = self._due[: self._used]
        alive = self._states[: self._used] != ENDED
        by = [int(np.count_nonzero(alive & (due <= end))) for end in ends_ms]
        return [end - begin for begin, end in pairwise([0, *by, len(self)])]

    def find(self, log_offset: int) -> NewRows | None:
        """The one row of the record at a log offset, taken or not; None if none is known."""
        row = int(self._places(np.array([log_offset]))[0])
        if row < 0 or self._states[row] == ENDED:
            return None
        return self._rows.taken(np.array([row]))

    def with_key(self, key_hash: int) -> Numbers:
        """Log offsets of the records that wait and have this key hash, ascending."""
        mine = (self._keys[: self._used] == key_hash) & (self._states[: self._used] == WAITS)
        found: Numbers = self._offsets[: self._used][mine]
        return found

    def page(self, after: tuple[int, int], limit: int) -> NewRows:
        """The first `limit` records behind (due time, log offset) `after`, by time and then in log
        order."""
        due, offsets = self._due[: self._used], self._offsets[: self._used]
        mine = (self._states[: self._used] != ENDED) & (due >= after[0])
        rows = mine.nonzero()[0]
        rows = rows[(due[rows] > after[0]) | (offsets[rows] > after[1])]
        if len(rows) > limit:
            # all of the last time, so that the order by offset below is right
            last = np.partition(due[rows], limit - 1)[limit - 1]
            rows = rows[due[rows] <= last]
        rows = rows[np.argsort(due[rows], kind="stable")][:limit]
        return self._rows.taken(rows)

    def below(self, log_offset: int, limit: int) -> NewRows:
        """The first `limit` records that wait below a log offset, in log order."""
        end = int(self._offsets[: self._used].searchsorted(log_offset))
        rows = (self._states[:end] == WAITS).nonzero()[0][:limit]
        return self._rows.taken(rows)

    def alive_between(self, firsts: Numbers, ends: Numbers) -> Numbers:
        """How many records between log offsets `firsts` and `ends`, i8[n] each, have not ended."""
        alive = np.zeros(self._used + 1, np.int64)
        np.cumsum(self._states[: self._used] != ENDED, out=alive[1:])
        known = self._offsets[: self._used]
        found: Numbers = alive[known.searchsorted(ends)] - alive[known.searchsorted(firsts)]
        return found

    def _places(self, offsets: Numbers) -> Numbers:
        """The row of each, -1 where none is known."""
        known = self._offsets[: self._used]
        if not len(known):
            return np.full(len(offsets), -1, np.int64)
        rows = known.searchsorted(offsets)
        rows[rows == len(known)] = 0
        found: Numbers = np.where(known[rows] == offsets, rows, -1)
        return found

    def _look(self, now_ms: int) -> None:
        """Bring into `near` what is due within NEAR_MS, and what has arrived."""
        if now_ms >= self._near_end:
            self._near_end = now_ms + NEAR_MS
            rows = (self._due[: self._used] < self._near_end).nonzero()[0]
            rows = rows[self._states[rows] != ENDED]
        elif self._arrived:
            # the taken ones too, which may be released
            rest = self._near[self._states[self._near] != ENDED]
            rows = np.concatenate((rest, *self._arrived))
        else:
            return
        self._arrived = []
        # those of one time in log order: the newer rows come behind the older ones
        self._near = rows[np.argsort(self._due[rows], kind="stable")]
        self._near_due = self._due[self._near]
        self._near_begin = 0

    # ---- snapshots

    def encode(self) -> list[bytes]:
        """The rows that have not ended, as columns: log offsets, due times, key hashes (i8), sizes
        (i4), counted (one byte), all little-endian."""
        alive = (self._states[: self._used] != ENDED).nonzero()[0]
        return [
            each.astype(each.dtype.newbyteorder("<"), copy=False).tobytes()
            for each in self._rows.taken(alive).columns
        ]

    def decode(self, data: bytes) -> None:
        """Become what `encode` gave. Raises ValueError, and changes nothing then."""
        if len(data) % _ROW_BYTES:
            raise ValueError(f"{len(data)} bytes are no whole number of rows")
        count = len(data) // _ROW_BYTES
        wide = np.frombuffer(data, "<i8", 3 * count).reshape(3, count).astype(np.int64)
        sizes = np.frombuffer(data, "<i4", count, 24 * count).astype(np.int32)
        counted = np.frombuffer(data, np.uint8, count, 28 * count) != 0
        if (np.diff(wide[0]) <= 0).any():
            raise ValueError("log offsets do not ascend")
        self.clear()
        self.append(NewRows(wide[0], wide[1], wide[2], sizes, counted))
