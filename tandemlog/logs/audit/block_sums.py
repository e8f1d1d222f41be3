"""CRCs of a log's blocks, on the same grid in every copy: counted from the start of each file."""

from contextlib import closing
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.fast_crc import crc32

from ..reading.log_bytes import read
from ..reading.log_source import LogSource
from ..reading.log_spans import Span

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class BlockTask:
    """The blocks in `spans`; `copy` is only passed on to the result."""

    source: LogSource
    spans: tuple[Span, ...]
    copy: int
    block_bytes: int = BLOCK_BYTES


@dataclass(frozen=True, slots=True)
class BlockSums:
    """Log offset, length and CRC of n blocks: i8[n], i4[n], u4[n]."""

    copy: int
    offsets: NDArray[np.int64]
    lengths: NDArray[np.int32]
    sums: NDArray[np.uint32]


def sum_blocks(task: BlockTask) -> BlockSums:
    """Read them. Raises OSError, FetchError."""
    blocks: list[tuple[int, int, int]] = []
    with closing(task.source.connect()) as log:
        for span in task.spans:
            for start, end in block_bounds(span, task.block_bytes):
                if log.next_data(start) >= end:
                    blocks.append((start, end - start, _zeros_sum(end - start)))
                    continue
                data = read(log, start, end - start)
                blocks.append((start, len(data), crc32(data)))
    offsets, lengths, sums = np.array(blocks, np.int64).reshape(-1, 3).T.copy()
    return BlockSums(task.copy, offsets, lengths.astype(np.int32), sums.astype(np.uint32))


def block_bounds(span: Span, size: int) -> list[tuple[int, int]]:
    """The span cut at the grid's lines: first and last block may be partial."""
    first = span.base + (span.start - span.base) // size * size
    return [
        (max(start, span.start), min(start + size, span.end))
        for start in range(first, span.end, size)
    ]


@cache
def _zeros_sum(length: int) -> int:
    return crc32(bytes(length))
