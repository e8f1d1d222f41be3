"""The commit log: one long sequence of records, the only truth of a store.

    min_offset                                   flushed    committed     wrote
        |  file N  |  file N+1  |  file N+2 ........|...........|...........|
                                                    fsynced     readable    appended

    direct    append pwrites at once: committed = wrote
    buffered  append goes to memory, a commit stage pwrites: committed lags, readers see no more

Positions are byte offsets. One thread appends (a lock makes sure), one flushes, any number read
without a lock. Nothing is published before it is written, and a refused append leaves no bytes:
bytes that a failed write may have left are set to zero again, and if that fails too, the log
accepts no more writes. After a failed fsync it never does: the kernel may have dropped the pages
that it could not write, so a later successful fsync would prove nothing.

Bytes after the end are zero, durably: a truncation clears the rest of the file. Otherwise a later
record that ends exactly where an old one began would bring the old one back at the next recovery,
at the right position and with a valid CRC.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.property_crcs import write_property_crcs
from tandemlog.format.constants import BLANK_SIZE, CRC_PROPERTY_SIZE
from tandemlog.format.record.batch import AppendSegment, RecordBatch
from tandemlog.format.record.host import IPV6_SIZE, host_bytes
from tandemlog.format.record.record import encode_blank

from ..clock import Clock
from ..config import StoreConfig
from ..disk.allocator import FileAllocator
from ..disk.file_system import Buffer, FileSystem
from ..disk.mapped_file import MappedFile
from ..disk.mapped_file_queue import MappedFileQueue, StaleNameError
from ..disk_errors import crowded, is_crowded, refusal
from ..errors import (
    FlushFailedError,
    NotMendedError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreLayoutError,
    StoreReadOnlyError,
)
from ..store_paths import StorePaths
from .append_plan import AppendPlan, assign_offsets, plan_append, plan_raw
from .batch_check import CheckedBatch, check_batch
from .crc_room import with_room
from .recent_starts import RecentStarts
from .record_check import RecordLimits
from .record_search import next_record
from .stages import LogStages

logger = logging.getLogger(__name__)

NO_END: Final = 1 << 62
"""Above every log offset."""


class CommitLog(LogStages):
    """The log in `config.directory`, opened; see the module.

    Every position is the end of the last file until recovery calls `truncate` where the records
    end. Raises StoreLayoutError if the files do not fit together.
    """

    def __init__(self, config: StoreConfig, files: FileSystem, clock: Clock) -> None:
        paths = StorePaths(config.directory)
        self._config = config
        self._allocator = FileAllocator(
            files,
            paths.own,
            config.commit_log_file_size,
            paths.commit_log,
            warm_up=config.warm_up,
            lock_memory=config.lock_memory,
        )
        mapped = MappedFileQueue(
            files, paths.commit_log, config.commit_log_file_size, allocator=self._allocator
        )
        self._allocator.open()
        self._allocator.resize(mapped.file_size)
        super().__init__(mapped, clock, buffered=config.buffered)
        self._store_host = host_bytes(config.store_host)
        self.limits = self._limits()
        """What `check` compares a client's batch with."""
        self.starts = RecentStarts()
        """Where the records of the last appends begin; not known for raw bytes."""
        self.cuts = 0
        """Grows with each cut of the log: below `committed` its bytes never change otherwise."""
        self._parts_end = -1
        self._synced_since_open = False
        self._write_lock = threading.Lock()

    # -- what it holds

    @property
    def file_size(self) -> int:
        return self._mapped.file_size

    @property
    def files(self) -> tuple[MappedFile, ...]:
        """The files, oldest first."""
        return self._mapped.files

    @property
    def mapped(self) -> MappedFileQueue:
        return self._mapped

    def _limits(self) -> RecordLimits:
        return RecordLimits(
            max_body=self._config.max_message_size,
            max_batch=self._config.max_batch_size,
            max_record=self.file_size
            - BLANK_SIZE
            - (CRC_PROPERTY_SIZE if self._config.property_crc else 0),
            store_host_ipv6=len(self._store_host) == IPV6_SIZE,
        )

    def start(self) -> None:
        """Start allocating ahead in the background."""
        self._allocator.start()
        self._prepare_next()

    # -- appending

    def check(self, batch: RecordBatch, *, own: bool = False) -> CheckedBatch:
        """Raises BatchRefusedError if the batch is not what its columns say. `own`: it comes from a
        service of this node, which may say more than a client."""
        limits = replace(self.limits, services=True) if own else self.limits
        checked = check_batch(batch, limits)
        return with_room(checked) if self._config.property_crc else checked

    def append(
        self,
        checked: CheckedBatch,
        dense: NDArray[np.int64],
        next_queue_offsets: NDArray[np.int64],
        store_timestamp: int,
    ) -> list[AppendSegment]:
        """Store a checked batch, all of it or nothing; returns where it is.

        `next_queue_offsets` i8[queues]: what the next record of each queue gets, moved behind the
        batch; `dense` i8[q]: the index of each entry of the batch's table, all different. Raises
        StoreBusyError (too much not yet flushed), DiskFullError, StoreReadOnlyError; nothing is
        stored then.
        """
        data = checked.data
        if data is None:
            data = np.frombuffer(checked.batch.records, np.uint8).copy()
        with self._write_lock:
            self._require_room(len(data))
            plan = plan_append(checked.positions + checked.sizes, self.wrote.value, self.file_size)
            starts = [
                checked.positions[each.first : each.first + each.count] + (each.offset - each.start)
                for each in plan.pieces
            ]
            next_offsets = next_queue_offsets[dense]
            segments = assign_offsets(
                checked,
                plan,
                data,
                next_offsets,
                store_timestamp=store_timestamp,
                store_host=self._store_host,
            )
            if self._config.property_crc:
                write_property_crcs(data, checked.positions, checked.sizes)
            self._store(plan, data)
            for each in starts:
                self.starts.add(each)
            next_queue_offsets[dense] = next_offsets
            self._published(plan.end)
            self.store_timestamp = store_timestamp
        return segments

    def next_record(self, offset: int, below: int) -> int | None:
        """Where the first whole record behind log offset `offset` begins; None if none begins below
        `below`. Raises UnreadableError."""
        return next_record(self.mapped, offset, below)

    def ends_with_record(self, offset: int) -> bool:
        """Whether a record is known to end at `offset`, at or below which the log was flushed: not
        while its last bytes are pieces of another node's log, or it was cut anywhere."""
        return offset > self._parts_end

    def judged_whole(self) -> None:
        """A record is known to end where the log ends."""
        self._parts_end = -1

    def append_raw(self, offset: int, data: Buffer, *, whole: bool = False) -> int:
        """Store bytes of another node's log unchanged; returns the new end. They are `whole` if a
        record, or a BLANK, ends with them.

        `offset` must be where this log ends; one that is empty may begin at the start of any
        file. A chunk never crosses the end of a file. Raises OffsetOutOfRangeError and
        StoreLayoutError if that does not hold, else as `append`.
        """
        size = len(data)
        with self._write_lock:
            self._require_room(size)
            if offset != self.wrote.value:
                self._begin_at(offset)
            position = offset % self.file_size
            if position + size > self.file_size:
                raise StoreLayoutError(
                    f"{size} bytes at {offset} cross the end of a log file of {self.file_size}"
                )
            if size:
                piece = np.frombuffer(data, np.uint8)
                if not whole:
                    self._parts_end = offset + size
                self._store(plan_raw(offset, size), piece)
                self._published(offset + size)
        return offset + size

    def _store(self, plan: AppendPlan, data: NDArray[np.uint8]) -> None:
        """Write pieces and blanks. The files are opened first: without room, or a descriptor for
        each of them, nothing is written."""
        try:
            first = self._mapped.ensure(self.wrote.value)
            last = self._mapped.ensure(plan.end - 1)
            first.open()
            while first is not last:
                first = self._mapped.ensure(first.end)
                first.open()
        except OSError as error:
            raise refusal("cannot open the next log file", error) from error
        try:
            for piece in plan.pieces:
                self._write(piece.offset, data[piece.start : piece.end].data)
            for blank in plan.blanks:
                # zeros to the file's end, perhaps over bytes of an earlier use of the file
                self._write(blank.offset, encode_blank(blank.size).ljust(blank.size, b"\0"))
        except OSError as error:
            self._undo(plan, error)
            raise refusal(f"cannot write to the log at {self.wrote.value}", error) from error

    def _write(self, offset: int, data: Buffer) -> None:
        if self.buffer is not None:
            self.buffer.add(offset, bytes(data))
            return
        file = self._mapped.ensure(offset)
        file.write(offset - file.base, data)

    def _undo(self, plan: AppendPlan, error: OSError) -> None:
        """Zero again where a failed append may have written, durably: a part of it may be on
        disk already, and would be a record after a power cut."""
        stretches = [(piece.offset, piece.end - piece.start) for piece in plan.pieces]
        stretches += [(blank.offset, blank.size) for blank in plan.blanks]
        try:
            for offset, size in stretches:
                file = self._mapped.ensure(offset)
                file.zero(offset - file.base, size)
                file.sync()
        except (OSError, StoreError) as second:
            # as a failed fsync: a part of the write may be in the page cache, and not on the disk
            self.fail(
                FlushFailedError(
                    f"a write at {self.wrote.value} failed ({error}) and could not be taken back "
                    f"({second}): restart the node on a disk that works"
                )
            )

    def _published(self, end: int) -> None:
        self.publish(end)
        self._prepare_next()

    def _prepare_next(self) -> None:
        """Ask for the next file once half of this one is used, or at once where files are
        warmed."""
        room = self._mapped.end - self.wrote.value
        if room < self.file_size // 2 or (self._config.warm_up and room <= self.file_size):
            self._allocator.prepare()

    def _begin_at(self, offset: int) -> None:
        if self._mapped.files or self.wrote.value != 0:
            raise OffsetOutOfRangeError(offset, self.min_offset, self.wrote.value)
        require_file_start(offset, self.file_size)
        self.begin_at(offset)

    def _require_room(self, size: int) -> None:
        """Wait a little for the disk where too much is not flushed yet."""
        self.require_writable()
        wrote, limit = self.wrote.value, self._config.max_dirty_bytes
        if wrote - self.flushed.value + size <= limit:
            return
        enough = min(wrote, wrote + size - limit)
        if not self.flushed.wait(enough, self._config.busy_timeout_ms / 1000):
            raise StoreBusyError(
                f"{wrote - self.flushed.value} bytes are not flushed yet, the limit is "
                f"{limit}: the disk is too slow, try again later"
            )

    # -- cutting

    def truncate(self, offset: int) -> list[Path]:
        """Cut everything from `offset` on, durably; returns the files that were deleted.

        The first call after opening also makes what stays durable: a process that was killed
        leaves bytes that only the page cache has. Raises OffsetOutOfRangeError outside the log,
        FlushFailedError if the disk fails.
        """
        with self._write_lock, self.flush_lock:
            self.require_writable()
            if not self.min_offset <= offset <= self.wrote.value:
                raise OffsetOutOfRangeError(offset, self.min_offset, self.wrote.value)
            file = self._mapped.find(offset)
            try:
                if file is not None:
                    file.open()
            except OSError as error:
                if is_crowded(error):  # before anything has changed
                    raise crowded(f"the log is not cut at {offset}", error) from error
                raise self.flush_failed("truncation", error) from error
            try:
                self._parts_end = offset
                return self._cut(offset)
            except OSError as error:
                raise self.flush_failed("truncation", error) from error

    def _cut(self, offset: int) -> list[Path]:
        self.starts.clear()
        self.cuts += 1
        if self.buffer is not None:
            self.commit()
        self.retreat(offset)
        self.unbar(offset, NO_END)
        if not self._synced_since_open:
            self._mapped.sync_loaded()
            self._synced_since_open = True
        file = self._mapped.find(offset)
        if file is not None:
            file.zero(offset - file.base, file.end - offset)
            file.sync()
        deleted = self._mapped.truncate_after(offset)
        logger.info("log cut: offset=%d files_deleted=%d", offset, len(deleted))
        return deleted

    def reset(
        self, offset: int, *, move_to: Path | None = None, file_size: int | None = None
    ) -> None:
        """Start over, empty, at `offset` (the start of a file); optionally with another file
        size. The old files are deleted, or moved into the directory `move_to`.

        Raises StoreReadOnlyError if the disk does not allow it, which is permanent: some files
        may be gone. No FlushFailedError, also where it was an fsync: the old contents are discarded
        either way, so a failed fsync here hides nothing, and the next open does all of it again.
        """
        with self._write_lock, self.flush_lock, self.commit_lock:
            self.require_writable()
            require_file_start(offset, file_size or self.file_size)
            self.starts.clear()
            self.cuts += 1
            if self.buffer is not None:
                self.buffer.clear()
            self.retreat(offset)
            self.unbar(0, NO_END)
            try:
                self._mapped.clear(move_to)
                if file_size is not None and file_size != self.file_size:
                    self._mapped.file_size = file_size
                    self._allocator.resize(file_size)
                    self.limits = self._limits()
            except OSError as error:
                raise self.fail(
                    StoreReadOnlyError(
                        f"the log could not start over: {error}; restart the node, which completes "
                        "this"
                    )
                ) from error
            self.begin_at(offset)
            self._parts_end = -1
            self.store_timestamp = self.flushed_timestamp = 0

    def replace_file(
        self, file: MappedFile, draft: Path, cuts: int, complete: Callable[[int], None]
    ) -> None:
        """Put `draft`, which was begun when `cuts` were counted, in place of `file`, durably. While
        nothing is written and flushed, `complete(end)` copies into it what the file has below log
        offset `end`, and fsyncs it.

        Raises NotMendedError or OSError, and nothing has changed then. FlushFailedError, which is
        permanent, if the name is not durable: what is flushed next would be in a file that a power
        cut may take back.
        """
        with self._write_lock, self.flush_lock, self.commit_lock:
            self.require_writable()
            if cuts != self.cuts or file not in self._mapped.files:
                raise NotMendedError(f"{file.path} was cut or dropped meanwhile")
            complete(min(self.committed.value, file.end))
            try:
                self._mapped.replace(file, draft)
            except StaleNameError as error:
                failure = FlushFailedError(f"{error}: restart the node on a disk that works")
                raise self.fail(failure) from error
            self.retry_unreadable()

    def drop_before(self, offset: int) -> list[Path]:
        """Delete the files that end at or before `offset`, never the newest one, never one that
        is not flushed; returns which. Views that readers hold stay valid."""
        return self._mapped.drop_before(min(offset, self.flushed.value))

    def close(self) -> None:
        """Accept no more writes and close the files. Flush first."""
        with self._write_lock, self.flush_lock:
            if self.failure is None:
                self.failure = StoreClosedError("the log is closed")
            self._allocator.close()
            self._mapped.close()


def require_file_start(offset: int, file_size: int) -> None:
    """Raises StoreLayoutError if no log file of `file_size` bytes begins at `offset`."""
    if offset < 0 or offset % file_size:
        raise StoreLayoutError(
            f"a log must begin at the start of a file: {offset} is not a multiple of {file_size}"
        )
