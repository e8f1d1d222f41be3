"""Where a log ends, and what stands behind its end.

    file L    | r r r r r | ? ? ?                  L is the last file with anything in it
                          ^ no record stands here

Nothing stands there (zeros): the log ends. A record cut off by a crash (torn), or bytes that an
earlier use of the file left (stale): it ends too, and readers stop here, whatever follows. But if
the log once continued (the queues know records behind this place, or whole records follow that are
younger than those before), then something in its middle is damaged, and it does not end here.
"""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from tandemlog.format.columns.resync import HEAD_SIZE, stored_offset
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
    """What stands where a log ends."""

    ZEROS = "nothing is written there"
    FULL = "the last file is full"
    TORN = "a record that was not written to its end"
    STALE = "bytes left over from an earlier use of the file"
    CORRUPT = "a damaged record"
    CUT = "the file is cut off"


@dataclass(frozen=True, slots=True)
class LogEnd:
    """`offset` is where the next record would go, `file` the path that holds it; `reason` says
    in words what stands there, `record` is the damaged or torn one where it can be decoded."""

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
    with LocalLog(files) as log:
        file = _last_written(files, log)
        if file is None:
            return LogEnd(files.start, files.directory, Tail.ZEROS, "the log is empty")
        return _Search(files, log, file, durable, last_record).run()


def _last_written(files: LogFiles, log: LocalLog) -> LogFile | None:
    """The newest file that holds anything; the ones behind it were made ahead of need."""
    for file in reversed(files.files):
        if any(read(log, file.base, min(_HEAD, file.length))):
            return file
    # A log may begin in the middle of its first file.
    for file in files.files[:1]:
        if next_record(log, file.base, file.end, file.end) is not None:
            return file
    return None


class _Search:
    def __init__(
        self, files: LogFiles, log: LocalLog, file: LogFile, durable: int, last_record: int
    ) -> None:
        self._files = files
        self._log = log
        self._file = file
        self._durable = durable
        self._last_record = last_record

    def run(self) -> LogEnd:
        file, durable = self._file, self._durable
        if file.base < durable <= file.end:
            return self._checked_from(durable)
        last = self._walk()
        return self._checked_from(last)

    def _walk(self) -> int:
        """Walk sizes over the whole file; returns where one of the last records begins."""
        file = self._file
        window = np.empty(min(_WINDOW, file.length), np.uint8)
        position, before, recent = 0, -1, [0]
        while True:
            data = window[: self._log.read_into(file.base + position, window.data)]
            found = walk(data, limit=file.length - position, base_offset=file.base + position)
            if found.count:
                last = (found.positions[-_LAST_RECORDS:] + position).tolist()
                recent = (recent + last)[-_LAST_RECORDS:]
                position, before = position + found.end, last[-1]
            at_end = len(data) < len(window) or position >= file.length
            if found.stop in (StopReason.END, StopReason.INCOMPLETE) and not at_end:
                if not found.count:  # a record larger than the window
                    size = int.from_bytes(data[:4].tobytes())
                    window = np.empty(min(max(size, 2 * len(window)), file.length), np.uint8)
                continue
            if found.stop in (StopReason.BLANK, StopReason.END):
                break
            following = self._following(file.base + position, before)
            if following is None:
                break
            position, before = following.physical_offset - file.base, -1
        return file.base + recent[0]

    def _following(self, offset: int, before: int) -> Record | None:
        """The next record behind bytes that are none, if the log continued with it."""
        file = self._file
        record = next_record(self._log, offset + 1, file.end, file.end)
        if record is None or offset < self._durable:
            return record
        if before < 0:
            return record
        earlier = record_at(self._log, file.base + before, file.end)
        return record if is_later(earlier, record) else None

    def _checked_from(self, start: int) -> LogEnd:
        """The end, with every record from `start` on checked."""
        file = self._file
        scan = SpanScan(self._log, Span(file.base, file.end, start, file.end))
        before = self._known_before(start)
        for part in scan:
            if isinstance(part, DamagedPiece):
                following = part.end if part.end < file.end else None
                if following is not None and part.start < self._durable:
                    continue
                if following is not None and not self._durable:
                    after = record_at(self._log, following, file.end)
                    if after is not None and is_later(before, after):
                        continue
                return self._end_at(part, before, following)
            position = int(part.walk.positions[-1])
            before = record_at(self._log, part.base + position, file.end)
        if file.length < self._files.file_size:
            reason = f"it has {file.length} bytes, the others {self._files.file_size}"
            return LogEnd(file.end, file.path, Tail.CUT, reason)
        return LogEnd(file.end, file.path, Tail.FULL, Tail.FULL.value)

    def _known_before(self, start: int) -> Record | None:
        if start != self._durable or self._last_record < 0:
            return None
        found = self._files.find(self._last_record)
        return record_at(self._log, self._last_record, found.end) if found is not None else None

    def _end_at(self, damage: DamagedPiece, before: Record | None, following: int | None) -> LogEnd:
        file, at = self._file, damage.start
        tail = self._tail_kind(damage)
        reason = damage.reason
        if following is not None:
            after = record_at(self._log, following, file.end)
            if after is not None and is_later(before, after):
                tail = Tail.CORRUPT
                reason += f"; whole records follow from {following} on"
        record = None
        if tail in (Tail.CORRUPT, Tail.TORN):
            record = lenient_record(self._log, at, file.end, following or 0)
        return LogEnd(at, file.path, tail, reason, record)

    def _tail_kind(self, damage: DamagedPiece) -> Tail:
        file, at = self._file, damage.start
        if damage.stop is StopReason.ZEROS:
            return Tail.ZEROS
        if file.length < self._files.file_size and not self._zeros_at_end():
            return Tail.CUT
        if damage.stop is StopReason.TORN:
            return Tail.TORN
        if at < self._durable:
            return Tail.CORRUPT
        if stored_offset(read(self._log, at, HEAD_SIZE), 0) != at:
            return Tail.STALE
        return Tail.CORRUPT

    def _zeros_at_end(self) -> bool:
        file = self._file
        size = min(_HEAD, file.length)
        return not any(read(self._log, file.end - size, size))


def is_later(before: Record | None, after: Record) -> bool:
    """Whether `after` was stored behind `before` in the same life of a log: not before it in
    time, nor in its own queue."""
    if before is None:
        return True
    if after.store_timestamp < before.store_timestamp:
        return False
    same_queue = (after.topic, after.queue_id) == (before.topic, before.queue_id)
    return not same_queue or after.queue_offset > before.queue_offset
