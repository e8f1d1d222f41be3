"""Values of named properties in many property strings, without a loop over the strings.

    row 0   N A M E 01 v a l u e 02 K 01 v 02 02 . .       the strings as padded rows, each
    row 1   K 01 v 02 .  .  .  .  .  .  .  .  . . .        closed by one 02 more

All 0x01 and 0x02 of all rows stand in one sorted list. A 0x01 ends a name when the separator
before it is a 0x02 (of the row before, for a row's first); its value ends at the next 0x02.
What such a segment lacks makes it none, as for the plain decoder: a name, a value, its 0x01.
Names are compared eight bytes at a time, as integers.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from .constants import NAME_END, PROPERTY_END
from .grouping import stable_order
from .ragged import Buffer, byte_array, gather_rows, length_classes, row_chunks, windows

_WORD: Final = 8
_SPACE: Final = 0x20
_CELLS: Final = 1 << 18
"""Bytes of rows taken at once: with what is made of them they stay in the cache."""
_WORD_MASKS: Final = np.array([(1 << 8 * length) - 1 for length in range(_WORD + 1)], np.uint64)

assert (NAME_END, PROPERTY_END) == (1, 2)

ValueColumn = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Start (buffer position, -1 for none) and length (bytes, 0 for none) of n values."""


def find_properties(
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
    found = [(np.full(len(starts), -1, np.int64), np.zeros(len(starts), np.int64)) for _ in names]
    for rows, width in length_classes(lengths):
        if width == 0:
            continue
        for chunk in row_chunks(rows, len(starts), width + 1, _CELLS):
            numbers = np.arange(len(starts))[chunk]
            segments = _Segments(data, starts[chunk], lengths[chunk], width)
            for name, (value_starts, value_lengths) in zip(names, found, strict=True):
                hits = segments.named(name)
                owners = numbers[segments.row[hits]]
                # Of several hits in a row the last assignment stays: the later duplicate.
                value_starts[owners] = segments.value_start[hits]
                value_lengths[owners] = segments.value_length[hits]
    return found


class _Segments:
    """The properties of some strings, in order of row and position.

    row           i8[s]  which string
    value_start   i8[s]  buffer position
    value_length  i8[s]  bytes, above 0
    """

    def __init__(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        width: int,
    ) -> None:
        stride = max(width + 1, _WORD)
        # One row more, so that eight bytes can be read at every place.
        rows = gather_rows(data, np.append(starts, starts[-1]), stride)
        flat = rows.reshape(-1)
        ends = np.arange(len(starts)) * stride + lengths
        flat[ends] = PROPERTY_END
        places = self._separators(flat, len(starts), stride, lengths)
        is_name_end = flat[places] == NAME_END
        first = is_name_end.copy()
        first[1:] &= ~is_name_end[:-1]
        ends_name = np.flatnonzero(first)
        row = places[ends_name] // stride
        begins = np.empty(len(places), np.int64)
        begins[0] = 0
        np.add(places[:-1], 1, out=begins[1:])
        name_start = np.maximum(begins[ends_name], row * stride)
        name_end = places[ends_name]
        following = ends_name + 1
        if is_name_end[following].any():
            # A value may hold a 0x01: it ends at the next 0x02 all the same.
            value_ends = np.flatnonzero(~is_name_end)
            following = value_ends[np.searchsorted(value_ends, ends_name)]
        value_length = places[following] - name_end - 1
        self._name_length = name_end - name_start
        kept = (self._name_length > 0) & (value_length > 0)
        if not kept.all():
            row, name_start, name_end = row[kept], name_start[kept], name_end[kept]
            value_length, self._name_length = value_length[kept], self._name_length[kept]
        self.row = row
        self.value_start = name_end + (starts - np.arange(len(starts)) * stride)[row] + 1
        self.value_length = value_length
        self._name_start = name_start
        self._words = windows(flat, _WORD)
        self._first_word = self._words[name_start].view("<u8")

    @staticmethod
    def _separators(
        flat: NDArray[np.uint8], count: int, stride: int, lengths: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Where a 0x01 or 0x02 stands in the first `count` rows, each row's closing 0x02
        included and nothing behind it."""
        places = np.flatnonzero((flat[: count * stride] - np.uint8(1)) <= 1)
        if int(lengths.min()) == stride - 1:
            return places
        row = places // stride
        return places[places - row * stride <= lengths[row]]

    def named(self, name: bytes) -> NDArray[np.int64]:
        """Indexes of the segments of this name, ascending."""
        head = name[:_WORD]
        word = int.from_bytes(head, "little")
        hits = np.flatnonzero(
            (self._name_length == len(name))
            & ((self._first_word & _WORD_MASKS[len(head)]) == np.uint64(word))
        )
        for begin in range(_WORD, len(name), _WORD):
            piece = name[begin : begin + _WORD]
            words = self._words[self._name_start[hits] + begin].view("<u8")
            word = int.from_bytes(piece, "little")
            hits = hits[(words & _WORD_MASKS[len(piece)]) == np.uint64(word)]
        return hits


def split_keys_columns(
    buffer: Buffer, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """The keys in n KEYS values (length 0: none), as split_keys finds them: for each key the
    index of its value, ascending, its start (buffer position) and its length."""
    data = byte_array(buffer)
    found: list[tuple[NDArray[np.int64], ...]] = []
    for rows, width in length_classes(lengths):
        if width == 0:
            continue
        for chunk in row_chunks(rows, len(starts), width + 1, _CELLS):
            row, start, length = _split(data, starts[chunk], lengths[chunk], width + 1)
            found.append((np.arange(len(starts))[chunk][row], start, length))
    if not found:
        nothing = np.empty(0, np.int64)
        return nothing, nothing, nothing
    if len(found) == 1:
        owners, key_starts, key_lengths = found[0]
    else:
        owners, key_starts, key_lengths = (
            np.concatenate(pieces) for pieces in zip(*found, strict=True)
        )
        order = stable_order(owners, len(starts))
        owners, key_starts, key_lengths = owners[order], key_starts[order], key_lengths[order]
    return owners, key_starts, key_lengths


def _split(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64], stride: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Row, buffer position and length of each key; every row is closed by one space more."""
    flat = gather_rows(data, starts, stride).reshape(-1)
    row_starts = np.arange(len(starts)) * stride
    flat[row_starts + lengths] = _SPACE
    places = np.flatnonzero(flat == _SPACE)
    row = places // stride
    within = places - row * stride <= lengths[row]
    places, row = places[within], row[within]
    begins = np.empty(len(places), np.int64)
    begins[0] = 0
    np.add(places[:-1], 1, out=begins[1:])
    begins = np.maximum(begins, row * stride)
    kept = places > begins
    begins, row = begins[kept], row[kept]
    return row, begins + (starts - row_starts)[row], places[kept] - begins
