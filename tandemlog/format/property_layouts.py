"""Values of named properties where many strings have one layout, which is nearly always.

    row 0   K E Y S 01 1 7 02 T A G S 01 a 02      the layout: where names and separators are
    row 1   K E Y S 01 4 2 02 T A G S 01 b 02      same layout: its values are in the same places
    row 2   T A G S 01 c c c 02 K E Y S 01 2       same length, another layout

Strings of one producer have the same names in the same order, and mostly values of the same
lengths. So one string is taken apart, and of the others of its length it is only shown that they
have its layout: the bytes of names and separators are equal, and no further 0x01 or 0x02 stands in
them. What is not of that layout is searched, property_columns.py.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .constants import NAME_END, PROPERTY_END
from .property_columns import ValueColumn, search_properties
from .ragged import Buffer, byte_array, gather_rows

_WORD: Final = 8
_CELLS: Final = 1 << 18
_LONGEST: Final = 1024
_LEAST_ROWS: Final = 64
"""Fewer rows of a length are not worth a layout."""
_LEAST_SHARE: Final = 16
_MOST_LAYOUTS: Final = 8
_NONE: Final = np.zeros(0, np.bool_)


def find_properties(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    names: Sequence[bytes],
) -> list[ValueColumn]:
    """What search_properties answers, sooner where many strings have one layout."""
    count = len(starts)
    if count < _LEAST_ROWS:
        return search_properties(buffer, starts, lengths, names)
    data = byte_array(buffer)
    value_starts = np.full((len(names), count), -1, np.int64)
    value_lengths = np.zeros((len(names), count), np.int64)
    searched = np.ones(count, np.bool_)
    for length, rows in _frequent_lengths(lengths):
        layout: _Layout | None = None
        step = max(_CELLS // length, _LEAST_ROWS)
        for first in range(0, len(rows), step):
            piece = rows[first : first + step]
            mine = starts[piece]
            strings = _words(data, mine, length)
            alike = _NONE if layout is None else layout.fits(strings)
            if layout is None or not alike.any():
                layout = _layout_of(data, int(mine[0]), length, names)
                alike = layout.fits(strings)
            if not alike.all():
                piece, mine = piece[alike], mine[alike]
            for number, value in enumerate(layout.values):
                if value is not None:
                    value_starts[number, piece] = mine + value[0]
                    value_lengths[number, piece] = value[1]
            searched[piece] = False
    left = searched.nonzero()[0]
    if len(left):
        found = search_properties(data, starts[left], lengths[left], names)
        for number, (found_starts, found_lengths) in enumerate(found):
            value_starts[number, left] = found_starts
            value_lengths[number, left] = found_lengths
    return list(zip(value_starts, value_lengths, strict=True))


class _Layout(NamedTuple):
    """One string taken apart. `fixed` u8[words] has all bits of the bytes that make the layout,
    `template` their values; `separators` of them are 0x01 or 0x02. `values`: for each name the
    value's place in the string and its length, None where it has none."""

    template: NDArray[np.uint64]
    fixed: NDArray[np.uint64]
    separators: int
    values: list[tuple[int, int] | None]

    def fits(self, strings: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which rows of u8[n, words] have this layout."""
        differ = (strings ^ self.template) & self.fixed
        alike = np.ones(len(strings), np.bool_)
        if differ.any():
            alike = ~np.asarray(differ.any(axis=1))
        # 1 and 2 alone are at most 1 when 1 is taken from them: 0 becomes 255
        separators = (strings.view(np.uint8) - np.uint8(1)) <= 1
        if np.count_nonzero(separators) != self.separators * len(strings):
            alike &= np.count_nonzero(separators, axis=1) == self.separators
        return alike


def _layout_of(data: NDArray[np.uint8], start: int, length: int, names: Sequence[bytes]) -> _Layout:
    row = data[start : start + length]
    words = _words(data, np.array([start]), length)[0]
    fixed = np.zeros(len(words) * _WORD, np.uint8)
    position, text = 0, row.tobytes()
    for segment in text.split(bytes((PROPERTY_END,))):
        name_end = segment.find(NAME_END)
        name = len(segment) if name_end < 0 else name_end + 1
        fixed[position : position + name] = 0xFF
        position += len(segment) + 1
        fixed[position - 1 : position] = 0xFF
    fixed[length:] = 0
    separators = (row == NAME_END) | (row == PROPERTY_END)
    fixed[:length][separators] = 0xFF
    mask = fixed.view(np.uint64)
    found = search_properties(data, np.array([start]), np.array([length]), names)
    return _Layout(
        template=words & mask,
        fixed=mask,
        separators=int(np.count_nonzero(separators)),
        values=[
            (int(starts[0]) - start, int(lengths[0])) if lengths[0] else None
            for starts, lengths in found
        ],
    )


def _words(data: NDArray[np.uint8], starts: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
    """u8[n, words]: the strings' bytes, zeros behind them."""
    stride = -(-length // _WORD) * _WORD
    rows = gather_rows(data, starts, stride)
    if stride > length:
        rows[:, length:] = 0
    return rows.view(np.uint64)


def _frequent_lengths(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Lengths that many strings have, and the rows that have each."""
    longest = int(lengths.max())
    if int(lengths.min()) == longest:
        if 0 < longest <= _LONGEST:
            yield longest, np.arange(len(lengths))
        return
    counts = np.bincount(np.minimum(lengths, _LONGEST + 1), minlength=_LONGEST + 2)
    counts[0] = counts[_LONGEST + 1] = 0
    least = max(len(lengths) // _LEAST_SHARE, _LEAST_ROWS)
    frequent = (counts >= least).nonzero()[0]
    for length in frequent[np.argsort(-counts[frequent], kind="stable")][:_MOST_LAYOUTS].tolist():
        yield length, (lengths == length).nonzero()[0]
