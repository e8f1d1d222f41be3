"""The records of one span, window by window, and the damage between them.

    window          | r r r r r r r |r r    the record that the window cuts off begins the next one
    Piece           '-------------'         positions, sizes and headers of whole records
    DamagedPiece            xxxx            bytes up to the next whole record, or to the span's end

A window is a buffer that is used again: a Piece is valid until the next one is asked for. A window
grows for a record larger than itself, but only if the record's inner lengths add up, so that a
flipped bit in a size costs no memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.headers import HeaderColumns
from tandemlog.format.columns.walk import StopReason, WalkResult
from tandemlog.format.errors import CorruptRecordError

from .find_record import next_record, record_at
from .log_bytes import LogBytes
from .log_spans import Span

WINDOW_BYTES = 8 << 20
WINDOW_RECORDS = 1 << 14
_BEHIND = 256 << 10
"""A window reads so far behind its span's end at first: most records end there."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole records of a span: `data` is the window, its first byte at log offset `base`."""

    data: NDArray[np.uint8]
    base: int
    walk: WalkResult
    headers: HeaderColumns

    @property
    def count(self) -> int:
        return self.walk.count

    @property
    def start(self) -> int:
        return self.base + int(self.walk.positions[0])

    @property
    def end(self) -> int:
        return self.base + self.walk.end


@dataclass(frozen=True, slots=True)
class DamagedPiece:
    """Log offsets start .. end that hold no record; `field` and `reason` say what is wrong at
    `start`, `stop` why the walk stopped there."""

    start: int
    end: int
    stop: StopReason
    field: str
    reason: str


class Ending(Enum):
    """How a span ended."""

    NEXT = "the next record belongs to the next span"
    BLANK = "a BLANK record ends the file"
    DAMAGE = "no record follows in the span"
    NOTHING = "no record begins in the span"


class SpanScan:
    """Iterate once. Then `first` is the log offset of the first record or damage (-1: none),
    `end` where the records of the span end, `ending` how."""

    def __init__(
        self,
        log: LogBytes,
        span: Span,
        *,
        check_crc: bool = True,
        window_bytes: int = WINDOW_BYTES,
        window_records: int = WINDOW_RECORDS,
    ) -> None:
        self.first = -1
        self.end = span.start
        self.ending = Ending.NOTHING
        self._log = log
        self._span = span
        self._check_crc = check_crc
        self._window = _Window(log, span, window_bytes)
        self._window_records = window_records

    def __iter__(self) -> Iterator[Piece | DamagedPiece]:
        span = self._span
        if not self._begin():
            return
        while self.end < span.end:
            piece, stop, error = self._step()
            if piece is not None and piece.count:
                self.end = piece.end
                yield piece
            if stop is StopReason.BLANK:
                self.end, self.ending = span.file_end, Ending.BLANK
                return
            if stop is not None and self.end < span.end:
                damage = self._damage(stop, error)
                yield damage
                self.end = damage.end
                if damage.end >= span.end:
                    self.ending = Ending.DAMAGE
                    return
        self.ending = Ending.NEXT
        if span.continued:
            yield from self._check_seam()

    def _check_seam(self) -> Iterator[DamagedPiece]:
        """The next span skips damage where it begins, so this one reports it."""
        span = self._span
        place = Span(span.base, span.file_end, self.end, self.end + 1)
        probe = SpanScan(self._log, place, check_crc=self._check_crc, window_bytes=_BEHIND)
        for part in probe:
            if isinstance(part, DamagedPiece):
                damage = replace(part, end=self._next_start(span.file_end))
                yield damage
                self.end = damage.end
        if probe.ending is Ending.BLANK:
            self.end, self.ending = span.file_end, Ending.BLANK

    def _begin(self) -> bool:
        """Go to the first record of the span."""
        span = self._span
        if not span.at_record:
            record = next_record(
                self._log, span.start, span.end, span.file_end, check_crc=self._check_crc
            )
            if record is None:
                self.end = span.end
                return False
            self.end = record.physical_offset
        self.first = self.end
        return True

    def _step(self) -> tuple[Piece | None, StopReason | None, CorruptRecordError | None]:
        """Records from `end` on; a stop where no record follows them."""
        window, span = self._window, self._span
        at = window.load(self.end)
        walked, headers = walk_strict(
            window.data,
            at,
            window.filled,
            base_offset=window.base,
            limit=span.file_end - window.base,
            max_records=self._window_records,
            check_crc=self._check_crc,
        )
        piece = _cut(Piece(window.data, window.base, walked, headers), span.end)
        if piece.count < walked.count or walked.stop in (StopReason.LIMIT, StopReason.END):
            if not walked.count and window.filled == at:
                return None, StopReason.ZEROS, CorruptRecordError(self.end, "size", "no bytes")
            return piece, None, None
        if walked.stop is StopReason.INCOMPLETE:
            if walked.count or window.grow(self.end):
                return piece, None, None
            return piece, StopReason.CORRUPT, walked.error
        return piece, walked.stop, walked.error

    def _damage(self, stop: StopReason, error: CorruptRecordError | None) -> DamagedPiece:
        """From `end`, where no record is, to the next one."""
        field = error.field if error is not None else "magic"
        reason = f"{error.field}: {error.reason}" if error is not None else stop.value
        span = self._span
        until = span.file_end if span.continued else span.end
        return DamagedPiece(self.end, self._next_start(until), stop, field, reason)

    def _next_start(self, until: int) -> int:
        """Where the next record behind `end` begins, `until` at most."""
        record = next_record(
            self._log, self.end + 1, until, self._span.file_end, check_crc=self._check_crc
        )
        return record.physical_offset if record is not None else until


