"""Rows that are to come later: when, and the properties with which their messages wait.

    deliver_at (timestamp)             2026-12-24 18:00    null
    delay (interval, or ms)            null                INTERVAL 5 MINUTES
                                           │                   │
    TIMER_DELIVER_MS, TIMER_DELAY_MS    1766599200000       300000       beside REAL_TOPIC, REAL_QID
    __TL_DUE                            1766599200000       +300000      as in format/delay/framing

A row with neither, or with a delay of 0, comes at once. A time that is over comes at once too, but
by the way of all others: whether it is over depends on the clock, and each attempt has to write the
same records. For that reason TIMER_OUT_MS of a delay, the one value here that depends on the
clock, is in no checksum of the rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandemlog.arrow.plain_arrays import numbers, strings, validity
from tandemlog.format.constants import (
    DUE,
    NAME_END,
    PROPERTY_END,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
)
from tandemlog.format.delay.timing import LATEST_MS, PRECISION_MS, checked_time
from tandemlog.format.errors import FormatError

from ..cluster.cluster_errors import RowError

NOT_COMPARED: Final = (TIMER_OUT_MS, REAL_QUEUE_ID)
"""Properties that may change between attempts: by the clock, and by how many queues a topic has. A
queue that a row names is compared besides."""
_NAME_END: Final = bytes((NAME_END,))
_PROPERTY_END: Final = bytes((PROPERTY_END,))
_US_IN_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class Later:
    """n rows. `waits` bool[n]: which come later; `ms` i8[n]: at that time, or where `counted`
    bool[n], so long after they are stored; meaningless for others."""

    waits: NDArray[np.bool_]
    ms: NDArray[np.int64]
    counted: NDArray[np.bool_]


def later_rows(deliver_at: Any, delay: Any) -> Later | None:
    """What the columns say, each an Arrow array or None; None if every row comes at once. Raises
    RowError for a row that says both, and for a time that no message can have."""
    if deliver_at is None and delay is None:
        return None
    some = deliver_at if deliver_at is not None else delay
    ms = np.zeros(len(some), np.int64)
    timed = counted = np.zeros(len(some), np.bool_)
    if deliver_at is not None:
        timed = np.asarray(deliver_at.is_valid())
        # a message never comes before its time
        ms = np.where(timed, -(-_whole(deliver_at) // _US_IN_MS), ms)
    if delay is not None:
        counted = np.asarray(delay.is_valid())
        whole = _whole(delay)
        after = whole // _US_IN_MS if pa.types.is_duration(delay.type) else whole
        _check_one(timed & counted)
        ms = np.where(counted, after, ms)
    waits = timed | (counted & (ms != 0))
    _check_times("deliver_at: the time", timed, ms)
    _check_times("delay: a delay of", counted, ms)
    return Later(waits, ms, counted) if waits.any() else None


def _whole(column: Any) -> NDArray[np.int64]:
    """Microseconds of times and durations, other numbers as they are; 0 for null."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz))
    elif pa.types.is_duration(column.type):
        column = column.cast(pa.duration("us"))
    return np.asarray(pc.fill_null(column.cast(pa.int64()), 0), np.int64)


def _check_one(both: NDArray[np.bool_]) -> None:
    if both.any():
        raise RowError(int(both.argmax()), "it has a deliver_at and a delay: make one of them null")


def _check_times(what: str, rows: NDArray[np.bool_], ms: NDArray[np.int64]) -> None:
    wrong = rows & ((ms < 0) | (ms > LATEST_MS))
    if wrong.any():
        row = int(wrong.argmax())
        try:
            checked_time(what, int(ms[row]))
        except FormatError as error:
            raise RowError(row, str(error)) from None


def waiting_properties(
    later: Later,
    topics: Sequence[str],
    topic_of: NDArray[np.int64],
    queues: NDArray[np.int64],
    now_ms: int,
) -> Any:
    """The properties more of every row as binary Arrow, empty where it comes at once: of a message
    to queue `queues` i8[n] of topics[topic_of]. `now_ms` is the clock of this process, for
    TIMER_OUT_MS alone."""
    due = later.ms + np.where(later.counted, now_ms, 0)
    out = np.maximum((due - 1) // PRECISION_MS * PRECISION_MS, 0)
    counted = _bools(later.counted)
    ms = _text(later.ms)
    names = strings(topics, pa.binary()).take(numbers(topic_of.astype(np.int32), pa.int32()))
    values = (
        (pc.if_else(counted, _name(TIMER_DELAY_MS), _name(TIMER_DELIVER_MS)), ms),
        (_name(TIMER_OUT_MS), _text(out)),
        (_name(REAL_TOPIC), names),
        (_name(REAL_QUEUE_ID), _text(queues)),
        (_name(DUE), pc.binary_join_element_wise(pc.if_else(counted, b"+", b""), ms, b"")),
    )
    pairs = [pc.binary_join_element_wise(name, value, _NAME_END) for name, value in values]
    whole = pc.binary_join_element_wise(*pairs, b"", _PROPERTY_END)
    return pc.if_else(_bools(later.waits), whole, b"")


def _name(name: str) -> Any:
    return pa.scalar(name.encode(), pa.binary())


def _text(values: NDArray[np.int64]) -> Any:
    return numbers(values, pa.int64()).cast(pa.string()).cast(pa.binary())


def _bools(values: NDArray[np.bool_]) -> Any:
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, validity(values)])
