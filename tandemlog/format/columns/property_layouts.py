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

from ..arrays.java_hash_columns import hash_rows, hash_strings, powers_of
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
_FEW_ROWS: Final = 256
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
_NOWHERE: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class HashedProperties:
    """The values of names in n strings, and the hashes of some.

    starts, lengths   i8[names, n]   as search_properties answers them
    hashes, powers    u4[wanted, n]  of the values of the first names, as HashedStrings has them
    spaceless         bool[n]  in which strings it is known that no such value has a space
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.uint32]
    powers: NDArray[np.uint32]
    spaceless: NDArray[np.bool_]

    @property
    def columns(self) -> list[ValueColumn]:
        return list(zip(self.starts, self.lengths, strict=True))


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
    """find_properties, and the values of the first `wanted` names hashed: in strings of one layout
    while they are in the cache, as rows of one width."""
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
    spaceless = hashed.copy()
    value_starts, value_lengths = _places_of(layouts, layout_of, starts, len(names))
    left = counting(count) if not layouts else (layout_of == 0).nonzero()[0]
    if len(left) < _LEAST_ROWS:
        spaceless[left] = _take_few_apart(
            data, starts, lengths, names, wanted, left, (value_starts, value_lengths)
        )
    else:
        found = search_properties(data, starts[left], lengths[left], names)
        for name, (part_starts, part_lengths) in enumerate(found):
            value_starts[name, left], value_lengths[name, left] = part_starts, part_lengths
    powers = powers_of(value_lengths[:wanted])
    if wanted and not all_true(hashed):
        rest = (~hashed).nonzero()[0] if layouts else None
        _hash_rest(data, value_starts, value_lengths, rest, hashes, powers)
    return HashedProperties(value_starts, value_lengths, hashes, powers, spaceless)


def _hash_rest(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    rows: NDArray[np.int64] | None,
    hashes: NDArray[np.uint32],
    powers: NDArray[np.uint32],
) -> None:
    """Hashes and powers of the values in these rows, None for all. Those of all names together
    where they are few: there the number of calls counts, and with many the padding of all to one
    width."""
    wanted, count = hashes.shape
    chosen = slice(None) if rows is None else rows
    step = wanted if (count if rows is None else len(rows)) < _FEW_ROWS else 1
    for first in range(0, wanted, step):
        names = slice(first, first + step)
        begins, sizes = starts[names, chosen].reshape(-1), lengths[names, chosen].reshape(-1)
        strings = hash_strings(data, begins, sizes)
        hashes[names, chosen] = strings.hashes.reshape(step, -1)
        powers[names, chosen] = strings.powers.reshape(step, -1)


def _are_plain(text: NDArray[np.uint8], places: Sequence[_Place | None]) -> bool:
    """Whether in these places of u1[n, width] all bytes are ASCII and none is a space."""
    spaces = text == _SPACE
    if none_true(spaces) and int(np.maximum.reduce(text, axis=None)) < 0x80:
        return True
    blocks = [slice(place[0], sum(place)) for place in places if place is not None]
    return all(none_true(spaces[:, block]) and int(text[:, block].max()) < 0x80 for block in blocks)


def _places_of(
    layouts: Sequence["_Layout"],
    layout_of: NDArray[np.int64],
    starts: NDArray[np.int64],
    names: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """i8[names, n]: where the values are of strings that have a layout, and their lengths; none in
    those that have no layout (number 0)."""
    value_starts = np.empty((names, len(starts)), np.int64)
    value_lengths = np.empty((names, len(starts)), np.int64)
    # the last names are of what few records have: mostly no layout has them
    named = (n for each in layouts for n, place in enumerate(each.values, 1) if place)
    some = max(named, default=0)
    value_starts[some:] = -1
    value_lengths[some:] = 0
    if not some:
        return value_starts, value_lengths
    table = [[place or _NOWHERE for place in each.values[:some]] for each in layouts]
    places = np.array([[_NOWHERE] * some, *table], np.int64)
    there, sizes = value_starts[:some], value_lengths[:some]
    places[:, :, 0].T.take(layout_of, axis=1, out=there, mode="clip")
    places[:, :, 1].T.take(layout_of, axis=1, out=sizes, mode="clip")
    there += starts
    if not all_true(sizes):
        there[sizes == 0] = -1
    return value_starts, value_lengths


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
    wanted: int,
    rows: NDArray[np.int64],
    values: tuple[NDArray[np.int64], NDArray[np.int64]],
) -> list[bool]:
    """Writes what is found in `rows` into `values`, i8[names, n] twice, which say there that
    nothing is. Returns for each row whether no value of the first `wanted` names has a space."""
    value_starts, value_lengths = values
    spaceless = []
    for row, start, length in zip(
        rows.tolist(), starts[rows].tolist(), lengths[rows].tolist(), strict=True
    ):
        text = _text(data, start, length)
        places = _take_apart(text, names)
        for name, place in enumerate(places):
            if place is not None:
                value_starts[name, row] = start + place[0]
                value_lengths[name, row] = place[1]
        spaceless.append(
            _SPACE not in text
            or not any(_SPACE in text[each[0] : sum(each)] for each in places[:wanted] if each)
        )
    return spaceless


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
    longest = int(np.maximum.reduce(lengths))
    if int(np.minimum.reduce(lengths)) == longest:
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
