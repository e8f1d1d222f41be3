"""The delays that the delay levels of a store stand for, taken from its schedule queues
(`delays_of_queues`).

A broker's list of levels is a setting that no file holds; with another list, queues rebuilt
would deliver at other times.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import SCHEDULE_TOPIC
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.files.queue_unit import UNIT_DTYPE, UNIT_SIZE, delays_of_queues
from tandemlog.format.record.record import Record, decode_record

from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import MappedFileQueue
from ..errors import StoreLayoutError
from ..log.record_search import record_view
from ..store_paths import StorePaths


def stored_delays(
    files: FileSystem, paths: StorePaths, log_file_size: int, queue_file_size: int
) -> dict[int, int]:
    """Milliseconds by level; only levels that the queues tell. Queues that cannot be read, and
    units that point to no such record, tell nothing."""
    directory = paths.queues / SCHEDULE_TOPIC
    names = [name for name in files.listdir(directory) if name.isdecimal()]
    if not names:
        return {}
    log = MappedFileQueue(files, paths.commit_log, log_file_size, read_only=True)

    def record_at(offset: int) -> Record | None:
        file = log.find(offset)
        if file is None:
            return None
        try:
            return decode_record(record_view(file, offset - file.base), physical_offset=offset)
        except CorruptRecordError:
            return None

    try:
        return delays_of_queues(
            (_units(files, directory / name, queue_file_size) for name in names), record_at
        )
    finally:
        log.close()


def _units(files: FileSystem, directory: Path, file_size: int) -> Iterator[NDArray[np.void]]:
    """The units of each file of a queue, the newest file first; none if they do not fit."""
    try:
        queue = MappedFileQueue(files, directory, file_size, read_only=True)
    except StoreLayoutError:
        return
    try:
        for file in reversed(queue.files):
            yield np.frombuffer(file.view(0, file.size // UNIT_SIZE * UNIT_SIZE), UNIT_DTYPE)
    finally:
        queue.close()
