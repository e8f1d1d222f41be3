"""A column gives its strings back."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.arrays.byte_column import ByteColumn


def strings(column: ByteColumn) -> list[bytes]:
    return [
        column.data[start : start + length].tobytes()
        for start, length in zip(column.starts, column.lengths, strict=True)
    ]


@given(st.lists(st.one_of(st.none(), st.text(max_size=5), st.binary(max_size=5)), max_size=20))
def test_of(values: list[bytes | str | None]) -> None:
    column = ByteColumn.of(values)
    assert len(column) == len(values)
    assert strings(column) == [
        each.encode() if isinstance(each, str) else each or b"" for each in values
    ]
    assert strings(column.rows(1, 4)) == strings(column)[1:4]
    if None in values:
        assert column.valid is not None
        assert column.valid.tolist() == [each is not None for each in values]


def test_of_equal_lengths() -> None:
    assert strings(ByteColumn.of_equal_lengths(b"aabbcc", 2)) == [b"aa", b"bb", b"cc"]


def test_a_string_that_is_not_valid_is_empty_whatever_its_offsets_say() -> None:
    column = ByteColumn(
        np.frombuffer(b"abcd", np.uint8), np.array([0, 2, 4]), np.array([True, False])
    )
    assert strings(column) == [b"ab", b""]
