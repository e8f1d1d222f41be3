"""What a ReceivedBatch of many messages does by columns (received_batch.py)."""

import numpy as np
from numpy.typing import NDArray

from ...format.arrays.ragged import Buffer, compact, gather_rows
from ...format.columns.headers import HeaderColumns
from ...format.columns.headers import gather_headers as gather_headers
from ...format.columns.property_layouts import find_properties
from ...format.constants import TAGS


def sizes_of(encoded: bytes) -> NDArray[np.uint32]:
    """The sizes in a response."""
    return np.frombuffer(encoded, "<u4")


def positions_of(sizes: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Where each record begins, i8[n]."""
    lengths = sizes.astype(np.int64)
    return np.cumsum(lengths) - lengths


def only_tags(
    records: Buffer, headers: HeaderColumns, tags: frozenset[str]
) -> tuple[bytes, NDArray[np.uint32]] | None:
    """The records with one of `tags`, and those that are damaged, end to end, and their sizes; None
    if that is all."""
    data = np.frombuffer(records, np.uint8)
    matching = _tag_mask(data, headers, tags)
    if matching.all():
        return None
    sizes = headers.sizes[matching]
    records, _ = compact(data, headers.positions[matching], sizes)
    return records.tobytes(), sizes.astype(np.uint32)


def _tag_mask(
    data: NDArray[np.uint8], headers: HeaderColumns, tags: frozenset[str]
) -> NDArray[np.bool_]:
    [(starts, lengths)] = find_properties(
        data, headers.properties_start, headers.properties_length, [TAGS.encode()]
    )
    mask = ~headers.well_formed
    for tag in tags:
        wanted = np.frombuffer(tag.encode(), np.uint8)
        rows = np.flatnonzero(lengths == len(wanted))
        if len(rows):
            equal = (gather_rows(data, starts[rows], len(wanted)) == wanted).all(axis=1)
            mask[rows[equal]] = True
    return mask
