"""Which messages may be put to come later, checked on a master before they are appended.

    record of a delay topic ──▶ says when and where to ──▶ that queue may be put to
                            ──▶ within max_delay_ms   ──▶ fewer than max_delayed wait

A waiting record is acted on long after its put. So everything that could go wrong then, and that is
known now, is refused now: with the record, and the way out.
"""

from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.grouping import distinct_pairs, distinct_slices
from tandemlog.format.arrays.ragged import byte_array, offsets_of
from tandemlog.format.columns.headers import HeaderColumns, gather_headers
from tandemlog.format.columns.property_layouts import find_properties
from tandemlog.format.constants import DELAY, DELAY_TOPICS, MAX_PROPERTIES, SCHEDULE_TOPIC
from tandemlog.format.delay.framing import ROLL_ROOM
from tandemlog.format.delay.waiting_columns import (
    WAITS,
    WaitingColumns,
    parse_numbers,
    waiting_columns,
)
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.format.record.batch import AppendSegment, RecordBatch

from ..clock import duration
from ..errors import BatchRefusedError
from ..folds.delay_fold import DelayFold
from ..log.record_check import bad_record
from .delay_holders import DelayHolders

MayPut = Callable[[str, int], BatchRefusedError | None]


class DelayCheck:
    """See the module. `refusal(topic, queue_id)` says why a queue may not be put to, None if it
    may. The caller holds the store's write lock."""

    def __init__(
        self,
        fold: DelayFold,
        levels: DelayLevels,
        refusal: MayPut,
        *,
        max_delay_ms: int,
        max_delayed: int,
    ) -> None:
        self._fold = fold
        self._levels = levels
        self._refusal = refusal
        self._max_delay_ms = max_delay_ms
        self._max_delayed = max_delayed
        # what was appended and is not dispatched yet: (end in the log, records)
        self._appended: deque[tuple[int, int]] = deque()
        self._holders = DelayHolders(fold, max_delayed)

    @staticmethod
    def concerns(batch: RecordBatch) -> bool:
        return not DELAY_TOPICS.isdisjoint(batch.topics)

    def check(self, batch: RecordBatch, now_ms: int) -> int:
        """How many records of a valid batch wait. Raises BatchRefusedError for the first that may
        not."""
        rows, scheduled = _waiting_rows(batch)
        if not len(rows):
            return 0
        data = byte_array(batch.records)
        sizes = batch.sizes.astype(np.int64)
        headers = gather_headers(data, offsets_of(sizes)[:-1][rows], sizes[rows])
        _check_lengths(headers, rows)
        stored = np.full(len(rows), now_ms)
        level_due = self._check_levels(data, headers, rows, scheduled, now_ms)
        found = waiting_columns(data, headers, scheduled, level_due, stored)
        for row in (found.kind != WAITS).nonzero()[0].tolist():
            raise bad_record(
                "properties",
                "it is for a topic in which messages wait, and does not say when its message is "
                "due and where to (TIMER_OUT_MS or DELAY, REAL_TOPIC, REAL_QID)",
                int(rows[row]),
            )
        self._check_times(found, rows, now_ms)
        self._check_targets(data, found, rows)
        return len(rows)

    def _check_levels(
        self,
        data: NDArray[np.uint8],
        headers: HeaderColumns,
        rows: NDArray[np.int64],
        scheduled: NDArray[np.bool_],
        now_ms: int,
    ) -> NDArray[np.int64]:
        """When records of delay levels are due."""
        due = np.zeros(len(rows), np.int64)
        mine = scheduled.nonzero()[0]
        if not len(mine):
            return due
        ((starts, lengths),) = find_properties(
            data, headers.properties_start, headers.properties_length, [DELAY.encode()]
        )
        levels = parse_numbers(data, starts, lengths)
        for row in mine.tolist():
            level = int(headers.queue_id[row]) + 1
            if int(levels[row]) != level:
                raise bad_record(
                    "properties",
                    f"DELAY must be {level} in queue {level - 1} of {SCHEDULE_TOPIC}",
                    int(rows[row]),
                )
            due[row] = now_ms + self._levels.delay_ms(level)
        return due

    def _check_times(self, found: WaitingColumns, rows: NDArray[np.int64], now_ms: int) -> None:
        late = (found.due_ms - now_ms > self._max_delay_ms).nonzero()[0]
        if len(late):
            row = int(late[0])
            delay_ms = int(found.due_ms[row]) - now_ms
            raise BatchRefusedError(
                "INVALID_ARGUMENT",
                "delay",
                f"record {int(rows[row])}: its message is due in {duration(delay_ms)}, the longest "
                f"delay is {duration(self._max_delay_ms)} (store.max_delay_ms)",
                limit=self._max_delay_ms,
                actual=delay_ms,
                record_index=int(rows[row]),
                of_the_store=True,
            )

    def _check_targets(
        self, data: NDArray[np.uint8], found: WaitingColumns, rows: NDArray[np.int64]
    ) -> None:
        """That the queues that the messages are for may be put to."""
        _, numbers = distinct_slices(data, *found.real_topic)
        pairs, _ = distinct_pairs(numbers, found.real_queue)
        for row in pairs.tolist():
            topic = text_at(data, found, row)
            refusal = self._refusal(topic, int(found.real_queue[row]))
            if refusal is not None:
                refusal.record_index = int(rows[row])
                raise refusal

    # ---- how many

    @property
    def waiting(self) -> int:
        """How many messages wait, those among them that are not dispatched yet."""
        reached = self._fold.next_offset
        while self._appended and self._appended[0][0] <= reached:
            self._appended.popleft()
        return len(self._fold.rows) + sum(count for _, count in self._appended)

    def check_room(self, count: int, holder: str) -> None:
        """Raises BatchRefusedError if so many more of this holder may not wait."""
        waiting = self.waiting
        if self._holders.may_take(holder, count, waiting):
            return
        own, most = self._holders.of(holder), self._holders.most(holder, waiting)
        raise BatchRefusedError(
            "BUSY",
            "records",
            f"{waiting} messages wait for their time, {own} of them from {holder or 'here'}, which "
            f"may have {most} of store.max_delayed, {self._max_delayed}: wait until some have "
            "come, or raise it",
            limit=most,
            actual=own + count,
            of_the_store=True,
        )

    def appended(
        self, segments: Sequence[AppendSegment], end: int, count: int, holder: str
    ) -> None:
        """`count` records of `holder` that wait stand in the log, in `segments`; it ends at `end`
        now."""
        self._appended.append((end, count))
        self._holders.appended(holder, segments[0].physical_offset, end, count)

    def begin(self) -> None:
        """This store begins to append: whose the records before are is not known."""
        self._appended.clear()
        self._holders.clear()


