"""All names and values of many property strings, without a loop over them.

    flat     N A M E 01 v a l u e 02 K 01 v 02 | N A M E 01 w 02 | ...
    segment  begin  '-- separator    '-- end     the strings end to end, each closed by a 0x02

A segment counts from three bytes on, with a name and a value that are not empty, cut at its first
0x01: the rules of properties.decode_properties. What it does with a name that comes twice is left
to the caller, who can ask whether there is one.

A name is known by its length and its last eight bytes as an integer: for names of up to eight
bytes that is the name itself.
"""

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.grouping import distinct_slices
from ..arrays.ragged import (
    Buffer,
    byte_array,
    copy_slices,
    counting,
    gather_rows,
    offsets_of,
    windows,
)
from ..constants import NAME_END, PROPERTY_END

_LEAST_SEGMENT: Final = 3
_WORD: Final = 8
_FRONT: Final = np.zeros(_WORD, np.uint8)
_MASKS: Final = np.array(
    [((1 << 64) - 1) << 8 * (_WORD - min(size, _WORD)) & (1 << 64) - 1 for size in range(256)],
    np.uint64,
)
_MIXERS: Final = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0xD6E8FEB86659FD93)
_BIT_SHIFT: Final = np.uint64(58)

assert (NAME_END, PROPERTY_END) == (1, 2)


class PropertySegments:
    """The segments that count, in the order of their places.

    flat         u1: the strings end to end, behind eight zeros
    begins, separators, ends   i8[m]: in flat; the name is begins..separators, the value
                               separators+1..ends
    row_offsets  i8[n + 1]: those of string i are row_offsets[i] .. row_offsets[i + 1]
    """

    def __init__(
        self, buffer: Buffer, starts: NDArray[np.int64], lengths: NDArray[np.int64]
    ) -> None:
        data = byte_array(buffer)
        offsets = offsets_of(lengths + 1)
        offsets += _WORD
        self.flat = np.empty(int(offsets[-1]), np.uint8)
        self.flat[:_WORD] = 0
        copy_slices(data, starts, self.flat, offsets[:-1], lengths)
        self.flat[offsets[1:] - 1] = PROPERTY_END
        self._cut(offsets)

    def _cut(self, offsets: NDArray[np.int64]) -> None:
        strings = self.flat[_WORD:]
        marks = ((strings - np.uint8(NAME_END)) <= 1).nonzero()[0]
        is_end = strings[marks] == PROPERTY_END
        end_marks = is_end.nonzero()[0]
        marks += _WORD
        ends = marks[end_marks]
        begins = np.empty_like(ends)
        first_marks = np.empty_like(end_marks)
        if len(ends):
            begins[0], first_marks[0] = _WORD, 0
            np.add(ends[:-1], 1, out=begins[1:])
            np.add(end_marks[:-1], 1, out=first_marks[1:])
        # The first mark behind a segment's begin is its 0x01, or its end if it has none.
        separators = marks[first_marks]
        kept = (separators > begins) & (separators + 1 < ends)
        kept &= ends - begins >= _LEAST_SEGMENT
        rows = np.zeros(len(offsets), np.int64)
        rows[1:] = np.searchsorted(ends, offsets[1:] - 1) + 1
        if not kept.all():
            chosen = kept.nonzero()[0]
            rows = np.searchsorted(chosen, rows)
            begins, separators, ends = begins[chosen], separators[chosen], ends[chosen]
        self.begins, self.separators, self.ends, self.row_offsets = begins, separators, ends, rows

    @property
    def count(self) -> int:
        return len(self.begins)

    @cached_property
    def name_lengths(self) -> NDArray[np.int64]:
        lengths: NDArray[np.int64] = self.separators - self.begins
        return lengths

    @cached_property
    def name_words(self) -> NDArray[np.uint64]:
        """The last eight bytes of each name; of a shorter one all of it, behind zeros."""
        words = windows(self.flat, _WORD)[self.separators - _WORD].view("<u8")
        masked: NDArray[np.uint64] = words & _MASKS[np.minimum(self.name_lengths, _WORD)]
        return masked

    def named(self, name: bytes) -> NDArray[np.int64]:
        """The numbers of the segments of this name, which is not empty."""
        word = np.uint64(int.from_bytes(name[-_WORD:], "little") << 8 * max(_WORD - len(name), 0))
        hits: NDArray[np.int64] = (
            (self.name_words == word) & (self.name_lengths == len(name))
        ).nonzero()[0]
        if len(name) > _WORD and len(hits):
            whole = gather_rows(self.flat, self.begins[hits], len(name))
            hits = hits[(whole == np.frombuffer(name, np.uint8)).all(axis=1)]
        return hits

    def values(self, name: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Start in flat and length of the last value of `name` in each string, i8[n] both; length
        0 if it has none."""
        hits = self.named(name)
        count = len(self.row_offsets) - 1
        starts, lengths = np.zeros(count, np.int64), np.zeros(count, np.int64)
        if len(hits):
            begins = self.separators[hits] + 1
            rows = self._rows[hits]
            # Of several in one string the last assignment stays.
            starts[rows] = begins
            lengths[rows] = self.ends[hits] - begins
        return starts, lengths

    def without(self, numbers: NDArray[np.int64]) -> "PropertySegments":
        """The same strings, as if these segments were not there."""
        kept = np.ones(self.count, np.bool_)
        kept[numbers] = False
        other = object.__new__(PropertySegments)
        other.flat = self.flat
        other.begins, other.separators = self.begins[kept], self.separators[kept]
        other.ends = self.ends[kept]
        other.row_offsets = offsets_of(kept.astype(np.int64))[self.row_offsets]
        return other

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        counts = np.diff(self.row_offsets)
        return np.repeat(counting(len(counts)), counts)

    def has_repeats(self) -> bool:
        """Whether a string has a name twice."""
        if not self.count:
            return False
        words = self.name_words + self.name_lengths.view(np.uint64)
        counts = np.diff(self.row_offsets)
        filled = (counts > 0).nonzero()[0]
        begins = self.row_offsets[:-1][filled]
        suspects = np.ones(len(filled), np.bool_)
        for mixer in _MIXERS:
            # One bit a name: a row whose bits are fewer than its names has two of one bit.
            bits = np.left_shift(np.uint64(1), (words * np.uint64(mixer)) >> _BIT_SHIFT)
            union = np.bitwise_or.reduceat(bits, begins)
            suspects &= np.bitwise_count(union) != counts[filled]
            if not suspects.any():
                return False
        return self._repeats_in(filled[suspects])

    def _repeats_in(self, rows: NDArray[np.int64]) -> bool:
        """The same, exactly, for a few rows."""
        chosen = np.isin(self._rows, rows).nonzero()[0]
        firsts, numbers = distinct_slices(self.flat, self.begins[chosen], self.name_lengths[chosen])
        pairs = self._rows[chosen] * len(firsts) + numbers
        return len(np.unique(pairs)) < len(pairs)
