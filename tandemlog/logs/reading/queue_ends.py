"""What a store's consume queues say about its log: up to where it certainly was whole once.

    queue file   | u u u u u u 0 0 0 0 |     u: log offset, size, tags code
                             '-- the newest unit: the log had all bytes up to its record's end

A log that ends before that place has lost something. One that continues behind it was not
dispatched to its end: there the first bad record is the end, as for recovery.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.names import parse_offset_file_name
from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, UNIT_DTYPE, UNIT_SIZE, last_unit

CONSUME_QUEUE = "consumequeue"
_READ_UNITS = 512


@dataclass(frozen=True, slots=True)
class QueueEnds:
    """`log_end` is the greatest end of a record that a unit points to, 0 without units; `topic`,
    `queue_id`, `queue_offset` and `size` (of the record) are that unit's. `log_begin` is the least
    offset that a queue's first unit points to, -1 without units. `file_size` is the length of the
    queue files, None if there are none."""

    log_end: int = 0
    topic: str = ""
    queue_id: int = 0
    queue_offset: int = 0
    file_size: int | None = None
    log_begin: int = -1
    size: int = 0

    @property
    def last_record(self) -> int:
        """Where the record that ends at log_end begins."""
        return self.log_end - self.size

    def __str__(self) -> str:
        return f"message {self.queue_offset} of {self.topic}/{self.queue_id} ends at {self.log_end}"


def queue_ends(store: str | Path | None) -> QueueEnds:
    """Read the newest unit of every queue of the store; nothing for None."""
    best = QueueEnds()
    if store is None:
        return best
    file_size: int | None = None
    begins = []
    for topic, queue_id, files in queue_files(Path(store) / CONSUME_QUEUE):
        file_size = max(file_size or 0, max(path.stat().st_size for _, path in files))
        begin = _oldest_unit(files[0][1])
        if begin is not None:
            begins.append(begin)
        for base, path in reversed(files):
            units = units_of(path)
            number = last_unit(units)
            if number is None:
                continue
            offset, size, _ = units[number].item()
            if offset + size > best.log_end:
                best = QueueEnds(
                    offset + size, topic, queue_id, base // UNIT_SIZE + number, size=size
                )
            break
    return replace(best, file_size=file_size, log_begin=min(begins, default=-1))


def queue_files(
    directory: Path, only: str | None = None
) -> Iterator[tuple[str, int, list[tuple[int, Path]]]]:
    """Topic, queue id and files (base, path), ascending and not empty, of every queue, or of those
    of one topic."""
    if not directory.is_dir():
        return
    for topic in sorted(os.listdir(directory)) if only is None else [only]:
        if not (directory / topic).is_dir():
            continue
        for queue in sorted(os.listdir(directory / topic)):
            folder = directory / topic / queue
            if not queue.isdecimal() or not folder.is_dir():
                continue
            files = [
                (base, folder / name)
                for name in sorted(os.listdir(folder))
                if (base := parse_offset_file_name(name)) is not None
            ]
            if files:
                yield topic, int(queue), files


def _oldest_unit(path: Path) -> int | None:
    """Where the record of the file's first unit begins; pre-blank units do not count."""
    with path.open("rb") as file:
        while len(data := file.read(UNIT_SIZE * _READ_UNITS) or b"") >= UNIT_SIZE:
            units = np.frombuffer(data, UNIT_DTYPE, len(data) // UNIT_SIZE)
            real = (units["size"] != PRE_BLANK_SIZE).nonzero()[0]
            if len(real):
                first = units[int(real[0])]
                return int(first["physical_offset"]) if int(first["size"]) > 0 else None
    return None


def units_of(path: Path) -> NDArray[np.void]:
    """UNIT_DTYPE[n]: the whole units of the file."""
    count = path.stat().st_size // UNIT_SIZE
    if not count:
        return np.zeros(0, UNIT_DTYPE)  # an empty file cannot be mapped
    return np.memmap(path, UNIT_DTYPE, "r", shape=(count,))
