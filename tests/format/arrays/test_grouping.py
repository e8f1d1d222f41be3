"""Equal rows get one number, by first appearance; different rows never do."""

from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.arrays import grouping
from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.arrays.grouping import distinct_pairs, distinct_slices, stable_order


def plainly(values: Sequence[Hashable]) -> tuple[list[int], list[int]]:
    numbers = {value: number for number, value in enumerate(dict.fromkeys(values))}
    return [values.index(value) for value in numbers], [numbers[value] for value in values]


def slices_of(values: list[bytes]) -> tuple[list[int], list[int]]:
    column = ByteColumn.of(values)
    firsts, numbers = distinct_slices(column.data, column.starts, column.lengths)
    return firsts.tolist(), numbers.tolist()


texts = st.lists(
    st.one_of(st.binary(max_size=3), st.sampled_from([b"a" * 8, b"a" * 9, b"a\0", b"a", b"\0"])),
    max_size=60,
)


@given(texts)
def test_distinct_slices(values: list[bytes]) -> None:
    assert slices_of(values) == plainly(values)


@pytest.mark.parametrize("odd", [b"topic", b"other", b"topics", b"topi"])
def test_slices_that_are_all_alike_but_for_one(odd: bytes) -> None:
    for place in (0, 1, 2):
        values = [b"topic"] * 3
        values[place] = odd
        assert slices_of(values) == plainly(values)


def test_distinct_slices_of_very_different_lengths() -> None:
    values = [b"x" * 30_000, b"y", b"x" * 30_000, *[b"%d" % (n % 500) for n in range(2_000)], b"y"]
    assert slices_of(values) == plainly(values)


@pytest.mark.parametrize("rounds", [0, 2])
def test_colliding_hashes_cost_time_only(monkeypatch: pytest.MonkeyPatch, rounds: int) -> None:
    monkeypatch.setattr(grouping, "_mixed", lambda words: words[0] & np.uint64(1))
    monkeypatch.setattr(grouping, "_MAX_ROUNDS", rounds)
    values = [b"%d" % (number * 7 % 23) for number in range(200)]
    assert slices_of(values) == plainly(values)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31))),
        max_size=60,
    )
)
def test_distinct_pairs(pairs: list[tuple[int, int]]) -> None:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    firsts, numbers = distinct_pairs(table[:, 0].copy(), table[:, 1].copy())
    assert (firsts.tolist(), numbers.tolist()) == plainly(pairs)


@pytest.mark.parametrize("count", [5, 70_000])
def test_stable_order(count: int) -> None:
    numbers = np.array([4, 0, 3, 0, 4, 4, 1], np.int64)
    assert stable_order(numbers, count).tolist() == [1, 3, 6, 2, 0, 4, 5]
