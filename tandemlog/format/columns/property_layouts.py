"""Values of named properties where many strings have one layout, which is nearly always.

    row 0   K E Y S 01 1 7 02 T A G S 01 a 02      the layout: where names and separators are
    row 1   K E Y S 01 4 2 02 T A G S 01 b 02      same layout: its values are in the same places
    row 2   T A G S 01 c c c 02 K E Y S 01 2       same length, another layout

Strings of one producer have the same names in the same order, and mostly values of the same
lengths. So one string is taken apart, and of the others of its length it is only shown that they
have its layout: the bytes of names and separators are equal, and no further 0x01 or 0x02 stands in
them. What is not of that layout is searched (property_columns.py), or taken apart by a loop where
that is little.

Of strings of one layout each value is a block of columns, and hashed as such where it is ASCII.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..arrays.java_hash_columns import HashedStrings, hash_rows, hash_strings, powers_of
from ..arrays.ragged import (
    WORD,
    Buffer,
    all_true,
    byte_array,
    counting,
    gather_rows,
    last_word,
    none_true,
)
from ..constants import NAME_END, PROPERTY_END
from .property_columns import ValueColumn, search_properties

_CELLS: Final = 1 << 18
_LONGEST: Final = 1024
_LEAST_ROWS: Final = 24
"""Fewer rows of a length are not worth a layout, and fewer rows at all no array operation."""
_LEAST_SHARE: Final = 16
_MOST_LAYOUTS: Final = 8
_NONE: Final = np.zeros(0, np.bool_)
_NAME_END: Final = bytes((NAME_END,))
_PROPERTY_END: Final = bytes((PROPERTY_END,))
_SPACE: Final = 0x20
_MARK: Final = 0xFF
_SEPARATORS: Final = bytes(_MARK if byte in (NAME_END, PROPERTY_END) else 0 for byte in range(256))
"""Translates a string into marks of where its separators are."""

_Place = tuple[int, int]
"""Where a value begins in its string, and its length; never 0."""


@dataclass(frozen=True, slots=True)
class HashedProperties:
    """The values of names in n strings, and the hashes of some.

    columns   for each name what search_properties answers
    hashes    u4[names, n]  of the values of the first names, as many as were asked for
    hashed    bool[n]  in which strings these are: there all are ASCII, and none has a space
    """

    columns: list[ValueColumn]
    hashes: NDArray[np.uint32]
    hashed: NDArray[np.bool_]

    def strings(self, buffer: Buffer, name: int) -> HashedStrings:
        """All values of a name, when those that are not yet hashed are."""
        starts, lengths = self.columns[name]
        result = HashedStrings(self.hashes[name], powers_of(lengths))
        if not all_true(self.hashed):
            rest = (~self.hashed).nonzero()[0]
            others = hash_strings(buffer, starts[rest], lengths[rest])
            result.hashes[rest] = others.hashes
            result.powers[rest] = others.powers
        return result


def find_properties(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    names: Sequence[bytes],
) -> list[ValueColumn]:
    """What search_properties answers, sooner where many strings have one layout, or few are left
    that have another."""
    return hash_properties(buffer, starts, lengths, names, 0).columns


def hash_properties(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    names: Sequence[bytes],
    wanted: int,
) -> HashedProperties:
    """find_properties, and the values of the first `wanted` names hashed where that is cheap: in
    strings of one layout, while they are in the cache, as rows of one width."""
    count = len(starts)
    data = byte_array(buffer)
    layouts: list[_Layout] = []
    layout_of = np.zeros(count, np.int64)  # number in `layouts`, from 1 on; 0 for none
    hashes = np.zeros((wanted, count), np.uint32)
    hashed = np.zeros(count, np.bool_)
    for length, rows in _frequent_lengths(lengths):
        layout: _Layout | None = None
        step = max(_CELLS // length, _LEAST_ROWS)
        for first in range(0, len(rows), step):
            piece = rows[first : first + step]
            strings = _words(data, starts[piece], length)
            alike = _NONE if layout is None else layout.fits(strings)
            if layout is None or none_true(alike):
                layout = _layout_of(_text(data, int(starts[piece[0]]), length), names)
                layouts.append(layout)
                alike = layout.fits(strings)
            if not all_true(alike):
                piece, strings = piece[alike], strings[alike]
            layout_of[piece] = len(layouts)
            places = layout.values[:wanted]
            if wanted and _are_plain(strings.view(np.uint8), places):
                hashed[piece] = True
                wide = strings.view(np.uint8).astype(np.uint32)
                for mine, place in zip(hashes, places, strict=True):
                    if place is not None:
                        mine[piece] = hash_rows(wide[:, place[0] : sum(place)])
    columns = _columns_of(layouts, layout_of, starts, len(names))
    left = (layout_of == 0).nonzero()[0]
    if len(left) < _LEAST_ROWS:
        _take_few_apart(data, starts, lengths, names, left, columns)
    else:
        found = search_properties(data, starts[left], lengths[left], names)
        for whole, part in zip(columns, found, strict=True):
            whole[0][left], whole[1][left] = part
    return HashedProperties(columns, hashes, hashed)


def _are_plain(text: NDArray[np.uint8], places: Sequence[_Place | None]) -> bool:
    """Whether in these places of u1[n, width] all bytes are ASCII and none is a space."""
    spaces = text == _SPACE
    if none_true(spaces) and int(text.max()) < 0x80:
        return True
    blocks = [slice(place[0], sum(place)) for place in places if place is not None]
    return all(none_true(spaces[:, block]) and int(text[:, block].max()) < 0x80 for block in blocks)


def _columns_of(
    layouts: Sequence["_Layout"],
    layout_of: NDArray[np.int64],
    starts: NDArray[np.int64],
    names: int,
) -> list[ValueColumn]:
    """The values of strings that have a layout; none in those that have not (number 0)."""
    columns: list[ValueColumn] = []
    whole = all_true(layout_of)
    for name in range(names):
        places = [None, *(layout.values[name] for layout in layouts)]
        if not any(places):
            columns.append((np.full(len(starts), -1, np.int64), np.zeros(len(starts), np.int64)))
            continue
        offsets, sizes = np.array([place or (0, 0) for place in places], np.int64).T
        value_starts, value_lengths = offsets.take(layout_of), sizes.take(layout_of)
        value_starts += starts
        if not (whole and all(places[1:])):
            value_starts[value_lengths == 0] = -1
        columns.append((value_starts, value_lengths))
    return columns


class _Layout(NamedTuple):
    """One string taken apart. `fixed` u8[words] has all bits of the bytes that make the layout,
    `template` their values; `separators` of them are 0x01 or 0x02. `values`: for each name where
    its value is, None if it has none."""

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
    columns: Sequence[ValueColumn],
) -> None:
    """Writes what is found in `rows` into `columns`, which say there that nothing is."""
    for row, start, length in zip(
        rows.tolist(), starts[rows].tolist(), lengths[rows].tolist(), strict=True
    ):
        values = _take_apart(_text(data, start, length), names)
        for (value_starts, value_lengths), value in zip(columns, values, strict=True):
            if value is not None:
                value_starts[row] = start + value[0]
                value_lengths[row] = value[1]


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
