"""The checksum of a request's content (record/request_checksum.py), for many records at once."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays.ragged import Buffer, byte_array, compact, none_true
from ..constants import UNIQ_KEY
from ..record.request_checksum import HOST_BITS, request_checksum
from .headers import HeaderColumns, gather_headers
from .property_columns import search_properties


def content_checksum(
    records: Buffer,
    sizes: Sequence[int] | NDArray[np.integer[Any]],
    *,
    queues: bool = False,
    before: int = 0,
    left_out: Sequence[str] = (),
) -> int:
    """The same for each framing of the same messages in the same order. `sizes` are the records',
    which hold together; `queues`: the queue of each one counts too, as where the messages decide
    it; `before` as in request_checksum; `left_out`: properties that do not count, as unique ids do
    not."""
    data = byte_array(records)
    lengths = np.asarray(sizes).astype(np.int64)
    headers = gather_headers(data, lengths.cumsum() - lengths, lengths)
    properties, property_lengths = _properties(data, headers, (UNIQ_KEY, *left_out))
    columns = [
        headers.flag,
        headers.sys_flag & ~HOST_BITS,
        headers.body_crc,
        headers.body_length,
        headers.topic_length,
        property_lengths,
        *([headers.queue_id] if queues else []),
    ]
    fixed = np.stack([column.astype("<i8") for column in columns])
    topics, _ = compact(data, headers.topic_start, headers.topic_length)
    return request_checksum((fixed.tobytes(), topics.data, properties.data), before)


def _properties(
    data: NDArray[np.uint8], headers: HeaderColumns, left_out: Sequence[str]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The properties of all records end to end and their lengths, without these values."""
    begins, lengths = headers.properties_start, headers.properties_length
    flat, offsets = compact(data, begins, lengths)
    inside = np.zeros(len(flat) + 1, np.int8)
    kept = lengths
    names = [name.encode() for name in left_out]
    for starts, sizes in search_properties(data, begins, lengths, names):
        rows = np.flatnonzero(sizes)
        first = offsets[rows] + starts[rows] - begins[rows]
        # no two values overlap, and a name stands between two
        inside[first] = 1
        inside[first + sizes[rows]] -= 1
        kept = kept - sizes
    if none_true(lengths - kept):
        return flat, lengths
    values = np.cumsum(inside[:-1], dtype=np.int8).view(np.bool_)
    return flat[~values], kept
