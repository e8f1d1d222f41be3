"""Reading a store: by queue offset, by time, by key, by position in the log.

Reads stop at the confirm offset: queues end there by construction, and the index and the log are
asked for nothing beyond it. Records are returned as raw bytes, end to end, and the caller decodes
them; a stretch of records that lie end to end in the log is copied as one slice.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import (
    MAGIC_OFFSET,
    MAGIC_V1,
    MAGIC_V2,
    MAX_QUERY,
    NO_END,
)
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.files.index_layout import tag_key
from tandemlog.format.files.names import offset_file_name
from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, UNIT_SIZE
from tandemlog.format.filter.expression import Condition
from tandemlog.format.record.property_crc import wrong_property_crc
from tandemlog.format.record.record import Record, decode_record

from ..errors import OffsetOutOfRangeError, StoreBusyError, StoreError, UnreadableError
from ..index.index_service import IndexService
from ..log.commit_log import CommitLog
from ..positions import Position
from ..queues.consume_queue_store import ConsumeQueueStore
from ..queues.queue_search import Boundary
from ..queues.queue_table import QueueTable
from ..state_files.time_steps import TimeSteps
from ..stats import StoreStats
from .few_records import FEW, FewRecords
from .filtering import Filtering
from .record_copy import Expected, copy_records, first_missing, first_wrong
from .results import (
    FoundRecords,
    GetResult,
    GetStatus,
    NoRecordError,
    QueueRange,
    TooManyEntriesError,
)
from .selection import (
    MIN_EXAMINED,
    Selection,
    first_gone,
    first_impossible,
    select,
    units_to_read,
)
from .store_time import STORE_TIME_END, store_time

# Entries of the index that one query passes.
MAX_PASSED = 1_000_000
ATTEMPTS = 3

_I32 = Struct(">i")
_MAGIC = Struct(">I")


class StoreReader:
    """The reads of one store; any number of threads."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        table: QueueTable,
        confirmed: Position,
        stats: StoreStats,
        index: IndexService | None = None,
        *,
        property_crc: bool = False,
        time_steps: TimeSteps | None = None,
    ) -> None:
        self.index = index
        self._time_steps = time_steps
        self._property_crc = property_crc
        self.on_damage: Callable[[], None] = lambda: None
        self._log = log
        self._queues = queues
        self._table = table
        self._confirmed = confirmed
        self._stats = stats
        self._few = FewRecords(log, queues, table, confirmed, stats, property_crc=property_crc)

    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        max_bytes: int,
        tag_hashes: Collection[int] = (),
        condition: Condition | None = None,
    ) -> GetResult:
        """Messages of a queue from `queue_offset` on; see results.py for the statuses.

        `max_messages` 0 means no limit of count; no tag hashes means every tag, no condition every
        message. The first record is returned whatever its size. Raises StoreBusyError while the
        queue is being rebuilt, UnreadableError if the disk cannot read the first record.
        """
        self._stats.count_get()
        dense = self._table.get(topic, queue_id)
        if dense < 0:
            return self._missed(GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0))
        maximum = self._queues.max_offset(dense)
        if maximum == 0:
            return self._missed(GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0))
        floor = self._queues.log_minimum  # before `minimum`: no unit from there on points below it
        minimum = self._queues.min_offset(dense)
        if queue_offset < minimum:
            status, following = GetStatus.OFFSET_TOO_SMALL, minimum
        elif queue_offset == maximum:
            status, following = GetStatus.OFFSET_OVERFLOW_ONE, queue_offset
        elif queue_offset > maximum:
            status, following = GetStatus.OFFSET_OVERFLOW_BADLY, maximum
        elif condition is None:
            return self._take(
                dense, queue_offset, minimum, maximum, max_messages, max_bytes, tag_hashes, floor
            )
        else:
            filtering = Filtering.of(condition, max_messages, max_bytes)
            return self._take(
                dense, queue_offset, minimum, maximum, filtering.examined_messages,
                filtering.examined_bytes, tag_hashes, floor, filtering,
            )  # fmt: skip
        return self._missed(GetResult(status, following, minimum, maximum))

    def get_in_memory(
        self, topic: str, queue_id: int, queue_offset: int, max_messages: int, max_bytes: int
    ) -> GetResult | None:
        """What `get` returns, if that is a few messages which are found in some microseconds and
        without a read of the disk; else None. Raises as `get`."""
        return self._few.get_in_memory(topic, queue_id, queue_offset, max_messages, max_bytes)

    def get_nothing(self, topic: str, queue_id: int, queue_offset: int) -> GetResult | None:
        """What `get` returns for the offset at which a queue ends, or begins if it has no message:
        known without a read. None for every other offset. Raises as `get`."""
        return self._few.get_nothing(topic, queue_id, queue_offset)

    def _take(
        self,
        dense: int,
        queue_offset: int,
        minimum: int,
        maximum: int,
        max_messages: int,
        max_bytes: int,
        tag_hashes: Collection[int],
        floor: int,
        filtering: Filtering | None = None,
    ) -> GetResult:
        units_a_file = self._queues.file_size // UNIT_SIZE
        file_end = queue_offset - queue_offset % units_a_file + units_a_file
        count = min(units_to_read(max_messages, max_bytes), file_end - queue_offset)
        topic, queue_id = self._table.name(dense)
        wanted = min(count, maximum - queue_offset, max_messages or count)
        if wanted <= FEW and not tag_hashes and filtering is None:
            few = self._few.get(dense, queue_offset, minimum, maximum, wanted, max_bytes, floor)
            if few is not None:
                return few
        wrong = 0
        for _ in range(ATTEMPTS):
            log_start = self._log.min_offset
            if tag_hashes:
                units = self._queues.read(dense, queue_offset, count)
            else:
                units = self._units(dense, queue_offset, count, max_messages, max_bytes, log_start)
            if not len(units):
                return self._missed(
                    GetResult(GetStatus.OFFSET_FOUND_NULL, min(file_end, maximum), minimum, maximum)
                )
            wrong = first_impossible(units, floor)
            if wrong >= 0:
                continue
            chosen = select(
                units,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tag_hashes=tag_hashes,
                log_start=log_start,
            )
            try:
                records = copy_records(self._log, chosen.physical_offsets, chosen.sizes)
            except UnreadableError:
                if len(chosen.sizes) == 1:
                    raise
                # the records before the unreadable bytes can still be returned
                fewer = len(chosen.sizes) // 2
                return self._take(
                    dense, queue_offset, minimum, maximum, fewer, max_bytes, tag_hashes, floor,
                    filtering,
                )  # fmt: skip
            expected = Expected(
                topic, queue_id, chosen.rows + queue_offset, chosen.physical_offsets, chosen.sizes,
                self._property_crc,
            )  # fmt: skip
            if records is None:
                row = first_missing(self._log, expected)
            else:
                row = first_wrong(records, expected)
            if records is not None and row < 0:
                cost = 0
                if filtering is not None:
                    cost = filtering.cost(len(chosen.sizes), len(records))
                    chosen, records = filtering.apply(chosen, records)
                return self._taken(dense, chosen, records, queue_offset, minimum, maximum, cost)
            wrong = int(chosen.rows[max(row, 0)])
            # Files may have been dropped, or the log cut, while we looked: then look again.
        raise self._damaged(dense, queue_offset + wrong)

    def _units(
        self,
        dense: int,
        queue_offset: int,
        count: int,
        max_messages: int,
        max_bytes: int,
        log_start: int,
    ) -> NDArray[np.void]:
        """At most `count` units from there on, without a tag filter: no more than `max_messages` if
        the first ones all have their records, and not many more than fill `max_bytes`, by the
        record sizes of the first ones."""
        if 0 < max_messages < MIN_EXAMINED:
            units = self._queues.read(dense, queue_offset, min(count, max_messages))
            if len(units) and first_gone(units, log_start) < 0:
                return units
        units = self._queues.read(dense, queue_offset, min(count, MIN_EXAMINED))
        if len(units):
            size = int(units["size"].sum(dtype=np.int64))
            count = min(count, len(units) * max_bytes // max(size, 1) + MIN_EXAMINED // 4)
        if len(units) < MIN_EXAMINED or count <= MIN_EXAMINED:
            return units
        return self._queues.read(dense, queue_offset, count)

    def _taken(
        self,
        dense: int,
        chosen: Selection,
        records: bytes | memoryview,
        queue_offset: int,
        minimum: int,
        maximum: int,
        cost: int,
    ) -> GetResult:
        following = queue_offset + chosen.examined
        if not len(chosen.sizes):
            removed = chosen.removed
            status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
            return self._missed(GetResult(status, following, minimum, maximum, cost=cost))
        self._stats.count_found(dense, len(chosen.sizes), len(records))
        return GetResult(
            GetStatus.FOUND,
            following,
            minimum,
            maximum,
            chosen.sizes.astype(np.uint32),
            records,
            self._confirmed.value - int(chosen.physical_offsets[-1]),
            cost,
        )

    def _missed(self, result: GetResult) -> GetResult:
        self._stats.count_miss()
        return result

    def _damaged(self, dense: int, queue_offset: int) -> StoreError:
        """Queue and log do not fit together: the queue is rebuilt from the log."""
        topic, queue_id = self._table.name(dense)
        unit = self._queues.read(dense, queue_offset, 1)
        physical = int(unit["physical_offset"][0]) if len(unit) else -1
        base = max(physical - physical % self._log.file_size, 0)
        reason = (
            f"{self._queues.file_of(dense, queue_offset)}: unit {queue_offset} points to offset "
            f"{physical} of the log (commitlog/{offset_file_name(base)}), where its record is not"
        )
        self._queues.contradict(dense, reason)
        self.on_damage()
        return StoreBusyError(
            f"consume queue {topic}/{queue_id}: {reason}; it is being rebuilt, try again later"
        )

    # ---- by position

    def record_at(self, physical_offset: int) -> bytes:
        """The record that starts there.

        Raises OffsetOutOfRangeError outside the log, or above what is confirmed; NoRecordError
        if no record starts there, or a damaged one.
        """
        return self._decoded(physical_offset)[1]

    def message_at(self, physical_offset: int) -> bytes:
        """As `record_at`, of a record that is in its queue: for a caller that names a position and
        may not read everything. Bytes in a body may look like a record, of a topic and a length of
        the sender's choice, and reach over the messages that lie behind it."""
        record, data = self._decoded(physical_offset)
        dense = self._table.get(record.topic, record.queue_id)
        if dense >= 0 and 0 <= record.queue_offset < self._queues.max_offset(dense):
            for unit in self._queues.read(dense, record.queue_offset, 1):
                if (unit["physical_offset"], unit["size"]) == (physical_offset, len(data)):
                    return data
        raise NoRecordError(f"no message of a queue starts at offset {physical_offset}")

    def records_at(self, physical_offsets: Sequence[int], max_bytes: int) -> FoundRecords:
        """The records of the first of these positions: the first one, and more while all together
        have at most `max_bytes`. Raises as `record_at`."""
        records: list[bytes] = []
        size = 0
        for physical_offset in physical_offsets:
            record = self.record_at(physical_offset)
            size += len(record)
            if records and size > max_bytes:
                break
            records.append(record)
        return FoundRecords(tuple(physical_offsets[: len(records)]), tuple(records))

    def _decoded(self, physical_offset: int) -> tuple[Record, bytes]:
        start, end = self._log.min_offset, self._confirmed.value
        if not start <= physical_offset < end:
            raise OffsetOutOfRangeError(physical_offset, start, end)
        size = self._size_at(physical_offset)
        if size <= 0 or physical_offset + size > end:
            raise NoRecordError(f"no record starts at offset {physical_offset}")
        data = bytes(self._log.view(physical_offset, size))
        try:
            record = decode_record(data, physical_offset=physical_offset, limit=size)
        except CorruptRecordError as error:
            raise NoRecordError(f"no record at offset {physical_offset}: {error}") from error
        if self._property_crc and wrong_property_crc(data):
            raise NoRecordError(f"no record at offset {physical_offset}: its CRC32 is wrong")
        return record, data

    def _size_at(self, physical_offset: int) -> int:
        """The size in the record head there; -1 if there is no record head."""
        try:
            head = self._log.view(physical_offset, MAGIC_OFFSET + _MAGIC.size)
        except OffsetOutOfRangeError:
            return -1
        if _MAGIC.unpack_from(head, MAGIC_OFFSET)[0] not in (MAGIC_V1, MAGIC_V2):
            return -1
        size: int = _I32.unpack_from(head, 0)[0]
        return size if size > 0 else -1

    # ---- by key

    def query_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = MAX_QUERY,
        max_bytes: int = NO_END,
        begin_timestamp: int = 0,
        end_timestamp: int = NO_END,
        before: int = NO_END,
        max_looked_up: int = NO_END,
        tags: bool = False,
    ) -> FoundRecords:
        """The newest messages of a topic with that key (or unique id, or with `tags` that tag) that
        lie before log offset `before`, in log order: one, and more up to `max_messages` (0: all)
        and `max_bytes`. Times are store times in ms, inclusive.

        The index knows 31 bits of a hash and whole seconds; the records themselves decide. After
        `max_looked_up` entries it returns what was found, if anything, and where to continue.
        Raises TooManyEntriesError if more than MAX_PASSED entries would have to be passed.
        """
        self._stats.count_query()
        if self.index is None:
            return FoundRecords((), ())
        wanted = tag_key(key) if tags else key
        records: dict[int, bytes] = {}
        size = looked_up = next_before = 0
        # an entry's time is cut to a second
        begin = max(begin_timestamp - 1000, 0)
        entries = self.index.query(topic, wanted, begin, end_timestamp)
        for passed, physical_offset in enumerate(entries):
            if passed >= MAX_PASSED:
                raise TooManyEntriesError(
                    f"more than {MAX_PASSED} entries of the index have the hash of this key: give "
                    "a narrower time range with begin_timestamp and end_timestamp"
                )
            if physical_offset >= before or physical_offset in records:
                continue
            next_before = physical_offset + 1
            if looked_up == max_looked_up or (max_messages > 0 and len(records) == max_messages):
                break
            looked_up += 1
            try:
                record, data = self._decoded(physical_offset)
            except (OffsetOutOfRangeError, NoRecordError):
                continue
            named = record.tags == key if tags else record.has_key(key)
            in_time = begin_timestamp <= record.store_timestamp <= end_timestamp
            if named and in_time and record.topic == topic:
                size += len(data)
                if records and size > max_bytes:
                    break
                records[physical_offset] = data
        else:
            next_before = 0
        offsets = tuple(sorted(records))
        return FoundRecords(offsets, tuple(records[each] for each in offsets), next_before)

    # ---- by time

    def search_offset(self, topic: str, queue_id: int, timestamp: int, boundary: Boundary) -> int:
        """The queue offset for a store time in ms; 0 if there is no such queue."""
        dense = self._table.get(topic, queue_id)
        if dense < 0:
            return 0
        steps = () if self._time_steps is None else self._time_steps.offsets
        return self._queues.search(dense, timestamp, boundary, self._time_of, steps)

    def _time_of(self, physical_offset: int, size: int) -> int:
        """-1 if the unit is pre-blank, or its record damaged or gone."""
        if size == PRE_BLANK_SIZE:
            return -1
        try:
            return self.store_timestamp(physical_offset)
        except (OffsetOutOfRangeError, UnreadableError):
            return -1

    def store_timestamp(self, physical_offset: int) -> int:
        """The store time (ms) of the record that starts there; -1 if none does."""
        if self._size_at(physical_offset) < 0:
            return -1
        return store_time(self._log.view(physical_offset, STORE_TIME_END), physical_offset)

    def time_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """The store time (ms) of that message; -1 if there is none."""
        dense = self._table.get(topic, queue_id)
        if dense < 0 or queue_offset < self._queues.min_offset(dense):
            return -1
        return self._time_of_unit(dense, queue_offset, self._queues.max_offset(dense))

    def ranges(self, topics: Sequence[str] = ()) -> list[QueueRange]:
        """Every queue that exists, of these topics or of all, by topic and queue id."""
        return self.ranges_from(0, self._table.count, topics)[0]

    def ranges_from(
        self, first: int, most: int, topics: Sequence[str] = ()
    ) -> tuple[list[QueueRange], int]:
        """At most `most` queues, of these topics or of all, whose dense index is `first` or more;
        and the index to continue from, 0 at the end. By topic and queue id, among themselves."""
        numbers: Iterable[int] = range(first, self._table.count)
        if topics:
            of_topics = {each for topic in topics for each in self._table.queues_of(topic).values()}
            numbers = sorted(each for each in of_topics if each >= first)
        ranges: list[QueueRange] = []
        following = 0
        for looked_at, dense in enumerate(numbers):
            if looked_at == most:
                following = dense
                break
            topic, queue_id = self._table.name(dense)
            # a deleted topic leaves its dense indexes behind
            if self._table.get(topic, queue_id) == dense:
                ranges.append(self._range(dense, topic, queue_id))
        return sorted(ranges, key=lambda each: (each.topic, each.queue_id)), following

    def _range(self, dense: int, topic: str, queue_id: int) -> QueueRange:
        minimum, maximum = self._queues.min_offset(dense), self._queues.max_offset(dense)
        return QueueRange(
            topic,
            queue_id,
            minimum,
            maximum,
            self._time_of_unit(dense, minimum, maximum),
            self._time_of_unit(dense, maximum - 1, maximum),
        )

    def _time_of_unit(self, dense: int, queue_offset: int, maximum: int) -> int:
        if not 0 <= queue_offset < maximum:
            return -1
        unit = self._queues.read(dense, queue_offset, 1)
        if not len(unit):
            return -1
        return self._time_of(int(unit["physical_offset"][0]), int(unit["size"][0]))
