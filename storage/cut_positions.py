"""Which queue offsets stay what they were when a log is cut, and where reading continues.

    reader's log   ....[m0][m1]....[m5] | [m6][m7] ... [m11]        next: queue offset 12
    this log       ....[m0][m1]....[m5] | [n6][n7] ... [n19]
                                        cut                         continues at 6

Below the cut both logs are equal, so they have given the same numbers there: the first message of a
queue at or behind the cut has the same number in both, and every higher one names another message.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np

from tandemlog.format.columns.dispatch import unit_columns
from tandemlog.format.files.log_history import NO_CUT

from .errors import StoreBusyError
from .queues.queue_table import register_queues
from .store_parts import StoreParts

MAX_TAIL_BYTES: Final = 64 << 20
"""How much of the log is searched because it is not dispatched yet."""

Row = tuple[str, int, int]
"""Topic, queue id, queue offset of the next message."""


def cut_positions(parts: StoreParts, rows: Sequence[Row], cut: int) -> dict[int, int]:
    """For the rows whose position lies beyond log offset `cut`, by index: the queue offset of the
    queue's first message at or behind the cut, else the queue's end. Raises StoreBusyError while
    that is not known."""
    if cut >= NO_CUT:
        return {}
    # before the queues: what is dispatched meanwhile is looked at twice, never skipped
    dispatched = max(parts.queues.next_offset, parts.log.min_offset)
    firsts = {}
    for index, (topic, queue_id, _) in enumerate(rows):
        dense = parts.queue_table.get(topic, queue_id)
        firsts[index] = 0 if dense < 0 else parts.queues.first_at_or_after(dense, cut)
    beyond = {index: first for index, first in firsts.items() if rows[index][2] > first}
    end = min(cut, parts.log.committed.value)
    if not beyond or dispatched >= end:
        return beyond
    ends = _tail_ends(parts, dispatched, end)
    for index, first in list(beyond.items()):
        topic, queue_id, queue_offset = rows[index]
        dense = parts.queue_table.get(topic, queue_id)
        beyond[index] = max(first, ends.get(dense, 0))
        if queue_offset <= beyond[index]:
            del beyond[index]
    return beyond


def queue_end(parts: StoreParts, topic: str, queue_id: int) -> int | None:
    """The number that the next record of the queue gets, as far as this node knows: no reader of
    its log can be beyond it. None for a damaged queue, whose end is not known now."""
    dense = parts.queue_table.get(topic, queue_id)
    if dense < 0:
        return 0
    if dense in parts.queues.damaged:
        return None
    return max(int(parts.queue_table.next_queue_offsets[dense]), *parts.queues.ends_of([dense]))


def _tail_ends(parts: StoreParts, start: int, end: int) -> dict[int, int]:
    """dense -> number after the queue's last record in log bytes start..end."""
    if end - start > MAX_TAIL_BYTES:
        raise StoreBusyError(
            f"the log is dispatched up to {start} and was cut at {end}: where reading continues is "
            "known when more of it is dispatched; try again"
        )
    ends: dict[int, int] = {}
    while start < end:
        batch = parts.source.batch(start, end, index=False)
        if batch.end == start:
            break
        columns = unit_columns(batch.columns)
        dense = register_queues(parts.queue_table, columns)
        for each in np.unique(dense).tolist():
            last = int(columns.queue_offset[dense == each].max()) + 1
            ends[each] = max(ends.get(each, 0), last)
        start = batch.end
    return ends
