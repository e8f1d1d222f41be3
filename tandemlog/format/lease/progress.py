"""The body of a progress record: what groups have done of their queues since the last one.

    "TLWP" | version 1 | kind 1 | reserved 2 | raw size 4 | set 8 | piece 4 | pieces 4     28 bytes
    zlib( entry | entry | ... )                                  raw size: before compression

    entry     flags 1 | group | topic | queue 4 | generation 4 | floor 8
              ended     starts, ends of ranges of queue offsets
              unended   queue offsets, attempts, first attempt (ms)
              errors    count 2, then queue offset 8 and a text each
    text      length 2, UTF-8
    column    count 4 | width 1 (0, 1, 2, 4, 8) | count numbers of that width, little-endian

Ascending numbers are stored as differences from the one before, times as differences from the
earliest, so a thousand consecutive messages take some bytes.

Such a record is an ordinary message of a system topic, so it is replicated, confirmed and cut like
any other, and every node that applies these records in the log's order knows the same. An entry
says only what is new. A record of kind STATE is a piece of everything that was known at its place
in the log: a node whose log begins later than the first records needs no more than the pieces of
one set. An entry never takes back what an earlier one ended, unless its `generation` is higher:
then the queue begins again at `floor`.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError

I64 = NDArray[np.int64]
U16 = NDArray[np.uint16]

PROGRESS_VERSION: Final = 1
MAX_RAW: Final = 64 << 20
"""Bytes of the entries of one record."""
PROGRESS_MAGIC: Final = b"TLWP"
_HEAD: Final = Struct("<4sBB2xIQII")
_PLACE: Final = Struct("<IIq")
_COLUMN: Final = Struct("<IB")
_ERROR: Final = Struct("<q")
_LENGTH: Final = Struct("<H")
_WIDTHS: Final = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}
_HAS_FLOOR, _DROPPED = 1, 2
_FLAGS: Final = _HAS_FLOOR | _DROPPED
_NONE: I64 = np.empty(0, np.int64)
_NO_ATTEMPTS: U16 = np.empty(0, np.uint16)


class ProgressKind(IntEnum):
    CHANGES = 0
    STATE = 1


@dataclass(frozen=True, slots=True, eq=False)
class QueueProgress:
    """What is new of one queue of one group, or, in a STATE, everything.

    `ended_starts` and `ended_ends` i8[r]: ranges of messages that are done. `offsets` i8[n],
    ascending, `attempts` u2[n] and `first_ms` i8[n] (since the epoch, 0 if unknown): messages that
    have been delivered and are not done. `errors`: the last error of some of these. `floor`, where
    it is not None: everything below it is done. `dropped`: nothing is known of the queue any more.
    """

    group: str
    topic: str
    queue_id: int
    generation: int = 0
    floor: int | None = None
    ended_starts: I64 = field(default_factory=lambda: _NONE)
    ended_ends: I64 = field(default_factory=lambda: _NONE)
    offsets: I64 = field(default_factory=lambda: _NONE)
    attempts: U16 = field(default_factory=lambda: _NO_ATTEMPTS)
    first_ms: I64 = field(default_factory=lambda: _NONE)
    errors: Mapping[int, str] = field(default_factory=dict)
    dropped: bool = False

    @property
    def weight(self) -> int:
        """About how many bytes the entry takes before compression."""
        texts = sum(10 + len(each) for each in self.errors.values())
        return 64 + 4 * len(self.ended_starts) + 6 * len(self.offsets) + texts


@dataclass(frozen=True, slots=True)
class Progress:
    """One record. Of a STATE, `piece` of `pieces` of the set `set_id`."""

    entries: Sequence[QueueProgress]
    kind: ProgressKind = ProgressKind.CHANGES
    set_id: int = 0
    piece: int = 0
    pieces: int = 1


def encode_progress(progress: Progress) -> bytes:
    """The body of the record. Raises FormatError if the entries have more than MAX_RAW bytes."""
    parts: list[bytes] = []
    for entry in progress.entries:
        parts += _entry_parts(entry)
    raw = b"".join(parts)
    if len(raw) > MAX_RAW:
        raise FormatError(f"a progress record has {len(raw)} bytes, the limit is {MAX_RAW}")
    head = _HEAD.pack(
        PROGRESS_MAGIC, PROGRESS_VERSION, progress.kind, len(raw), progress.set_id, progress.piece,
        progress.pieces,
    )  # fmt: skip
    return head + zlib.compress(raw, 1)


def decode_progress(body: bytes | memoryview) -> Progress:
    """Raises FormatError for anything that `encode_progress` cannot have written."""
    if len(body) < _HEAD.size:
        raise FormatError(f"a progress record of {len(body)} bytes has no head")
    magic, version, kind, size, set_id, piece, pieces = _HEAD.unpack_from(body)
    if magic != PROGRESS_MAGIC or version != PROGRESS_VERSION:
        raise FormatError(f"no progress record of version {PROGRESS_VERSION}: {bytes(body[:5])!r}")
    if kind > ProgressKind.STATE or size > MAX_RAW or not piece < pieces:
        raise FormatError(f"progress record: kind {kind}, {size} bytes, piece {piece} of {pieces}")
    reader = _Reader(_inflated(bytes(body[_HEAD.size :]), size))
    entries = []
    while not reader.done:
        entries.append(_read_entry(reader))
    return Progress(entries, ProgressKind(kind), set_id, piece, pieces)


def split(entries: Iterable[QueueProgress], max_weight: int) -> list[list[QueueProgress]]:
    """The entries in records of about `max_weight` bytes each; an entry is never divided."""
    records: list[list[QueueProgress]] = []
    room = 0
    for entry in entries:
        weight = entry.weight
        if not records or weight > room:
            records.append([])
            room = max_weight
        records[-1].append(entry)
        room -= weight
    return records


def _inflated(data: bytes, size: int) -> bytes:
    inflater = zlib.decompressobj()
    try:
        raw = inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise FormatError(f"progress record: {error}") from error
    if len(raw) != size or not inflater.eof or inflater.unused_data:
        raise FormatError(f"progress record: its entries do not have the {size} bytes that it says")
    return raw


# ---- entries


def _entry_parts(entry: QueueProgress) -> list[bytes]:
    flags = _HAS_FLOOR * (entry.floor is not None) + _DROPPED * entry.dropped
    floor = 0 if entry.floor is None else entry.floor
    parts = [
        bytes((flags,)),
        _text(entry.group),
        _text(entry.topic),
        _PLACE.pack(entry.queue_id, entry.generation, floor),
        # start, end, start, end ... ascend
        _ascending(_interleaved(entry.ended_starts, entry.ended_ends)),
        _ascending(entry.offsets),
        _column(entry.attempts.astype(np.int64)),
        _times(entry.first_ms),
        _LENGTH.pack(len(entry.errors)),
    ]
    for offset, text in entry.errors.items():
        parts += (_ERROR.pack(offset), _text(text))
    return parts


def _read_entry(reader: "_Reader") -> QueueProgress:
    flags = reader.take(1)[0]
    if flags & ~_FLAGS:
        raise FormatError(f"progress record: an entry with flags {flags}")
    group, topic = reader.text(), reader.text()
    queue_id, generation, floor = reader.unpack(_PLACE)
    ranges = reader.ascending()
    offsets, attempts, first_ms = reader.ascending(), reader.column(), reader.times()
    if len(ranges) % 2 or not len(offsets) == len(attempts) == len(first_ms):
        raise FormatError("progress record: columns of one entry have different lengths")
    if len(attempts) and not 0 <= int(attempts.min()) <= int(attempts.max()) <= 0xFFFF:
        raise FormatError("progress record: more than 65,535 attempts")
    (count,) = reader.unpack(_LENGTH)
    errors = {}
    for _ in range(count):
        (offset,) = reader.unpack(_ERROR)
        errors[offset] = reader.text()
    return QueueProgress(
        group,
        topic,
        queue_id,
        generation,
        floor if flags & _HAS_FLOOR else None,
        ranges[::2],
        ranges[1::2],
        offsets,
        attempts.astype(np.uint16),
        first_ms,
        errors,
        bool(flags & _DROPPED),
    )


def _interleaved(starts: I64, ends: I64) -> I64:
    both = np.empty(2 * len(starts), np.int64)
    both[::2], both[1::2] = starts, ends
    return both


# ---- columns


def _text(text: str) -> bytes:
    data = text.encode()
    return _LENGTH.pack(len(data)) + data


def _column(numbers: I64) -> bytes:
    """Numbers that are not negative, in the smallest width."""
    highest = int(numbers.max()) if len(numbers) else 0
    width = next((each for each in _WIDTHS if highest < 1 << 8 * each), 8) if highest else 0
    data = numbers.astype(_WIDTHS[width]).tobytes() if width else b""
    return _COLUMN.pack(len(numbers), width) + data


def _ascending(numbers: I64) -> bytes:
    return _column(np.diff(numbers, prepend=0))


def _times(numbers: I64) -> bytes:
    base = int(numbers.min()) if len(numbers) else 0
    return _ERROR.pack(base) + _column(numbers - base)


class _Reader:
    """Takes values from the front of some bytes. Raises FormatError where they end too early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def done(self) -> bool:
        return self._at == len(self._data)

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) != size:
            raise FormatError(f"progress record: it ends within an entry, at byte {self._at}")
        self._at += size
        return part

    def unpack(self, form: Struct) -> tuple[Any, ...]:
        return form.unpack(self.take(form.size))

    def text(self) -> str:
        (length,) = self.unpack(_LENGTH)
        try:
            return self.take(length).decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"progress record: a name is no text: {error}") from error

    def column(self) -> I64:
        count, width = self.unpack(_COLUMN)
        if width == 0:
            if count > MAX_RAW:
                raise FormatError(f"progress record: a column of {count} numbers")
            return np.zeros(count, np.int64)
        if width not in _WIDTHS:
            raise FormatError(f"progress record: a column of width {width}")
        numbers = np.frombuffer(self.take(count * width), _WIDTHS[width])
        return numbers.astype(np.int64)

    def ascending(self) -> I64:
        steps = self.column()
        if len(steps) and int(steps.min()) < 0:
            raise FormatError("progress record: numbers that do not ascend")
        numbers = np.cumsum(steps)
        if len(numbers) and int(np.diff(numbers, prepend=0).min()) < 0:
            raise FormatError("progress record: numbers above 2**63")
        return numbers

    def times(self) -> I64:
        (base,) = self.unpack(_ERROR)
        return self.column() + np.int64(base)
