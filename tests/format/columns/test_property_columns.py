"""Values found by columns equal those of the plain decoder."""

from functools import partial

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.property_check import check_properties
from helpers.record_strategies import property_strings
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.columns.property_columns import search_properties, split_keys_columns
from tandemlog.format.record.properties import split_keys

check = partial(check_properties, search_properties)


@settings(max_examples=300)
@given(
    st.lists(property_strings, max_size=8),
    st.binary(max_size=20),
    st.binary(max_size=300),
    st.integers(1, 3),
)
def test_equal_to_the_plain_decoder(
    strings: list[bytes], before: bytes, after: bytes, times: int
) -> None:
    check(strings * times, before, after)


@given(st.lists(st.binary(max_size=300).map(lambda raw: bytes(b & 3 for b in raw)), max_size=6))
def test_nothing_but_separators(strings: list[bytes]) -> None:
    check(strings)


def test_what_stands_behind_a_string_is_not_read() -> None:
    # The second string is longer: the first one's row reads on into it.
    first, second = b"KEYS\x01k", b"TAGS\x01other\x02UNIQ_KEY\x01u\x02KEYS\x01k2" + b"x" * 60
    check([first, second])
    buffer = b"KEYS\x01k\x02TAGS\x01behind\x02"
    ((starts, lengths),) = search_properties(
        buffer, np.array([0, 0]), np.array([6, len(buffer)]), [b"TAGS"]
    )
    assert (starts.tolist(), lengths.tolist()) == ([-1, 12], [0, 6])


def test_cases_by_name() -> None:
    check(
        [
            b"TAGS\x01a\x02TAGS\x01b",
            b"TAGS\x01a\x02TAGS\x01\x02",
            b"TAGS\x01a\x01b\x02KEYS\x01k",
            b"TAGS\x01a\x01TAGS\x01b\x02",
            b"\x02\x02TAGS\x01a",
            b"\x01TAGS\x01a\x02",
            b"TAGS\x02TAGS\x01a",
            b"TAGS\x01\x01\x02",
            b"TAGS\x01",
            b"TAGS",
            b"",
            b"xTAGS\x01a\x02KEYS\x01\x01\x01k",
            b"A_RATHER_LONG_PROPERTY_NAME\x01v\x02UNIQ_KEYS\x01w",
            b"Z_RATHER_LONG_PROPERTY_NAME\x01v",
        ]
    )


def test_strings_of_very_different_lengths() -> None:
    long = b"TAGS\x01" + b"t" * 30_000 + b"\x02KEYS\x01k"
    check([b"TAGS\x01a\x02"] * 50 + [long] + [b"KEYS\x01" + b"k" * n for n in range(200)] + [long])


@given(st.lists(st.text(st.sampled_from(" ab中"), max_size=12), max_size=20), st.integers(1, 3))
def test_split_keys(texts: list[str], times: int) -> None:
    texts = texts * times
    column = ByteColumn.of(texts)
    owners, starts, lengths = split_keys_columns(column.data, column.starts, column.lengths)
    buffer = column.data.tobytes()
    found = [
        (owner, buffer[start : start + length].decode())
        for owner, start, length in zip(
            owners.tolist(), starts.tolist(), lengths.tolist(), strict=True
        )
    ]
    assert found == [(row, key) for row, text in enumerate(texts) for key in split_keys(text)]


def test_split_keys_of_very_different_lengths() -> None:
    texts = ["k1  k2 ", "x" * 40_000 + " y", "", "one"] * 3 + ["a b"] * 300
    column = ByteColumn.of(texts)
    owners, _, lengths = split_keys_columns(column.data, column.starts, column.lengths)
    expected = [(row, len(key)) for row, text in enumerate(texts) for key in split_keys(text)]
    assert list(zip(owners.tolist(), lengths.tolist(), strict=True)) == expected
