"""What tells a request from any other one under the same number (producer_mark.py).

    bytes     of a request whose attempts repeat the same bytes: nothing is left out
    content   of one whose messages are framed again by each attempt: left out is what the attempt
              decides (time and host of birth, unique id, the queue that a batch was given)

    content:  flag, system flag, CRC and length of the body  |  topics  |  properties    of all rows

Both are of the records before the mark goes in, and one CRC over the whole, none per record.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, byte_array, compact, none_true
from ..constants import UNIQ_KEY
from ..fast_crc import crc32
from ..record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6
from .headers import HeaderColumns, gather_headers
from .property_columns import search_properties

_HOST_BITS = BORN_HOST_IPV6 | STORE_HOST_IPV6


def request_checksum(parts: Iterable[Buffer], before: int = 0) -> int:
    """The CRC-32 of all parts in order; `before` is that of what stands in front of them, so that
    requests can be chained: then one that is equal vouches for all before it."""
    for part in parts:
        before = crc32(part, before)
    return before


def content_checksum(
    records: Buffer, sizes: NDArray[np.integer[Any]], *, queues: bool = False, before: int = 0
) -> int:
    """The same for each framing of the same messages in the same order. `sizes` are the records',
    which hold together; `queues`: the queue of each one counts too, as where the messages decide
    it; `before` as in request_checksum."""
    data = byte_array(records)
    lengths = sizes.astype(np.int64)
    headers = gather_headers(data, lengths.cumsum() - lengths, lengths)
    properties, property_lengths = _properties(data, headers)
    columns = [
        headers.flag,
        headers.sys_flag & ~_HOST_BITS,
        headers.body_crc,
        headers.body_length,
        headers.topic_length,
        property_lengths,
        *([headers.queue_id] if queues else []),
    ]
    fixed = np.stack([column.astype("<i8") for column in columns])
    topics, _ = compact(data, headers.topic_start, headers.topic_length)
    return request_checksum((fixed.tobytes(), topics, properties), before)


def _properties(
    data: NDArray[np.uint8], headers: HeaderColumns
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The properties of all records end to end and their lengths, without the unique ids."""
    begins, lengths = headers.properties_start, headers.properties_length
    flat, offsets = compact(data, begins, lengths)
    ((starts, sizes),) = search_properties(data, begins, lengths, [UNIQ_KEY.encode()])
    if none_true(sizes):
        return flat, lengths
    rows = np.flatnonzero(sizes)
    first = offsets[rows] + starts[rows] - begins[rows]
    inside = np.zeros(len(flat) + 1, np.int8)
    inside[first] = 1
    inside[first + sizes[rows]] -= 1
    ids = np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)
    return flat[~ids], lengths - sizes
