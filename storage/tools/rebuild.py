"""Rebuild the derived files of a store from its log alone.

    consumequeue/ index/  ──moved──▶  rebuild-<ms>/          deleted at the end
                          ◀──rebuilt by dispatch from the first record of the log

The old files are deleted only when the new ones are complete and durable. If a rebuild is
interrupted, nothing is lost: the next open finds no recovery point and rebuilds what is missing.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from ..clock import Clock, SystemClock
from ..config import StoreConfig
from ..disk.file_system import FileSystem, remove_tree
from ..disk.mapped_file_queue import MappedFileQueue
from ..disk.real_file_system import RealFileSystem
from ..dispatch.dispatch_source import DispatchSource
from ..errors import StoreError, StoreLayoutError
from ..index.index_service import IndexService
from ..inspect.geometry import ROCKSDB_MARK, Geometry
from ..inspect.queue_files import open_queue, open_queues
from ..progress import Progress
from ..recovery.analysis import analyze
from ..recovery.index_checking import has_tag_entries
from ..recovery.recovery_report import RecoveryReport
from ..state_files.abort_file import AbortFile
from ..state_files.lock_file import LockFile
from ..state_files.queue_begins import QueueBegins, QueueBeginsFile
from ..state_files.recovery_point import RecoveryPointFile
from ..store_paths import StorePaths
from .faults import set_aside_caution
from .recover import recover


@dataclass(frozen=True, slots=True)
class RebuildReport:
    """What was rebuilt: queue files, index files; and what recovery found on the way."""

    queues: bool
    index: bool
    queue_files: int
    index_files: int
    recovery: RecoveryReport


def rebuild(
    config: StoreConfig,
    *,
    queues: bool = True,
    index: bool = True,
    files: FileSystem | None = None,
    clock: Clock | None = None,
    progress: Progress | None = None,
) -> RebuildReport:
    """Drop queues and index, or one of them, and rebuild them.

    The log is recovered first if it has to be. Calls `progress(bytes done, bytes in all)` during
    dispatch. Raises StoreLockedError while a node has the store open, StoreLayoutError if there
    is no log, or one that was being set aside.
    """
    if not queues and not index:
        raise ValueError("nothing to rebuild: select queues or index")
    files = files if files is not None else RealFileSystem()
    clock = clock if clock is not None else SystemClock()
    paths = StorePaths(config.directory)
    aside = paths.root / f"rebuild-{clock.now_ms()}"
    broken_off = set_aside_caution(paths, files)
    if broken_off is not None:
        raise StoreLayoutError(f"nothing to build from: {broken_off.reason}")
    geometry = Geometry.of(config, files)
    if config.index_enabled:
        geometry.check_index()
    config = geometry.adopted()
    lock = LockFile(paths.lock, AbortFile(paths.abort, files), files)
    lock.acquire()
    try:
        if not files.listdir(paths.commit_log):
            raise StoreLayoutError(
                f"{paths.commit_log} has no files: there is nothing to build from"
            )
        if queues:
            _check_end(geometry, files)
        if index and config.index_enabled and config.index_tags:
            config = replace(config, index_tags=_indexes_tags(config, files, clock))
        if queues:
            _keep_numbers(geometry, files, paths)
        _set_aside(files, paths, aside, queues=queues, index=index)
    finally:
        lock.release()
    report = recover(config, files, clock, progress)
    remove_tree(files, aside)
    rebuilt = Geometry.of(config, files)
    return RebuildReport(
        queues=queues,
        index=index,
        queue_files=sum(
            len(files.listdir(directory)) for _, _, directory in rebuilt.queue_directories()
        ),
        index_files=len(rebuilt.index_files()),
        recovery=report,
    )


def _check_end(geometry: Geometry, files: FileSystem) -> None:
    """The queues' knowledge of the log's end is lost with them. Raises StoreLayoutError if they
    know more of a cleanly stopped log than there is, or if a durable file is missing."""
    analysis = analyze(geometry, files)
    queues_end = max((queue.log_end for queue in open_queues(geometry, files, [])), default=0)
    if analysis.clean and queues_end > analysis.log_end:
        paths = StorePaths(geometry.config.directory)
        raise StoreLayoutError(
            f"the log ends at {analysis.log_end}, but the queues know it up to {queues_end}: "
            f"restore the end of {paths.commit_log}, or remove {paths.queues} if it is lost"
        )


def _keep_numbers(geometry: Geometry, files: FileSystem, paths: StorePaths) -> None:
    """Save what the log does not tell about the queues to be removed: the numbers of those whose
    records have all expired, from the recovery point if the queue cannot be read."""
    mapped = MappedFileQueue(files, paths.commit_log, geometry.log_file_size, read_only=True)
    log_start = mapped.start
    mapped.close()
    begins_file = QueueBeginsFile(paths.queue_begins, files)
    point, earlier = RecoveryPointFile(paths.recovery_point, files).load(), begins_file.load()
    begins = {topic: dict(queues) for topic, queues in earlier.begins.items()} if earlier else {}
    noted = point.queues if point is not None else {}
    for topic, queue_id, directory in geometry.queue_directories():
        try:
            queue = open_queue(files, topic, queue_id, directory, geometry.queue_file_size)
        except StoreError:
            end = noted.get(topic, {}).get(queue_id, 0)
        else:
            end = queue.end if queue is not None and queue.log_end <= log_start else 0
        if end > 0:
            begins.setdefault(topic, {})[queue_id] = end
    if begins and log_start:
        begins_file.save(QueueBegins(log_start, begins))


class _LogFiles:
    """The log as dispatch reads it, from its files alone."""

    def __init__(self, mapped: MappedFileQueue) -> None:
        self._mapped = mapped

    @property
    def file_size(self) -> int:
        return self._mapped.file_size

    @property
    def min_offset(self) -> int:
        return self._mapped.start

    def read(self, offset: int, max_bytes: int) -> memoryview:
        return self._mapped.view(offset, max_bytes)


def _indexes_tags(config: StoreConfig, files: FileSystem, clock: Clock) -> bool:
    """Whether the index to be removed has entries of tags; True if that is unknown."""
    paths = StorePaths(config.directory)
    mapped = MappedFileQueue(files, paths.commit_log, config.commit_log_file_size, read_only=True)
    index = IndexService(
        paths.index, paths.own, files, clock,
        slots=config.index_slots, entries=config.index_entries, time_of=lambda _: -1,
    )  # fmt: skip
    try:
        index.open_files()
        return has_tag_entries(index, DispatchSource(_LogFiles(mapped)), mapped.end) is not False
    except StoreError:
        return True
    finally:
        index.close()
        mapped.close()


def _set_aside(
    files: FileSystem, paths: StorePaths, aside: Path, *, queues: bool, index: bool
) -> None:
    """The recovery point first: without it the next open checks everything."""
    files.make_directory(aside)
    if queues and files.status(paths.recovery_point) is not None:
        files.rename(paths.recovery_point, aside / paths.recovery_point.name)
        files.fsync_directory(paths.own)
    if queues and files.status(paths.queues / ROCKSDB_MARK) is not None:
        _set_queues_aside(files, paths.queues, aside / paths.queues.name)
        queues = False
    moved = [paths.queues] if queues else []
    moved += [paths.index, paths.index_state] if index else []
    for path in moved:
        if files.status(path) is not None:
            files.rename(path, aside / path.name)
            files.fsync_directory(path.parent)
    files.fsync_directory(aside)


def _set_queues_aside(files: FileSystem, queues: Path, aside: Path) -> None:
    """Only the folders of topics: the RocksDB beside them is the broker's, and stays."""
    files.make_directory(aside)
    for name in files.listdir(queues):
        status = files.status(queues / name)
        if status is not None and status.is_directory:
            files.rename(queues / name, aside / name)
    files.fsync_directory(queues)
