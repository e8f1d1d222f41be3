"""Make a node's folder from a log that was archived.

    DIR.restoring/tandemlog/restored.json     1  the plan: which bytes each log file gets
    DIR.restoring/commitlog/...               2  the log files, several at a time, each durable
    DIR.restoring/config/...                  3  tables, terms, prologue, recovery point
    DIR.restoring/consumequeue/...            4  queues, index, folds, by the recovery of each start
    DIR/                                      5  its name, when all of it is durable

DIR must be empty or absent. A run that was interrupted is continued by the next one: a log file has
its name only when it is whole, so those of the same plan are kept; all the rest is rebuilt.

The log is cut at `end`, where a record ends, and with it the terms that begin there or later. The
tables are older than the end, or as old: topics that were created in between come back by their
messages, and consumer offsets above the ends of the queues are lowered to them, and to what the log
had where its next term began after the tables were read: they may count messages that were cut.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Final

from tandemlog.format.constants import Buffer
from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog.format.files.log_history import LogHistory
from tandemlog.format.files.names import offset_file_name

from ..clock import Clock
from ..config import ConfirmSource, StoreConfig
from ..disk.file_system import FileSystem, remove_tree
from ..disk.real_file_system import RealFileSystem
from ..disk.small_files import backup_of, write_small
from ..disk_errors import refusing
from ..errors import DiskFullError, StoreError, StoreLayoutError, StoreLockedError
from ..message_store import MessageStore
from ..metadata.json_file import parse
from ..metadata.log_identity import encode_identity
from ..metadata.topics import decode_topics
from ..progress import Progress
from ..recovery.prologue import write_prologue
from ..recovery.recovery import lost_topics
from ..state_files.recovery_point import RecoveryPoint, RecoveryPointFile
from ..state_files.restored import Restored, RestoredFile
from ..store_paths import StorePaths

SUFFIX = ".restoring"
PIECE_BYTES: Final = 1 << 20
"""Of one write: with 16 MiB ext4 takes four times the processor time for the same bytes, since it
then looks for as large parts of memory."""
_OF_THE_LOG = frozenset({"commitlog", "tandemlog"})


@dataclass(frozen=True, slots=True)
class ArchivedLog:
    """What there is to restore; offsets are positions in the log.

    source        where it comes from, for people, without secrets
    begin, end    of the log: `begin` is the start of a file, at `end` a record ends
    file_size     of a commit log file, bytes
    history       its terms, also those beyond `end`
    parts         (log offset, checked bytes) from one offset up to another, in order, without a gap
    print_of      text that is the same only for the same bytes: of which objects, up to where
    topics, groups, consumer_offsets    JSON texts of the tables at or below `end`; None: not there
    offsets_at    up to where the log was archived when those offsets were read; None: to `end`
    later_topics  the next table of topics above `end`, for those that were created in between
    prologue      what came before `begin`; None: not known, or nothing did
    last_start    where a record near the end begins: what lies before it was walked through when it
                  was archived, and is dispatched without being walked through twice
    """

    source: str
    begin: int
    end: int
    file_size: int
    history: LogHistory
    parts: Callable[[int, int], Iterable[tuple[int, Buffer]]]
    print_of: Callable[[int, int], str]
    topics: bytes | None = None
    groups: bytes | None = None
    consumer_offsets: bytes | None = None
    offsets_at: int | None = None
    later_topics: bytes | None = None
    prologue: bytes | None = None
    last_start: int = 0

    def __post_init__(self) -> None:
        if self.begin % self.file_size or not self.begin < self.end:
            raise FormatError(
                f"a log from {self.begin} to {self.end} in files of {self.file_size} bytes"
            )

    @property
    def bases(self) -> range:
        """Where its files begin."""
        return range(self.begin, self.end, self.file_size)

    @property
    def offsets_end(self) -> int:
        """Up to where (log offset) a consumer offset can be of this log. Those that were read
        while a longer log was there, which was then cut, count messages that are gone: from the
        next term on others have their numbers."""
        read_at = self.end if self.offsets_at is None else self.offsets_at
        starts = (each.start_offset for each in self.history.terms)
        return min((at for at in starts if read_at <= at < self.end), default=self.end)

    def end_of(self, base: int) -> int:
        return min(base + self.file_size, self.end)

    def plan(self) -> Restored:
        prints = {base: self.print_of(base, self.end_of(base)) for base in self.bases}
        return Restored(self.source, self.begin, self.end, self.history.newest[0], prints)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """`was_there`: the folder had been restored by an earlier run. `topics_added` were created
    again by their messages, `offsets_lowered` of consumers to the ends of their queues."""

    restored: Restored
    was_there: bool = False
    topics_added: tuple[str, ...] = ()
    offsets_lowered: int = 0


def restore_archive(
    log: ArchivedLog,
    config: StoreConfig,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    *,
    writers: int = 1,
    progress: Progress | None = None,
) -> RestoreReport:
    """Restore into `config.directory`; `writers` log files are written at a time, with one in this
    thread. `progress(done, whole)` counts the log's bytes twice: written, then dispatched.

    Raises StoreLayoutError for a folder that is not empty, StoreLockedError while another process
    restores it, DiskFullError, StoreReadOnlyError, StoreError, and what `log.parts` raises: a
    second run then continues.
    """
    files = files if files is not None else RealFileSystem()
    directory = config.directory
    plan = log.plan()
    if files.listdir(directory):
        known = _restored_before(files, directory, plan)
        return RestoreReport(known, was_there=True)
    draft = directory.with_name(directory.name + SUFFIX)
    with refusing(f"{draft} cannot be written"), ExitStack() as stack:
        # not the folder itself: the store that is opened in it locks that
        own = StorePaths(draft).own
        files.make_directory(own)
        release = files.lock_directory(own)
        if release is None:
            raise StoreLockedError(f"another process restores into {draft}")
        stack.callback(release)
        run = _Run(log, plan, replace(config, directory=draft), files, clock, progress)
        report = run.whole() or run.make(writers)
        if files.status(directory) is not None:
            files.remove_directory(directory)
        files.rename(draft, directory)
        files.fsync_directory(directory.parent)
    return report


def _restored_before(files: FileSystem, directory: Path, plan: Restored) -> Restored:
    """A run that ended between the new name and its report. Raises StoreLayoutError."""
    paths = StorePaths(directory)
    known = RestoredFile(paths.restored, files).load()
    point = RecoveryPointFile(paths.recovery_point, files).load()
    if known is None or not (known.whole and known.is_same_plan(plan)):
        raise StoreLayoutError(
            f"{directory} is not empty: restore into a new folder, or move its content away"
        )
    if point is None or point.flushed != plan.end or files.status(paths.abort) is not None:
        raise StoreLayoutError(
            f"{directory} was restored from this archive, and a node has written to it since: "
            "restore into a new folder, or move its content away"
        )
    return known


def _pieces(data: Buffer) -> Iterator[memoryview]:
    view = memoryview(data)
    for at in range(0, len(view), PIECE_BYTES):
        yield view[at : at + PIECE_BYTES]


class _Run:
    """One run into the draft, `config.directory`."""

    def __init__(
        self,
        log: ArchivedLog,
        plan: Restored,
        config: StoreConfig,
        files: FileSystem,
        clock: Clock | None,
        progress: Progress | None,
    ) -> None:
        self._log, self._plan, self._files, self._clock = log, plan, files, clock
        self._paths = StorePaths(config.directory)
        self._note = RestoredFile(self._paths.restored, files)
        self._config = replace(
            config,
            commit_log_file_size=log.file_size,
            confirm=ConfirmSource.LOCAL,
            # `parts` gives checked bytes
            verify_crc_on_recover=False,
        )
        self._progress = progress
        self._written = 0
        self._counting = Lock()

    def whole(self) -> RestoreReport | None:
        """If an earlier run made all of it, save its name."""
        known = self._note.load()
        if known is None or not (known.whole and known.is_same_plan(self._plan)):
            return None
        return RestoreReport(known, was_there=True)

    def make(self, writers: int) -> RestoreReport:
        self._prepare()
        self._write_log(writers)
        self._write_small_files()
        report = self._rebuild()
        self._note.save(report.restored)
        return report

    def _prepare(self) -> None:
        """Remove all but the log files of this plan, then note it."""
        files, paths, known = self._files, self._paths, self._note.load()
        kept = {} if known is None else known.files
        for name in files.listdir(paths.root):
            if name not in _OF_THE_LOG:
                remove_tree(files, paths.root / name)
        for name in files.listdir(paths.own):
            if paths.own / name != paths.restored:
                remove_tree(files, paths.own / name)
        names = {offset_file_name(base): base for base in self._plan.files}
        for name in files.listdir(paths.commit_log):
            base = names.get(name, -1)
            if base not in kept or kept[base] != self._plan.files[base]:
                remove_tree(files, paths.commit_log / name)
        for folder in (paths.root, paths.own, paths.commit_log):
            files.make_directory(folder)
            files.fsync_directory(folder)
        self._note.save(self._plan)

    def _write_log(self, writers: int) -> None:
        missing = []
        for base in self._log.bases:
            path = self._paths.commit_log / offset_file_name(base)
            if self._files.status(path) is None:
                missing.append(base)
            else:
                self._count(self._log.end_of(base) - base)
        if writers == 1:
            for base in missing:
                self._write_file(base)
        else:
            with ThreadPoolExecutor(writers, "restore") as pool:
                try:
                    list(pool.map(self._write_file, missing))
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
        self._files.fsync_directory(self._paths.commit_log)

    def _write_file(self, base: int) -> None:
        """One log file; it gets its name when it is whole and durable."""
        files, log, end = self._files, self._log, self._log.end_of(base)
        name = offset_file_name(base)
        draft = self._paths.own / f"restoring-{name}"
        at = base
        with refusing(f"{draft} cannot be written"):
            handle = files.open(draft, create=True)
            try:
                files.truncate(handle, 0)
                files.preallocate(handle, log.file_size)
                for offset, data in log.parts(base, end):
                    if offset != at or len(data) > end - at:
                        break
                    for piece in _pieces(data):
                        files.pwrite(handle, piece, at - base)
                        at += len(piece)
                        self._count(len(piece))
                if at != end:
                    raise StoreError(f"{log.source} has no byte of the log at {at}")
                files.fdatasync(handle)
            finally:
                files.close(handle)
            files.rename(draft, self._paths.commit_log / name)

    def _write_small_files(self) -> None:
        files, paths, log = self._files, self._paths, self._log
        for path, data in (
            (paths.topics, log.topics),
            (paths.groups, log.groups),
            (paths.consumer_offsets, log.consumer_offsets),
            (paths.log_identity, encode_identity(log.history)),
        ):
            if data is not None:
                parse(data)
                write_small(files, path, data)
                write_small(files, backup_of(path), data)
        terms = EpochTable(EpochEntry(each.epoch, each.start_offset) for each in log.history.terms)
        epochs = terms.truncate_suffix(log.end).truncate_prefix(log.begin)
        if len(epochs):
            write_small(files, paths.epochs, epochs.encode())
            write_small(files, backup_of(paths.epochs), epochs.encode())
        if log.prologue is not None and log.begin:
            write_prologue(files, paths, log.prologue, log.begin)
        point = RecoveryPoint(
            log.begin,
            log.end,
            log.end,
            whole=True,
            offsets=log.consumer_offsets is not None,
            walked=max(log.begin, log.last_start),
        )
        RecoveryPointFile(paths.recovery_point, files).save(point)

    def _rebuild(self) -> RestoreReport:
        """Dispatch all of the log, once, by opening the store."""
        store = MessageStore.open(
            self._config,
            files=self._files,
            clock=self._clock,
            progress=None if self._progress is None else self._dispatched,
        )
        try:
            report = self._finish(store)
        finally:
            store.close()
        point = RecoveryPointFile(self._paths.recovery_point, self._files).load()
        if point is None or (point.dispatched, point.flushed) != (self._log.end, self._log.end):
            raise StoreError(
                f"{self._paths.root} could not be closed cleanly: restore again, which continues it"
            )
        return report

    def _finish(self, store: MessageStore) -> RestoreReport:
        log, recovery = self._log, store.recovery
        if recovery.waits:
            raise DiskFullError(recovery.waits)
        if (store.log.min_offset, store.log.wrote.value) != (log.begin, log.end):
            raise StoreError(
                f"{log.source} has bytes that are no records: its log is one from "
                f"{store.log.min_offset} to {store.log.wrote.value}, not {log.begin} to {log.end}"
            )
        if store.damages:
            raise StoreError(f"{log.source} has bytes that are no records: {store.damages[0]}")
        now_ms = store.clock.now_ms()
        later = {} if log.later_topics is None else decode_topics(parse(log.later_topics))
        added = [
            later.get(each.name, each) for each in lost_topics(store.topics, store.queue_table)
        ]
        if added:
            store.topics.restore(added, now_ms)

        lowered = self._lower_offsets(store)
        store.consumer_offsets.save(now_ms)
        restored = replace(
            self._plan, whole=True, records=recovery.dispatched, topics=len(store.topics.names())
        )
        return RestoreReport(
            restored,
            topics_added=tuple(each.name for each in added),
            offsets_lowered=lowered,
        )

    def _lower_offsets(self, store: MessageStore) -> int:
        """Of consumers to what the log has; returns how many. What transactions in the log have
        set stays."""
        offsets, queues, end = store.consumer_offsets, store.queues, self._log.offsets_end
        lowered = 0
        for each in (row for group in offsets.groups() for row in offsets.fetch(group)):
            dense = store.queue_table.get(each.topic, each.queue_id)
            limit = 0 if dense < 0 else queues.first_at_or_after(dense, end)
            if each.queue_offset > limit:
                offsets.commit(each.group, each.topic, each.queue_id, limit)
                now = offsets.offset(each.group, each.topic, each.queue_id)
                lowered += now != each.queue_offset
        return lowered

    def _count(self, size: int) -> None:
        if self._progress is None:
            return
        with self._counting:
            self._written += size
            self._progress(self._written, 2 * (self._log.end - self._log.begin))

    def _dispatched(self, done: int, whole: int) -> None:
        assert self._progress is not None
        size = self._log.end - self._log.begin
        self._progress(size + size * done // max(whole, 1), 2 * size)
