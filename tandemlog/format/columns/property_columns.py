"""Values of named properties in many property strings, without a loop over the strings.

    row 0   02 N A M E 01 v a l u e 02 K 01 v 02        the strings as rows of one width,
    row 1   02 K 01 v 02 02 . . . . . . . . . .         each between two 0x02

The places of all 0x01 and 0x02 stand in one sorted list. The eight bytes that end at a 0x01, as
an integer, tell whether `0x02 name 0x01` stands there: a whole name, right at the start of a
segment, and this its first 0x01. The value goes up to the next 0x02. So is the plain decoder's
rule: the first 0x01 ends the name, a later duplicate counts, an empty value is none.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.grouping import stable_order
from ..arrays.ragged import (
    Buffer,
    byte_array,
    counting,
    gather_rows,
    padded_classes,
    row_numbers,
    windows,
)
from ..constants import NAME_END, PROPERTY_END

_WORD: Final = 8
_SPACE: Final = 0x20
_CELLS: Final = 1 << 18
"""Bytes of rows taken at once: with what is made of them they stay in the cache."""

_NO_BYTE: Final = np.zeros(1, np.uint8)

assert (NAME_END, PROPERTY_END) == (1, 2)

ValueColumn = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Start (buffer position, -1 for none) and length (bytes, 0 for none) of n values."""


def search_properties(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    names: Sequence[bytes],
) -> list[ValueColumn]:
    """For each name, where its value is in each of the property strings
    buffer[start : start + length]; of a name that comes twice the last value counts, and an
    empty value is none. Names must not be empty, nor hold a 0x01 or 0x02.
    """
    data = byte_array(buffer)
    count = len(starts)
    value_starts = np.full((len(names), count), -1, np.int64)
    value_lengths = np.zeros((len(names), count), np.int64)
    patterns = [bytes((PROPERTY_END,)) + name + bytes((NAME_END,)) for name in names]
    for rows, width, equal in padded_classes(lengths, _CELLS):
        mine = starts[rows]
        strings = _Strings(data, mine, lengths[rows], width, equal)
        number, row, column, length = strings.values(patterns)
        place = number * count + row_numbers(rows, count)[row]
        # Of several values in one place the last assignment stays: the later duplicate.
        value_starts.reshape(-1)[place] = mine[row] + column
        value_lengths.reshape(-1)[place] = length
    return list(zip(value_starts, value_lengths, strict=True))


