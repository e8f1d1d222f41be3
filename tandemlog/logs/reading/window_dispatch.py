"""A window's records as their queues and the index take them: units by queue, entries in order."""

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
"""An index entry before it has a place: what it needs to get one."""


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
    """The units by queue; a queue whose numbers do not run on gives more than one slice."""
    found = unit_columns(columns)
    groups = group_by_queue(found)
    units, offsets = found.units[groups.order], found.queue_offset[groups.order]
    for number in range(groups.count):
        begin, end = int(groups.bounds[number]), int(groups.bounds[number + 1])
        topic = found.topics[int(groups.topic_index[number])]
        mine = offsets[begin:end]
        cuts = np.flatnonzero(np.diff(mine) != 1) + 1
        for first, last in zip([0, *cuts.tolist()], [*cuts.tolist(), end - begin], strict=True):
            yield QueueSlice(
                topic,
                int(groups.queue_id[number]),
                int(mine[first]),
                units[begin + first : begin + last],
            )


def index_items(found: DispatchColumns) -> NDArray[np.void]:
    """INDEX_ITEM[m] in the order in which RocketMQ puts the entries."""
    items = np.empty(len(found.key_hash), INDEX_ITEM)
    items["key_hash"] = found.key_hash
    items["physical_offset"] = found.physical_offset[found.entry_record]
    items["store_timestamp"] = found.store_timestamp[found.entry_record]
    return items
