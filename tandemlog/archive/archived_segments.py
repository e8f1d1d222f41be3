"""Indexes and records of an archive, read through a cache, every byte checked.

    segment   | block | block | block | block | …        blocks of 1 MiB, each with its checksum
    wanted          ^record         ^record
    read            ═════════       ═════════            whole blocks; the next ones too where the
                                                          block before was read

What one call holds is bounded: MOST_BLOCKS blocks, and the largest record.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ..format.archive.manifest import SegmentEntry
from ..format.archive.segment_index import BLOCK_BYTES, SegmentIndex, cut_index, decode_index
from ..format.arrays.ragged import compact
from ..format.errors import FormatError
from .errors import ArchiveDamagedError, ArchiveError
from .object_store import ObjectStore
from .segment_cache import SegmentCache

AHEAD_BLOCKS: Final = 8
"""So many blocks are read at once where the one before was read."""
MOST_BLOCKS: Final = 16
"""Of one call of `records`."""
RUN_BYTES: Final = 200


class ArchivedSegments:
    """See the module. Safe to use from several threads. Every call may raise an ArchiveError.

    moved_bytes   that were read from the object store
    failures      how many reads of it failed
    """

    def __init__(
        self,
        objects: ObjectStore,
        cache_bytes: int,
        *,
        before_read: Callable[[], None] = lambda: None,
    ) -> None:
        """`before_read` may raise, to end a search that takes too long."""
        self._objects = objects
        self._before_read = before_read
        self.cache = SegmentCache(cache_bytes)
        self.moved_bytes = 0
        self.failures = 0

    def index(self, entry: SegmentEntry) -> SegmentIndex:
        """Of the part of the segment that the log has."""
        name = entry.name

        def read() -> SegmentIndex:
            try:
                return decode_index(name, self._get(name.index_key))
            except FormatError as error:
                self.failures += 1
                raise ArchiveDamagedError(f"{self._objects.url}: {error}") from error

        return cut_index(self.cache.get(name.index_key, read, _size_of), entry.end)

    def records(
        self, entry: SegmentEntry, offsets: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> tuple[memoryview, int]:
        """The bytes at `offsets` of the segment, i8[n], in ascending order, `sizes` each, end to
        end; and of how many of them: of those in the first MOST_BLOCKS blocks, at least one."""
        firsts, lasts = offsets // BLOCK_BYTES, (offsets + sizes - 1) // BLOCK_BYTES
        # a record counts with the blocks that no record before it has
        new = lasts - np.maximum(firsts, np.append(-1, lasts[:-1]) + 1) + 1
        count = max(1, int(np.searchsorted(np.cumsum(new), MOST_BLOCKS, side="right")))
        offsets, sizes = offsets[:count], sizes[:count]
        spans = np.unique(np.column_stack((firsts, lasts))[:count], axis=0).tolist()
        numbers = np.unique(np.concatenate([np.arange(low, high + 1) for low, high in spans]))
        blocks = [self._block(entry, number) for number in numbers.tolist()]
        content = blocks[0] if len(blocks) == 1 else b"".join(blocks)
        # all blocks but a segment's last one have the same length
        places = np.searchsorted(numbers, firsts[:count]) * BLOCK_BYTES + offsets % BLOCK_BYTES
        return compact(np.frombuffer(content, np.uint8), places, sizes)[0].data, count

    def _block(self, entry: SegmentEntry, number: int) -> bytes:
        key = entry.name.log_key
        return self.cache.get((key, number), lambda: self._read(entry, number), len)

    def _read(self, entry: SegmentEntry, number: int) -> bytes:
        """That block; those behind it are kept, if the one before it was."""
        key, size = entry.name.log_key, entry.name.size
        ahead = AHEAD_BLOCKS if number and (key, number - 1) in self.cache else 1
        start = number * BLOCK_BYTES
        end = min(start + ahead * BLOCK_BYTES, size)
        index = self.index(entry)  # first: it is kept, should the search end here
        content = self._get(key, start, end)
        try:
            if len(content) != end - start:
                raise FormatError(f"{key} ends at {start + len(content)} of {size} bytes")
            index.check_blocks(entry.start + start, content)
        except FormatError as error:
            self.failures += 1
            raise ArchiveDamagedError(f"{self._objects.url}: {error}") from error
        for each in range(1, -(-len(content) // BLOCK_BYTES)):
            at = each * BLOCK_BYTES
            self.cache.put((key, number + each), content[at : at + BLOCK_BYTES], len)
        return content[:BLOCK_BYTES]

    def _get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self._before_read()
        try:
            content = self._objects.get(key, start, end)
        except ArchiveError:
            self.failures += 1
            raise
        self.moved_bytes += len(content)
        return content


def _size_of(index: SegmentIndex) -> int:
    return index.units.nbytes + index.blocks.nbytes + RUN_BYTES * len(index.runs)
