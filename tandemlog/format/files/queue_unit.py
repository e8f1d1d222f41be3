"""A consume queue's unit: 20 bytes, unit n of a queue at byte 20·n.

    i64 commit-log offset | i32 record size | i64 tags code

Valid means offset >= 0 and size > 0. Before the first unit of a queue that does not start at 0
its file is filled with PRE_BLANK units, which look valid and point nowhere.

The tags code is the Java hash of the whole TAGS value, sign-extended; for a message waiting in
the schedule topic it is the time of its delivery instead. Values below the range of 32 bits
address a unit of `consumequeue_ext`.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..constants import DELAY, SCHEDULE_TOPIC
from ..errors import FormatError
from ..java_hash import java_hash
from ..record.record import Record

UNIT: Final = Struct(">qiq")
UNIT_SIZE: Final = UNIT.size
UNIT_DTYPE: Final = np.dtype([("physical_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
PRE_BLANK_SIZE: Final = 0x7FFFFFFF
PRE_BLANK: Final = UNIT.pack(0, PRE_BLANK_SIZE, 0)
DEFAULT_QUEUE_FILE_SIZE: Final = 300_000 * UNIT_SIZE

assert UNIT_SIZE == UNIT_DTYPE.itemsize == 20

_MIN_I32: Final = -(1 << 31)
_LEVEL: Final = re.compile(r"([0-9]+)([smhd])")
_UNIT_MS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_LEVELS: Final = 1000
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")

DEFAULT_DELAY_LEVELS: Final = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"


class DelayLevels:
    """The times that delay levels 1, 2, ... stand for, from RocketMQ's text (`1s 5s 1m`).

    Raises FormatError for a text that is not such a list.
    """

    __slots__ = ("_milliseconds", "text")

    def __init__(self, text: str = DEFAULT_DELAY_LEVELS) -> None:
        self.text = text
        milliseconds = []
        for piece in text.split():
            match = _LEVEL.fullmatch(piece)
            if match is None:
                raise FormatError(f"delay level {piece!r} is not a number and one of s, m, h, d")
            milliseconds.append(int(match[1]) * _UNIT_MS[match[2]])
        self._milliseconds = tuple(milliseconds)

    @property
    def max_level(self) -> int:
        return len(self._milliseconds)

    def delay_ms(self, level: int) -> int:
        """The delay of `level`; a level above the highest counts as the highest, one that is
        not in the list (below 1, or the list empty) as 1,000 ms."""
        level = min(level, self.max_level)
        return self._milliseconds[level - 1] if level > 0 else 1000

    def with_delays(self, delays: Mapping[int, int]) -> "DelayLevels":
        """These levels, but those of `delays` (milliseconds, whole seconds) stand for what it
        says. A level between two known ones that nothing is known of gets 1,000 ms."""
        pieces = self.text.split()
        for level, milliseconds in sorted(delays.items()):
            pieces += ["1s"] * (level - len(pieces))
            if milliseconds != DelayLevels(pieces[level - 1]).delay_ms(1):
                pieces[level - 1] = f"{milliseconds // 1000}s"
        return DelayLevels(" ".join(pieces))


def is_valid_unit(physical_offset: int, size: int) -> bool:
    """Whether a unit points to a record (zeros do not; a PRE_BLANK unit counts as valid)."""
    return physical_offset >= 0 and size > 0


def valid_units(units: NDArray[np.void]) -> NDArray[np.bool_]:
    """is_valid_unit of each of UNIT_DTYPE[n]."""
    valid: NDArray[np.bool_] = (units["physical_offset"] >= 0) & (units["size"] > 0)
    return valid


def last_unit(units: NDArray[np.void]) -> int | None:
    """Number of the last of a file's units (UNIT_DTYPE) that points to a record, None without one.

    Valid units stand from the front without a gap, so the first that is not ends them; PRE_BLANK
    ones stand before all others, so where one is the last of them the file has nothing else.
    """

    def is_behind(number: int) -> bool:
        physical_offset, size, _ = units[number].item()
        return not is_valid_unit(physical_offset, size)

    end = bisect_left(range(len(units)), True, key=is_behind)
    if end == 0 or int(units[end - 1]["size"]) == PRE_BLANK_SIZE:
        return None
    return end - 1


def is_extended_address(codes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which tags codes are addresses in `consumequeue_ext` and no tags codes."""
    return codes < _MIN_I32


def parse_delay_level(text: str | None) -> int:
    """The DELAY property's level, 0 if there is none. A text that is no 32-bit number, at
    which RocketMQ would give up the whole record, counts as none."""
    if text is None or _INTEGER.fullmatch(text) is None:
        return 0
    level = int(text)
    return level if _MIN_I32 <= level <= 0x7FFFFFFF else 0


def delay_of_unit(code: int, record: Record) -> tuple[int, int] | None:
    """The level of a record in the schedule topic, and what it stood for (ms) when the unit with
    this tags code was made; None for a record that is not there, or that tells nothing."""
    level = parse_delay_level(record.properties.get(DELAY))
    delay = code - record.store_timestamp
    if record.topic != SCHEDULE_TOPIC or not 0 < level <= _MOST_LEVELS:
        return None
    return None if delay <= 0 or delay % 1000 else (level, delay)


def delays_of_queues(
    queues: Iterable[Iterable[NDArray[np.void]]], record_at: Callable[[int], Record | None]
) -> dict[int, int]:
    """What delay levels stood for, milliseconds by level, as the queues of the schedule topic say.

        newest unit of SCHEDULE_TOPIC_XXXX/2      time of delivery
        its record                                DELAY 3, store time

    The difference is what level 3 stood for at the broker that wrote them. A queue is the units of
    its files, the newest file first; `record_at` returns the record at a log offset, None if
    none stands. Only levels that the queues tell are in the answer.
    """
    delays: dict[int, int] = {}
    for files in queues:
        ends = ((units, last_unit(units)) for units in files)
        newest = next((units[number] for units, number in ends if number is not None), None)
        if newest is None:
            continue
        physical_offset, _, code = newest.item()
        record = record_at(physical_offset)
        learned = delay_of_unit(code, record) if record is not None else None
        if learned is not None:
            delays[learned[0]] = learned[1]
    return delays


def tags_code(
    topic: str,
    tags: str | None,
    delay: str | None = None,
    store_timestamp: int = 0,
    delay_levels: DelayLevels | None = None,
) -> int:
    """The tags code of a record: from its TAGS, and in the schedule topic from its DELAY
    property and store time (ms)."""
    if topic == SCHEDULE_TOPIC:
        level = parse_delay_level(delay)
        if level > 0:
            levels = DEFAULT_LEVELS if delay_levels is None else delay_levels
            # An empty list caps every level to 0: RocketMQ then falls back to the tags.
            if levels.max_level > 0:
                return store_timestamp + levels.delay_ms(level)
    return java_hash(tags) if tags else 0


DEFAULT_LEVELS: Final = DelayLevels()
