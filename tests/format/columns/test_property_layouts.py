"""Values found by their layout equal those of the plain decoder, whatever is mixed."""

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.property_check import check_properties
from helpers.record_strategies import property_strings
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.arrays.java_hash_columns import hash_strings
from tandemlog.format.columns import property_layouts
from tandemlog.format.columns.property_layouts import find_properties, hash_properties

check = partial(check_properties, find_properties)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many strings were searched, call by call."""
    counts: list[int] = []
    search = property_layouts.search_properties

    def counted(buffer: Any, starts: Any, lengths: Any, names: Any) -> Any:
        counts.append(len(starts))
        return search(buffer, starts, lengths, names)

    monkeypatch.setattr(property_layouts, "search_properties", counted)
    return counts


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The strings that were taken apart one by one: for a layout, or because they were few."""
    strings: list[bytes] = []
    take_apart = property_layouts._take_apart

    def noted(text: bytes, names: Any) -> Any:
        strings.append(text)
        return take_apart(text, names)

    monkeypatch.setattr(property_layouts, "_take_apart", noted)
    return strings


@settings(max_examples=200)
@given(
    st.lists(property_strings, min_size=1, max_size=5),
    st.lists(st.integers(0, 4), min_size=1, max_size=200),
    st.binary(max_size=9),
    st.binary(max_size=9),
)
def test_equal_to_the_plain_decoder(
    kinds: list[bytes], order: list[int], before: bytes, after: bytes
) -> None:
    check([kinds[number % len(kinds)] for number in order], before, after)


@settings(max_examples=200)
@given(
    st.integers(1, 40).flatmap(
        lambda length: st.lists(
            st.binary(min_size=length, max_size=length).map(
                lambda raw: bytes(b"\x01\x02KEYSTAG"[b % 9] for b in raw)
            ),
            min_size=1,
            max_size=6,
        )
    ),
    st.integers(1, 90),
)
def test_equal_lengths_of_any_content(kinds: list[bytes], count: int) -> None:
    check([kinds[number % len(kinds)] for number in range(count)])


def test_of_strings_of_one_layout_one_is_taken_apart(
    searched: list[int], apart: list[bytes]
) -> None:
    strings = [b"KEYS\x01k%05d\x02TAGS\x01t%d\x02" % (n, n % 10) for n in range(5_000)]
    check(strings)
    assert searched == []
    assert apart == strings[:1]


@pytest.mark.parametrize("times", [1, 10])
def test_the_odd_ones_are_looked_at_each(
    times: int, searched: list[int], apart: list[bytes]
) -> None:
    odd = [
        b"KEYS\x01kk\x02\x01\x02TAGS\x01t",  # as long, with separators in the value
        b"KEYS\x01k008TAGS\x01t\x02",  # the name that follows is part of the value
        b"TAGS\x01t\x02KEYS\x01k009",
        b"KEYS\x01longer than the others",
    ]
    strings = [b"KEYS\x01k%03d\x02TAGS\x01t" % n for n in range(500)]
    assert [len(each) == len(strings[0]) for each in odd] == [True, True, True, False]
    check(strings[:7] + odd * times + strings[7:])
    if times == 1:
        assert (searched, apart) == ([], [strings[0], *odd])
    else:
        assert (searched, apart) == ([len(odd) * times], strings[:1])


def test_few_strings_are_taken_apart_one_by_one(searched: list[int], apart: list[bytes]) -> None:
    strings = [b"KEYS\x01k%d\x02" % n for n in range(12)]
    check(strings)
    assert (searched, apart) == ([], strings)


def test_many_of_all_lengths_are_searched_at_once(searched: list[int], apart: list[bytes]) -> None:
    check([b"KEYS\x01%s\x02" % (b"k" * (1 + n % 90)) for n in range(9_000)])
    assert (searched, apart) == ([9_000], [])


@pytest.mark.parametrize("count", [5, 60, 600])
def test_values_are_hashed(count: int) -> None:
    """Those of names that are to be: strings of one layout, few, and many that have none."""
    strings = [b"KEYS\x01k%03d\x02TAGS\x01t\x02X\x01 y\xc3\xa9\x02" % n for n in range(count)]
    spaced = [strings[0], strings[1].replace(b"k", b" "), *strings[2:]]
    accents = [each.replace(b"k", b"\xc3\xa9") for each in strings]
    no_layout = [b"X\x01%s\x02" % (b"x" * n) + each for n, each in enumerate(strings)]
    for rows in (strings, spaced, accents, no_layout):
        column = ByteColumn.of(rows)
        names = [b"KEYS", b"TAGS", b"X"]
        found = hash_properties(column.data, column.starts, column.lengths, names, 2)
        for name in range(2):
            alone = hash_strings(column.data, *found.columns[name])
            assert found.hashes[name].tolist() == alone.hashes.tolist()
            assert found.powers[name].tolist() == alone.powers.tolist()
        if rows is spaced:
            assert not found.spaceless[1]
        elif count == 5 or rows is strings:
            assert found.spaceless.all()


def test_another_layout_takes_over(searched: list[int]) -> None:
    """As where one producer comes after the other: a piece of 256 KiB has the first one's."""
    first = [b"KEYS\x01k%06d\x02TAGS\x01tt\x02" % n for n in range(20_000)]
    second = [b"TAGS\x01t%05d\x02KEYS\x01kk\x02x" % n for n in range(20_000)]
    assert len(first[0]) == len(second[0])
    check(first + second)
    assert sum(searched) < 15_000


def test_lengths_that_are_frequent_have_a_layout_each(
    searched: list[int], apart: list[bytes]
) -> None:
    check([b"KEYS\x01order-%d\x02" % n for n in range(5_000)])
    assert searched == []
    assert len(apart) == 3 + 10
