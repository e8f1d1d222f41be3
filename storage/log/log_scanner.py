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
slave that becomes master (promotion.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.headers import HeaderColumns
from tandemlog.format.columns.walk import StopReason, WalkResult
from tandemlog.format.constants import (
    FIXED_SIZE,
    MAGIC_V1,
    MAGIC_V2,
    PHYSICAL_OFFSET_OFFSET,
    SIZE_AND_MAGIC,
)

from ..disk.mapped_file import MappedFile
from ..disk.mapped_file_queue import MappedFileQueue
from .record_search import next_record, whole_but_for_head

RECORDS_A_STEP = 1 << 14
SCAN_STEP = 8 << 20
MAX_TAIL = 64 << 20
_I64 = Struct(">q")


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

    `whole` is a log offset at which a record ends; `keep_tail`: a record will begin at `durable`,
    whatever lies before it, unless that is the beginning of a record; `stop`: the log ends there,
    and what lies behind it was never written.

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
            walked, headers = walk_strict(
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
            if walked.count or walked.stop is not StopReason.INCOMPLETE or end == there:
                return ScanPart(data, file.base, walked, headers), end == there
            # a record larger than a step
            step = int.from_bytes(data[position : position + 4].tobytes())

    def _continue(self, file: MappedFile, data: NDArray[np.uint8], walked: WalkResult) -> bool:
        """At bytes that are no record: True if the log continues behind them."""
        at = self.end
        reason = str(walked.error) if walked.error is not None else walked.stop.value
        self.at_zeros = walked.stop in (StopReason.ZEROS, StopReason.END)
        if at >= self._durable:
            self.reason = "the log ends" if self.at_zeros else reason
            return False
        following = next_record(self._mapped, at, self._durable)
        if following is None and at < self._whole:
            following = self._whole
        if following is None:
            self.reason = reason
            position, remaining = at - file.base, self._durable - at
            size = min(remaining, file.end - at, MAX_TAIL)
            file.prefault(position, size)
            tail = bytes(data[position : position + size])
            whole = remaining == size and whole_but_for_head(tail, at) is not None
            if not whole and self._durable <= file.end and _begins_record(tail, remaining, at):
                return False
            if not self._keep_tail and not whole:
                self.reason += f"; no record follows below {self._durable}, which was durable"
                self.damages.append(Damage(at, self._durable, str(file.path), reason))
                return False
            following = self._durable
        self.damages.append(Damage(at, following, str(file.path), reason))
        self.end = following
        return True


def _at_step_end(walked: WalkResult, to_limit: bool) -> bool:
    """Whether the walk has only come to the end of its step."""
    if walked.stop is StopReason.LIMIT:
        return True
    return walked.stop in (StopReason.END, StopReason.INCOMPLETE) and not to_limit


def _begins_record(tail: bytes, remaining: int, offset: int) -> bool:
    """Whether `tail`, of the `remaining` bytes that are durable from log `offset` on, begins a
    record that continues behind them: on a replica, which gets the log in pieces, that is no
    damage."""
    if remaining < FIXED_SIZE:
        return True
    size, magic = SIZE_AND_MAGIC.unpack_from(tail)
    (position,) = _I64.unpack_from(tail, PHYSICAL_OFFSET_OFFSET)
    return magic in (MAGIC_V1, MAGIC_V2) and position == offset and size > remaining
