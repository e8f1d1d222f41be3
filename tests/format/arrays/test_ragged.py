"""Copies of slices of many lengths equal plain slicing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.arrays.ragged import (
    blank_padding,
    byte_array,
    compact,
    copy_slices,
    first_true,
    gather_rows,
    length_classes,
    padded_classes,
    windows,
)

slices = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 80)), max_size=60)
DATA = bytes(range(256)) + bytes(range(124))


def columns(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def test_byte_array_shares_memory() -> None:
    buffer = bytearray(b"abc")
    array = byte_array(buffer)
    buffer[0] = ord("x")
    assert array.tobytes() == b"xbc"
    assert byte_array(array) is array


def test_windows_are_every_place() -> None:
    assert [bytes(each) for each in windows(byte_array(b"abcd"), 3).tolist()] == [b"abc", b"bcd"]


@given(slices)
def test_compact_equals_joined_slices(pairs: list[tuple[int, int]]) -> None:
    starts, lengths = columns(pairs)
    flat, offsets = compact(byte_array(DATA), starts, lengths)
    assert flat.tobytes() == b"".join(DATA[start : start + length] for start, length in pairs)
    assert offsets.tolist() == [0, *np.cumsum(lengths).tolist()]


@given(slices, st.integers(0, 8))
def test_copy_slices_writes_nothing_between(pairs: list[tuple[int, int]], gap: int) -> None:
    starts, lengths = columns(pairs)
    targets = np.cumsum(lengths + gap) - lengths
    target = np.full(int((lengths + gap).sum()) + 5, 0xEE, np.uint8)
    copy_slices(byte_array(DATA), starts, target, targets, lengths)
    expected = bytearray(b"\xee" * len(target))
    for start, length, to in zip(starts, lengths, targets, strict=True):
        expected[to : to + length] = DATA[start : start + length]
    assert target.tobytes() == expected


def test_copy_slices_of_very_different_lengths() -> None:
    data = np.arange(60_000, dtype=np.uint32).astype(np.uint8)
    lengths = np.array([0, 1, 5_000, 3, 40_000, 17, 4096, 4095], np.int64)
    starts = np.array([9, 8, 7, 6, 5, 4, 3, 2], np.int64)
    flat, _ = compact(data, starts, lengths)
    assert flat.tobytes() == b"".join(
        data[start : start + length].tobytes()
        for start, length in zip(starts, lengths, strict=True)
    )


@pytest.mark.parametrize("shortest", [1, 700, 1_000])
def test_copies_of_more_than_a_piece(shortest: int) -> None:
    chooser = np.random.default_rng(1)
    data = chooser.integers(0, 256, 1 << 20, np.uint8)
    lengths = chooser.integers(shortest, 1_400, 700)
    starts = chooser.integers(0, len(data) - 1_400, 700)
    flat, _ = compact(data, starts, lengths)
    assert flat.tobytes() == b"".join(
        data[start : start + length].tobytes()
        for start, length in zip(starts, lengths, strict=True)
    )


@given(st.lists(st.integers(0, 380), max_size=40), st.integers(1, 500))
def test_gather_rows_pads_behind_the_end(starts: list[int], width: int) -> None:
    rows = gather_rows(byte_array(DATA), np.array(starts, np.int64), width)
    assert [row.tobytes() for row in rows] == [
        DATA[start : start + width].ljust(width, b"\0") for start in starts
    ]


@given(st.lists(st.one_of(st.integers(0, 50), st.integers(0, 40_000)), max_size=40))
def test_length_classes_are_all_rows_once(lengths: list[int]) -> None:
    column = np.array(lengths, np.int64)
    seen: list[int] = []
    for rows, width, equal in length_classes(column):
        mine = column[rows]
        seen += np.arange(len(column))[rows].tolist()
        assert width == mine.max()
        assert equal == (mine == width).all()
        assert width * len(mine) <= 2 * mine.sum() + (1 << 16)
    assert sorted(seen) == list(range(len(lengths)))


@given(st.lists(st.integers(0, 300), max_size=60).map(lambda each: each * 5))
def test_padded_classes_are_all_rows_that_hold_something(lengths: list[int]) -> None:
    column = np.array(lengths, np.int64)
    seen: list[int] = []
    for rows, width, _ in padded_classes(column, 4096):
        mine = column[rows]
        seen += np.arange(len(column))[rows].tolist()
        assert mine.max() <= width
        assert len(mine) * width <= max(4096, 64 * width)
    assert {row for row, length in enumerate(lengths) if length} <= set(seen)
    assert len(seen) == len(set(seen))


@pytest.mark.parametrize("width", [1, 255, 256, 65_535, 65_536])
def test_blank_padding(width: int) -> None:
    lengths = np.array([0, width // 2, width], np.int64)
    blanked = blank_padding(np.full((3, width), 7, np.uint8), lengths)
    assert (blanked != 0).sum(axis=1).tolist() == lengths.tolist()
    assert all(blanked[row, :length].all() for row, length in enumerate(lengths))


def test_first_true() -> None:
    assert first_true(np.array([False, True, True])) == 1
    assert first_true(np.array([False, False])) == -1
    assert first_true(np.array([], np.bool_)) == -1
