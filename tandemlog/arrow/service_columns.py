"""What the services of a node say in a record, as columns: when it comes, whose outcome it is.

    record in                  deliver_at        real_topic, real_queue_id  transaction  attempts
    orders/3                   when it was due   -                          committed    -
    rmq_sys_wheel_timer/0      when it is due    orders, 3                  -            -
    SCHEDULE_TOPIC_XXXX/4      when it is due    orders, 3                  -            -
    RMQ_SYS_TRANS_HALF_TOPIC   -                 orders, 3                  prepared     -
    %DLQ%billing               -                 -                          -            17, orders

A message that comes later is an ordinary record once it has come, and keeps the properties of its
wait. A time is exact in them. A delay counts from the store time of the record in which the message
waited, which the message does not have: its own born time stands in, within the second in which a
broker would have acted. A message of a delay level does not say when it was due: null.

Nothing here is made for readers who do not name one of these columns.
"""

from collections.abc import Callable
from functools import cached_property
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ..format.columns.headers import HeaderColumns
from ..format.columns.property_columns import ValueColumn
from ..format.columns.property_layouts import find_properties
from ..format.columns.topics import topics_of
from ..format.constants import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_OUT_MS,
    TIMER_TOPIC,
)
from ..format.delay.timing import PRECISION_MS
from ..format.delay.waiting_columns import (
    WAITS,
    WaitingColumns,
    level_delays,
    parse_numbers,
    waiting_columns,
)
from ..format.files.queue_unit import DelayLevels
from ..format.lease.dead_letter import (
    ATTEMPTS,
    LAST_ERROR,
    ORIGIN_OFFSET,
    ORIGIN_QUEUE,
    ORIGIN_TOPIC,
    RETRY_TOPIC,
)
from ..format.record.sys_flag import (
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_PREPARED,
    TRANSACTION_ROLLBACK,
)
from .plain_arrays import numbers, timestamps, validity
from .text_columns import repeated_text, sliced_text

_TRANSACTIONS: Final = ("prepared", "committed", "rolled_back")
_OF_DEAD_LETTERS: Final = (
    ORIGIN_TOPIC, RETRY_TOPIC, ORIGIN_QUEUE, ORIGIN_OFFSET, ATTEMPTS, LAST_ERROR
)  # fmt: skip

Rows = NDArray[np.bool_]


