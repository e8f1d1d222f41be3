"""The hash chains of an index file: which entry stands before which, as arrays.

    slot s ──▶ newest entry ──previous──▶ older entry ──previous──▶ 0

A batch of entries is linked at once: sorted by slot, stably, every entry's predecessor is its
neighbour if that has the same slot, and what the slot held before the batch if it has not.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import counting
from .index_layout import MAX_TIME_DIFF, slot_of


@dataclass(frozen=True, slots=True)
class Links:
    """previous i4[m]: each entry's predecessor; slots i8[k] distinct, newest i4[k]: what they
    hold now; `fresh` of them were empty before."""

    previous: NDArray[np.int32]
    slots: NDArray[np.int64]
    newest: NDArray[np.int32]
    fresh: int


def link(table: NDArray[np.int32], key_hash: NDArray[np.integer], first_number: int) -> Links:
    """Entries first_number, first_number+1, ... with these hashes, on top of what `table` (i4[S],
    any byte order) holds. The table is not changed. A slot with a number that the file does not
    have yet, which only damage brings about, counts as empty."""
    unsigned = np.ascontiguousarray(key_hash, dtype=np.int32).view(np.uint32)
    slot = slot_of(unsigned, len(table)).astype(np.int64)
    # Slot and place in one integer: a plain sort is then stable, and five times as fast.
    placed = slot
    placed <<= 32
    placed |= counting(len(slot))
    placed.sort()
    order, ordered = placed & 0xFFFFFFFF, placed >> 32
    numbers = (order + first_number).astype(np.int32)
    is_first = np.empty(len(order), dtype=np.bool_)
    is_first[:1] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    firsts = is_first.nonzero()[0]
    lasts = np.empty(len(firsts), dtype=np.int64)
    np.subtract(firsts[1:], 1, out=lasts[:-1])
    lasts[-1:] = len(order) - 1
    slots = ordered[firsts]
    held = table[slots].astype(np.int32)
    # as an unsigned number one below 0 is too large
    held *= held.view(np.uint32) < first_number
    before = np.empty(len(order), dtype=np.int32)
    before[1:] = numbers[:-1]
    before[firsts] = held
    previous = np.empty(len(order), dtype=np.int32)
    previous[order] = before
    return Links(previous, slots, numbers[lasts], len(held) - int(np.count_nonzero(held)))


def time_diffs(begin_timestamp: int, timestamps: NDArray[np.int64]) -> NDArray[np.int32]:
    """Seconds after the file's begin, 0 if it has none or time ran back."""
    if begin_timestamp <= 0:
        return np.zeros(len(timestamps), dtype=np.int32)
    seconds = (timestamps - begin_timestamp) // 1000
    return np.minimum(np.maximum(seconds, 0), MAX_TIME_DIFF).astype(np.int32)
