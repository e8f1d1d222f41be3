"""One index file: a hash table on disk from key to commit-log offset (format.index_layout).

    header | slots: newest entry of each chain | entries 1 .. N-1, in the order of the log

Entries are written to the file at once, with one pwrite for a batch. Header and slots are changed
in a copy in memory, and `write_back`, the first step of a flush, writes its changed pages:

    entries   at insert; nothing on the disk points to them yet
    slots     page by page, by pwrite
    header    last: it says how many entries there are

So the file can be repaired after a crash at any point, and a full disk (with copy on write even for
a page that already has space) is an error of a write. (Through a shared map it would be a signal
that kills the process.) One batch touches nearly every page of a large table, so writing them back
once a second costs no more than for one batch.

Slots and `previous` follow from the hashes and the order of the entries: if they cannot be trusted,
they are rebuilt from those.

One thread inserts and cuts, others may write back beside it; queries see a batch as a whole or not
at all.
"""

import errno
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import PAGE
from tandemlog.format.files.index_chains import link, time_diffs
from tandemlog.format.files.index_layout import (
    ENTRY,
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_DTYPE,
    SLOT_SIZE,
    IndexHeader,
    decode_index_header,
    entry_position,
    index_file_size,
    slot_of,
    slot_position,
)

from ..disk.disk_space import preallocate_big
from ..disk.file_pool import FilePool
from ..disk.file_system import FileSystem
from ..errors import CorruptStoreError
from .unlinking import held_before

CHUNK_ENTRIES = 1 << 16
DRAFT_PREFIX = "index-"
_QUERY_ENTRIES = 800
_MOST_FOLLOWED = 1 << 21


