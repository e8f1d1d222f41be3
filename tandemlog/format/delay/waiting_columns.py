"""Waiting records by columns: what a fold keeps of them, and what a put checks.

    records of SCHEDULE_TOPIC_XXXX and rmq_sys_wheel_timer ──▶ due time, key, where to, kind

    kind   WAITS     a message that waits
           RECALLS   calls back the messages with its key, or the one that its header names
           NEITHER   its properties do not say when, or where to: a broker skips it too

The values of many records come from one search through their properties (property_columns.py); a
number is read digit by digit, for all records at once.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, byte_array, gather_rows
from ..columns.headers import HeaderColumns
from ..columns.property_columns import ValueColumn
from ..columns.property_layouts import find_properties
from ..constants import (
    DELAY,
    DUE,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_DELAY_MS,
    TIMER_DELAY_SEC,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    UNIQ_KEY,
)
from ..files.queue_unit import DelayLevels
from .timing import MOST_DIGITS, PRECISION_MS

NEITHER: Final = 0
WAITS: Final = 1
RECALLS: Final = 2

NO_NUMBER: Final = -1
_ZERO: Final = ord("0")
_PLUS: Final = ord("+")
_KEY_FACTOR: Final = 0x100000001B3
_KEY_START: Final = 0xCBF29CE484222325
_MASK: Final = (1 << 64) - 1
_NAMES: Final = (
    UNIQ_KEY, REAL_TOPIC, REAL_QUEUE_ID, TIMER_OUT_MS, DUE, TIMER_DELIVER_MS, TIMER_DELAY_MS,
    TIMER_DELAY_SEC, TIMER_DEL_UNIQKEY, DELAY, TIMER_ROLL_TIMES,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class WaitingColumns:
    """n records of the two topics.

    kind       u1[n]  see the module
    due_ms     i8[n]  when a message that waits is due; meaningless for others
    counted    bool[n] whether that counts from the store time, and is no time by itself
    key_hash   i8[n]  of that topic and the UNIQ_KEY, 0 without a key (hash_of_key)
    real_topic (starts, lengths) i8[n] in the buffer, of the topic that the message is for
    real_queue i8[n]  the queue there, -1 for none
    rolled     bool[n] whether it continues the wait of an earlier record
    """

    kind: NDArray[np.uint8]
    due_ms: NDArray[np.int64]
    counted: NDArray[np.bool_]
    key_hash: NDArray[np.int64]
    real_topic: ValueColumn
    real_queue: NDArray[np.int64]
    rolled: NDArray[np.bool_]


def waiting_columns(
    buffer: Buffer,
    headers: HeaderColumns,
    scheduled: NDArray[np.bool_],
    level_due_ms: NDArray[np.int64],
    store_timestamp: NDArray[np.int64],
) -> WaitingColumns:
    """Of the records at `headers` in `buffer`. `scheduled` bool[n]: which stand in the schedule
    topic; they are due at `level_due_ms` i8[n]. A delay counts from `store_timestamp` i8[n]."""
    data = byte_array(buffer)
    names = [name.encode() for name in _NAMES]
    found = find_properties(data, headers.properties_start, headers.properties_length, names)
    values = dict(zip(_NAMES, found, strict=True))
    due, counted = _timer_due(data, values, store_timestamp)
    due[scheduled] = level_due_ms[scheduled]
    real_queue = parse_numbers(data, *values[REAL_QUEUE_ID])
    told = (due >= 0) & (values[REAL_TOPIC][1] > 0) & (real_queue >= 0)
    told &= ~scheduled | (values[DELAY][1] > 0)
    kind = np.where(told, np.uint8(WAITS), np.uint8(NEITHER))
    kind[~scheduled & (values[TIMER_DEL_UNIQKEY][1] > 0)] = RECALLS
    keys = hash_keys(data, values[REAL_TOPIC], values[UNIQ_KEY])
    rolled = values[TIMER_ROLL_TIMES][1] > 0
    return WaitingColumns(
        kind, due, counted | scheduled, keys, values[REAL_TOPIC], real_queue, rolled
    )


def level_delays(
    queue_ids: NDArray[np.int32], scheduled: NDArray[np.bool_], levels: DelayLevels
) -> NDArray[np.int64]:
    """i8[n]: for how long (ms) records of these queues of the schedule topic wait; 0 for those that
    are not `scheduled`."""
    delays = np.zeros(len(queue_ids), np.int64)
    if scheduled.any():
        queues, which = np.unique(queue_ids[scheduled], return_inverse=True)
        of_queues = [levels.delay_ms(queue + 1) for queue in queues.tolist()]
        delays[scheduled] = np.array(of_queues, np.int64)[which]
    return delays


def _timer_due(
    data: NDArray[np.uint8], values: dict[str, ValueColumn], store_timestamp: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """timing.timer_due_ms of each, -1 for None; and which of them count from the store time."""
    out = parse_numbers(data, *values[TIMER_OUT_MS])
    latest = out + PRECISION_MS
    delay = parse_numbers(data, *values[TIMER_DELAY_MS])
    seconds = parse_numbers(data, *values[TIMER_DELAY_SEC])
    delay = np.where(seconds >= 0, seconds * 1000, delay)
    due = np.where(delay >= 0, np.maximum(np.minimum(latest, store_timestamp + delay), out), latest)
    deliver = parse_numbers(data, *values[TIMER_DELIVER_MS])
    due = np.where((deliver > out) & (deliver <= latest), deliver, due)
    starts, lengths = values[DUE]
    relative = lengths > 0
    relative[relative] = data[starts[relative]] == _PLUS
    exact = parse_numbers(data, starts + relative, lengths - relative)
    due = np.where(exact >= 0, exact + store_timestamp * relative, due)
    counted = np.where(lengths > 0, relative, (delay >= 0) & (deliver < 0))
    return np.where(out >= 0, due, NO_NUMBER), counted


def parse_numbers(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The decimal numbers data[start : start + length], -1 where it is none: empty, longer than 18
    digits, or with another character in it."""
    numbers = np.full(len(starts), NO_NUMBER, np.int64)
    rows = ((lengths > 0) & (lengths <= MOST_DIGITS)).nonzero()[0]
    if not len(rows):
        return numbers
    lengths = lengths[rows]
    width = int(lengths.max())
    digits = gather_rows(data, starts[rows], width) - np.uint8(_ZERO)
    value = np.zeros(len(rows), np.int64)
    good = np.ones(len(rows), np.bool_)
    for place in range(width):
        inside = lengths > place
        digit = digits[:, place]
        good &= ~inside | (digit <= 9)
        value = np.where(inside, value * 10 + digit, value)
    numbers[rows] = np.where(good, value, NO_NUMBER)
    return numbers


