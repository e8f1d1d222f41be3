"""Where the records of a stretch of log begin: each one's size leads to the next.

    buffer   ...| record | record | record | what stopped the walk
             start                         end of the result

The walk reads sizes in a plain loop (they depend on each other), and tries a shortcut when the
last ones were equal: guess that the next ones are too, read the sizes at all the guessed places
at once, and keep the guesses up to the first wrong one. A caller that knows more passes
better guesses. A guess is only ever kept when the chain of sizes proves it.

It looks at size and magic alone; faults.walk_strict checks everything else.
"""

from dataclasses import dataclass
from enum import Enum
from struct import Struct, error
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, byte_array, first_true, windows
from ..constants import BLANK_SIZE, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, MIN_RECORD_SIZE, SIZE_AND_MAGIC
from ..errors import CorruptRecordError

_SIZE: Final = Struct(">i")
_START_DTYPE: Final = np.dtype([("size", ">i4"), ("magic", ">u4")])
_FIRST_STEPS: Final = 16
_MOST_STEPS: Final = 4096
_FIRST_GUESS: Final = 1024
_LARGEST_GUESS: Final = 8192
_WORTH_GUESSING: Final = 64
_EQUAL_BEFORE_A_GUESS: Final = 8


class StopReason(Enum):
    """Why a walk ended where it did."""

    END = "the window ends with a whole record"
    LIMIT = "as many records as were asked for"
    BLANK = "a BLANK record: the log continues in the next file"
    INCOMPLETE = "the window ends inside a record, which may continue after it"
    ZEROS = "zero bytes: nothing was written here"
    TORN = "the beginning of a record, the rest of it zero"
    CORRUPT = "bytes that are no record"


@dataclass(frozen=True, slots=True)
class WalkResult:
    """The records found, and what came after them.

    positions  i8[n]  first byte of each record, in the buffer
    sizes      i4[n]  bytes of each record
    end        position after the last record, where the stop's cause stands
    stop       why there
    error      for ZEROS, TORN, CORRUPT and INCOMPLETE: position, field and reason in words;
               its offset is a log offset if the walk was told the base, else one in the buffer
    """

    positions: NDArray[np.int64]
    sizes: NDArray[np.int32]
    end: int
    stop: StopReason
    error: CorruptRecordError | None = None

    @property
    def count(self) -> int:
        return len(self.positions)


def walk(
    buffer: Buffer,
    start: int = 0,
    end: int | None = None,
    *,
    base_offset: int | None = None,
    limit: int | None = None,
    max_records: int | None = None,
    guess: NDArray[np.int64] | None = None,
) -> WalkResult:
    """The records of buffer[start:end], as far as size and magic can be trusted.

    `base_offset` is the log offset of buffer[0], used in errors only. `limit` is the position
    at which the log file ends (it may be after `end`): no record goes past it, so one that
    says it does is CORRUPT and not merely INCOMPLETE. `guess` i8[m]: where records begin, as
    far as the caller remembers. Raises nothing for any bytes.
    """
    data = byte_array(buffer)
    stop_at = min(each for each in (len(data), end, limit) if each is not None)
    wanted = (stop_at - start) // MIN_RECORD_SIZE + 1 if max_records is None else max_records
    found = _Chain(data, start, stop_at)
    if guess is not None:
        found.follow(guess[:wanted])
    while found.count < wanted and found.extend(wanted - found.count):
        pass
    positions, sizes = found.columns()
    stop, fault = why_stopped(
        data, found.position, stop_at, limit, 0 if base_offset is None else base_offset
    )
    if stop is None:
        stop = StopReason.LIMIT
    return WalkResult(positions, sizes, found.position, stop, fault)


