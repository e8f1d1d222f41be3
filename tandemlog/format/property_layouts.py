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
from .ragged import (
    WORD,
    Buffer,
    all_true,
    byte_array,
    counting,
    gather_rows,
    last_word,
    none_true,
)

_CELLS: Final = 1 << 18
_LONGEST: Final = 1024
_LEAST_ROWS: Final = 24
"""Fewer rows of a length are not worth a layout, and fewer rows at all no array operation."""
_LEAST_SHARE: Final = 16
_MOST_LAYOUTS: Final = 8
_NONE: Final = np.zeros(0, np.bool_)
_NAME_END: Final = bytes((NAME_END,))
_PROPERTY_END: Final = bytes((PROPERTY_END,))
_MARK: Final = 0xFF
_SEPARATORS: Final = bytes(_MARK if byte in (NAME_END, PROPERTY_END) else 0 for byte in range(256))
"""Translates a string into marks of where its separators are."""

_Place = tuple[int, int]
"""Where a value begins in its string, and its length; never 0."""


def find_properties(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    names: Sequence[bytes],
) -> list[ValueColumn]:
    """What search_properties answers, sooner where many strings have one layout, or few are left
    that have another."""
    count = len(starts)
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
            if layout is None or none_true(alike):
                layout = _layout_of(_text(data, int(mine[0]), length), names)
                alike = layout.fits(strings)
            if not all_true(alike):
                piece, mine = piece[alike], mine[alike]
            for number, value in enumerate(layout.values):
                if value is not None:
                    value_starts[number, piece] = mine + value[0]
                    value_lengths[number, piece] = value[1]
            searched[piece] = False
    left = searched.nonzero()[0]
    if len(left) < _LEAST_ROWS:
        _take_few_apart(data, starts, lengths, names, left, value_starts, value_lengths)
    else:
        found = search_properties(data, starts[left], lengths[left], names)
        for number, (found_starts, found_lengths) in enumerate(found):
            value_starts[number, left] = found_starts
            value_lengths[number, left] = found_lengths
    return list(zip(value_starts, value_lengths, strict=True))


class _Layout(NamedTuple):
    """One string taken apart. `fixed` u8[words] has all bits of the bytes that make the layout,
    `template` their values; `separators` of them are 0x01 or 0x02. `values`: for each name where
    its value is, None where it has none."""

    template: NDArray[np.uint64]
    fixed: NDArray[np.uint64]
    separators: int
    values: list[_Place | None]

    def fits(self, strings: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which rows of u8[n, words] have this layout."""
        differ = strings ^ self.template
        differ &= self.fixed
        alike = np.ones(len(strings), np.bool_)
        if not none_true(differ):
            alike = ~np.asarray(differ.any(axis=1))
        # 1 and 2 alone are at most 1 when 1 is taken from them: 0 becomes 255
        separators = (strings.view(np.uint8) - np.uint8(1)) <= 1
        if np.count_nonzero(separators) != self.separators * len(strings):
            alike &= np.count_nonzero(separators, axis=1) == self.separators
        return alike


def _layout_of(text: bytes, names: Sequence[bytes]) -> _Layout:
    stride = -(-len(text) // WORD) * WORD
    fixed = bytearray(text.translate(_SEPARATORS).ljust(stride, b"\0"))
    separators = fixed.count(_MARK)
    position = 0
    for segment in text.split(_PROPERTY_END):
        name = segment.find(NAME_END)
        size = len(segment) if name < 0 else name
        fixed[position : position + size] = bytes((_MARK,)) * size
        position += len(segment) + 1
    mask = np.frombuffer(fixed, np.uint64)
    return _Layout(
        template=np.frombuffer(text.ljust(stride, b"\0"), np.uint64) & mask,
        fixed=mask,
        separators=separators,
        values=_take_apart(text, names),
    )


def _take_apart(text: bytes, names: Sequence[bytes]) -> list[_Place | None]:
    """One string, by the plain decoder's rule."""
    found: dict[bytes, _Place] = {}
    position = 0
    for segment in text.split(_PROPERTY_END):
        name, _, value = segment.partition(_NAME_END)
        if value:
            found[name] = position + len(name) + 1, len(value)
        position += len(segment) + 1
    return [found.get(name) for name in names]


def _take_few_apart(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    names: Sequence[bytes],
    rows: NDArray[np.int64],
    value_starts: NDArray[np.int64],
    value_lengths: NDArray[np.int64],
) -> None:
    """Writes what is found in `rows` into the last two, i8[names, n]."""
    for row, start, length in zip(
        rows.tolist(), starts[rows].tolist(), lengths[rows].tolist(), strict=True
    ):
        for number, value in enumerate(_take_apart(_text(data, start, length), names)):
            if value is not None:
                value_starts[number, row] = start + value[0]
                value_lengths[number, row] = value[1]


def _text(data: NDArray[np.uint8], start: int, length: int) -> bytes:
    return data[start : start + length].tobytes()


def _words(data: NDArray[np.uint8], starts: NDArray[np.int64], length: int) -> NDArray[np.uint64]:
    """u8[n, words]: the strings' bytes, zeros behind them."""
    words = gather_rows(data, starts, -(-length // WORD) * WORD).view(np.uint64)
    words[:, -1] &= last_word(length)
    return words


def _frequent_lengths(lengths: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Lengths that many strings have, and the rows that have each. Lengths that fewer have too,
    where then hardly a string is left to be searched: to search at all costs as much as some
    hundred rows."""
    count = len(lengths)
    if count < _LEAST_ROWS:
        return
    longest = int(lengths.max())
    if int(lengths.min()) == longest:
        if 0 < longest <= _LONGEST:
            yield longest, counting(count)
        return
    counts = np.bincount(np.minimum(lengths, _LONGEST + 1), minlength=_LONGEST + 2)
    counts[0] = counts[_LONGEST + 1] = 0
    chosen = (counts >= _LEAST_ROWS).nonzero()[0]
    chosen = chosen[np.argsort(-counts[chosen], kind="stable")][:_MOST_LAYOUTS]
    if count - int(counts[chosen].sum()) >= _LEAST_ROWS:
        chosen = chosen[counts[chosen] >= count // _LEAST_SHARE]
    for length in chosen.tolist():
        yield length, (lengths == length).nonzero()[0]
