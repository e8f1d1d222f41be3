"""Index files written from columns are those that RocketMQ's rules make, entry by entry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.plain_format import time_diff
from tandemlog.format.files.index_layout import (
    ENTRY,
    ENTRY_SIZE,
    HEADER_SIZE,
    IndexHeader,
    entry_position,
    index_file_size,
    slot_position,
)
from tandemlog.logs.reading.window_dispatch import INDEX_ITEM
from tandemlog.logs.tasks.index_writer import plan_index, write_index_file

SLOTS, ENTRIES = 7, 20
ITEMS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 5000)), min_size=1, max_size=70)


def reference(items: list[tuple[int, int, int]]) -> list[bytes]:
    """One entry after the other, as the format text says."""
    files, header, data = [], IndexHeader(), bytearray(index_file_size(SLOTS, ENTRIES))
    for key_hash, offset, time in items:
        if header.next_entry >= ENTRIES:
            data[:HEADER_SIZE] = header.encode()
            files.append(bytes(data))
            header = IndexHeader(
                header.end_timestamp, header.end_timestamp,
                header.end_physical_offset, header.end_physical_offset,
            )  # fmt: skip
            data = bytearray(index_file_size(SLOTS, ENTRIES))
        slot = slot_position(key_hash % SLOTS)
        old = int.from_bytes(data[slot : slot + 4])
        place = entry_position(SLOTS, header.next_entry)
        data[place : place + ENTRY_SIZE] = ENTRY.pack(
            key_hash, offset, time_diff(header.begin_timestamp, time), old
        )
        data[slot : slot + 4] = header.next_entry.to_bytes(4)
        first = header.next_entry <= 1
        header = IndexHeader(
            time if first else header.begin_timestamp,
            time,
            offset if first else header.begin_physical_offset,
            offset,
            header.used_slots + (old == 0),
            header.next_entry + 1,
        )
    data[:HEADER_SIZE] = header.encode()
    return [*files, bytes(data)]


@settings(max_examples=60)
@given(ITEMS, st.integers(1, 30))
def test_files_are_those_of_the_rules(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[int, int]], chunk: int
) -> None:
    folder = tmp_path_factory.mktemp("index")
    items = np.zeros(len(pairs), INDEX_ITEM)
    items["key_hash"] = [each for each, _ in pairs]
    items["physical_offset"] = np.arange(len(pairs)) * 100
    # Now and then time runs back.
    items["store_timestamp"] = [
        1_700_000_000_000 + i * 900 + jump for i, (_, jump) in enumerate(pairs)
    ]
    hashes, offsets, times = (items[name].tolist() for name in items.dtype.names or ())
    rows = list(zip(hashes, offsets, times, strict=True))
    made = []
    for plan in plan_index(len(items), ENTRIES):
        path = folder / str(plan.number)
        mine = items[plan.first : plan.last]
        chunks = (mine[start : start + chunk] for start in range(0, len(mine), chunk))
        before = items[plan.first - 1 : plan.first] if plan.first else None
        write_index_file(path, chunks, before, SLOTS, ENTRIES)
        made.append(path.read_bytes())
    assert made == reference(rows)


def test_files_hold_one_entry_less_than_they_count() -> None:
    assert [(plan.first, plan.last) for plan in plan_index(40, ENTRIES)] == [
        (0, 19),
        (19, 38),
        (38, 40),
    ]
    assert plan_index(0, ENTRIES) == []