class _Chain:
    """The records proved so far; `position` is where the next one would begin."""

    def __init__(self, data: NDArray[np.uint8], start: int, end: int) -> None:
        self.position = start
        self.count = 0
        self._data = data
        self._view = data.data
        self._end = end
        self._positions: list[NDArray[np.int64]] = []
        self._sizes: list[NDArray[np.int32]] = []
        self._starts = windows(data, BLANK_SIZE) if len(data) >= BLANK_SIZE else None
        self._steps = _FIRST_STEPS
        self._guess = 0
        self._guess_size = 0

    def columns(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        if not self._positions:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        return np.concatenate(self._positions), np.concatenate(self._sizes)

    def follow(self, guess: NDArray[np.int64]) -> None:
        """Adds what is right of a guess that begins where this chain stands."""
        if self._starts is not None and len(guess) and guess[0] == self.position:
            self._keep(self._reachable(guess))

    def extend(self, most: int) -> bool:
        """Adds up to `most` records; False when the chain ends at `position`."""
        if self._starts is None or self._end - self.position < MIN_RECORD_SIZE:
            return False
        if self._guess:
            candidates = self._guessed(min(self._guess, most))
            right = self._keep(candidates)
            if right == len(candidates):
                self._guess = min(self._guess * 8, _LARGEST_GUESS)
            else:
                # A wrong guess says nothing about the record there: the loop looks at it,
                # and goes the further before the next guess the less this one brought.
                self._steps = _FIRST_STEPS if right > _WORTH_GUESSING else self._more_steps()
                self._guess = 0
            return True
        # no more than fit: the buffer may continue far behind the window
        fitting = (self._end - self.position) // MIN_RECORD_SIZE
        candidates = self._looped(min(self._steps, most, fitting))
        self._steps = self._more_steps()
        if self._keep(self._reachable(candidates)) < len(candidates) or not len(candidates):
            return False
        last = self._sizes[-1][-_EQUAL_BEFORE_A_GUESS:]
        if len(last) == _EQUAL_BEFORE_A_GUESS and (last == last[-1]).all():
            self._guess, self._guess_size = _FIRST_GUESS, int(last[-1])
        return True

    def _more_steps(self) -> int:
        return min(self._steps * 16, _MOST_STEPS)

    def _looped(self, steps: int) -> NDArray[np.int64]:
        unpack, view, position = _SIZE.unpack_from, self._view, self.position
        candidates: list[int] = []
        append = candidates.append
        try:
            for _ in range(steps):
                append(position)
                position += unpack(view, position)[0]
        except error:
            # Past the end: the last size was wrong or the window is used up.
            candidates.pop()
        return np.array(candidates, np.int64)

    def _guessed(self, steps: int) -> NDArray[np.int64]:
        size = self._guess_size
        steps = max(min(steps, (self._end - self.position) // size), 1)
        return np.arange(steps, dtype=np.int64) * size + self.position

    def _reachable(self, candidates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those before the first at which no record can stand."""
        cut = first_true((candidates < 0) | (candidates > self._end - MIN_RECORD_SIZE))
        return candidates if cut < 0 else candidates[:cut]

    def _keep(self, candidates: NDArray[np.int64]) -> int:
        """Takes the candidates, at which a record may stand, up to the first that is no record or
        does not follow from the one before it; returns how many."""
        assert self._starts is not None
        heads = self._starts[candidates].view(_START_DTYPE)
        sizes = heads["size"].astype(np.int32)
        magics = heads["magic"].astype(np.uint32)
        good = (magics == MAGIC_V1) | (magics == MAGIC_V2)
        good &= (sizes >= MIN_RECORD_SIZE) & (candidates + sizes <= self._end)
        good[1:] &= candidates[1:] == candidates[:-1] + sizes[:-1]
        bad = first_true(~good)
        kept = len(candidates) if bad < 0 else bad
        if kept:
            self._positions.append(candidates[:kept])
            self._sizes.append(sizes[:kept])
            self.count += kept
            self.position = int(candidates[kept - 1]) + int(sizes[kept - 1])
        return kept


def why_stopped(
    data: NDArray[np.uint8], position: int, end: int, limit: int | None, base: int
) -> tuple[StopReason | None, CorruptRecordError | None]:
    """Why a walk that has come to `position` ends there; (None, None) if a record stands there.
    `base` is the log offset of data[0]."""
    left = end - position
    at = base + position
    if left <= 0:
        return StopReason.END, None
    if left < SIZE_AND_MAGIC.size:
        fault = CorruptRecordError(at, "size", f"only {left} bytes are left")
        if limit is None or limit > end:
            return StopReason.INCOMPLETE, fault
        zeros = not data[position:end].any()
        return StopReason.ZEROS if zeros else StopReason.CORRUPT, fault
    size, magic = SIZE_AND_MAGIC.unpack_from(data.data, position)
    if magic == MAGIC_BLANK:
        return StopReason.BLANK, None
    if size == 0 and magic == 0:
        return StopReason.ZEROS, CorruptRecordError(at, "magic", "zero bytes, nothing is written")
    if magic not in (MAGIC_V1, MAGIC_V2):
        return StopReason.CORRUPT, CorruptRecordError(
            at, "magic", f"0x{magic:08X} is none of a record"
        )
    if size < MIN_RECORD_SIZE:
        return StopReason.CORRUPT, CorruptRecordError(
            at, "size", f"{size}, a record has at least {MIN_RECORD_SIZE}"
        )
    if limit is not None and position + size > limit:
        return StopReason.CORRUPT, CorruptRecordError(
            at, "size", f"{size}, only {limit - position} bytes are left"
        )
    if size > left:
        return StopReason.INCOMPLETE, CorruptRecordError(
            at, "size", f"{size}, only {left} bytes are left"
        )
    return None, None