def _check_lengths(headers: HeaderColumns, rows: NDArray[np.int64]) -> None:
    """That retention can write each again, with its time."""
    most = MAX_PROPERTIES - ROLL_ROOM
    long = (headers.properties_length > most).nonzero()[0]
    if len(long):
        row, length = int(rows[long[0]]), int(headers.properties_length[long[0]])
        raise BatchRefusedError(
            "PROPERTIES_TOO_LARGE",
            "properties",
            f"record {row}: properties have {length} bytes, the limit is {most} for a message that "
            "comes later",
            limit=most,
            actual=length,
            record_index=row,
        )


def _waiting_rows(batch: RecordBatch) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The records of a batch that go to a delay topic, and which of them to the schedule topic."""
    kinds = np.array(
        [(topic in DELAY_TOPICS) + (topic == SCHEDULE_TOPIC) for topic in batch.topics]
    )
    of_record = kinds[batch.queue_topics.astype(np.int64)][batch.queue_indexes]
    rows = of_record.nonzero()[0]
    return rows, of_record[rows] == 2


def text_at(data: NDArray[np.uint8], found: WaitingColumns, row: int) -> str:
    """The topic that the message of a row is for."""
    start, length = int(found.real_topic[0][row]), int(found.real_topic[1][row])
    return data[start : start + length].tobytes().decode("utf-8", "replace")


def real_topics(batch: RecordBatch) -> dict[str, int]:
    """The topics that messages of this batch are for which come later, and the first record of
    each: of whatever bytes, before anything is checked."""
    if len(batch.queue_indexes) and int(batch.queue_indexes.max()) >= len(batch.queue_ids):
        return {}
    rows, _ = _waiting_rows(batch)
    data = byte_array(batch.records)
    sizes = batch.sizes.astype(np.int64)
    headers = gather_headers(data, offsets_of(sizes)[:-1][rows], sizes[rows])
    rows = rows[headers.well_formed]
    headers = headers_of(headers, headers.well_formed)
    nothing = np.zeros(headers.count, np.int64)
    scheduled = np.zeros(headers.count, np.bool_)
    found = waiting_columns(data, headers, scheduled, nothing, nothing)
    firsts, _ = distinct_slices(data, *found.real_topic)
    told = [row for row in firsts.tolist() if found.real_topic[1][row]]
    return {text_at(data, found, row): int(rows[row]) for row in told}


def headers_of(headers: HeaderColumns, rows: NDArray[np.bool_]) -> HeaderColumns:
    """Of some records."""
    return HeaderColumns(
        *(getattr(headers, name)[rows] for name in HeaderColumns.__dataclass_fields__)
    )
