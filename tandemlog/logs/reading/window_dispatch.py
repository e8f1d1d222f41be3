"""What a window's records dispatch to: units by queue, and index entries in order."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.columns.dispatch import (
    DispatchColumns,
    dispatch_columns,
    group_by_queue,
    unit_columns,
)
from tandemlog.format.files.queue_unit import DEFAULT_LEVELS, DelayLevels

from .span_scan import Piece

INDEX_ITEM = np.dtype([("key_hash", ">i4"), ("physical_offset", ">i8"), ("store_timestamp", ">i8")])
"""An index entry before it has a place in a file."""


@dataclass(frozen=True, slots=True)
class QueueSlice:
    """Units of one queue with numbers first, first+1, ...; UNIT_DTYPE[n]."""

    topic: str
    queue_id: int
    first: int
    units: NDArray[np.void]


def dispatched(
    piece: Piece,
    *,
    index: bool,
    index_tags: bool = True,
    delay_levels: DelayLevels = DEFAULT_LEVELS,
) -> DispatchColumns:
    """The dispatch columns of the piece's records."""
    return dispatch_columns(
        piece.data,
        piece.walk.positions,
        piece.walk.sizes,
        piece.base,
        delay_levels=delay_levels,
        index=index,
        index_tags=index_tags,
        headers=piece.headers,
    )


def queue_slices(columns: DispatchColumns) -> Iterator[QueueSlice]:
    """The units by queue; a queue whose queue offsets have a gap gives several slices."""
    by_record = unit_columns(columns)
    groups = group_by_queue(by_record)
    units, offsets = by_record.units[groups.order], by_record.queue_offset[groups.order]
    for number in range(groups.count):
        begin, end = int(groups.bounds[number]), int(groups.bounds[number + 1])
        topic = by_record.topics[int(groups.topic_index[number])]
        mine = offsets[begin:end]
        cuts = np.flatnonzero(np.diff(mine) != 1) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), end - begin], strict=True):
            yield QueueSlice(
                topic,
                int(groups.queue_id[number]),
                int(mine[first]),
                units[begin + first : begin + last],
            )


def index_items(columns: DispatchColumns) -> NDArray[np.void]:
    """INDEX_ITEM[m] in the order in which RocketMQ puts the entries."""
    items = np.empty(len(columns.key_hash), INDEX_ITEM)
    items["key_hash"] = columns.key_hash
    items["physical_offset"] = columns.physical_offset[columns.entry_record]
    items["store_timestamp"] = columns.store_timestamp[columns.entry_record]
    return items
