"""The consume queues of a store on disk as arrays of units, for the tools: nothing is written.

    queue      first ......................... end
    units      u u u u u u u u u u u u u u u u 0 0 0      first: where its first file starts
               BBBB                                       pre-blank: units without a record

A queue ends at its first unit that is not valid; file lengths say nothing.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, UNIT_DTYPE, UNIT_SIZE, valid_units

from ..disk.file_system import FileSystem
from ..disk.mapped_file_queue import MappedFileQueue
from ..errors import MissingFileError, StoreLayoutError
from .geometry import Geometry


@dataclass(slots=True)
class QueueFiles:
    """The units of one queue: queue offsets first..end-1."""

    topic: str
    queue_id: int
    mapped: MappedFileQueue
    first: int
    end: int

    def read(self, queue_offset: int, count: int) -> NDArray[np.void]:
        """UNIT_DTYPE: what there is of units queue_offset .. queue_offset+count-1."""
        stop = min(queue_offset + count, self.end)
        pieces = []
        while queue_offset < stop:
            view = self.mapped.view(queue_offset * UNIT_SIZE, (stop - queue_offset) * UNIT_SIZE)
            if not len(view):
                break
            pieces.append(np.frombuffer(view, dtype=UNIT_DTYPE))
            queue_offset += len(pieces[-1])
        # concatenate alone would return native byte order
        return np.concatenate([np.zeros(0, UNIT_DTYPE), *pieces], dtype=UNIT_DTYPE)

    def file_of(self, queue_offset: int) -> str:
        """Path of the file that holds the unit."""
        file = self.mapped.find(queue_offset * UNIT_SIZE)
        return str(file.path if file is not None else self.mapped.directory)

    @property
    def log_end(self) -> int:
        """The log offset after the record of the last unit; 0 if there is none."""
        units = self.read(self.end - 1, 1) if self.end > self.first else self.read(0, 0)
        if not len(units) or int(units["size"][0]) == PRE_BLANK_SIZE:
            return 0
        return int(units["physical_offset"][0]) + int(units["size"][0])


def open_queues(
    geometry: Geometry, files: FileSystem, gaps: list[MissingFileError] | None = None
) -> Iterator[QueueFiles]:
    """Every queue that has files, by topic and queue id.

    Queues with a missing file are left out and passed to `gaps`; without it that is an error. They
    are passed without their tracebacks: those refer to frames, which refer to `gaps`, and files
    mapped by the frames would stay mapped until the garbage collector runs.
    """
    for topic, queue_id, directory in geometry.queue_directories():
        try:
            queue = open_queue(files, topic, queue_id, directory, geometry.queue_file_size)
        except MissingFileError as gap:
            if gaps is None:
                raise
            gaps.append(gap.with_traceback(None))
            continue
        if queue is not None:
            yield queue


def open_queue(
    files: FileSystem, topic: str, queue_id: int, directory: Path, file_size: int
) -> QueueFiles | None:
    """None if the directory has no files. Raises StoreLayoutError for files of lengths that no
    queue file has."""
    mapped = MappedFileQueue(files, directory, file_size, read_only=True)
    if not mapped.files:
        return None
    if mapped.file_size % UNIT_SIZE:
        # an only file has no neighbour to compare with
        raise StoreLayoutError(
            f"{mapped.files[0].path} has {mapped.file_size} bytes, queue files have {file_size}: "
            "bring the whole file back, or rebuild the queues"
        )
    end = mapped.files[0].base
    for file in mapped.files:
        units = np.frombuffer(file.view(0, file.size), dtype=UNIT_DTYPE)
        valid = valid_units(units)
        if not valid.all():
            end = file.base + int(valid.argmin()) * UNIT_SIZE
            break
        end = file.end
    mapped.release()
    return QueueFiles(topic, queue_id, mapped, mapped.files[0].base // UNIT_SIZE, end // UNIT_SIZE)
