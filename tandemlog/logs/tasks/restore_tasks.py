"""The executors' part of a restore: raw rows go back to their places in the log files.

    part   |4711 bytes|4990 bytes|...      rows that follow each other are one run of bytes: their
           '------- one pwrite ------'     column's buffer is that part of the log

The files already exist with their full length. Tasks write different places, so their order does
not matter, and a task may run twice. Every record is checked before it is written.
"""

import os
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.files.names import offset_file_name

from ..job_errors import CorruptLogError, StoreLayoutError
from .parquet_folder import RAW_SCHEMA, RECORD

_ROWS = 1 << 13


@dataclass(frozen=True, slots=True)
class RestoreTask:
    """A raw part and its totals; `files` are (base, length) of all log files."""

    path: str
    directory: str
    files: tuple[tuple[int, int], ...]
    records: int
    size: int


@dataclass(slots=True)
class RestoreOutcome:
    """Records and bytes written, and the ranges (start, end) of the log they are in, in order."""

    records: int
    size: int
    covered: list[tuple[int, int]]


def restore_part(task: RestoreTask) -> RestoreOutcome:
    """Write a part. Raises CorruptLogError for bytes that have changed, StoreLayoutError for an
    incomplete part, OSError."""
    outcome = RestoreOutcome(0, 0, [])
    writer = _LogWriter(Path(task.directory), task.files)
    try:
        with pq.ParquetFile(task.path) as file:
            if not file.schema_arrow.equals(RAW_SCHEMA):
                raise StoreLayoutError(f"{task.path} has other columns than a raw part")
            for batch in file.iter_batches(_ROWS):
                _restore_batch(task, batch, writer, outcome)
    except pa.ArrowException as error:
        raise StoreLayoutError(f"{task.path} cannot be read: {error}") from error
    finally:
        writer.close()
    if (outcome.records, outcome.size) != (task.records, task.size):
        raise StoreLayoutError(
            f"{task.path} holds {outcome.records} records of {outcome.size} bytes, the manifest "
            f"says {task.records} of {task.size}"
        )
    return outcome


def _restore_batch(
    task: RestoreTask, batch: pa.RecordBatch, writer: "_LogWriter", outcome: RestoreOutcome
) -> None:
    offsets = batch.column("physical_offset").to_numpy().astype(np.int64)
    if not len(offsets):
        return
    column = batch.column("bytes")
    data, ends = _flat(column)
    sizes = np.diff(ends)
    kinds = batch.column("kind").to_numpy(zero_copy_only=False) == RECORD
    # A run continues while rows are of one kind, each at the end of the one before.
    breaks = offsets[1:] != offsets[:-1] + sizes[:-1]
    breaks |= kinds[1:] != kinds[:-1]
    firsts = [0, *(breaks.nonzero()[0] + 1).tolist(), len(offsets)]
    for first, last in pairwise(firsts):
        run = data[int(ends[first]) : int(ends[last])]
        start = int(offsets[first])
        if kinds[first]:
            _check(task, run, start, last - first)
            outcome.records += last - first
            outcome.size += len(run)
            covered = outcome.covered
            if covered and covered[-1][1] == start:
                start_of_range, _ = covered.pop()
                covered.append((start_of_range, start + len(run)))
            else:
                covered.append((start, start + len(run)))
        writer.write(start, run)


def _flat(column: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The bytes of a binary column end to end, and where each value begins and ends."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    flat = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    return flat, ends.astype(np.int64)


def _check(task: RestoreTask, run: NDArray[np.uint8], start: int, count: int) -> None:
    """That every record is whole, has its CRC, and is at its own offset."""
    walked, _ = walk_strict(run, base_offset=start)
    if walked.count != count or walked.end != len(run):
        reason = str(walked.error) if walked.error is not None else walked.stop.value
        raise CorruptLogError(task.path, start + walked.end, reason)


class _LogWriter:
    """The log files by offset; one is open at a time."""

    def __init__(self, directory: Path, files: tuple[tuple[int, int], ...]) -> None:
        self._directory = directory
        self._files = files
        self._handle = -1
        self._base = -1

    def write(self, offset: int, data: NDArray[np.uint8]) -> None:
        """Raises OSError, and StoreLayoutError if no file has a place for the bytes."""
        rest = data.data
        while len(rest):
            base, length = self._file_of(offset)
            self._open(base)
            count = os.pwrite(self._handle, rest[: base + length - offset], offset - base)
            offset, rest = offset + count, rest[count:]

    def close(self) -> None:
        if self._handle >= 0:
            os.fdatasync(self._handle)
            os.close(self._handle)
            self._handle = -1

    def _file_of(self, offset: int) -> tuple[int, int]:
        for base, length in self._files:
            if base <= offset < base + length:
                return base, length
        raise StoreLayoutError(f"the manifest has no log file for offset {offset}")

    def _open(self, base: int) -> None:
        if self._base != base or self._handle < 0:
            self.close()
            path = self._directory / offset_file_name(base)
            self._handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            self._base = base