def hash_keys(data: NDArray[np.uint8], topics: ValueColumn, keys: ValueColumn) -> NDArray[np.int64]:
    """hash_of_key of the topics and keys at these places, each (starts, lengths)."""
    hashes = np.zeros(len(keys[0]), np.int64)
    rows = (keys[1] > 0).nonzero()[0]
    if len(rows):
        value = np.full(len(rows), _KEY_START, np.uint64)
        for starts, lengths in (topics, keys):
            value = _hashed(data, starts[rows], lengths[rows], value)
        hashes[rows] = value.view(np.int64)
    return hashes


def _hashed(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    value: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """The hashes, continued with the strings."""
    width = int(lengths.max())
    if not width:
        return value
    # a length of 0 may stand beside a start of -1
    text = gather_rows(data, np.maximum(starts, 0), width)
    factor = np.uint64(_KEY_FACTOR)
    for place in range(width):
        mixed = (value ^ text[:, place]) * factor
        value = np.where(lengths > place, mixed, value)
    return value


def hash_of_key(topic: str, key: str) -> int:
    """64 bits of the topic that a message is for and its UNIQ_KEY, signed (FNV-1a); 0 without a
    key. A message that is tried again by two groups waits twice under one key, for two topics. Two
    messages may share a hash: the caller that acts on a record compares its key."""
    if not key:
        return 0
    value = _KEY_START
    for byte in topic.encode() + key.encode():
        value = (value ^ byte) * _KEY_FACTOR & _MASK
    return value - (1 << 64) if value >> 63 else value
