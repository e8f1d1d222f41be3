"""One index file, written front to back from its entries in log order.

    header | slots | entries 1 .. N-1         N-1 entries fill a file, the next one begins another

A file depends on the one before: its header starts with the end of that file, and the seconds of
its first entry are counted from there. So a task needs the file's entries, and the one before them.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.index_chains import link, time_diffs
from tandemlog.format.files.index_layout import (
    ENTRY_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    IndexHeader,
    entry_position,
    index_file_size,
)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Entries first .. last-1 (counted over the whole log, from 0) are file `number`."""

    number: int
    first: int
    last: int


def plan_index(count: int, entries: int) -> list[IndexPlan]:
    """The files that `count` entries fill; `entries` is N of the layout."""
    room = entries - 1
    return [
        IndexPlan(number, first, min(first + room, count))
        for number, first in enumerate(range(0, count, room))
    ]


def write_index_file(
    path: Path,
    chunks: Iterable[NDArray[np.void]],
    before: NDArray[np.void] | None,
    slots: int,
    entries: int,
) -> IndexHeader:
    """Write the entries of `chunks` (dispatch.INDEX_ITEM, in order, at least one, at most N-1 in
    all); `before` is the last entry of the file before (INDEX_ITEM[1]), None for the first file.

    Memory: the slot table and one chunk. Raises OSError.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        os.ftruncate(handle, index_file_size(slots, entries))
        table = np.zeros(slots, np.int32)
        header = IndexHeader()
        if before is not None:
            time, offset = int(before["store_timestamp"][0]), int(before["physical_offset"][0])
            header = IndexHeader(time, time, offset, offset)
        for chunk in chunks:
            if len(chunk):
                header = _add(handle, table, header, chunk)
        _write(handle, table.astype(SLOT_DTYPE).view(np.uint8).data, HEADER_SIZE)
        os.pwrite(handle, header.encode(), 0)
    finally:
        os.close(handle)
    return header


def _add(
    handle: int, table: NDArray[np.int32], header: IndexHeader, items: NDArray[np.void]
) -> IndexHeader:
    """Append entries; returns the header that follows from them."""
    times = items["store_timestamp"].astype(np.int64)
    links = link(table, items["key_hash"].astype(np.int32), header.next_entry)
    written = np.empty(len(items), ENTRY_DTYPE)
    written["key_hash"] = items["key_hash"]
    written["physical_offset"] = items["physical_offset"]
    written["previous"] = links.previous
    written["time_diff"] = time_diffs(header.begin_timestamp, times)
    begin_time, begin_offset = header.begin_timestamp, header.begin_physical_offset
    if header.next_entry <= 1:
        # The first entry was measured from the file before; the header then becomes its own.
        begin_time, begin_offset = int(times[0]), int(items["physical_offset"][0])
        written["time_diff"][1:] = time_diffs(begin_time, times[1:])
    _write(handle, written.view(np.uint8).data, entry_position(len(table), header.next_entry))
    table[links.slots] = links.newest
    return IndexHeader(
        begin_timestamp=begin_time,
        end_timestamp=int(times[-1]),
        begin_physical_offset=begin_offset,
        end_physical_offset=int(items["physical_offset"][-1]),
        used_slots=header.used_slots + links.fresh,
        next_entry=header.next_entry + len(items),
    )


def _write(handle: int, data: memoryview, position: int) -> None:
    while data:
        count = os.pwrite(handle, data, position)
        position += count
        data = data[count:]
