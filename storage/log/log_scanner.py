"""The commit log by columns: where it ends, what is damaged, whose records it holds.

    file 1  [r][r][r][BLANK....]   file 2  [r][r]xxxxx[r][r]  0 0 0 ...
                                                 ^damage     ^end

A scan stops where no record follows. Whether that is the end of the log or a hole in it is
decided by `durable`: below it the log was fsynced and acknowledged, so a bad record there is
damage and never the end. The scan then looks for the next record: a place with the magic, the
matching physical offset, lengths that add up and a valid CRC. Above `durable` the first bad record
is the end, as after a power cut: later blocks may have reached the disk before earlier ones.

If no record follows, `whole` decides: below it there are only whole records, so bad bytes there are
damage up to it, and the log continues after it. Between it and `durable` the beginning of a record
is the end (a replica gets the log in pieces), unless its bytes are a whole record except for its
head.

All callers that look for the end of a log use this one decision: recovery (analysis.py), and a
slave that becomes master (truncation.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.headers import HeaderColumns
from tandemlog.format.columns.record_starts import MAGICS, magic_positions
from tandemlog.format.columns.walk import StopReason, WalkResult
from tandemlog.format.constants import (
    BODY_LENGTH_OFFSET,
    BORN_TIMESTAMP_OFFSET,
    FIXED_SIZE,
    IPV6_EXTRA,
    MAGIC_BLANK,
    MAGIC_OFFSET,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_SIZE,
    PAGE,
    PHYSICAL_OFFSET_OFFSET,
    SIZE_AND_MAGIC,
    SYS_FLAG_OFFSET,
)
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

from ..disk.mapped_file import MappedFile
from ..disk.mapped_file_queue import MappedFileQueue

RECORDS_A_STEP = 1 << 14
SCAN_STEP = 8 << 20
SEARCH_STEP = 1 << 20
MAX_TAIL = 64 << 20
_I64 = Struct(">q")
_BLANK_MAGIC = MAGIC_BLANK.to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes start..end of the log (offsets) that are no records, and why."""

    start: int
    end: int
    file: str
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: offsets {self.start}..{self.end}: {self.reason}"


@dataclass(frozen=True, slots=True)
class ScanPart:
    """Some records of one file: `data` is the whole file, its first byte at log offset `base`; of
    it only the records may be looked at."""

    data: NDArray[np.uint8]
    base: int
    walk: WalkResult
    headers: HeaderColumns

    @property
    def end_offset(self) -> int:
        return self.base + self.walk.end


