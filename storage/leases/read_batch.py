"""What was read of a queue to be leased: columns of its messages, and their records."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import Buffer, byte_array, compact
from tandemlog.format.columns.headers import HeaderColumns, gather_headers
from tandemlog.format.columns.property_layouts import find_properties
from tandemlog.format.constants import SHARDING_KEY
from tandemlog.format.lease.handle import fingerprints

I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]
NO_KEY: Final = 0


@dataclass(frozen=True, slots=True, eq=False)
class ReadBatch:
    """`start`..`end` of the queue were looked at; of the messages that are there and selected:
    `offsets` i8[n], ascending, `log_offsets` i8[n], `fingerprints` u4[n], `keys` u4[n] (0 without
    a sharding key), `sizes` i8[n], and `records` end to end."""

    start: int
    end: int
    offsets: I64
    log_offsets: I64
    fingerprints: U32
    keys: U32
    sizes: I64
    records: Buffer

    def before(self, end: int) -> "ReadBatch":
        """As far as `end`."""
        inside = self.take(np.arange(int(self.offsets.searchsorted(end))))
        return replace(inside, end=end)

    def take(self, rows: I64) -> "ReadBatch":
        """Only these of the messages, ascending."""
        if len(rows) == len(self.offsets):
            return self
        starts = np.cumsum(self.sizes) - self.sizes
        sizes = self.sizes[rows]
        records, _ = compact(byte_array(self.records), starts[rows], sizes)
        return ReadBatch(
            self.start,
            self.end,
            self.offsets[rows],
            self.log_offsets[rows],
            self.fingerprints[rows],
            self.keys[rows],
            sizes,
            records.data,
        )


def read_batch(
    start: int, end: int, records: Buffer, sizes: I64, *, keyed: bool = False
) -> ReadBatch:
    """The batch of raw records of one queue; `keyed`: find their sharding keys."""
    headers = gather_headers(records, np.cumsum(sizes) - sizes, sizes)
    keys = sharding_keys(records, headers) if keyed else np.zeros(len(sizes), np.uint32)
    return ReadBatch(
        start,
        end,
        headers.queue_offset,
        headers.physical_offset,
        fingerprints(headers),
        keys,
        sizes,
        records,
    )


def joined(batches: Sequence[ReadBatch]) -> ReadBatch:
    """Several batches of one queue, ascending, as one."""
    if len(batches) == 1:
        return batches[0]
    return ReadBatch(
        batches[0].start,
        batches[-1].end,
        np.concatenate([each.offsets for each in batches]),
        np.concatenate([each.log_offsets for each in batches]),
        np.concatenate([each.fingerprints for each in batches]),
        np.concatenate([each.keys for each in batches]),
        np.concatenate([each.sizes for each in batches]),
        b"".join(bytes(each.records) for each in batches),
    )


def sharding_keys(records: Buffer, headers: HeaderColumns) -> U32:
    """u4[n]: a hash of each `__SHARDINGKEY`, NO_KEY without one. Two keys with one hash are kept
    in order too, which costs time and breaks nothing."""
    data = byte_array(records)
    lengths = np.where(headers.well_formed, headers.properties_length, 0)
    starts = np.where(headers.well_formed, headers.properties_start, 0)
    ((places, sizes),) = find_properties(data, starts, lengths, [SHARDING_KEY.encode()])
    keys = np.full(headers.count, NO_KEY, np.uint32)
    for row in (sizes > 0).nonzero()[0].tolist():
        text = data[places[row] : places[row] + sizes[row]]
        keys[row] = crc32(text.tobytes()) or 1
    return keys
