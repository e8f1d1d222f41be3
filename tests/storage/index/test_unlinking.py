"""What slots held before entries go is said right, or not at all, whatever a crash has left."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tandemlog.format.files.index_chains import link
from tandemlog.format.files.index_layout import ENTRY_DTYPE
from tandemlog_server.storage.index.unlinking import held_before

SLOTS = 7


class Index:
    """Entries 1, 2, ... with these hashes, and what the slots hold after each."""

    def __init__(self, hashes: list[int]) -> None:
        self.entries = np.zeros(len(hashes) + 1, ENTRY_DTYPE)
        table = np.zeros(SLOTS, np.int32)
        self.tables = [table, table]
        for number, key_hash in enumerate(hashes, start=1):
            links = link(table, np.array([key_hash]), number)
            table = table.copy()
            table[links.slots] = links.newest
            self.tables.append(table)
            entry = self.entries[number]
            entry["key_hash"], entry["physical_offset"] = key_hash, 10 * number
            entry["previous"] = links.previous[0]

    def held_before(
        self, next_entry: int, table: NDArray[np.int32] | None = None
    ) -> tuple[list[int] | None, list[int]]:
        """What is said of the slots that `table` has at or above the entry, and what is right."""
        table = self.tables[-1] if table is None else table
        slots = np.flatnonzero(table >= next_entry)
        said = held_before(
            self.entries[next_entry:], next_entry, SLOTS, slots, table[slots].astype(np.int64)
        )
        return None if said is None else said.tolist(), self.tables[next_entry][slots].tolist()


hashes = st.lists(st.integers(1, 20), min_size=2, max_size=30)


@settings(max_examples=100, deadline=None)
@given(hashes, st.data())
def test_whole_chains_are_followed(found: list[int], data: st.DataObject) -> None:
    said, right = Index(found).held_before(data.draw(st.integers(1, len(found))))
    assert said == right


@settings(max_examples=200, deadline=None)
@given(hashes, st.data())
def test_lost_entries_and_old_slots_never_make_it_say_something_wrong(
    found: list[int], data: st.DataObject
) -> None:
    index = Index(found)
    next_entry = data.draw(st.integers(1, len(found)))
    for lost in data.draw(st.sets(st.integers(next_entry, len(found)))):
        index.entries[lost] = np.zeros(1, ENTRY_DTYPE)[0]
    table = index.tables[-1].copy()
    for slot in data.draw(st.sets(st.integers(0, SLOTS - 1))):
        older = index.tables[data.draw(st.integers(next_entry, len(found)))][slot]
        table[slot] = older if older >= next_entry else table[slot]
    said, right = index.held_before(next_entry, table)
    assert said in (None, right)


@pytest.mark.parametrize("broken", ["a first one twice", "a loop", "another slot", "its end"])
def test_a_chain_that_is_not_whole_is_not_followed(broken: str) -> None:
    index = Index([5, 6, 5, 6, 5, 6])
    assert index.held_before(3) == ([1, 2], [1, 2])
    table = index.tables[-1].copy()
    if broken == "a first one twice":
        index.entries["previous"][5] = 1
    elif broken == "a loop":
        index.entries["previous"][3] = 5
    elif broken == "another slot":
        index.entries["previous"][5] = 4
    else:
        index.entries["previous"][6] = 2
        index.entries["previous"][4] = 6
    assert index.held_before(3, table)[0] is None