class LogScanner:
    """Iterate once. While and after it: `end`, `records`, `damages`, `reason`, `at_zeros`.

    `whole` is a log offset at which a record ends; `keep_tail`: a record will begin where `durable`
    is, whatever lies before it, unless that is the beginning of a record; `stop`: the log has come
    to that offset, and what lies behind it was never written.

    `end` is the offset after the last record or BLANK file, `last_record` where the last record
    begins (-1 for none); `reason` says why it ends there and
    `at_zeros` that nothing was ever written there, so the log simply ends; `blank_at` where the
    last BLANK begins.
    """

    def __init__(
        self,
        mapped: MappedFileQueue,
        start: int,
        *,
        durable: int = 0,
        whole: int = 0,
        keep_tail: bool = False,
        stop: int | None = None,
        check_crc: bool = True,
        check_property_crc: bool = False,
    ) -> None:
        self._mapped = mapped
        self._check_property_crc = check_property_crc
        self._durable = durable
        self._whole = whole
        self._keep_tail = keep_tail
        self._stop = stop
        self.blank_at = -1
        self._check_crc = check_crc
        self.start = start
        self.end = start
        self.records = 0
        self.damages: list[Damage] = []
        self.reason = ""
        self.at_zeros = True
        self.last_store_timestamp = 0
        self.last_record = -1

    def __iter__(self) -> Iterator[ScanPart]:
        while True:
            if self._stop is not None and self.end >= self._stop:
                self.reason, self.at_zeros = "the log ends", True
                return
            file = self._mapped.find(self.end)
            if file is None:
                self.reason, self.at_zeros = "the last file is full", True
                return
            data = np.frombuffer(file.span(0, file.size), dtype=np.uint8)
            part, to_limit = self._step(file, data)
            if part.walk.count:
                self.records += part.walk.count
                self.last_store_timestamp = int(part.headers.store_timestamp[-1])
                self.last_record = part.base + int(part.walk.positions[-1])
                self.end = part.end_offset
                yield part
            stop = part.walk.stop
            if stop is StopReason.BLANK:
                self.blank_at = self.end
                self.end = file.end
            elif not _at_step_end(part.walk, to_limit) and not self._continue(
                file, data, part.walk
            ):
                return

    def run(self) -> "LogScanner":
        """To the end, for those who want only the outcome."""
        for _ in self:
            pass
        return self

    def _step(self, file: MappedFile, data: NDArray[np.uint8]) -> tuple[ScanPart, bool]:
        """The next records, and whether they go to the end of what there is of the file."""
        position, step = self.end - file.base, SCAN_STEP
        there = file.size if self._stop is None else min(file.size, self._stop - file.base)
        while True:
            end = min(position + step, there)
            file.prefault(position, end - position)
            found, headers = walk_strict(
                data,
                position,
                end,
                base_offset=file.base,
                limit=file.size,
                max_records=RECORDS_A_STEP,
                check_crc=self._check_crc,
                check_topics=True,
                check_property_crc=self._check_property_crc,
                holes_above=self._durable if self._check_crc else None,
            )
            if found.count or found.stop is not StopReason.INCOMPLETE or end == there:
                return ScanPart(data, file.base, found, headers), end == there
            # a record larger than a step
            step = int.from_bytes(data[position : position + 4].tobytes())

    def _continue(self, file: MappedFile, data: NDArray[np.uint8], found: WalkResult) -> bool:
        """At bytes that are no record: True if the log continues behind them."""
        at = self.end
        reason = str(found.error) if found.error is not None else found.stop.value
        self.at_zeros = found.stop in (StopReason.ZEROS, StopReason.END)
        if at >= self._durable:
            self.reason = "the log ends" if self.at_zeros else reason
            return False
        following = next_record(self._mapped, at, self._durable)
        if following is None and at < self._whole:
            following = self._whole
        if following is None:
            self.reason = reason
            position, left = at - file.base, self._durable - at
            size = min(left, file.end - at, MAX_TAIL)
            file.prefault(position, size)
            tail = bytes(data[position : position + size])
            whole = left == size and whole_but_for_head(tail, at) is not None
            if not whole and self._durable <= file.end and _begins_record(tail, left, at):
                return False
            if not self._keep_tail and not whole:
                self.reason += f"; no record follows below {self._durable}, which was durable"
                self.damages.append(Damage(at, self._durable, str(file.path), reason))
                return False
            following = self._durable
        self.damages.append(Damage(at, following, str(file.path), reason))
        self.end = following
        return True


def _at_step_end(found: WalkResult, to_limit: bool) -> bool:
    """Whether the walk has only come to the end of its step."""
    if found.stop is StopReason.LIMIT:
        return True
    return found.stop in (StopReason.END, StopReason.INCOMPLETE) and not to_limit


def _begins_record(tail: bytes, left: int, offset: int) -> bool:
    """Whether `tail`, of the `left` bytes that are durable from log `offset` on, is the beginning
    of a record that continues behind them: on a replica, which gets the log in pieces, that is no
    damage."""
    if left < FIXED_SIZE:
        return True
    size, magic = SIZE_AND_MAGIC.unpack_from(tail)
    (said,) = _I64.unpack_from(tail, PHYSICAL_OFFSET_OFFSET)
    return magic in (MAGIC_V1, MAGIC_V2) and said == offset and size > left


def whole_but_for_head(data: bytes, offset: int) -> Record | None:
    """The record that `data`, at log `offset`, is if its size, magic or physical offset alone are
    damaged; None if more is."""
    data = _without_blank(data)
    if len(data) < MIN_RECORD_SIZE:
        return None
    said = _I64.pack(offset)
    for magic in MAGICS:
        mended = bytearray(data)
        mended[: MAGIC_OFFSET + len(magic)] = len(data).to_bytes(4, "big") + magic
        mended[PHYSICAL_OFFSET_OFFSET : PHYSICAL_OFFSET_OFFSET + len(said)] = said
        try:
            return decode_record(bytes(mended), physical_offset=offset)
        except CorruptRecordError:
            continue
    return None


