"""The commit log as batches for the dispatchers: whole records, taken apart by columns.

    log   ...| r r r r r r r |BLANK...| r r r r ...      limit
             start         end         the next batch starts here

A batch never crosses a file and never goes beyond the limit; where a file's BLANK follows its
last record, the batch ends at the next file.
"""

from dataclasses import dataclass
from typing import Protocol

from tandemlog.format.dispatch import DispatchColumns, dispatch_columns
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.fault_columns import walk_strict
from tandemlog.format.file_names import queue_file_name
from tandemlog.format.queue_unit import DEFAULT_LEVELS, DelayLevels
from tandemlog.format.walk import StopReason, WalkResult, walk

from .errors import CorruptStoreError

BATCH_BYTES = 4 << 20


class LogReader(Protocol):
    """What dispatch needs of the log."""

    @property
    def file_size(self) -> int: ...

    @property
    def min_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> memoryview: ...


@dataclass(frozen=True, slots=True)
class DispatchBatch:
    """The records of the log between `start` and `end`, which may be none."""

    start: int
    end: int
    columns: DispatchColumns


class DispatchSource:
    """See the module. `index` and `index_tags` say which index entries are made."""

    def __init__(
        self,
        log: LogReader,
        *,
        delay_levels: DelayLevels = DEFAULT_LEVELS,
        index: bool = True,
        index_tags: bool = True,
    ) -> None:
        self.log = log
        self.index = index
        self.index_tags = index_tags
        self._delay_levels = delay_levels

    def batch(
        self,
        start: int,
        limit: int,
        max_bytes: int = BATCH_BYTES,
        *,
        index: bool | None = None,
        index_tags: bool | None = None,
    ) -> DispatchBatch:
        """The next records from `start` on, all of them end at or before `limit`.

        `end` equals `start` where the limit, or what is readable, stands inside a record. `index`
        and `index_tags` override what the source was made with. Raises CorruptStoreError where no
        record stands at `start`, OffsetOutOfRangeError outside the log.
        """
        base, window = self._window(start, limit, max_bytes)
        found, headers = walk_strict(
            window,
            base_offset=start,
            limit=base + self.log.file_size - start,
            check_crc=False,
        )
        if found.stop is StopReason.INCOMPLETE and not found.count and len(window) == max_bytes:
            # A record larger than a batch: exactly that one.
            needed = max(int.from_bytes(window[:4]), 2 * max_bytes)
            return self.batch(start, limit, needed, index=index, index_tags=index_tags)
        self._check_stop(found, start)
        columns = dispatch_columns(
            window,
            found.positions,
            found.sizes,
            start,
            delay_levels=self._delay_levels,
            index=self.index if index is None else index,
            index_tags=self.index_tags if index_tags is None else index_tags,
            headers=headers,
        )
        end = start + found.end
        if found.stop is StopReason.BLANK and base + self.log.file_size <= limit:
            end = base + self.log.file_size
        return DispatchBatch(start, end, columns)

    def count_records(self, start: int, end: int) -> int:
        """How many records begin in start .. end-1; `start` is the start of one."""
        count = 0
        while start < end:
            base, window = self._window(start, end, self.log.file_size)
            found = walk(window, base_offset=start, limit=base + self.log.file_size - start)
            count += found.count
            if found.stop is StopReason.BLANK:
                start = base + self.log.file_size
            elif found.end == 0:
                self._check_stop(found, start)
                break
            else:
                start += found.end
        return count

    def _window(self, start: int, limit: int, max_bytes: int) -> tuple[int, memoryview]:
        """The base of the file that holds `start`, and the bytes from there on."""
        size = self.log.file_size
        return start - start % size, self.log.read(start, max(min(max_bytes, limit - start), 0))

    def _check_stop(self, found: WalkResult, start: int) -> None:
        """Bytes that are no record are an error when it is their turn, not before."""
        if found.count or found.stop not in (
            StopReason.ZEROS, StopReason.TORN, StopReason.CORRUPT,
        ):  # fmt: skip
            return
        offset = start + found.end
        base = offset - offset % self.log.file_size
        fault = found.error
        reason = fault.reason if isinstance(fault, CorruptRecordError) else found.stop.value
        field = f"{fault.field}: " if isinstance(fault, CorruptRecordError) else ""
        raise CorruptStoreError(
            f"commitlog/{queue_file_name(base)}",
            offset - base,
            f"no record at log offset {offset}: {field}{reason}; nothing behind it was dispatched. "
            "Let recovery cut the log there, or copy it again from another node",
        )
