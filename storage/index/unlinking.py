"""Restores what the slots of an index file held before its last entries, by following the chains
back.

    slot ──▶ 9 ──▶ 7 ──▶ 3 ──▶ ...      entries from 5 on are removed: 7 is the first of them in
                                        this chain, and its previous one, 3, is what the slot held

All chains are handled at once, in time that grows with the entries and not with the length of a
chain: if all records have one tag, one chain has every entry. All values are checked, since a power
failure leaves slots and entries of different moments. The chains of the removed entries are whole
if

    each names an older entry of its slot as previous, and no two name the same one,
    one in each slot names an entry that stays (or none): it is the chain's first removed one,
    and the one that no other names is the one that the slot points to.
"""

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.index_layout import slot_of


def held_before(
    removed: NDArray[np.void],
    next_entry: int,
    table_size: int,
    slots: NDArray[np.int64],
    newest: NDArray[np.int64],
) -> NDArray[np.int32] | None:
    """i4[k]: what `slots` i8[k], distinct, held before entry `next_entry`; None if the chains
    are not whole.

    `removed` ENTRY_DTYPE[n] are the entries from `next_entry` on, `newest` i8[k] the numbers
    of the entries that the slots point to, all among them. Entries that no slot points to, which
    a crash left so, are skipped.
    """
    row_of = np.full(table_size, -1, np.int32)
    row_of[slots] = np.arange(len(slots), dtype=np.int32)
    rows = row_of[slot_of(removed["key_hash"].astype(np.int64), table_size)]
    # places: entry numbers less next_entry
    last = newest - next_entry
    blank = (removed["key_hash"] == 0) & (removed["physical_offset"] == 0)
    linked = (rows >= 0) & ~blank & (np.arange(len(removed)) <= last[rows])
    places, rows = np.flatnonzero(linked), rows[linked]
    previous = removed["previous"][linked].astype(np.int64) - next_entry
    is_first = previous < 0
    before = np.full(len(slots), -1, np.int32)
    before[rows[is_first]] = previous[is_first] + next_entry
    if np.count_nonzero(is_first) != len(slots) or (before < 0).any():
        return None
    after, older = places[~is_first], previous[~is_first]
    if not (older < after).all():
        return None
    row_at = np.full(len(removed), -1, np.int32)
    row_at[places] = rows
    follower = np.full(len(removed), -1, np.int64)
    follower[older] = after
    ends = places[follower[places] < 0]
    whole = (
        (row_at[older] == rows[~is_first]).all()
        and (follower[older] == after).all()
        and (last[row_at[ends]] == ends).all()
    )
    return before if whole else None
