"""Compares the sizes that the files of a store show with those in the configuration.

    log and queue files    have their full length from the start: the files win over the settings
    delay levels           come from the schedule queues, as far as those have been used
    index files            40 + 4 slots + 20 entries: one length, two unknowns; the settings must
                           fit, otherwise no index is read or written

So for a store of another broker only its slots and entries must be given.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from tandemlog.format.files.index_layout import index_file_size
from tandemlog.format.files.names import parse_index_file_name, parse_offset_file_name
from tandemlog.format.files.queue_unit import UNIT_SIZE, DelayLevels

from ..config import LOG_FILE_SIZES, StoreConfig
from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import file_size_of
from ..errors import StoreLayoutError
from ..store_paths import StorePaths
from .schedule_delays import stored_delays

SAMPLED_QUEUES = 8
ROCKSDB_MARK = "CURRENT"
"""Every RocksDB has a file of this name; RocketMQ can keep its queues in one (5.3 and later)."""


def config_in_rocksdb(files: FileSystem, paths: StorePaths) -> Path | None:
    """The first folder below config/ in which a broker (`storeType` defaultRocksDB) keeps topics,
    groups or offsets in place of the JSON files; None if there is none."""
    folders = (paths.topics.parent / name for name in files.listdir(paths.topics.parent))
    return next((each for each in folders if files.status(each / ROCKSDB_MARK)), None)


CONFIG_WAY_OUT = (
    "topics, groups and offsets are in a RocksDB, which is not read: let the broker write them as "
    "JSON (mqadmin rocksDBConfigToJson, or a broker with storeType=default), or follow the running "
    "broker, whose tables then come with its log"
)


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes that hold, and in `notes` where they are not the configured ones."""

    config: StoreConfig
    files: FileSystem
    log_file_size: int
    queue_file_size: int
    delay_levels: str
    notes: tuple[str, ...]

    @classmethod
    def of(cls, config: StoreConfig, files: FileSystem) -> "Geometry":
        """Read the sizes; raises StoreLayoutError if files contradict each other."""
        paths = StorePaths(config.directory)
        notes = []
        log_size = _row_size(files, paths.commit_log) or config.commit_log_file_size
        if log_size != config.commit_log_file_size:
            notes.append(
                f"log files have {log_size} bytes, not the configured "
                f"{config.commit_log_file_size}: the size on disk is used"
            )
        queue_size = _queue_file_size(files, paths.queues) or config.queue_file_size
        if queue_size != config.queue_file_size:
            notes.append(
                f"queue files have {queue_size} bytes, not the configured "
                f"{config.queue_file_size}: the size on disk is used"
            )
        if files.status(paths.queues / ROCKSDB_MARK) is not None:
            notes.append(
                f"{paths.queues} is a RocksDB, which is not read: recovery makes the queues from "
                "the log, as files"
            )
        configured = DelayLevels(config.delay_levels)
        levels = configured.with_delays(stored_delays(files, paths, log_size, queue_size))
        if levels.text != configured.text:
            notes.append(
                f"delay levels were {levels.text!r} when the schedule queues were written, not the "
                f"configured {configured.text!r}: what the queues say is used"
            )
        return cls(config, files, log_size, queue_size, levels.text, tuple(notes))

    def adopted(self) -> StoreConfig:
        """The configuration with what the files say."""
        return replace(
            self.config,
            commit_log_file_size=self.log_file_size,
            queue_file_size=self.queue_file_size,
            delay_levels=self.delay_levels,
        )

    def queue_directories(self) -> Iterator[tuple[str, int, Path]]:
        return queue_directories(self.files, StorePaths(self.config.directory).queues)

    def index_files(self) -> list[Path]:
        """The index files, oldest first; names that are no time are left out."""
        directory = StorePaths(self.config.directory).index
        return [
            directory / name
            for name in self.files.listdir(directory)
            if parse_index_file_name(name) is not None
        ]

    def check_index(self) -> None:
        """Raises StoreLayoutError if an index file has not the length of the settings."""
        wanted = index_file_size(self.config.index_slots, self.config.index_entries)
        for path in self.index_files():
            status = self.files.status(path)
            if status is not None and status.size not in (0, wanted):
                raise StoreLayoutError(
                    f"{path} has {status.size} bytes; {self.config.index_slots} slots and "
                    f"{self.config.index_entries} entries make {wanted}: give the sizes that the "
                    "store was written with (index_slots and index_entries), or, if the file is "
                    "damaged, remove this index file and all later ones, which are rebuilt from "
                    "the log"
                )


def queue_directories(files: FileSystem, root: Path) -> Iterator[tuple[str, int, Path]]:
    """(topic, queue id, directory) of every queue below `root`, sorted."""
    for topic in _directories(files, root):
        directory = root / topic
        # thousands of queues: not each is checked, only queues have a number as name
        names = [name for name in files.listdir(directory) if name.isdecimal()]
        for name in sorted(names, key=int):
            yield topic, int(name), directory / name


def _directories(files: FileSystem, parent: Path) -> list[str]:
    entries = [(name, files.status(parent / name)) for name in files.listdir(parent)]
    return [name for name, status in entries if status is not None and status.is_directory]


def _row_size(files: FileSystem, directory: Path) -> int:
    """The length of the files of the log; 0 if it has none."""
    entries = _lengths(files, directory)
    if entries and entries[-1][2] == 0:
        entries.pop()
    if not entries:
        return 0
    size = file_size_of(entries)
    if size not in LOG_FILE_SIZES:
        raise StoreLayoutError(
            f"{entries[0][1]} has {size} bytes; a log file has {LOG_FILE_SIZES.start} to "
            f"{LOG_FILE_SIZES.stop - 1}: bring the whole file back, or move the store away"
        )
    return size


def _queue_file_size(files: FileSystem, root: Path) -> int:
    """The length of queue files; 0 if there are none.

    Some may be short after a crash, or missing, and be rebuilt from the log: so the longest of
    the first few counts, and gaps are not looked at. A length that no queue file can have says
    nothing.
    """
    lengths = []
    for _, _, directory in islice(queue_directories(files, root), SAMPLED_QUEUES):
        lengths += [length for _, _, length in _lengths(files, directory)]
    return max((length for length in lengths if length % UNIT_SIZE == 0), default=0)


def _lengths(files: FileSystem, directory: Path) -> list[tuple[int, Path, int]]:
    """(offset, path, length) of the files of a log or queue, in their order."""
    entries = []
    for name in files.listdir(directory):
        base = parse_offset_file_name(name)
        status = files.status(directory / name)
        if base is not None and status is not None and not status.is_directory:
            entries.append((base, directory / name, status.size))
    return entries
