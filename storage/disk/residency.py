"""Which parts of a mapped file have been seen in memory since it was mapped.

    chunks of 1 MiB   | . | x | x | . | x | . |        x: all of its pages were there
    a pull's records     r   r   r       r r

Asking the kernel costs some microseconds, more than copying a record: a pull of a queue whose
records lie far apart would spend most of its time on that. So pages that were in memory count as
being there as long as the map is open; a store opens its maps again each second.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

CHUNK_BITS: Final = 20
CHUNK: Final = 1 << CHUNK_BITS


class Residency:
    """Of a file of `size` bytes; knows nothing at first."""

    __slots__ = ("_known", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._known = bytearray(-(-size // CHUNK))

    def covers(self, position: int, size: int) -> bool:
        """Whether all of these bytes are known to be there."""
        return 0 not in self._known[position // CHUNK : -(-(position + size) // CHUNK)]

    def missing(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
        """b[n]: which of many short stretches are not known to be there, by their first and last
        byte."""
        known = np.frombuffer(self._known, np.uint8)
        first, last = known[begins >> CHUNK_BITS], known[(ends - 1) >> CHUNK_BITS]
        found: NDArray[np.bool_] = (first & last) == 0
        return found

    def note(self, position: int, size: int) -> None:
        """These bytes are there."""
        end = position + size
        first = -(-position // CHUNK)
        last = len(self._known) if end >= self._size else end // CHUNK
        for chunk in range(first, last):
            self._known[chunk] = 1
