"""The index files of a store, oldest to newest; the newest takes the entries.

    20261121071456450 (full) | 20261121071457829 (full) | 20261121071458654 (newest)
      begin .......... end     begin .......... end       begin ....... end, `next_offset`

A full file is followed by a new one whose header starts from its end. The files for a batch exist
before its first entry is written, so that a full disk stops the index between two batches. Then
`stopped` is set, the log and the queues continue, and `resume` tries again; reput dispatches what
the index missed from `next_offset`.

One thread inserts, truncates and resumes, one at a time flushes, any thread queries.
"""

import logging
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import NO_END
from tandemlog.format.files.index_layout import IndexHeader, key_hash
from tandemlog.format.files.names import index_file_name, parse_index_file_name

from ..clock import Clock
from ..disk.file_pool import FilePool
from ..disk.file_system import FileSystem
from ..disk_errors import is_full, refusal
from ..errors import CorruptStoreError, StoreError
from .index_file import DRAFT_PREFIX, IndexFile, create_index_file
from .index_state import IndexState, save_index_state

logger = logging.getLogger(__name__)


class IndexService:
    """See the module. `directory` holds the index files, `workshop` tandemlog's own: drafts and the
    state."""

    def __init__(
        self,
        directory: Path,
        workshop: Path,
        files: FileSystem,
        clock: Clock,
        *,
        slots: int,
        entries: int,
        time_of: Callable[[int], int],
        time_steps: Callable[[int, int], bool] = lambda _begin, _end: False,
    ) -> None:
        """`time_of(physical_offset)` is a record's store time in ms, negative if there is no
        such record; `time_steps(begin, end)` whether store times go back in that part of the log
        (time_steps.py)."""
        # every entry of the log below this position is in the index
        self.next_offset = 0
        self.stopped: StoreError | None = None
        self.slots = slots
        self.entries = entries
        self._directory = directory
        self._workshop = workshop
        self._files = files
        self._clock = clock
        self._time_of = time_of
        self._time_steps = time_steps
        self._pool = FilePool(directory, files, open_files=64)
        self._list: list[IndexFile] = []
        self._generation = 0
        self._saved: IndexState | None = None
        # the log offset of a truncation that the disk has broken off
        self._unfinished: int | None = None
        self._lock = threading.RLock()
        self._flushing = threading.Lock()

    @property
    def files(self) -> tuple[IndexFile, ...]:
        """Oldest first."""
        return tuple(self._list)

    @property
    def newest(self) -> IndexFile | None:
        files = self._list
        return files[-1] if files else None

    @property
    def state_path(self) -> Path:
        return self._workshop / "index.json"

    # ---- growing

    def insert(
        self,
        key_hash: NDArray[np.int32],
        physical_offset: NDArray[np.int64],
        store_timestamp: NDArray[np.int64],
        end_offset: int,
    ) -> None:
        """Append the entries of the records between `next_offset` and `end_offset`, in log order;
        those of earlier records are skipped. A full disk sets `stopped`; raises StoreError if a
        file cannot be written otherwise."""
        if self.stopped is not None:
            return
        self._end_truncation()
        with self._lock:
            if self.next_offset > (int(physical_offset[0]) if len(physical_offset) else 0):
                later = physical_offset >= self.next_offset
                key_hash, physical_offset = key_hash[later], physical_offset[later]
                store_timestamp = store_timestamp[later]
            try:
                targets = self._files_for(len(key_hash))
                first = 0
                for target in targets:
                    last = min(first + target.room, len(key_hash))
                    if target.header.next_entry <= 1:
                        self._write_header(target)
                    target.insert(
                        key_hash[first:last], physical_offset[first:last],
                        store_timestamp[first:last],
                    )  # fmt: skip
                    first = last
            except OSError as error:
                self._fail(error)
                return
            self.next_offset = max(self.next_offset, end_offset)

    def resume(self) -> bool:
        """Try again after a full disk: True if the index accepts entries again."""
        self.stopped = None
        with self._lock:
            try:
                newest = self.newest
                if newest is None or newest.room == 0:
                    self._create()
                else:
                    newest.open_table()
            except OSError as error:
                self._fail(error)
        return self.stopped is None

    # ---- asking

    def query(
        self,
        topic: str,
        key: str,
        begin_timestamp: int = 0,
        end_timestamp: int = NO_END,
        *,
        max_entries: int | None = None,
    ) -> Iterator[int]:
        """Commit-log offsets of records that may have this key, the newest first, at most
        `max_entries` (RocketMQ's limit is MAX_QUERY).

        The same offset may come twice, and records with other keys of the same hash: the caller
        compares the record. Times are store times in ms; an entry's is rounded down to a second.
        """
        wanted = key_hash(topic, key)
        remaining = max_entries
        for file in reversed(self._list):
            header, begin, end = file.header, begin_timestamp, end_timestamp
            if self._time_steps(header.begin_physical_offset, header.end_physical_offset):
                begin, end = 0, NO_END  # its entries are not in the order of their times
            if file.may_hold(begin, end):
                for offset in self._query_file(file, wanted, begin, end):
                    if remaining is not None:
                        if remaining <= 0:
                            return
                        remaining -= 1
                    yield offset
            if (
                header.next_entry > 1
                and header.begin_timestamp < begin
                and not self._time_steps(0, header.begin_physical_offset)
            ):
                return

    def _query_file(self, file: IndexFile, wanted: int, begin: int, end: int) -> Iterator[int]:
        try:
            yield from file.query(wanted, begin, end)
        except FileNotFoundError:
            if file in self._list:
                raise CorruptStoreError(
                    str(file.path), 0, "the file is missing: rebuild the index"
                ) from None
        except (OSError, struct.error, ValueError) as error:
            # the last two: the file was cut and has too few bytes
            raise CorruptStoreError(
                str(file.path), 0, f"it cannot be read ({error}): rebuild the index"
            ) from error

    # ---- durability

    def flush(self) -> int:
        """Fsync everything and note how far it goes; returns the log offset below which the index
        is durable. Raises FlushFailedError if an fsync fails, DiskFullError, StoreBusyError or
        StoreReadOnlyError if nothing was fsynced: then it may be tried again."""
        self._end_truncation()
        with self._flushing:
            while True:
                with self._lock:
                    generation, state = self._generation, self._state()
                try:
                    for file in self._list:
                        file.write_back()
                    self._pool.sync()
                    if state != self._saved and generation == self._generation:
                        save_index_state(self._files, self.state_path, state)
                        self._saved = state
                except OSError as error:
                    raise refusal("the index cannot be made durable", error) from error
                with self._lock:
                    if generation == self._generation:
                        for file in self._list[:-1]:
                            # dispatch may have filled it and begun another one meanwhile
                            if file.is_written_back:
                                file.release()
                        return state.log_offset

    def close(self) -> None:
        """Close all files; what was not flushed is dispatched again at the next open."""
        for file in self._list:
            with suppress(OSError, StoreError):
                file.write_back()
            file.release()
        self._pool.close()

    # ---- shrinking

    def truncate(self, log_offset: int) -> None:
        """Remove every entry of a record that begins at or after `log_offset`, durably.

        Raises StoreError if a file cannot be written, FlushFailedError if the fsync failed. An
        unfinished truncation is completed before the next insert or flush.
        """
        with self._flushing, self._lock:
            self._generation += 1
            try:
                target = self._left_below(log_offset)
                self._vouch_for_less(target)
                self._unfinished = log_offset
                self.next_offset = target.log_offset
                while self._list and self._list[-1].header.end_physical_offset >= log_offset:
                    if self._list[-1].name == target.file:
                        self._list[-1].cut(target.next_entry, target.end_timestamp)
                        break
                    self.drop_newest()
            except OSError as error:
                raise StoreError(f"the index could not be truncated: {error}") from error
            self._unfinished = None
            self._generation += 1
        # The log grows again from here: the old state would speak for other records.
        self.flush()

    def _end_truncation(self) -> None:
        """Complete a truncation that a disk error interrupted. Raises as `truncate` does."""
        unfinished = self._unfinished
        if unfinished is not None:
            self.truncate(unfinished)

    def _left_below(self, log_offset: int) -> IndexState:
        """The state without the entries of records at or after `log_offset`."""
        end = min(self.next_offset, log_offset)
        for file in reversed(self._list):
            if file.header.end_physical_offset < log_offset:
                return _state_of(file, end)
            keep = file.first_at_or_after(log_offset)
            if keep > 1:
                time, physical = self._end_before(file, keep)
                return IndexState(end, file.name, keep, time, physical)
        return IndexState(end)

    def _vouch_for_less(self, target: IndexState) -> None:
        """Lower the state on disk before anything is removed: after a crash in the middle it must
        not claim entries that are gone. An older state stays."""
        if self._saved is not None and self._saved.log_offset <= target.log_offset:
            return
        try:
            for file in self._list:
                file.write_back()
            self._pool.sync()
            save_index_state(self._files, self.state_path, target)
        except OSError as error:
            raise refusal("the index cannot be made durable", error) from error
        self._saved = target

    def cut_newest(self, next_entry: int) -> None:
        """Remove entry `next_entry` and later ones of the newest file. Raises OSError."""
        file = self._list[-1]
        time, _ = self._end_before(file, next_entry)
        file.cut(next_entry, time)

    def _end_before(self, file: IndexFile, next_entry: int) -> tuple[int, int]:
        """Store time (ms) and log offset of the record of the entry before `next_entry`."""
        last = file.read(next_entry - 1, next_entry)
        physical = int(last["physical_offset"][0])
        time = self._time_of(physical)
        if time < 0:
            time = file.header.begin_timestamp + int(last["time_diff"][0]) * 1000
        return time, physical

    def drop_newest(self) -> None:
        """Delete the newest file. Raises OSError."""
        self._drop(-1)

    def mark_all_dirty(self) -> None:
        """After a kill the files' content may be in the page cache only: the next flush fsyncs all
        of them."""
        for file in self._list:
            self._pool.mark_dirty(str(file.path))

    def remake_from(self, file: IndexFile, log_start: int) -> None:
        """Drop a file that cannot be used and all later ones; what they had comes from the log
        again, which begins at `log_start`. Raises OSError, StoreError."""
        with self._flushing, self._lock:
            self._generation += 1
            if file not in self._list:
                return
            while self._list[-1] is not file:
                self.drop_newest()
        self.remake_newest(log_start)

    def remake_newest(self, log_start: int) -> None:
        """Drop the newest file, which is wrong from its first entry on, and continue where the one
        before ends, which was full and fsynced; its last record may have had entries in both.
        Raises OSError."""
        self.drop_newest()
        before = self.newest
        self.next_offset = log_start
        if before is not None:
            self.next_offset = before.header.end_physical_offset
            self.truncate(before.header.end_physical_offset)

    def drop_before(self, log_offset: int) -> int:
        """Delete files that point below `log_offset` only, never the newest; returns how many.
        Raises OSError."""
        deleted = 0
        with self._lock:
            self._generation += 1
            while len(self._list) > 1 and self._list[0].header.end_physical_offset < log_offset:
                self._drop(0)
                deleted += 1
        return deleted

    def _drop(self, at: int) -> None:
        """Delete a file, first from the list for queries. If the disk refuses, it is listed again:
        otherwise it would reappear in the middle of the list at the next open."""
        before = self._list
        self._list = [file for file in before if file is not before[at]]
        try:
            self._pool.delete(str(before[at].path))
        except OSError:
            self._list = before
            raise
        before[at].release()

    def reset(self, log_offset: int) -> None:
        """Forget all files, which are no longer there; the log begins at `log_offset`."""
        with self._lock:
            self._generation += 1
            self.close()
            self._list = []
            self._saved = self._unfinished = None
            self.next_offset = log_offset
            self.stopped = None

    # ---- for the loader

    def open_files(self) -> None:
        """Find the files on disk, and drop drafts that a crash left. Raises CorruptStoreError for
        a file whose length does not fit."""
        for directory in (self._workshop, self._directory):
            for name in self._files.listdir(directory):
                if name.startswith(DRAFT_PREFIX):
                    self._files.unlink(directory / name)
        files = []
        for name in self._files.listdir(self._directory):
            if parse_index_file_name(name) is not None:
                files.append(
                    IndexFile(self._directory / name, self._pool, self.slots, self.entries)
                )
                files[-1].load()
        self._list = files

    # ---- inner parts; the caller holds the lock

    def _files_for(self, count: int) -> list[IndexFile]:
        """Files with room for `count` entries, the newest one and as many new ones as it takes."""
        if not count:
            return []
        newest = self.newest
        files = [newest] if newest is not None and newest.room > 0 else []
        for file in files:
            file.open_table()
        missing = count - sum(file.room for file in files)
        while missing > 0:
            files.append(self._create())
            missing -= files[-1].room
        return files

    def _create(self) -> IndexFile:
        newest = self.newest
        if newest is not None:
            newest.write_back()  # as `_write_header` says
        name = next_index_name(self._clock.now_ms(), newest.name if newest is not None else "")
        file = create_index_file(
            self._directory / name, self._workshop, self._pool, self.slots, self.entries,
            newest.header if newest is not None else IndexHeader(),
        )  # fmt: skip
        logger.info("index file created: %s log_offset=%d", name, self.next_offset)
        self._list = [*self._list, file]
        return file

    def _write_header(self, file: IndexFile) -> None:
        """Write the file's first header, which has the end of the file before: known only now where
        both were created for one batch. The file before is written back first. Otherwise a killed
        process may leave a file with a header behind one without, and RocketMQ, which judges each
        file by the times in its header, would keep the first and miss the second's entries."""
        at = self._list.index(file)
        before = IndexHeader()
        if at > 0:
            self._list[at - 1].write_back()
            before = self._list[at - 1].header
        file.write_header(before)

    def _fail(self, fault: OSError) -> None:
        if not is_full(fault):
            raise StoreError(f"the index could not be written: {fault}") from fault
        self.stopped = StoreError(
            f"no space for an index file of {self._directory}: keys above log offset "
            f"{self.next_offset} are not found until there is space again"
        )
        logger.error("index stopped: %s", self.stopped)

    def _state(self) -> IndexState:
        newest, end = self.newest, self.next_offset
        return IndexState(end) if newest is None else _state_of(newest, end)


def _state_of(newest: IndexFile, log_offset: int) -> IndexState:
    header = newest.header
    return IndexState(
        log_offset, newest.name, header.next_entry, header.end_timestamp, header.end_physical_offset
    )


def next_index_name(now_ms: int, newest: str) -> str:
    """The name for a file made now: later than `newest` ("" for none) even where two are made in
    one millisecond, or the clock or the time zone has gone back."""
    name = index_file_name(now_ms)
    if name > newest:
        return name
    then = datetime.strptime(newest[:14], "%Y%m%d%H%M%S")
    then += timedelta(milliseconds=int(newest[14:]) + 1)
    return f"{then:%Y%m%d%H%M%S}{then.microsecond // 1000:03d}"