class _Strings:
    """Property strings as the picture's rows, one behind the other, `stride` bytes each.

    There is a row more on each side, so that eight bytes can be read in front of every place,
    and the last row ends with a 0x02 too. Behind the end of a shorter string stands anything.
    """

    def __init__(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        width: int,
        equal: bool,
    ) -> None:
        # The byte in front of each string is read with it and becomes its first 0x02.
        if int(starts.min()) == 0:
            data, starts = np.concatenate((_NO_BYTE, data)), starts + 1
        self._stride = stride = max(width + 1, _WORD)
        rows = gather_rows(data, np.concatenate((starts[:1], starts, starts[-1:])) - 1, stride)
        flat = rows.reshape(-1)
        flat[::stride] = PROPERTY_END
        self._lengths = None if equal and stride == width + 1 else lengths
        if self._lengths is not None:
            row_starts = np.arange(stride, len(flat) - stride, stride)
            flat[row_starts + (lengths + 1)] = PROPERTY_END
        inner = flat[stride : len(flat) - stride + 1]
        self._places: NDArray[np.int64] = ((inner - np.uint8(1)) <= 1).nonzero()[0] + stride
        self._is_name_end = flat[self._places] == NAME_END
        self._name_ends = self._is_name_end.nonzero()[0]
        self._words = windows(flat, _WORD)
        last_words = self._words[self._places[self._name_ends] - (_WORD - 1)]
        self._last_words = last_words.view("<u8")

    def values(
        self, patterns: Sequence[bytes]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Pattern (which one), row, start in the string, and length of each value behind a
        pattern that is not empty; for each pattern in the order of their places."""
        hits_of = [self._hits(pattern) for pattern in patterns]
        hits = np.concatenate(hits_of)
        number = np.repeat(counting(len(patterns)), [len(each) for each in hits_of])
        name_ends = self._places[hits]
        row = name_ends // self._stride
        column = name_ends - row * self._stride
        row -= 1
        inside = None if self._lengths is None else column <= self._lengths[row]
        if inside is not None and not inside.all():
            kept = inside.nonzero()[0]
            hits, name_ends, number = hits[kept], name_ends[kept], number[kept]
            row, column = row[kept], column[kept]
        length = self._value_ends(hits) - name_ends
        length -= 1
        if not length.all():
            kept = length.nonzero()[0]
            number, row, column, length = number[kept], row[kept], column[kept], length[kept]
        return number, row, column, length

    def _hits(self, pattern: bytes) -> NDArray[np.int64]:
        """Which places are the last byte of `pattern`, ascending; behind a string's end too."""
        tail = pattern[-_WORD:]
        words = self._last_words
        if len(tail) < _WORD:
            words = words >> np.uint64(8 * (_WORD - len(tail)))
        same = words == np.uint64(int.from_bytes(tail, "little"))
        hits: NDArray[np.int64] = self._name_ends[same.nonzero()[0]]
        if len(pattern) <= _WORD or not len(hits):
            return hits
        pattern_starts = self._places[hits] - (len(pattern) - 1)
        fits = (pattern_starts >= 0).nonzero()[0]
        hits, pattern_starts = hits[fits], pattern_starts[fits]
        for offset in range(0, len(pattern) - _WORD, _WORD):
            piece = int.from_bytes(pattern[offset : offset + _WORD], "little")
            words = self._words[pattern_starts + offset].view("<u8")
            same = (words == np.uint64(piece)).nonzero()[0]
            hits, pattern_starts = hits[same], pattern_starts[same]
        return hits

    def _value_ends(self, hits: NDArray[np.int64]) -> NDArray[np.int64]:
        """The place of the first 0x02 behind each of these places."""
        following = hits + 1
        if self._is_name_end[following].any():
            # A value may hold a 0x01.
            all_ends = (~self._is_name_end).nonzero()[0]
            following = all_ends[np.searchsorted(all_ends, following)]
        ends: NDArray[np.int64] = self._places[following]
        return ends


def split_keys_columns(
    buffer: Buffer, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The keys in n KEYS values (length 0: none), as split_keys finds them: for each key the
    index of its value, ascending, its start (buffer position) and its length."""
    data = byte_array(buffer)
    count = len(starts)
    pieces_of: list[tuple[NDArray[np.int64], ...]] = []
    for rows, width, _ in padded_classes(lengths, _CELLS):
        row, start, length = _split(data, starts[rows], lengths[rows], width + 1)
        pieces_of.append((row_numbers(rows, count)[row], start, length))
    if not pieces_of:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    if len(pieces_of) == 1:
        owners, key_starts, key_lengths = pieces_of[0]
        return owners, key_starts, key_lengths
    owners, key_starts, key_lengths = (
        np.concatenate(pieces) for pieces in zip(*pieces_of, strict=True)
    )
    order = stable_order(owners, count)
    return owners[order], key_starts[order], key_lengths[order]


def _split(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row, buffer position and length of each key; every row is closed by one space more."""
    flat = gather_rows(data, starts, stride).reshape(-1)
    spaces = flat == _SPACE
    if not spaces.any() and lengths.all():
        return counting(len(starts)), starts, lengths
    row_starts = np.arange(0, len(flat), stride)
    spaces[row_starts + lengths] = True
    places = spaces.nonzero()[0]
    row = places // stride
    within = (places - row * stride <= lengths[row]).nonzero()[0]
    places, row = places[within], row[within]
    begins = np.zeros(len(places), np.int64)
    begins[1:] = places[:-1] + 1
    begins = np.maximum(begins, row_starts[row])
    rows = (places > begins).nonzero()[0]
    begins, row = begins[rows], row[rows]
    return row, begins + (starts - row_starts)[row], places[rows] - begins
