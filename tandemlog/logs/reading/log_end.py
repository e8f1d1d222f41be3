"""Where a log ends, and what is behind its end.

    file L    | r r r r r | ? ? ?                  L is the last file with anything in it
                          ^ no record begins here

The log ends at zeros. It also ends at a record cut off by a crash (torn), or at bytes from an
earlier use of the file (stale): readers stop there, whatever follows. But if the log once continued
(the queues point to records behind this place, or whole records follow that are younger than those
before), then something in its middle is damaged, and it does not end here.
"""

from contextlib import closing
from dataclasses import dataclass
from enum import Enum

import numpy as np

from tandemlog.format.columns.record_starts import HEAD_SIZE, stored_offset
from tandemlog.format.columns.walk import StopReason, walk
from tandemlog.format.record.record import Record

from .damaged_record import lenient_record
from .find_record import next_record, record_at
from .log_bytes import LocalLog, read
from .log_files import LogFile, LogFiles
from .log_spans import Span
from .span_scan import DamagedPiece, SpanScan

_LAST_RECORDS = 64
_HEAD = 4096
_WINDOW = 8 << 20


class Tail(Enum):
    """What is found where a log ends."""

    ZEROS = "nothing is written there"
    FULL = "the last file is full"
    TORN = "a record that was not written to its end"
    STALE = "bytes left over from an earlier use of the file"
    CORRUPT = "a damaged record"
    CUT = "the file is cut off"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """`offset` is where the next record would go, `file` the path that holds it; `reason` describes
    what is there, `record` is the damaged or torn one where it can be decoded."""

    offset: int
    file: str
    tail: Tail
    reason: str
    record: Record | None = None


def find_log_end(files: LogFiles, durable: int, last_record: int = -1) -> LogEnd:
    """The end of the log on disk; `durable` is what its queues say (queue_ends), 0 if nothing, and
    `last_record` where the record that ends there begins.

    Below `durable` sizes and magic are walked, above it every record is checked. Raises OSError.
    """
    with closing(LocalLog(files)) as log:
        file = _last_written(files, log)
        if file is None:
            return LogEnd(files.start, files.directory, Tail.ZEROS, "the log is empty")
        return _Search(files, log, file, durable, last_record).run()


def _last_written(files: LogFiles, log: LocalLog) -> LogFile | None:
    """The newest file that holds anything; those behind it were created in advance."""
    for file in reversed(files.files):
        if any(read(log, file.base, min(_HEAD, file.length))):
            return file
    # A log may begin in the middle of its first file.
    for file in files.files[:1]:
        if next_record(log, file.base, file.end, file.end) is not None:
            return file
    return None


@dataclass(frozen=True, slots=True)
class _Search:
    files: LogFiles
    log: LocalLog
    file: LogFile
    durable: int
    last_record: int

    def run(self) -> LogEnd:
        known = self.file.base < self.durable <= self.file.end
        return self._checked_from(self.durable if known else self._walk())

    def _walk(self) -> int:
        """Walk sizes over the whole file; returns where one of the last records begins."""
        file = self.file
        window = np.empty(min(_WINDOW, file.length), np.uint8)
        position, before, recent = 0, -1, [0]
        while True:
            data = window[: self.log.read_into(file.base + position, window.data)]
            walked = walk(data, limit=file.length - position, base_offset=file.base + position)
            if walked.count:
                last = (walked.positions[-_LAST_RECORDS:] + position).tolist()
                recent = (recent + last)[-_LAST_RECORDS:]
                position, before = position + walked.end, last[-1]
            at_end = len(data) < len(window) or position >= file.length
            if walked.stop in (StopReason.END, StopReason.INCOMPLETE) and not at_end:
                if not walked.count:  # a record larger than the window
                    size = int.from_bytes(data[:4].tobytes())
                    window = np.empty(min(max(size, 2 * len(window)), file.length), np.uint8)
                continue
            if walked.stop in (StopReason.BLANK, StopReason.END):
                break
            following = self._following(file.base + position, before)
            if following is None:
                break
            position, before = following.physical_offset - file.base, -1
        return file.base + recent[0]

    def _following(self, offset: int, before: int) -> Record | None:
        """The next record behind damaged bytes, if the log continued with it."""
        file = self.file
        record = next_record(self.log, offset + 1, file.end, file.end)
        if record is None or offset < self.durable or before < 0:
            return record
        earlier = record_at(self.log, file.base + before, file.end)
        return record if is_later(earlier, record) else None

    def _checked_from(self, start: int) -> LogEnd:
        """The end, with every record from `start` on checked."""
        file = self.file
        scan = SpanScan(self.log, Span(file.base, file.end, start, file.end))
        before = self._record_before(start)
        for part in scan:
            if isinstance(part, DamagedPiece):
                following = part.end if part.end < file.end else None
                if following is not None and part.start < self.durable:
                    continue
                if following is not None and not self.durable:
                    after = record_at(self.log, following, file.end)
                    if after is not None and is_later(before, after):
                        continue
                return self._end_at(part, before, following)
            position = int(part.walk.positions[-1])
            before = record_at(self.log, part.base + position, file.end)
        if file.length < self.files.file_size:
            reason = f"it has {file.length} bytes, the others {self.files.file_size}"
            return LogEnd(file.end, file.path, Tail.CUT, reason)
        return LogEnd(file.end, file.path, Tail.FULL, Tail.FULL.value)

    def _record_before(self, start: int) -> Record | None:
        if start != self.durable or self.last_record < 0:
            return None
        file = self.files.find(self.last_record)
        return record_at(self.log, self.last_record, file.end) if file is not None else None

    def _end_at(self, damage: DamagedPiece, before: Record | None, following: int | None) -> LogEnd:
        file, at = self.file, damage.start
        tail = self._tail_kind(damage)
        reason = damage.reason
        if following is not None:
            after = record_at(self.log, following, file.end)
            if after is not None and is_later(before, after):
                tail = Tail.CORRUPT
                reason += f"; whole records follow from {following} on"
        record = None
        if tail in (Tail.CORRUPT, Tail.TORN):
            record = lenient_record(self.log, at, file.end, following or 0)
        return LogEnd(at, file.path, tail, reason, record)

    def _tail_kind(self, damage: DamagedPiece) -> Tail:
        file, at = self.file, damage.start
        if damage.stop is StopReason.ZEROS:
            return Tail.ZEROS
        if file.length < self.files.file_size and not self._zeros_at_end():
            return Tail.CUT
        if damage.stop is StopReason.TORN:
            return Tail.TORN
        if at < self.durable:
            return Tail.CORRUPT
        if stored_offset(read(self.log, at, HEAD_SIZE), 0) != at:
            return Tail.STALE
        return Tail.CORRUPT

    def _zeros_at_end(self) -> bool:
        file = self.file
        size = min(_HEAD, file.length)
        return not any(read(self.log, file.end - size, size))


def is_later(before: Record | None, after: Record) -> bool:
    """Whether `after` was stored behind `before` in the same life of a log: not before it in
    time, nor in its own queue."""
    if before is None:
        return True
    if after.store_timestamp < before.store_timestamp:
        return False
    same_queue = (after.topic, after.queue_id) == (before.topic, before.queue_id)
    return not same_queue or after.queue_offset > before.queue_offset
