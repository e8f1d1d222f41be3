"""The index files of a store as columns, for the tools: nothing is written.

    slots     number of the newest entry of each chain
    entries   number 1 2 3 ...: key hash, log offset, seconds, previous number in the chain

`chain_fault` recomputes every chain from the hashes alone: an entry's previous one is the last
before it with the same slot, and the slot holds the last of all.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.index_layout import (
    ENTRY_DTYPE,
    HEADER_SIZE,
    SLOT_DTYPE,
    IndexHeader,
    decode_index_header,
    entry_position,
    slot_of,
)

from ..disk.file_system import FileSystem
from ..errors import UnreadableError


@dataclass(frozen=True, slots=True)
class IndexEntries:
    """One file: `entries` ENTRY_DTYPE[n], entry number i+1 at i, and `slots` i4[S]."""

    path: Path
    header: IndexHeader
    slots: NDArray[np.void]
    entries: NDArray[np.void]

    @property
    def count(self) -> int:
        return len(self.entries)

    def header_fault(self) -> str | None:
        """What of the header does not fit the entries. The number of used slots is not checked: it
        is never read, and old versions of RocketMQ counted it differently."""
        header = self.header
        if not 0 <= header.next_entry <= self.count + 1:
            return f"its header counts {header.next_entry} entries, but it has {self.count}"
        if not self.count:
            return None
        for name, offset, number in (
            ("begin", header.begin_physical_offset, 1),
            ("end", header.end_physical_offset, self.count),
        ):
            physical = int(self.entries["physical_offset"][number - 1])
            if offset != physical:
                return (
                    f"its header says that its entries {name} at offset {offset}; entry {number} "
                    f"points to {physical}"
                )
        return None

    def chain_fault(self) -> str | None:
        """What is wrong with the first entry or slot that is not as its hash says."""
        hashes = self.entries["key_hash"].astype(np.int64)
        if self.count and int(hashes.min()) < 0:
            return f"entry {int(hashes.argmin()) + 1} has a negative hash"
        chains = slot_of(hashes, len(self.slots))
        order = np.argsort(chains, kind="stable")
        ordered = chains[order]
        same = ordered[1:] == ordered[:-1]
        previous = np.zeros(self.count, dtype=np.int64)
        previous[order[1:][same]] = order[:-1][same] + 1
        wrong = np.flatnonzero(self.entries["previous"] != previous)
        if len(wrong):
            number = int(wrong[0])
            return (
                f"entry {number + 1} names {int(self.entries['previous'][number])} as the one "
                f"before it in its chain, it is {int(previous[number])}"
            )
        heads = np.zeros(len(self.slots), dtype=np.int64)
        if self.count:
            last = np.append(~same, True)
            heads[ordered[last]] = order[last] + 1
        wrong = np.flatnonzero(self.slots != heads)
        if len(wrong):
            slot = int(wrong[0])
            return (
                f"slot {slot} holds entry {int(self.slots[slot])}, its newest is {int(heads[slot])}"
            )
        return None


def read_index_file(files: FileSystem, path: Path, slots: int, entries: int) -> IndexEntries:
    """The file must have the length of these numbers. A header that counts more entries than the
    file has room for is taken as counting them all; chain_fault will find what is not there. Raises
    UnreadableError."""
    handle = files.open(path, write=False)
    try:
        data = files.map(handle, files.size(handle))
        files.prefault(data, [(0, HEADER_SIZE)])
        header = decode_index_header(data[:HEADER_SIZE])
        count = max(min(header.next_entry, entries) - 1, 0)
        files.prefault(data, [(0, entry_position(slots, count + 1))])
    except OSError as error:
        raise UnreadableError(str(path), 0, files.size(handle), str(error.strerror)) from error
    finally:
        files.close(handle)
    return IndexEntries(
        path,
        header,
        np.frombuffer(data, dtype=SLOT_DTYPE, count=slots, offset=HEADER_SIZE),
        np.frombuffer(data, dtype=ENTRY_DTYPE, count=count, offset=entry_position(slots, 1)),
    )
