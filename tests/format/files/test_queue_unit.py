"""Queue units, tags codes and delay levels."""

import numpy as np
import pytest
from format.vectors import PRE_BLANK as PRE_BLANK_VECTOR
from format.vectors import UNIT as UNIT_VECTOR
from numpy.typing import NDArray

from fakes.plain_format import encode_unit
from tandemlog.format.errors import FormatError
from tandemlog.format.files.queue_unit import (
    PRE_BLANK,
    PRE_BLANK_SIZE,
    UNIT,
    UNIT_DTYPE,
    UNIT_SIZE,
    DelayLevels,
    delay_of_unit,
    delays_of_queues,
    is_extended_address,
    is_valid_unit,
    last_unit,
    parse_delay_level,
    tags_code,
)
from tandemlog.format.java_hash import java_hash
from tandemlog.format.record.record import Record, decode_record, encode_record

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


def test_known_unit() -> None:
    assert encode_unit(1073741824, 157, tags_code("T", "TagA")) == UNIT_VECTOR
    assert UNIT.unpack(UNIT_VECTOR) == (1073741824, 157, 2598919)
    array = np.frombuffer(UNIT_VECTOR, UNIT_DTYPE)
    assert array.tolist() == [(1073741824, 157, 2598919)]


def test_pre_blank() -> None:
    assert PRE_BLANK == PRE_BLANK_VECTOR
    assert is_valid_unit(0, PRE_BLANK_SIZE)
    assert len(PRE_BLANK) == UNIT_SIZE


@pytest.mark.parametrize(("offset", "size"), [(0, 0), (-1, 10), (10, -1)])
def test_units_that_point_nowhere(offset: int, size: int) -> None:
    assert not is_valid_unit(offset, size)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (None, 0),
        ("", 0),
        ("polygenelubricants", -2147483648),
        ("a||b", 3012833),
    ],
)
def test_tags_code_is_the_hash_of_the_whole_value(tags: str | None, expected: int) -> None:
    assert tags_code("Orders", tags, "3", 1000) == expected


def test_sign_extended() -> None:
    assert encode_unit(0, 1, tags_code("T", "polygenelubricants"))[-8:].hex() == "ffffffff80000000"


@pytest.mark.parametrize(
    ("delay", "expected"),
    [("1", 101_000), ("3", 110_000), ("18", 7_300_000), ("99", 7_300_000), ("+2", 105_000)],
)
def test_schedule_topic_holds_the_time_of_delivery(delay: str, expected: int) -> None:
    assert tags_code(SCHEDULE, "TagA", delay, 100_000) == expected


@pytest.mark.parametrize("delay", [None, "0", "-1", "", "x", "1.5", "99999999999", "٣"])
def test_schedule_topic_without_a_level(delay: str | None) -> None:
    assert tags_code(SCHEDULE, "TagA", delay, 100_000) == java_hash("TagA")
    assert parse_delay_level(delay) <= 0


def test_other_delay_levels() -> None:
    levels = DelayLevels("10s 1m 2h 1d")
    assert levels.max_level == 4
    assert [levels.delay_ms(level) for level in (1, 2, 3, 4, 5)] == [
        10_000,
        60_000,
        7_200_000,
        86_400_000,
        86_400_000,
    ]
    assert levels.delay_ms(0) == levels.delay_ms(-1) == 1000
    assert tags_code(SCHEDULE, None, "2", 5, levels) == 60_005
    assert tags_code(SCHEDULE, None, "2", 5, DelayLevels("")) == 0


@pytest.mark.parametrize("text", ["1", "s", "1w", "1s,2s", "-1s"])
def test_refuses_other_texts(text: str) -> None:
    with pytest.raises(FormatError, match="delay level"):
        DelayLevels(text)


def test_extended_addresses_lie_below_the_hashes() -> None:
    codes = np.array([-(2**31) - 1, -(2**63), -(2**31), 2**40])
    assert is_extended_address(codes).tolist() == [True, True, False, False]


REAL, ZERO = encode_unit(40, 10, 7), bytes(UNIT_SIZE)


def units_of(data: bytes) -> NDArray[np.void]:
    return np.frombuffer(data, UNIT_DTYPE)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", None),
        (ZERO * 5, None),
        (REAL, 0),
        (REAL * 5, 4),
        (REAL * 3 + ZERO * 9, 2),
        (PRE_BLANK * 4 + REAL * 2 + ZERO, 5),
        (PRE_BLANK * 4 + ZERO, None),
        (PRE_BLANK * 4, None),
        (REAL * 2 + encode_unit(-1, 10, 0) + ZERO, 1),
        (REAL * 2 + encode_unit(10, -1, 0) + ZERO, 1),
    ],
)
def test_the_last_unit_of_a_file(data: bytes, expected: int | None) -> None:
    assert last_unit(units_of(data)) == expected


@pytest.mark.parametrize(
    ("text", "known", "expected"),
    [
        ("1s 5s", {}, "1s 5s"),
        ("1s 5s", {1: 1000, 2: 5000}, "1s 5s"),
        ("1m 5s", {1: 60_000, 2: 7000}, "1m 7s"),
        ("1s 5s", {4: 9000}, "1s 5s 1s 9s"),
        ("", {2: 86_400_000}, "1s 86400s"),
    ],
)
def test_levels_that_a_store_tells_take_the_place_of_others(
    text: str, known: dict[int, int], expected: str
) -> None:
    levels = DelayLevels(text).with_delays(known)
    assert levels.text == expected
    assert {level: levels.delay_ms(level) for level in known} == known


def scheduled(delay: str, topic: str = SCHEDULE) -> Record:
    properties = {"DELAY": delay}
    return decode_record(
        encode_record(topic=topic, body=b"b", properties=properties, store_timestamp=7_001)
    )


def test_a_unit_and_its_record_tell_what_a_level_stood_for() -> None:
    assert delay_of_unit(10_001, scheduled("3")) == (3, 3000)


@pytest.mark.parametrize(
    ("code", "record"),
    [
        (10_001, scheduled("3", "Orders")),
        (10_001, scheduled("0")),
        (10_001, scheduled("x")),
        (10_001, scheduled("1000000")),
        (10_000, scheduled("3")),
        (7_001, scheduled("3")),
        (1_001, scheduled("3")),
    ],
)
def test_what_no_schedule_makes_tells_nothing(code: int, record: Record) -> None:
    assert delay_of_unit(code, record) is None


def test_queues_tell_what_levels_stood_for() -> None:
    records = {0: scheduled("3"), 200: scheduled("1"), 400: scheduled("2", "Orders")}
    third, first, other = (encode_unit(offset, 100, 10_001) for offset in records)
    queues = [
        # A file without a record's unit says nothing: the one before it does.
        [ZERO * 2, PRE_BLANK * 2 + ZERO, encode_unit(200, 100, 9_001) + third],
        [first + ZERO, third],
        [other],
        [encode_unit(600, 100, 10_001)],
        [ZERO, b""],
        [],
    ]
    units = [[units_of(data) for data in files] for files in queues]
    assert delays_of_queues(units, records.get) == {3: 3000, 1: 3000}
