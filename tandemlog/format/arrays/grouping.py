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

from .ragged import (
    WORD,
    all_true,
    blank_padding,
    counting,
    gather_rows,
    last_word,
    length_classes,
    row_numbers,
    windows,
)

_MIXER: Final = 0x9E3779B97F4A7C15
_MAX_ROUNDS: Final = 8
_MAX_DIRECT_SLOTS: Final = 1 << 16
_WIDEST_TOGETHER: Final = 256


def distinct_slices(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which slices are equal: i8[k], the first row of each distinct one, ascending; and i8[n],
    for each row the index of its own among these."""
    if _all_equal(data, starts, lengths):
        return np.zeros(1, np.int64), np.zeros(len(starts), np.int64)
    first_of = np.empty(len(starts), np.int64)
    for rows, width, equal in length_classes(lengths):
        words = _as_words(data, starts[rows], lengths[rows], width, equal)
        first_of[rows] = row_numbers(rows, len(starts))[_first_equal(words)]
    return _numbered(first_of)


def _all_equal(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> bool:
    """Whether all slices are the first one again, as the topics of most requests are."""
    width = int(lengths[0]) if len(lengths) else 0
    if not 0 < width <= _WIDEST_TOGETHER or not all_true(lengths == width):
        return False
    items = windows(data, width)[starts]
    first: bytes = items[0].tobytes()
    # the last one tells in most other cases, before all are compared
    return bool(first == items[-1].tobytes() and items.tobytes() == first * len(items))


def distinct_pairs(
    major: NDArray[np.int64], minor: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The same for pairs of integers; `major` from 0 on."""
    count = len(major)
    if not count:
        return _numbered(major)
    low, high = int(np.minimum.reduce(minor)), int(np.maximum.reduce(minor))
    width = high - low + 1
    slots = (int(np.maximum.reduce(major)) + 1) * width
    if slots > _MAX_DIRECT_SLOTS + 2 * count:
        return _numbered(_first_equal(np.stack((major, minor)).view(np.uint64)))
    # Small numbers need no hash: each pair has a slot of its own.
    mine = major * width + (minor - low)
    table = np.empty(slots, np.int64)
    table[mine[::-1]] = counting(count)[::-1]
    return _numbered(table[mine])


def stable_order(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Indexes that sort `numbers` (each 0 .. count-1), equal ones in their order. For up to
    65,536 different ones this is numpy's radix sort, some ten times faster than the other."""
    keys = numbers.astype(np.uint16) if count <= 1 << 16 else numbers
    return np.argsort(keys, kind="stable")


def _as_words(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    width: int,
    equal: bool,
) -> NDArray[np.uint64]:
    """u8[w, n]: in column i the length and the bytes of slice i, padded with zeros; `equal`:
    all are `width` long."""
    stride = -(-width // WORD) * WORD
    words = np.empty((1 + stride // WORD, len(starts)), np.uint64)
    words[0] = lengths
    if stride:
        text = gather_rows(data, starts, stride)
        if not equal:
            text = blank_padding(text, lengths)
        words[1:] = text.view(np.uint64).T
        if equal:
            words[-1] &= last_word(width)
    return words


def _first_equal(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """For each column of u8[w, n] the first column that equals it."""
    count = words.shape[1]
    hashes = _mixed(words)
    bits = (2 * count - 1).bit_length() + 1
    table = np.empty(1 << bits, np.int64)
    slots = (hashes >> np.uint64(64 - bits)).view(np.int64)
    # The last assignment stays, so backwards it is the first row of a slot.
    table[slots[::-1]] = counting(count)[::-1]
    result = table[slots]
    equal = words[0] == words[0][result]
    for column in words[1:]:
        equal &= column == column[result]
    if not all_true(equal):
        _resolve_others(words, hashes, table, result, (~equal).nonzero()[0])
    return result


def _resolve_others(
    words: NDArray[np.uint64],
    hashes: NDArray[np.uint64],
    table: NDArray[np.int64],
    result: NDArray[np.int64],
    rows: NDArray[np.int64],
) -> None:
    """Puts `result` right for `rows`, whose slots were taken by others."""
    shift = np.uint64(65 - len(table).bit_length())
    for turn in range(_MAX_ROUNDS):
        slots = (hashes[rows] * np.uint64(_MIXER + 2 * turn + 2) >> shift).view(np.int64)
        table[slots[::-1]] = rows[::-1]
        first = table[slots]
        equal = (words[:, rows] == words[:, first]).all(axis=0)
        result[rows] = first
        rows = rows[~equal]
        if not len(rows):
            return
    # Hashes that were made to collide.
    seen: dict[bytes, int] = {}
    for row in rows.tolist():
        result[row] = seen.setdefault(words[:, row].tobytes(), row)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """A 64-bit hash of each column; its upper bits are the good ones."""
    count = len(words)
    factors = _FACTORS[:count] if count <= len(_FACTORS) else _odd_factors(count)
    hashes: NDArray[np.uint64] = factors @ words
    return hashes


def _odd_factors(count: int) -> NDArray[np.uint64]:
    return np.cumprod(np.full(count, _MIXER, np.uint64), dtype=np.uint64)


_FACTORS: Final = _odd_factors(64)


def _numbered(first_of: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """From each row's first equal row: those firsts, and each row's index among them."""
    firsts = (first_of == counting(len(first_of))).nonzero()[0]
    numbers = np.empty(len(first_of), np.int64)
    numbers[firsts] = counting(len(firsts))
    return firsts, numbers[first_of]
