"""The commit log as batches for the dispatchers: whole records, taken apart by columns.

    log   ...| r r r r r r r |BLANK...| r r r r ...      limit
             start         end         the next batch starts here

A batch never crosses a file and never goes beyond the limit; if a file's BLANK follows its last
record, the batch ends at the next file. A record of an impossible queue is damage like any other:
one flipped bit turns `orders` into `/rders`, or queue 1 into queue 268,435,457.
"""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import first_true, none_true
from tandemlog.format.columns.dispatch import DispatchColumns, dispatch_columns, without_units
from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.columns.walk import StopReason, WalkResult, walk
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.files.names import names_a_folder, offset_file_name
from tandemlog.format.files.queue_unit import DEFAULT_LEVELS, DelayLevels

from ..errors import CorruptStoreError
from ..folds.dispatch_batch import DispatchBatch
from ..queues.queue_table import MAX_QUEUE_ID

BATCH_BYTES = 4 << 20


class LogPort(Protocol):
    """What dispatch needs of the log."""

    @property
    def file_size(self) -> int: ...

    @property
    def min_offset(self) -> int: ...

    def read(self, offset: int, max_bytes: int) -> memoryview: ...


class BlockPort(LogPort, Protocol):
    """A stretch of a log whose records are known."""

    def starts(self, start: int, end: int) -> NDArray[np.int64]:
        """Log offsets at which its records in start .. end-1 begin."""
        ...


