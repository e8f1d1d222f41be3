"""What the end of the log says of queues and producers before it is dispatched.

    log      ..............................................|  end
    queues   |------ dispatched ------>|   the tail: not confirmed yet, or no room for its units
    next queue offsets, producers      |--- read here --->|

An append needs both, and cannot wait for dispatch: of what no replica has confirmed it may never
come, and on a full disk not before there is space. What is read here is dispatched again later.

This is the one place that says what the next record of a queue gets when nothing is being
appended: the greatest of what its queue knows (its end, or where it is damaged the end that it
will have at least: floors.py) and what the tail holds. So nothing that one of them knows is
undone by another, and only what cuts the log lowers it: then the queue itself ends lower.
"""

import numpy as np

from tandemlog.format.columns.dispatch import unit_columns

from ..dispatch.producer_feed import feed
from ..queues.unit_queues import queue_of, queues_of
from ..store_parts import StoreParts


def read_tail(parts: StoreParts, end: int) -> tuple[int, int]:
    """Set the next queue offsets to what the log holds up to `end`, and bring the producer table
    there. Returns where no record begins any more, `end` where all is well, and the store time
    (ms) of the newest record behind what is dispatched, 0 if there is none."""
    # before the ends, and where both are: what is dispatched meanwhile, to the queues and then to
    # the producers, is looked at twice, never skipped
    dispatched = min(parts.queues.next_offset, parts.producers.next_offset)
    if parts.queues.damaged:
        # whatever units these have by now: the rest of theirs may lie anywhere
        dispatched = 0
    begin_at_ends(parts)
    table, following = parts.queue_table, parts.queue_table.next_queue_offsets
    position, time = max(dispatched, parts.log.min_offset), 0
    while position < end:
        batch = parts.source.batch(position, end, index=False)
        if batch.end == position:
            break
        columns, lost = batch.columns, batch.lost
        if lost is not None:
            dense = queue_of(table, lost.topic, lost.queue_id)
            if dense >= 0 and following[dense] == lost.queue_offset:
                following[dense] += 1
        found = unit_columns(columns)
        np.maximum.at(following, queues_of(table, found), found.queue_offset + 1)
        feed(parts.producers, batch)
        if columns.count:
            time = int(columns.store_timestamp[-1])
        position = batch.end
    return position, time


def begin_at_ends(parts: StoreParts) -> None:
    """Set the next queue offsets to what the queues know; `read_tail` adds what the tail holds."""
    ends = parts.queues.next_offsets()
    parts.queue_table.next_queue_offsets[: len(ends)] = ends
