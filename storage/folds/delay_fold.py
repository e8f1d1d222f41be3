"""Messages that come later: which wait, as the log says it.

    log     | W1 | W2 | .. | D1 | R2 |        W: a waiting record, of one of the two topics
              ▲    ▲         │    │           D: its message, delivered to where it was meant for
              │    └─────────│────┘           R: a recall, or the record in which it waits on
              └──────────────┘                   each names the waiting record by its log offset

A waiting record waits until a later one names it, of whatever master that one is: so a node that
becomes the master knows what has come, and delivers nothing twice. What a broker of RocketMQ writes
names nothing. Its recall has the key of the message, and a message that it delivers keeps its key,
and says in REAL_TOPIC that it was sent to the topic in which it stands. Both end what waits for
that topic with that key, and stands before them: a message may be tried again, and wait again. A
record in which a broker lets a message wait on ends the older ones of the message. Clients cannot
put such records (record_check.py).

A record of SERVICE_TOPIC with the tag of this service says that the clock of the store times was
set (clock_step.py): messages that wait for a delay, and not for a time, are shifted with it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import byte_array
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.constants import (
    SCHEDULE_TOPIC,
    SERVICE_TOPIC,
    TIMER_TOPIC,
)
from tandemlog.format.delay.clock_step import ClockStep, step_of
from tandemlog.format.delay.ending import keys_of_broker, may_have_come, named_offsets
from tandemlog.format.delay.waiting_columns import RECALLS, WAITS, waiting_columns

from .dispatch_batch import DispatchBatch
from .fold import ANYWHERE
from .service_fold import ServiceFold
from .waiting_rows import NewRows, WaitingRows

_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC, SERVICE_TOPIC)
"""Records of other topics say something only while messages wait."""
RECALLS_KEPT: Final = 4096
_Rows = NDArray[np.int64]


class DelayFold(ServiceFold):
    """See the module. `rows` is looked at, and changed, with the `lock` taken."""

    name: ClassVar[str] = "delays"

    def __init__(self) -> None:
        super().__init__()
        self.rows = WaitingRows()
        self.recalled: deque[int] = deque(maxlen=RECALLS_KEPT)
        """Log offsets of the waiting records that were called back last."""

    # ---- a ServiceFold

    def _take(self, batch: DispatchBatch, first: int) -> list[str]:
        if not len(self.rows) and not batch.has_any(_TOPICS):
            return []
        version = self.rows.version
        steps = self._steps(batch, first)
        begin = first
        for row, step in steps:
            # records behind the step count from the clock as it is now
            self._take_rows(batch, begin, row)
            self.rows.shift(step.step_ms, step.before)
            begin = row
        self._take_rows(batch, begin, batch.columns.count)
        self.changes += self.rows.version != version
        return []

    def _steps(self, batch: DispatchBatch, first: int) -> list[tuple[int, ClockStep]]:
        """The rows that say that the clock was set, and what they say."""
        rows = batch.rows_of(SERVICE_TOPIC)
        steps = ((row, step_of(bytes(batch.record(row)))) for row in rows[rows >= first].tolist())
        return [(row, step) for row, step in steps if step is not None]

    def _take_rows(self, batch: DispatchBatch, first: int, end: int) -> None:
        """Apply rows `first` to `end` - 1."""
        delays = np.concatenate((batch.rows_of(SCHEDULE_TOPIC), batch.rows_of(TIMER_TOPIC)))
        delays = np.sort(delays[(delays >= first) & (delays < end)])
        recalls = self._take_delays(batch, delays) if len(delays) else _NO_ROWS
        if not len(self.rows):
            return
        naming = batch.naming[(batch.naming >= first) & (batch.naming < end)]
        if len(naming):
            named = named_offsets(batch.columns.prepared_transaction_offset[naming])
            called_back = named[np.isin(naming, recalls)]
            self.rows.end(named)
            self.recalled.extend(called_back.tolist())
        self._take_broker(batch, range(first, end), recalls)

    def _take_delays(self, batch: DispatchBatch, rows: _Rows) -> _Rows:
        """Records of the two topics; returns the rows of those that call back."""
        columns = batch.columns
        data = byte_array(batch.window)
        offsets = columns.physical_offset[rows]
        found = waiting_columns(
            data,
            gather_headers(data, offsets - batch.start, columns.size[rows]),
            np.isin(rows, batch.rows_of(SCHEDULE_TOPIC)),
            columns.tags_code[rows],
            columns.store_timestamp[rows],
        )
        mine = found.kind == WAITS
        new = NewRows(offsets, found.due_ms, found.key_hash, columns.size[rows], found.counted)
        self.rows.append(new.taken(mine))
        # a broker does not say which record it continues: the older ones of the message
        rolled = mine & found.rolled & (columns.prepared_transaction_offset[rows] == 0)
        for row in rolled.nonzero()[0].tolist():
            self.rows.end_older(int(found.key_hash[row]), int(offsets[row]))
        recalls: _Rows = rows[found.kind == RECALLS]
        return recalls

    def _take_broker(self, batch: DispatchBatch, span: range, recalls: _Rows) -> None:
        """What a broker wrote, which names no record."""
        columns = batch.columns
        unnamed = columns.prepared_transaction_offset == 0
        if not may_have_come(bytes(batch.window)):
            return
        topics = [SCHEDULE_TOPIC, TIMER_TOPIC]
        numbers = [columns.topics.index(topic) for topic in topics if topic in columns.topics]
        ordinary = unnamed & ~np.isin(columns.topic_index, numbers)
        ordinary[: span.start] = ordinary[span.stop :] = False
        rows = np.concatenate((ordinary.nonzero()[0], recalls[unnamed[recalls]]))
        if not len(rows):
            return
        data = byte_array(batch.window)
        headers = gather_headers(
            data, columns.physical_offset[rows] - batch.start, columns.size[rows]
        )
        of_recalls = np.arange(len(rows)) >= np.count_nonzero(ordinary)
        keys = keys_of_broker(data, headers, of_recalls)
        self.rows.end_keys(keys, columns.physical_offset[rows])

    def _clear(self) -> None:
        self.rows.clear()
        self.recalled.clear()

    def _encode(self) -> tuple[Mapping[str, Any], Sequence[bytes]]:
        return {"recalled": list(self.recalled)}, self.rows.encode()

    def _decode(self, head: Mapping[str, Any], rows: bytes) -> None:
        recalled = [int(offset) for offset in head["recalled"]]
        taken = self.rows.taken()
        self.rows.decode(rows)
        # no snapshot has a master's own word: what it has appended must not come once more
        self.rows.take(taken[self.rows.waits(taken)])
        self.recalled = deque(recalled, maxlen=RECALLS_KEPT)

    def needs_from(self) -> int:
        with self.lock:
            first = self.rows.first_offset
        return ANYWHERE if first is None else first


_NO_ROWS: Final = np.empty(0, np.int64)
