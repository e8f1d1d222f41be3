"""Queue units, tags codes and delay levels."""

import numpy as np
import pytest
from format.vectors import PRE_BLANK as PRE_BLANK_VECTOR
from format.vectors import UNIT as UNIT_VECTOR

from tandemlog.format.errors import FormatError
from tandemlog.format.java_hash import java_hash
from tandemlog.format.queue_unit import (
    PRE_BLANK,
    PRE_BLANK_SIZE,
    UNIT,
    UNIT_DTYPE,
    UNIT_SIZE,
    DelayLevels,
    encode_unit,
    is_extended_address,
    is_valid_unit,
    parse_delay_level,
    tags_code,
)

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
    assert is_extended_address(-(2**31) - 1)
    assert is_extended_address(-(2**63))
    assert not is_extended_address(-(2**31))
    assert not is_extended_address(2**40)
