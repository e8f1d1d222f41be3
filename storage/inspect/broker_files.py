"""Files of a broker's store that are not read here, and log files that it may lack.

config/topicQueueMapping.json    static topics: which broker has which of a topic's logical queues
config/lmqConsumerOffset.json    offsets of groups in light queues (LMQ)
storePathCommitLog = a,b         the log files go to a, b, a, b ..., so each folder has gaps

Gaps are an error (MappedFileQueue). But a folder with one file has none: it looks like a log from
which retention has removed the files before. RocketMQ's retention removes files of an age in hours;
so if the only file spans less than one hour, they were probably never in this folder.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tandemlog.format.errors import FormatError
from tandemlog.format.files import store_json
from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE
from tandemlog.format.words import counted

from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import MappedFileQueue
from ..disk.small_files import read_small
from ..store_paths import StorePaths
from .queue_files import QueueFiles

LEAST_RESERVED_MS = 3_600_000
"""The least age at which RocketMQ's retention removes a file (fileReservedTime = 1)."""
_UNITS_AT_ONCE = 1 << 16
_UNREAD = {
    "topicQueueMapping.json": "static topics (each has queues on several brokers), and only this "
    "broker's own queues are read, by their numbers here",
    "lmqConsumerOffset.json": "offsets of groups in light queues, which are not read: a group "
    "that reads light queues here has no offset in them yet",
}


def unread_tables(files: FileSystem, paths: StorePaths) -> list[str]:
    """One sentence for each table of a broker that is not read here and is not empty."""
    tables = ((paths.config / name, what) for name, what in _UNREAD.items())
    return [f"{path} has {what}" for path, what in tables if _has_rows(files, path)]


def records_before(log: MappedFileQueue, queues: Iterable[QueueFiles]) -> int:
    """How many units of the queues point below the log's only file; 0 unless it has exactly one."""
    if len(log.files) != 1 or log.start == 0:
        return 0
    return sum(_units_below(queue, log.start) for queue in queues)


def says_of_beginning(log: MappedFileQueue, missing: int) -> str:
    """The sentence for `missing` records before the log's only file, and the way out."""
    return (
        f"the log has one file and begins at offset {log.start}; the queues know "
        f"{counted(missing, 'message')} before it. If storePathCommitLog named several folders, "
        f"bring the log files of all of them to {log.directory}; else retention has removed them"
    )


def _has_rows(files: FileSystem, path: Path) -> bool:
    data = read_small(files, path)
    if data is None or not data.strip(b" \t\r\n\0"):
        return False
    try:
        document = store_json.loads(data)
    except FormatError:
        return True  # what it had cannot be known
    if not isinstance(document, dict):
        return True
    return any(isinstance(table, dict) and table
               for name, table in document.items() if name != "dataVersion")  # fmt: skip


def _units_below(queue: QueueFiles, log_offset: int) -> int:
    count = 0
    for first in range(queue.first, queue.end, _UNITS_AT_ONCE):
        units = queue.read(first, _UNITS_AT_ONCE)
        below = (units["physical_offset"] < log_offset) & (units["size"] != PRE_BLANK_SIZE)
        count += int(np.count_nonzero(below))
    return count
