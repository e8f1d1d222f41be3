"""What is in a segment: its blocks with their checksums, and the units of its queues.

    digest | header: JSON | blocks              | runs: units of one queue, one after another
                            crc, first record     physical offset, size, tags code
                            store times

Blocks of BLOCK_BYTES begin at the segment's start, the last one is shorter: a reader of a part
reads whole blocks and checks them. Each says where its first record begins, so that a scan can
start in any, and the lowest and highest store time of the records that begin in it.

A run has units of one queue with consecutive queue offsets, in the order of the log. A queue has
one, unless its numbers jump: a broker's log may have them twice (decisions/0050). Columns are
packed with zlib: offsets as steps from unit to unit, since most steps are alike.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import offsets_of
from ..columns.dispatch import UnitColumns, group_by_queue
from ..errors import FormatError
from ..fast_crc import crc32
from ..files.queue_unit import UNIT_DTYPE
from .object_name import SegmentName

BLOCK_BYTES: Final = 1 << 20
NO_RECORD: Final = 0xFFFFFFFF
"""In place of a first record: none begins in the block."""
FORMAT: Final = "tandemlog archive index 1"
MOST_HEADER_BYTES: Final = 1 << 28
_LEVEL: Final = 1
_HEAD: Final = struct.Struct(">32sI")
_BLOCK_DTYPE: Final = np.dtype(
    [("crc", "<u4"), ("first_record", "<u4"), ("first_ms", "<i8"), ("last_ms", "<i8")]
)
_LONG: Final = np.dtype("<i8")
_INT: Final = np.dtype("<i4")


@dataclass(frozen=True, slots=True)
class QueueRun:
    """Units of one queue with the queue offsets from `first` on: rows `start` to `start + count`
    of the index's units."""

    topic: str
    queue_id: int
    first: int
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class SegmentIndex:
    """See the module.

    blocks  crc u4, first_record u4 (bytes from the block's start, or NO_RECORD), first_ms i8,
            last_ms i8 (zeros without a record)
    units   UNIT_DTYPE[n], run by run
    """

    name: SegmentName
    records: int
    runs: tuple[QueueRun, ...]
    blocks: NDArray[np.void]
    units: NDArray[np.void]

    @property
    def times(self) -> tuple[int, int]:
        """The lowest and highest store time (ms); zeros without records."""
        full = self.blocks[self.blocks["first_record"] != NO_RECORD]
        if not len(full):
            return 0, 0
        return int(full["first_ms"].min()), int(full["last_ms"].max())

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(run.topic for run in self.runs)

    def units_of(self, run: QueueRun) -> NDArray[np.void]:
        """UNIT_DTYPE[count]"""
        return self.units[run.start : run.start + run.count]

    def runs_of(self, topic: str, queue_id: int) -> list[QueueRun]:
        """In the order of the log."""
        return [run for run in self.runs if (run.topic, run.queue_id) == (topic, queue_id)]

    def block_bounds(self, start: int, end: int) -> tuple[int, int]:
        """The log offsets of the whole blocks that have the bytes from `start` up to `end`."""
        base = self.name.start
        first = base + (max(start, base) - base) // BLOCK_BYTES * BLOCK_BYTES
        blocks = -(-(min(end, self.name.end) - base) // BLOCK_BYTES)
        return first, min(base + blocks * BLOCK_BYTES, self.name.end)

    def check_blocks(self, start: int, content: bytes | memoryview) -> None:
        """Raises FormatError unless `content`, whole blocks from the log offset `start` on, has
        their checksums."""
        first, rest = divmod(start - self.name.start, BLOCK_BYTES)
        end = start + len(content)
        if rest or (end < self.name.end and len(content) % BLOCK_BYTES) or end > self.name.end:
            raise FormatError(f"{start} to {end} are no whole blocks of {self.name.log_key}")
        view = memoryview(content)
        for number, at in enumerate(range(0, len(content), BLOCK_BYTES), first):
            if crc32(view[at : at + BLOCK_BYTES]) != int(self.blocks["crc"][number]):
                begin = self.name.start + number * BLOCK_BYTES
                raise FormatError(f"{self.name.log_key} is damaged in the block at {begin}")


def make_index(
    name: SegmentName,
    content: bytes | memoryview,
    positions: NDArray[np.int64],
    store_times: NDArray[np.int64],
    found: UnitColumns,
) -> SegmentIndex:
    """The index of a segment with these bytes.

    positions    i8[n]  where each record begins, in `content`
    store_times  i8[n]  ms
    found        the units of its records, in the order of the log
    """
    blocks = _blocks(content, positions, store_times)
    if not len(found.units):
        return SegmentIndex(name, len(positions), (), blocks, found.units)
    groups = group_by_queue(found)
    offsets, units = found.queue_offset[groups.order], found.units[groups.order]
    # a run ends with its queue, and where the next queue offset is not one more
    ends = np.ones(len(offsets), bool)
    ends[:-1] = np.diff(offsets) != 1
    ends[groups.bounds[1:] - 1] = True
    bounds = np.concatenate(([0], ends.nonzero()[0] + 1)).tolist()
    queues = np.searchsorted(groups.bounds, bounds[:-1], side="right") - 1
    runs = tuple(
        QueueRun(
            found.topics[groups.topic_index[queue]],
            int(groups.queue_id[queue]),
            int(offsets[begin]),
            begin,
            end - begin,
        )
        for queue, begin, end in zip(queues.tolist(), bounds[:-1], bounds[1:], strict=True)
    )
    return SegmentIndex(name, len(positions), runs, blocks, units)


def encode_index(index: SegmentIndex) -> bytes:
    """Raises FormatError for more queues than a header may have."""
    columns = [
        _packed(index.blocks),
        _packed(np.diff(index.units["physical_offset"].astype(_LONG), prepend=0)),
        _packed(index.units["size"].astype(_INT)),
        _packed(index.units["tags_code"].astype(_LONG)),
    ]
    header = json.dumps(
        {
            "format": FORMAT,
            "name": index.name.log_key,
            "records": index.records,
            "units": len(index.units),
            "columns": [len(each) for each in columns],
            "runs": [[run.topic, run.queue_id, run.first, run.count] for run in index.runs],
        },
        separators=(",", ":"),
        sort_keys=True,
        ensure_ascii=False,
    ).encode()
    if len(header) > MOST_HEADER_BYTES:
        raise FormatError(f"the index of {index.name.log_key} has {len(index.runs)} runs")
    body = b"".join((header, *columns))
    return _HEAD.pack(hashlib.sha256(body).digest(), len(header)) + body


def decode_index(name: SegmentName, content: bytes) -> SegmentIndex:
    """Raises FormatError unless it is the index of that segment, whole."""
    if len(content) < _HEAD.size:
        raise FormatError(f"{name.index_key} has {len(content)} bytes")
    digest, header_size = _HEAD.unpack_from(content)
    body = memoryview(content)[_HEAD.size :]
    if hashlib.sha256(body).digest() != digest or not 0 < header_size <= len(body):
        raise FormatError(f"{name.index_key} is damaged")
    try:
        header = json.loads(bytes(body[:header_size]))
        if header["format"] != FORMAT or header["name"] != name.log_key:
            raise FormatError(f"{name.index_key} is of {str(header['name'])[:200]!r}")
        records, count = int(header["records"]), int(header["units"])
        sizes = [int(size) for size in header["columns"]]
        runs = _decoded_runs(header["runs"])
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, FormatError):
            raise
        raise FormatError(f"{name.index_key} is no index: {error!r}") from error
    if not 0 <= count <= name.size or sum(run.count for run in runs) != count:
        raise FormatError(f"{name.index_key} has {count} units in its header, others in its runs")
    if len(sizes) != 4 or min(sizes) < 0 or header_size + sum(sizes) != len(body):
        raise FormatError(f"{name.index_key} has columns of {sizes[:9]} bytes")
    ends = np.cumsum([header_size, *sizes]).tolist()
    parts = [body[begin:end] for begin, end in pairwise(ends)]
    blocks = -(-name.size // BLOCK_BYTES)
    units = np.empty(count, UNIT_DTYPE)
    units["physical_offset"] = np.cumsum(_unpacked(name, parts[1], _LONG, count))
    units["size"] = _unpacked(name, parts[2], _INT, count)
    units["tags_code"] = _unpacked(name, parts[3], _LONG, count)
    return SegmentIndex(name, records, runs, _unpacked(name, parts[0], _BLOCK_DTYPE, blocks), units)


def cut_index(index: SegmentIndex, end: int) -> SegmentIndex:
    """Without what begins at or behind `end`, a log offset where a record ends. The blocks and the
    number of records remain those of the whole object."""
    if end >= index.name.end:
        return index
    kept = index.units["physical_offset"] < end
    counts = offsets_of(kept.astype(np.int64))
    runs = tuple(
        QueueRun(run.topic, run.queue_id, run.first, int(counts[run.start]), remaining)
        for run in index.runs
        if (remaining := int(counts[run.start + run.count] - counts[run.start]))
    )
    return replace(index, runs=runs, units=index.units[kept])


def _blocks(
    content: bytes | memoryview, positions: NDArray[np.int64], store_times: NDArray[np.int64]
) -> NDArray[np.void]:
    starts = np.arange(0, len(content), BLOCK_BYTES)
    blocks = np.zeros(len(starts), _BLOCK_DTYPE)
    view = memoryview(content)
    blocks["crc"] = [crc32(view[at : at + BLOCK_BYTES]) for at in starts.tolist()]
    blocks["first_record"] = NO_RECORD
    if len(positions):
        firsts = np.searchsorted(positions, starts)
        full = np.diff(np.append(firsts, len(positions))) > 0
        begins = firsts[full]
        blocks["first_record"][full] = positions[begins] - starts[full]
        blocks["first_ms"][full] = np.minimum.reduceat(store_times, begins)
        blocks["last_ms"][full] = np.maximum.reduceat(store_times, begins)
    return blocks


def _decoded_runs(rows: Sequence[Any]) -> tuple[QueueRun, ...]:
    runs: list[QueueRun] = []
    start = 0
    for topic, queue_id, first, count in rows:
        if count <= 0:
            raise ValueError(f"a run of {count} units")
        runs.append(QueueRun(str(topic), int(queue_id), int(first), start, int(count)))
        start += int(count)
    return tuple(runs)


def _packed(column: NDArray[Any]) -> bytes:
    return zlib.compress(column.tobytes(), _LEVEL)


def _unpacked(
    name: SegmentName, content: memoryview, dtype: np.dtype[Any], count: int
) -> NDArray[Any]:
    """Exactly `count` rows: no more memory than for them is taken."""
    unpacker = zlib.decompressobj()
    size = count * dtype.itemsize
    try:
        column = unpacker.decompress(content, size + 1)
    except zlib.error as error:
        raise FormatError(f"{name.index_key} has a damaged column: {error}") from error
    if len(column) != size or not unpacker.eof:
        raise FormatError(f"{name.index_key} has a column of another length than {size} bytes")
    return np.frombuffer(column, dtype)
