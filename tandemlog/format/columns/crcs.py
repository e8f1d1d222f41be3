"""Body CRCs of many records: the one step that stays a loop, over crc32.

The call is most of the cost for small bodies; what is left to save is how each body gets there.
Small bodies of one length become bytes objects in one call; of others each gets a memoryview,
which costs less than a copy. (A CRC cannot be checked for many bodies in one go: the stored values
have lost their highest bit.)
"""

from struct import pack
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, byte_array, first_true, none_true, windows
from ..constants import CRC_MASK
from ..fast_crc import crc32

_SMALL_BODY: Final = 512
"""Up to this a copy as bytes is cheaper than a memoryview of its own for the body."""
_CHUNK: Final = 1024
"""Bodies copied at once: they are still in the cache when their CRC is computed."""


def body_crcs(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.int32]:
    """The CRC of each body as it is stored, i4[n]: 31 bits, 0 for an empty one."""
    data = byte_array(buffer)
    crcs = np.empty(len(starts), np.uint32)
    for first in range(0, len(starts), _CHUNK):
        chunk = slice(first, first + _CHUNK)
        crcs[chunk] = _crcs(data, starts[chunk], lengths[chunk])
    crcs &= np.uint32(CRC_MASK)
    return crcs.view(np.int32)


def _crcs(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.uint32]:
    longest = int(np.maximum.reduce(lengths))
    if 0 < longest <= _SMALL_BODY and int(np.minimum.reduce(lengths)) == longest:
        bodies = windows(data, longest)[starts].tolist()
        # Packing takes a fifth of the time in which numpy takes as many integers.
        return np.frombuffer(pack(f"{len(starts)}I", *map(crc32, bodies)), np.uint32)
    text = data.data
    slices = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    return np.array([crc32(text[begin:end]) for begin, end in slices], np.uint32)


def first_bad_crc(
    buffer: Buffer,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    expected: NDArray[np.signedinteger[Any]],
) -> int:
    """Index of the first body whose CRC is not the expected one, -1 if all are right. An empty
    body is right with any: RocketMQ does not look at its CRC."""
    wrong = body_crcs(buffer, starts, lengths) != expected
    return -1 if none_true(wrong) else first_true(wrong & (lengths > 0))
