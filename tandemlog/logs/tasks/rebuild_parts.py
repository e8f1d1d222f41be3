"""What a rebuild needs of the records, between log and queues and index: one file for each task.

    units         20 bytes each, by bucket, by queue, in log order      UNIT_DTYPE[n]
    numbers       their numbers in their queues                         i8[n]
    items         index entries in log order                            INDEX_ITEM[m]
    tables        for each bucket, JSON: [topic, queue id, first unit, units] of its queues
    directory     JSON: counts, and where each bucket's table is
    8 bytes       length of the directory

This is the job's own shuffle. Spark's would send every unit through the JVM twice, in batches
without a bound in bytes; here a task reads just the slices it needs. All executors must see the
folder, as they must for the result.
"""

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import UNIT_DTYPE

from ..reading.queue_collector import CollectedQueues, Queue
from ..reading.window_dispatch import INDEX_ITEM

_NUMBER = np.dtype("<i8")


def bucket_of(queue: Queue, buckets: int) -> int:
    """Which task writes the queue's files: the same in every process."""
    return crc32(f"{queue[0]}/{queue[1]}".encode()) % buckets


def write_part(path: Path, queues: CollectedQueues, items: NDArray[np.void], buckets: int) -> None:
    """`queues.columns` are numbers and units. Written aside and renamed, so that an attempt that
    dies leaves no part under the name."""
    tables: list[list[list[Any]]] = [[] for _ in range(buckets)]
    order = sorted(
        range(len(queues.queues)), key=lambda number: bucket_of(queues.queues[number], buckets)
    )
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with aside.open("wb") as file:
        rows = [queues.order[queues.bounds[q] : queues.bounds[q + 1]] for q in order]
        sorted_rows = np.concatenate(rows) if rows else np.zeros(0, np.int64)
        first = 0
        for number, of_queue in zip(order, rows, strict=True):
            queue = queues.queues[number]
            tables[bucket_of(queue, buckets)].append([*queue, first, len(of_queue)])
            first += len(of_queue)
        if queues.columns:
            numbers, units = queues.columns
            file.write(units[sorted_rows].view(np.uint8).data)
            file.write(numbers[sorted_rows].astype(_NUMBER).data)
        file.write(items.view(np.uint8).data)
        places = []
        for table in tables:
            text = json.dumps(table).encode()
            places.append([file.tell(), len(text)])
            file.write(text)
        directory = json.dumps({"units": first, "items": len(items), "tables": places}).encode()
        file.write(directory)
        file.write(len(directory).to_bytes(8))
    aside.replace(path)


@dataclass(frozen=True, slots=True)
class QueueRows:
    """A queue's units in a part: `count` of the part's units from `first` on."""

    queue: Queue
    first: int
    count: int


class PartFile:
    """A part file, open for reading until `close`."""

    def __init__(self, path: str) -> None:
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        size = os.fstat(self._handle).st_size
        length = int.from_bytes(os.pread(self._handle, 8, size - 8))
        directory = json.loads(os.pread(self._handle, length, size - 8 - length))
        self._units: int = directory["units"]
        self._tables: list[list[int]] = directory["tables"]

    def close(self) -> None:
        os.close(self._handle)

    def queues(self, bucket: int) -> Iterator[QueueRows]:
        """The queues of a bucket that have units here."""
        position, length = self._tables[bucket]
        for topic, queue_id, first, count in json.loads(os.pread(self._handle, length, position)):
            yield QueueRows((topic, queue_id), first, count)

    def units(self, rows: QueueRows) -> NDArray[np.void]:
        return self._read(UNIT_DTYPE, 0, rows.first, rows.count)

    def numbers(self, rows: QueueRows) -> NDArray[np.int64]:
        base = self._units * UNIT_DTYPE.itemsize
        return self._read(_NUMBER, base, rows.first, rows.count).astype(np.int64)

    def items(self, first: int, count: int) -> NDArray[np.void]:
        """INDEX_ITEM[count] from entry `first` of the part on."""
        base = self._units * (UNIT_DTYPE.itemsize + _NUMBER.itemsize)
        return self._read(INDEX_ITEM, base, first, count)

    def _read(self, kind: "np.dtype[Any]", base: int, first: int, count: int) -> NDArray[Any]:
        data = bytearray(count * kind.itemsize)
        view, position = memoryview(data), base + first * kind.itemsize
        while view:
            done = os.preadv(self._handle, [view], position)
            if not done:
                raise EOFError(f"a part of the job ends at {position}")
            view, position = view[done:], position + done
        return np.frombuffer(data, kind)
