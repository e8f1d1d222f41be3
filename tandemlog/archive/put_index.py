"""The index of a segment, put beside it: the one object whose name does not say its content.

Two nodes may pack the same index in other bytes (another zlib), or read delayed messages by other
levels. Whose is there first, that one counts, if it finds the same records.
"""

from collections.abc import Callable

import numpy as np

from ..format.archive.segment_index import SegmentIndex, decode_index, encode_index
from ..format.errors import FormatError
from .errors import ArchiveDamagedError
from .object_store import ObjectStore


def put_index(
    objects: ObjectStore, index: SegmentIndex, put: Callable[[str, bytes], object]
) -> None:
    """Calls put(key, content), as that of `objects`. Raises ArchiveDamagedError if there is
    another index of that name which does not find the same, and what `put` does."""
    key = index.name.index_key
    try:
        put(key, encode_index(index))
    except ArchiveDamagedError:
        if not _finds_the_same(index, objects.get(key)):
            raise


def _finds_the_same(index: SegmentIndex, content: bytes) -> bool:
    try:
        there = decode_index(index.name, content)
    except FormatError:
        return False
    return (
        (there.records, there.runs) == (index.records, index.runs)
        and np.array_equal(there.blocks, index.blocks)
        and all(
            np.array_equal(there.units[column], index.units[column])
            for column in ("physical_offset", "size")
        )
    )
