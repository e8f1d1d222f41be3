"""Equal things found together, without sorting them.

    slot table    value's hash -> the first row that has it
    row i         looks into the slot of its own hash, and compares itself with the row there

Rows equal to the one in their slot are settled; the others, whose slot was taken by another
value, go another round with other slots. Every answer is verified by comparison, so a bad hash
costs time and never truth.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from .ragged import gather_rows, length_classes

_WORD: Final = 8
_MIXER: Final = 0x9E3779B97F4A7C15
_MAX_ROUNDS: Final = 8


def distinct_slices(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which slices are equal: i8[k], the first row of each distinct one, ascending; and i8[n],
    for each row the index of its own among these."""
    first_of = np.arange(len(starts))
    for rows, width in length_classes(lengths):
        numbers = np.arange(len(starts))[rows]
        words = _as_words(data, starts[rows], lengths[rows], width)
        first_of[rows] = numbers[_first_equal(words)]
    return _numbered(first_of)


def distinct_pairs(
    major: NDArray[np.int64], minor: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for pairs of integers."""
    return _numbered(_first_equal(np.stack((major, minor)).view(np.uint64)))


def stable_order(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Indexes that sort `numbers` (each 0 .. count-1), equal ones in their order. For up to
    65,536 different ones this is numpy's radix sort, some ten times faster than the other."""
    keys = numbers.astype(np.uint16) if count <= 1 << 16 else numbers
    return np.argsort(keys, kind="stable")


def _as_words(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int
) -> NDArray[np.uint64]:
    """u8[w, n]: in column i the length and the bytes of slice i, padded with zeros."""
    stride = -(-width // _WORD) * _WORD
    words = np.empty((1 + stride // _WORD, len(starts)), np.uint64)
    words[0] = lengths
    if stride:
        text = gather_rows(data, starts, stride)
        if stride > width or int(lengths.min()) < width:
            text = text * (np.arange(stride) < lengths[:, None])
        words[1:] = text.view(np.uint64).T
    return words


def _first_equal(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each column of u8[w, n] the first column that equals it."""
    count = words.shape[1]
    result = np.arange(count)
    if not count:
        return result
    hashes = _mixed(words)
    bits = (2 * count - 1).bit_length() + 1
    table = np.empty(1 << bits, np.int64)
    rows = np.arange(count)
    for turn in range(_MAX_ROUNDS):
        slots = (hashes >> np.uint64(64 - bits)).view(np.int64)
        # The last assignment stays, so backwards it is the first row of a slot.
        table[slots[::-1]] = rows[::-1]
        first = table[slots]
        equal = words[0, rows] == words[0, first]
        for column in words[1:]:
            equal &= column[rows] == column[first]
        result[rows[equal]] = first[equal]
        if equal.all():
            return result
        rows = rows[~equal]
        hashes = hashes[~equal] * np.uint64(_MIXER + 2 * turn + 2)
    return _first_equal_plainly(words, result, rows)


def _first_equal_plainly(
    words: NDArray[np.uint64], result: NDArray[np.int64], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """What is left where hashes were made to collide."""
    seen: dict[bytes, int] = {}
    for row in rows.tolist():
        result[row] = seen.setdefault(words[:, row].tobytes(), row)
    return result


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit hash of each column; its upper bits are the good ones."""
    hashes: NDArray[np.uint64] = words[0] * np.uint64(_MIXER)
    for word in words[1:]:
        hashes ^= hashes >> np.uint64(29)
        hashes += word
        hashes *= np.uint64(_MIXER)
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(_MIXER)
    return hashes


def _numbered(first_of: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """From each row's first equal row: those firsts, and each row's index among them."""
    is_first = first_of == np.arange(len(first_of))
    firsts = np.flatnonzero(is_first)
    numbers = np.cumsum(is_first) - 1
    return firsts, numbers[first_of]