class DispatchSource:
    """See the module. `index` and `index_tags` say which index entries are made.

    `starts(start, end)` returns where records begin in start .. end-1, i8[m] log offsets, as far
    as they are remembered (recent_starts.py). With `property_crc` a record whose property CRC is
    wrong is damage.
    """

    def __init__(
        self,
        log: LogPort,
        *,
        delay_levels: DelayLevels = DEFAULT_LEVELS,
        index: bool = True,
        index_tags: bool = True,
        starts: Callable[[int, int], NDArray[np.int64]] | None = None,
        property_crc: bool = False,
    ) -> None:
        self.log = log
        self._property_crc = property_crc
        self._starts = starts
        self.index = index
        self.index_tags = index_tags
        self._delay_levels = delay_levels
        # the same topics come in every batch: checking each of them every time would cost more than
        # their queues do
        self._sound_topics: set[str] = set()
        # topics whose records go into no queue here
        self.without_queues: Callable[[], frozenset[str]] = frozenset

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

        `end` equals `start` where the limit, or what is readable, ends inside a record. `index` and
        `index_tags` override those of the source. Raises CorruptStoreError if no record begins at
        `start`, OffsetOutOfRangeError outside the log.
        """
        base, window = self._window(start, limit, max_bytes)
        guess = None if self._starts is None else self._starts(start, start + len(window)) - start
        walked, headers = walk_strict(
            window,
            base_offset=start,
            limit=base + self.log.file_size - start,
            check_crc=False,
            check_property_crc=self._property_crc,
            guess=guess,
        )
        if walked.stop is StopReason.INCOMPLETE and not walked.count and len(window) == max_bytes:
            # A record larger than a batch: exactly that one.
            needed = max(int.from_bytes(window[:4]), 2 * max_bytes)
            return self.batch(start, limit, needed, index=index, index_tags=index_tags)
        self._check_stop(walked, start)
        columns = dispatch_columns(
            window,
            walked.positions,
            walked.sizes,
            start,
            delay_levels=self._delay_levels,
            index=self.index if index is None else index,
            index_tags=self.index_tags if index_tags is None else index_tags,
            headers=headers,
        )
        stray = self._first_without_queue(columns)
        if stray >= 0:
            return self._before(stray, columns, start, index=index, index_tags=index_tags)
        apart = self.without_queues()
        if apart and not apart.isdisjoint(columns.topics):
            columns = without_units(columns, apart)
        end = start + walked.end
        if walked.stop is StopReason.BLANK and base + self.log.file_size <= limit:
            end = base + self.log.file_size
        return DispatchBatch(start, end, columns, window)

    def _before(
        self,
        row: int,
        columns: DispatchColumns,
        start: int,
        *,
        index: bool | None,
        index_tags: bool | None,
    ) -> DispatchBatch:
        """The records before row `row`, which cannot be dispatched; an error where it is first."""
        offset = int(columns.physical_offset[row])
        if row:
            return self.batch(start, offset, offset - start, index=index, index_tags=index_tags)
        topic = columns.topics[int(columns.topic_index[row])]
        queue_id = int(columns.queue_id[row])
        if not 0 <= queue_id <= MAX_QUEUE_ID:
            raise self._damage(offset, f"queue_id: {queue_id} is not in 0..{MAX_QUEUE_ID}")
        raise self._damage(offset, f"topic: {topic!r} is not a valid folder name")

    def over(self, log: BlockPort) -> "DispatchSource":
        """A source that makes the same units and index entries of records from `log`."""
        other = DispatchSource(
            log,
            delay_levels=self._delay_levels,
            index_tags=self.index_tags,
            starts=log.starts,
        )
        other.without_queues = self.without_queues
        return other

    def mended(self, start: int, end: int) -> bool:
        """The bytes start .. end-1 are right now; whether damage there was skipped before, which
        this source never does."""
        return False

    def count_records(self, start: int, end: int) -> tuple[int, int]:
        """How many records begin in start .. end-1, and the store time (ms) of the last one; 0 and
        0 for a part that retention has dropped. A record begins at `start`."""
        count = store_timestamp = 0
        if start < self.log.min_offset:
            return count, store_timestamp
        while start < end:
            base, window = self._window(start, end, self.log.file_size)
            walked = walk(window, base_offset=start, limit=base + self.log.file_size - start)
            count += walked.count
            if walked.count:
                last = gather_headers(window, walked.positions[-1:], walked.sizes[-1:])
                store_timestamp = int(last.store_timestamp[0])
            if walked.stop is StopReason.BLANK:
                start = base + self.log.file_size
            elif walked.end == 0:
                self._check_stop(walked, start)
                break
            else:
                start += walked.end
        return count, store_timestamp

    def _first_without_queue(self, columns: DispatchColumns) -> int:
        """The first record whose topic cannot have a folder, or such a queue; -1 if all can."""
        # as an unsigned number one below 0 is too large
        beyond = columns.queue_id.view(np.uint32) > MAX_QUEUE_ID
        sound = self._sound_topics.issuperset(columns.topics)
        if sound and none_true(beyond):
            return -1
        stray = [n for n, topic in enumerate(columns.topics) if not names_a_folder(topic)]
        if not stray:
            self._sound_topics.update(columns.topics)
        return first_true(beyond | np.isin(columns.topic_index, stray))

    def _window(self, start: int, limit: int, max_bytes: int) -> tuple[int, memoryview]:
        """The base of the file that holds `start`, and the bytes from there on."""
        size = self.log.file_size
        return start - start % size, self.log.read(start, max(min(max_bytes, limit - start), 0))

    def _check_stop(self, walked: WalkResult, start: int) -> None:
        """Bytes that are not a record are an error only where the batch would begin with them."""
        if walked.count or walked.stop not in (
            StopReason.ZEROS, StopReason.TORN, StopReason.CORRUPT,
        ):  # fmt: skip
            return
        fault = walked.error
        reason = fault.reason if isinstance(fault, CorruptRecordError) else walked.stop.value
        field = f"{fault.field}: " if isinstance(fault, CorruptRecordError) else ""
        raise self._damage(start + walked.end, f"{field}{reason}")

    def _damage(self, offset: int, reason: str) -> CorruptStoreError:
        base = offset - offset % self.log.file_size
        return CorruptStoreError(
            f"commitlog/{offset_file_name(base)}",
            offset - base,
            f"no record at log offset {offset}: {reason}; nothing after it was "
            "dispatched. Let recovery cut the log there, or copy the log again from "
            "another node",
        )