class IndexFile:
    """See the module. `slots` and `entries` are S and N of the layout."""

    def __init__(self, path: Path, pool: FilePool, slots: int, entries: int) -> None:
        self.path = path
        self.slots = slots
        self.entries = entries
        self.header = IndexHeader()
        self._file = str(path)
        self._pool = pool
        self._head: bytearray | None = None
        self._table: NDArray[np.int32] | None = None
        # which pages of header and slots the file does not have yet
        self._changed = np.zeros(-(-slot_position(slots) // PAGE), dtype=np.bool_)
        self._publishing = threading.Lock()
        # held by `write_back` throughout: an older copy of a page must not land on a newer one, and
        # what another thread is about to write is not written yet
        self._writing = threading.Lock()

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def room(self) -> int:
        """How many entries still fit."""
        return max(self.entries - self.header.next_entry, 0)

    def load(self) -> None:
        """Read the header. Raises CorruptStoreError for a file of another length."""
        length = self._pool.length(self._file)
        expected = index_file_size(self.slots, self.entries)
        if length != expected:
            raise CorruptStoreError(
                self._file,
                length,
                f"{self.slots} slots and {self.entries} entries make {expected} bytes: "
                "configure the sizes that the store was written with, or remove this index "
                "file and all later ones, which are then rebuilt from the log",
            )
        header = decode_index_header(self._pool.read(self._file, 0, HEADER_SIZE))
        self.header = replace(header, next_entry=min(header.next_entry, self.entries))

    def write_header(self, before: IndexHeader) -> None:
        """The header of a new file behind one with the header `before`: as in RocketMQ it begins
        with that one's end, from which the first entry's time is measured. Raises OSError."""
        with self._publishing:
            self._publish(
                IndexHeader(
                    begin_timestamp=max(before.end_timestamp, 0),
                    end_timestamp=max(before.end_timestamp, 0),
                    begin_physical_offset=max(before.end_physical_offset, 0),
                    end_physical_offset=max(before.end_physical_offset, 0),
                )
            )
        self.write_back()

    def insert(
        self,
        key_hash: NDArray[np.int32],
        physical_offset: NDArray[np.int64],
        store_timestamp: NDArray[np.int64],
    ) -> None:
        """Append entries, at most `room` and at least one. Raises OSError."""
        header, count = self.header, len(key_hash)
        if not 0 < count <= self.room:
            raise ValueError(f"{self.name}: {count} entries do not fit into {self.room}")
        table = self.open_table()
        links = link(table, key_hash, header.next_entry)
        entries = np.empty(count, dtype=ENTRY_DTYPE)
        entries["key_hash"] = key_hash
        entries["physical_offset"] = physical_offset
        entries["previous"] = links.previous
        entries["time_diff"] = time_diffs(header.begin_timestamp, store_timestamp)
        begin_timestamp, begin_offset = header.begin_timestamp, header.begin_physical_offset
        if header.next_entry <= 1:
            begin_timestamp, begin_offset = int(store_timestamp[0]), int(physical_offset[0])
            entries["time_diff"][1:] = time_diffs(begin_timestamp, store_timestamp[1:])
        position = entry_position(self.slots, header.next_entry)
        self._pool.write(self._file, position, entries.view(np.uint8).data)
        with self._publishing:
            self._set(table, links.slots, links.newest)
            self._publish(
                IndexHeader(
                    begin_timestamp=begin_timestamp,
                    end_timestamp=int(store_timestamp[-1]),
                    begin_physical_offset=begin_offset,
                    end_physical_offset=int(physical_offset[-1]),
                    used_slots=header.used_slots + links.fresh,
                    next_entry=header.next_entry + count,
                )
            )

    def query(self, key_hash: int, begin_timestamp: int, end_timestamp: int) -> Iterator[int]:
        """Commit-log offsets of entries with this hash, newest first; times in ms, with the
        index's resolution of a second (section 3.4 of the format text)."""
        slot = slot_of(key_hash, self.slots)
        with self._publishing:
            if self._table is not None:
                number = int(self._table[slot])
            else:
                data = self._pool.read(self._file, slot_position(slot), SLOT_SIZE)
                number = int.from_bytes(data, signed=True)
            header = self.header
        chunk, chunk_first = b"", 0
        while 0 < number < header.next_entry:
            at = (number - chunk_first) * ENTRY_SIZE
            if at < 0 or at >= len(chunk):
                # Chains lead backwards, those of a frequent tag in small steps.
                chunk_first = max(number - _QUERY_ENTRIES + 1, 1)
                chunk = self._read(chunk_first, number + 1)
                at = (number - chunk_first) * ENTRY_SIZE
            entry_hash, offset, seconds, previous = ENTRY.unpack_from(chunk, at)
            time = header.begin_timestamp + seconds * 1000
            if seconds < 0:
                return
            if entry_hash == key_hash and begin_timestamp <= time <= end_timestamp:
                yield offset
            if previous >= number or time < begin_timestamp:
                return
            number = previous

    def may_hold(self, begin_timestamp: int, end_timestamp: int) -> bool:
        """Whether the file's times meet begin .. end."""
        header = self.header
        return (
            header.next_entry > 1
            and header.begin_timestamp <= end_timestamp
            and header.end_timestamp >= begin_timestamp
        )

    def read(self, first: int, last: int) -> NDArray[np.void]:
        """ENTRY_DTYPE: entries first .. last-1."""
        return np.frombuffer(self._read(first, last), dtype=ENTRY_DTYPE)

    def first_at_or_after(self, log_offset: int) -> int:
        """The first entry whose record begins at or after `log_offset`, else next_entry. Entries
        that a crash left zero count as beyond."""
        low, high = 1, self.header.next_entry
        while low < high:
            middle = (low + high) // 2
            entry = self.read(middle, middle + 1)
            if int(entry["physical_offset"][0]) < log_offset and any(entry.tobytes()):
                low = middle + 1
            else:
                high = middle
        return low

    def cut(self, next_entry: int, end_timestamp: int) -> None:
        """Remove entry `next_entry` and all after it. At least one stays, and the store time of the
        last one's record is `end_timestamp`. Slots and chains are right afterwards if those of the
        entries that stay are, whatever the removed ones hold. Raises OSError."""
        table = self.open_table()
        stale = np.flatnonzero((table >= next_entry) | (table < 0))
        newest = self._held_before(table, stale, next_entry)
        end = max(self.header.next_entry, int(table[stale].max(initial=0)) + 1)
        with self._publishing:
            self._set(table, stale, newest)
            self._publish(
                replace(
                    self.header,
                    end_timestamp=end_timestamp,
                    end_physical_offset=int(
                        self.read(next_entry - 1, next_entry)["physical_offset"][0]
                    ),
                    used_slots=int(np.count_nonzero(table)),
                    next_entry=next_entry,
                )
            )
        self.write_back()
        # Old entries must not be taken for those that will be written here.
        for first in range(next_entry, min(end, self.entries), CHUNK_ENTRIES):
            last = min(first + CHUNK_ENTRIES, end, self.entries)
            self._pool.write(
                self._file, entry_position(self.slots, first), bytes((last - first) * ENTRY_SIZE)
            )

    def rebuild_chains(self) -> int:
        """Rebuild slots and chains from the hashes and the order of all entries; returns how many
        entries and slots were wrong. Raises OSError."""
        table = self.open_table()
        fresh = np.zeros(self.slots, dtype=np.int32)
        wrong = 0
        for first in range(1, self.header.next_entry, CHUNK_ENTRIES):
            entries = self.read(first, min(first + CHUNK_ENTRIES, self.header.next_entry)).copy()
            links = link(fresh, entries["key_hash"], first)
            fresh[links.slots] = links.newest
            bad = int(np.count_nonzero(entries["previous"] != links.previous))
            if bad:
                wrong += bad
                entries["previous"] = links.previous
                position = entry_position(self.slots, first)
                self._pool.write(self._file, position, entries.view(np.uint8).data)
        wrong += int(np.count_nonzero(table != fresh))
        with self._publishing:
            self._set(table, np.flatnonzero(table != fresh), fresh[table != fresh])
            self._publish(replace(self.header, used_slots=int(np.count_nonzero(fresh))))
        self.write_back()
        return wrong

    def rewrite(self, first: int, entries: NDArray[np.void]) -> None:
        """Put ENTRY_DTYPE `entries`, which the log says are right, in place of those from number
        `first` on. Raises OSError."""
        self._pool.write(self._file, entry_position(self.slots, first), entries.view(np.uint8).data)

    def correct_begin(self, timestamp: int, physical_offset: int) -> None:
        """Store time (ms) and log offset of the first entry's record, for the header. Raises
        OSError."""
        with self._publishing:
            self._publish(
                replace(
                    self.header,
                    begin_timestamp=timestamp,
                    begin_physical_offset=physical_offset,
                )
            )

    def rewrite_head(self, slots: NDArray[np.int32], header: IndexHeader) -> int:
        """Header and slots as they have to be, i4[S], in memory and on the disk; returns how many
        slots and pages were wrong. Slots of entries from `header.next_entry` on, which
        came meanwhile, stay, and so does the header then. Raises OSError."""
        self.write_back()
        with self._writing:
            table = self.open_table()
            with self._publishing:
                wrong = np.flatnonzero(
                    (table != slots) & ((table < header.next_entry) | (table >= self.entries))
                )
                self._set(table, wrong, slots[wrong])
                used = int(np.count_nonzero(table))
                if self.header.next_entry == header.next_entry:
                    right = replace(header, used_slots=used)
                else:
                    right = replace(self.header, used_slots=used)
                found = len(wrong)
                assert self._head is not None
                if right != self.header or self._head[:HEADER_SIZE] != right.encode():
                    found += 1
                    self._publish(right)
                unwritten = self._changed.copy()
            stored = self._pool.read(self._file, 0, slot_position(self.slots))
            with self._publishing:
                found += self._mark_others(stored, unwritten)
        self.write_back()
        return found

    def _mark_others(self, stored: bytes, unwritten: NDArray[np.bool_]) -> int:
        """Pages of header and slots that the disk has otherwise, though they were written back, are
        written again; returns how many. Caller holds the lock."""
        assert self._head is not None
        there, wanted = (np.frombuffer(each, np.uint8) for each in (stored, self._head))
        differ = there[: len(wanted)] != wanted[: len(there)]
        pages = np.unique(np.flatnonzero(differ) // PAGE)
        pages = pages[~(unwritten | self._changed)[pages]]
        self._changed[pages] = True
        return len(pages)

    def write_back(self) -> None:
        """Write the changed pages of header and slots to the file; durable after a sync of the
        pool. Raises OSError; the next call writes what is left."""
        with self._writing:
            self._write_back()

    def _write_back(self) -> None:
        with self._publishing:
            if self._head is None or not self._changed.any():
                return
            pages = np.flatnonzero(self._changed)
            # no pages in between: their copy costs more than a call more
            breaks = np.flatnonzero(np.diff(pages) != 1) + 1
            pieces = [
                (
                    int(run[0]) * PAGE,
                    bytes(self._head[int(run[0]) * PAGE : (int(run[-1]) + 1) * PAGE]),
                )
                for run in np.split(pages, breaks)
            ]
            header = bytes(self._head[:HEADER_SIZE])
            self._changed[:] = False
        try:
            for position, piece in pieces:
                skipped = max(HEADER_SIZE - position, 0)
                self._pool.write(self._file, position + skipped, piece[skipped:])
            self._pool.write(self._file, 0, header)
        except BaseException:
            with self._publishing:
                self._changed[pages] = True
            raise

    @property
    def is_written_back(self) -> bool:
        """Whether the file has header and slots as they are in memory."""
        with self._publishing:
            return not self._changed.any()

    def release(self) -> None:
        """Release the memory; the next insert reads the table again. What was not written back is
        lost."""
        self._table = None
        self._head = None
        self._changed[:] = False

    def open_table(self) -> NDArray[np.int32]:
        """i4[S], big-endian: the slots, in memory. Reserves the disk space of the whole file, which
        another program may have left sparse. Raises OSError (ENOSPC, EIO)."""
        if self._table is None:
            files = self._pool.files
            handle = files.open(self.path)
            try:
                files.preallocate(handle, index_file_size(self.slots, self.entries))
                self._head = bytearray(files.pread(handle, slot_position(self.slots), 0))
            finally:
                files.close(handle)
            self._table = np.frombuffer(self._head, dtype=SLOT_DTYPE, offset=HEADER_SIZE)
        return self._table

    def _set(
        self, table: NDArray[np.int32], slots: NDArray[np.int64], newest: NDArray[np.int32]
    ) -> None:
        """Caller holds the lock, or is alone."""
        table[slots] = newest
        # no slot lies on two pages
        self._changed[(HEADER_SIZE + SLOT_SIZE * slots.astype(np.int64)) // PAGE] = True

    def _publish(self, header: IndexHeader) -> None:
        self.open_table()
        assert self._head is not None
        self._head[:HEADER_SIZE] = header.encode()
        self._changed[0] = True
        self.header = header

    def _held_before(
        self, table: NDArray[np.int32], slots: NDArray[np.int64], next_entry: int
    ) -> NDArray[np.int32]:
        """What these slots, which point to `next_entry` or later entries, held before."""
        newest = table[slots].astype(np.int64)
        last = int(newest.max(initial=0)) + 1
        followed = None
        if last <= min(self.entries, next_entry + _MOST_FOLLOWED) and (newest >= 0).all():
            removed = self.read(next_entry, max(last, next_entry))
            followed = held_before(removed, next_entry, self.slots, slots, newest)
        return self._newest_of(slots, next_entry) if followed is None else followed

    def _newest_of(self, slots: NDArray[np.int64], next_entry: int) -> NDArray[np.int32]:
        """The newest entry below `next_entry` of each slot, by reading all entries: for a broken
        chain, or when too many entries are removed."""
        newest = np.zeros(self.slots, dtype=np.int32)
        for first in range(1, next_entry, CHUNK_ENTRIES):
            last = min(first + CHUNK_ENTRIES, next_entry)
            # where a slot comes twice the last assignment stays
            hashes = self.read(first, last)["key_hash"]
            newest[slot_of(hashes, self.slots)] = np.arange(first, last)
        return newest[slots]

    def _read(self, first: int, last: int) -> bytes:
        return self._pool.read(
            self._file, entry_position(self.slots, first), (last - first) * ENTRY_SIZE
        )


def create_index_file(
    path: Path, workshop: Path, pool: FilePool, slots: int, entries: int, before: IndexHeader
) -> IndexFile:
    """A new, empty file behind one with the header `before`. It is created in the directory
    `workshop`, or beside its place if that is on another disk, and moved when it is complete.
    Raises OSError (ENOSPC); no file is left then."""
    files, size = pool.files, index_file_size(slots, entries)
    files.make_directory(workshop)
    files.make_directory(path.parent)
    try:
        _make_whole(files, workshop, path, size)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _make_whole(files, path.parent, path, size)
    files.fsync_directory(path.parent)
    files.fsync_directory(workshop)
    file = IndexFile(path, pool, slots, entries)
    try:
        file.write_header(before)
    except OSError:
        # the next try creates another file of this name: what is written to that must not go to a
        # descriptor of this one
        with suppress(OSError):
            pool.delete(str(path))
        raise
    return file


def _make_whole(files: FileSystem, workshop: Path, path: Path, size: int) -> None:
    draft = workshop / f"{DRAFT_PREFIX}{path.name}"
    handle = files.open(draft, create=True)
    try:
        preallocate_big(files, handle, draft, size)
        files.fdatasync(handle)
        files.rename(draft, path)
    except OSError:
        files.unlink(draft)
        raise
    finally:
        files.close(handle)
