"""Java's hash of texts, against Java's own results and a plain restatement of its rule."""

import pytest
from format.vectors import JAVA_HASHES
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.java_hash import java_hash, java_hash_continued


@pytest.mark.parametrize(("text", "expected"), JAVA_HASHES.items())
def test_known_hashes(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_lone_surrogate_is_one_unit() -> None:
    assert java_hash("\ud800") == 0xD800


@given(st.text(st.characters(exclude_categories=())))
def test_follows_the_rule(text: str) -> None:
    units: list[int] = []
    for point in map(ord, text):
        if point > 0xFFFF:
            units += [0xD800 + (point - 0x10000 >> 10), 0xDC00 + (point - 0x10000 & 0x3FF)]
        else:
            units.append(point)
    expected = sum(unit * 31**power for power, unit in enumerate(reversed(units)))
    assert java_hash(text) % 2**32 == expected % 2**32
    assert -(2**31) <= java_hash(text) < 2**31


@given(st.text(), st.text())
def test_continues_from_the_hash_of_the_beginning(beginning: str, rest: str) -> None:
    assert java_hash_continued(java_hash(beginning), rest) == java_hash(beginning + rest)