class _Window:
    """The buffer of a scan: `filled` bytes from log offset `base` on."""

    def __init__(self, log: LogBytes, span: Span, size: int) -> None:
        self.base = -1
        self.filled = 0
        self._log = log
        self._span = span
        self._behind = _BEHIND
        self._buffer = np.empty(min(size, max(span.file_end - span.start, 1)), np.uint8)
        self._asked = -1

    @property
    def data(self) -> NDArray[np.uint8]:
        return self._buffer[: self.filled]

    def load(self, offset: int) -> int:
        """Read the bytes at the log offset into the buffer, unless it has them and another offset
        was asked for last; returns their position."""
        position = offset - self.base
        if self.base < 0 or not 0 <= position < self.filled or offset == self._asked:
            self._read(offset)
            position = 0
        self._asked = offset
        return position

    def grow(self, offset: int) -> bool:
        """Make room for the record at `offset`, which the buffer cuts off; False if it is not
        one."""
        if self.base != offset:
            return True  # it will be read again, from its start
        record = record_at(self._log, offset, self._span.file_end, check_crc=False)
        if record is None or record.size <= self.filled:
            return False
        self._behind = max(self._behind, record.size)
        if record.size > len(self._buffer):
            self._buffer = np.empty(record.size, np.uint8)
        return True

    def _read(self, offset: int) -> None:
        span = self._span
        wanted = min(
            len(self._buffer), span.file_end - offset, max(span.end - offset, 0) + self._behind
        )
        self.filled = self._log.read_into(offset, self._buffer.data[:wanted])
        self.base = offset


def _cut(piece: Piece, end: int) -> Piece:
    """The records of the piece that begin before the log offset `end`."""
    walked = piece.walk
    count = int(np.searchsorted(walked.positions, end - piece.base))
    if count == walked.count:
        return piece
    next_at = int(walked.positions[count])
    cut = WalkResult(walked.positions[:count], walked.sizes[:count], next_at, StopReason.LIMIT)
    return Piece(piece.data, piece.base, cut, piece.headers.head(count))