def whole_but_for_body(data: bytes, offset: int) -> Record | None:
    """The record that `data`, at log `offset`, is if its body or a CRC alone is damaged: nothing
    vouches for what it says; None if more is."""
    data = _without_blank(data)
    try:
        record = decode_record(data, physical_offset=offset, check_crc=False)
    except CorruptRecordError:
        return None
    return record if record.size == len(data) else None


def whole_but_for_a_length(data: bytes, offset: int) -> Record | None:
    """The record that `data`, at log `offset`, is if one bit of a length inside it is turned, or of
    the flags that tell how long its hosts are; None where more is."""
    data = _without_blank(data)
    if len(data) < MIN_RECORD_SIZE or int.from_bytes(data[:MAGIC_OFFSET]) != len(data):
        return None
    mended = bytearray(data)
    for place, bit in _bits_of_lengths(data):
        mended[place] ^= bit
        try:
            return decode_record(mended, physical_offset=offset)
        except CorruptRecordError:
            mended[place] ^= bit
    return None


def _bits_of_lengths(data: bytes) -> Iterator[tuple[int, int]]:
    """(byte, mask) of each bit that says where a part of the record in `data` ends, by what the
    lengths before it say; those outside `data` left out."""
    flags = int.from_bytes(data[SYS_FLAG_OFFSET:BORN_TIMESTAMP_OFFSET])
    wide = [bit for bit in (BORN_HOST_IPV6, STORE_HOST_IPV6) if flags & bit]
    width = 1 if data[MAGIC_OFFSET : MAGIC_OFFSET + len(MAGICS[0])] == MAGICS[0] else 2
    body = BODY_LENGTH_OFFSET + IPV6_EXTRA * len(wide)
    topic = body + 4 + int.from_bytes(data[body : body + 4])
    properties = topic + width + int.from_bytes(data[topic : topic + width])
    for begin, size in ((body, 4), (topic, width), (properties, 2)):
        for place in range(begin, min(begin + size, len(data))):
            yield from ((place, 1 << bit) for bit in range(8))
    yield from ((BORN_TIMESTAMP_OFFSET - 1, bit) for bit in (BORN_HOST_IPV6, STORE_HOST_IPV6))


def _without_blank(data: bytes) -> bytes:
    """`data` up to the BLANK that it ends with: damage in the last record of a file is followed
    by the next file's first record only."""
    place = data.rfind(_BLANK_MAGIC)
    begin = place - MAGIC_OFFSET
    if begin > 0 and int.from_bytes(data[begin:place], "big") == len(data) - begin:
        return data[:begin]
    return data


def next_record(mapped: MappedFileQueue, offset: int, below: int) -> int | None:
    """Where the first whole record behind `offset` starts; None if none does below `below`.
    Raises UnreadableError."""
    for file in mapped.files:
        if file.end > offset and file.base < below:
            found = find_record(file, max(offset + 1 - file.base, 0), file.size)
            if found is not None:
                return found if found < below else None
    return None


def find_record(file: MappedFile, start: int, stop: int) -> int | None:
    """The log offset of the first whole record in bytes start .. stop of a file; None if they have
    none. The record must say that it lies there, so stale and stray bytes are skipped. Raises
    UnreadableError."""
    overlap = MAGIC_OFFSET + len(MAGICS[0])
    for begin in range(start, stop - MIN_RECORD_SIZE, SEARCH_STEP):
        piece = bytes(file.view(begin, min(SEARCH_STEP + overlap - 1, stop - begin)))
        for position in magic_positions(piece):
            if position < SEARCH_STEP and _is_record(file, begin + position, stop):
                return file.base + begin + position
    return None


def record_view(file: MappedFile, position: int, stop: int | None = None) -> memoryview:
    """The record at `position` of a file, by the size that it says, or what there is up to `stop`
    (default: the file's end) where that is none. Raises UnreadableError."""
    left = (file.size if stop is None else stop) - position
    size = int.from_bytes(file.view(position, min(4, left)))
    return file.view(position, size if MIN_RECORD_SIZE <= size <= left else min(left, PAGE))


def _is_record(file: MappedFile, position: int, stop: int) -> bool:
    try:
        decode_record(record_view(file, position, stop), physical_offset=file.base + position)
    except CorruptRecordError:
        return False
    return True