class ServiceColumns:
    """n records of a window; `delay_levels` are those of their store."""

    def __init__(
        self, data: NDArray[np.uint8], headers: HeaderColumns, delay_levels: DelayLevels
    ) -> None:
        self._data = data
        self._headers = headers
        self._levels = delay_levels

    # ---- messages that come later

    @cached_property
    def _scheduled(self) -> Rows:
        return self._in_topics(lambda topic: topic == SCHEDULE_TOPIC)

    @cached_property
    def _timed(self) -> Rows:
        return self._in_topics(lambda topic: topic == TIMER_TOPIC)

    @cached_property
    def _waiting(self) -> WaitingColumns:
        """Of all records, also of those that have come."""
        headers, scheduled = self._headers, self._scheduled
        under_way = scheduled | self._timed
        counted_from = np.where(under_way, headers.store_timestamp, headers.born_timestamp)
        return waiting_columns(
            self._data,
            headers,
            scheduled,
            headers.store_timestamp + level_delays(headers.queue_id, scheduled, self._levels),
            counted_from,
        )

    def deliver_at(self, kind: pa.DataType) -> pa.Array:
        waiting = self._waiting
        due, there = waiting.due_ms, waiting.kind == WAITS
        came = there & waiting.counted & ~(self._scheduled | self._timed)
        if came.any():
            # a sender may give its message any born time
            (out,) = self._properties([TIMER_OUT_MS])
            second = parse_numbers(self._data, *out)
            due = np.where(came, np.clip(due, second + 1, second + PRECISION_MS), due)
        return timestamps(due, kind, there)

    # ---- records under way

    @cached_property
    def _under_way(self) -> Rows:
        """Records that wait for a time, or for the outcome of a transaction, and say where to."""
        waiting = self._waiting
        waits: Rows = (self._scheduled | self._timed) & (waiting.kind == WAITS)
        return waits | (self._halves & (waiting.real_topic[1] > 0) & (waiting.real_queue >= 0))

    def real_topic(self) -> pa.Array:
        return self._text(self._waiting.real_topic, self._under_way)

    def real_queue_id(self) -> pa.Array:
        there = self._under_way
        queues = np.where(there, self._waiting.real_queue, 0).astype(np.int32)
        return numbers(queues, pa.int32(), there)

    # ---- transactions

    @cached_property
    def _halves(self) -> Rows:
        return self._in_topics(lambda topic: topic == HALF_TOPIC)

    def transaction(self) -> pa.Array:
        bits = self._headers.sys_flag & TRANSACTION_MASK
        kinds = [
            self._halves | (bits == TRANSACTION_PREPARED),
            bits == TRANSACTION_COMMIT,
            bits == TRANSACTION_ROLLBACK,
        ]
        there: Rows = np.logical_or.reduce(kinds)
        if not there.any():
            return pa.nulls(len(there), pa.string())
        texts = repeated_text(_TRANSACTIONS, np.select(kinds, [0, 1, 2], 0))
        return pa.Array.from_buffers(
            pa.string(), len(there), [validity(there), *texts.buffers()[1:]]
        )

    # ---- dead letters

    @cached_property
    def _dead(self) -> Rows:
        return self._in_topics(lambda topic: topic.startswith(DEAD_LETTER_PREFIX))

    @cached_property
    def _letters(self) -> dict[str, ValueColumn]:
        return dict(zip(_OF_DEAD_LETTERS, self._properties(_OF_DEAD_LETTERS), strict=True))

    def attempts(self) -> pa.Array:
        told = parse_numbers(self._data, *self._letters[ATTEMPTS])
        attempts = np.maximum(told, self._headers.reconsume_times)
        there = self._dead & (attempts > 0) & (attempts <= np.iinfo(np.int32).max)
        return numbers(np.where(there, attempts, 0).astype(np.int32), pa.int32(), there)

    def origin_topic(self) -> pa.Array:
        """That of the message; a broker's copy may name the retry topic by which it came."""
        letters, prefix = self._letters, np.frombuffer(RETRY_PREFIX.encode(), np.uint8)
        starts, lengths = letters[ORIGIN_TOPIC]
        retried = self._dead & ((lengths == 0) | self._begin_with(prefix, starts, lengths))
        retried &= letters[RETRY_TOPIC][1] > 0
        first = np.where(retried, letters[RETRY_TOPIC][0], starts)
        return self._text((first, np.where(retried, letters[RETRY_TOPIC][1], lengths)), self._dead)

    def origin_queue_id(self) -> pa.Array:
        return self._number(ORIGIN_QUEUE, np.int32, pa.int32())

    def origin_queue_offset(self) -> pa.Array:
        return self._number(ORIGIN_OFFSET, np.int64, pa.int64())

    def last_error(self) -> pa.Array:
        return self._text(self._letters[LAST_ERROR], self._dead)

    # ---- values of properties

    def _in_topics(self, chosen: Callable[[str], bool]) -> Rows:
        topics, numbers_of = topics_of(self._data, self._headers)
        return np.array([chosen(topic) for topic in topics], np.bool_)[numbers_of]

    def _properties(self, names: list[str] | tuple[str, ...]) -> list[ValueColumn]:
        headers = self._headers
        return find_properties(
            self._data,
            headers.properties_start,
            headers.properties_length,
            [name.encode() for name in names],
        )

    def _begin_with(
        self, prefix: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> Rows:
        found = lengths >= len(prefix)
        rows = found.nonzero()[0]
        places = starts[rows][:, None] + np.arange(len(prefix))
        found[rows] = (self._data[places] == prefix).all(axis=1)
        return found

    def _text(self, values: ValueColumn, there: Rows) -> pa.Array:
        starts, lengths = values
        there = there & (lengths > 0)
        if not there.any():
            return pa.nulls(len(there), pa.string())
        # the places of nulls ascend with the others
        places = np.where(there, starts, self._headers.properties_start)
        lengths = np.where(there, lengths, 0)
        return sliced_text(self._data, places, lengths, there, ascii_only=False)

    def _number(self, name: str, kind: type[np.signedinteger], arrow: pa.DataType) -> pa.Array:
        values = parse_numbers(self._data, *self._letters[name])
        there = self._dead & (values >= 0) & (values <= np.iinfo(kind).max)
        return numbers(np.where(there, values, 0).astype(kind), arrow, there)


SERVICE_COLUMNS: Final[dict[str, Callable[[ServiceColumns, pa.DataType], pa.Array]]] = {
    "deliver_at": lambda r, kind: r.deliver_at(kind),
    "real_topic": lambda r, _: r.real_topic(),
    "real_queue_id": lambda r, _: r.real_queue_id(),
    "transaction": lambda r, _: r.transaction(),
    "attempts": lambda r, _: r.attempts(),
    "origin_topic": lambda r, _: r.origin_topic(),
    "origin_queue_id": lambda r, _: r.origin_queue_id(),
    "origin_queue_offset": lambda r, _: r.origin_queue_offset(),
    "last_error": lambda r, _: r.last_error(),
}
