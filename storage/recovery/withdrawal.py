"""Withdraws the notes about a log that has lost its tail, before anything is appended.

    noted in one life     |---- log ----|---- lost ----| X       true up to X
    after a power cut     |---- log ----| end                    more than there is, and cut
    and more puts         |---- log ----|---- other records ---- X ---|     believed, and false

The notes are written ahead of the flush, and replaced when an open has repaired everything. If the
disk is full, or refuses one small write, replacing them may fail although the store serves reads
and accepts puts. Then the notes themselves are withdrawn: a file that the log can rebuild is
removed, and the recovery point, which says what was durable, is lowered. If even that fails, the
open fails.
"""

import logging
from collections.abc import Collection
from dataclasses import replace

from tandemlog.format.errors import FormatError

from ..disk.small_files import read_small, remove_small
from ..index.index_state import decode_index_state
from ..state_files.recovery_point import RecoveryPoint
from ..store_parts import StoreParts

logger = logging.getLogger(__name__)


def withdraw(parts: StoreParts, log_end: int, rebuilt: Collection[str], *, saved: bool) -> None:
    """At the end of an open, the log ends at `log_end`. `saved`: everything was rewritten;
    `rebuilt` are queues ("topic/id") of which not all may be durable. Raises OSError."""
    # also where this store keeps no index: the next open may
    path = parts.paths.index_state
    data = read_small(parts.files, path)
    removed = [file.path for file in parts.fold_files if file.withdraw(log_end)]
    if data is not None and _offset(data) > log_end:
        remove_small(parts.files, path)
        removed.append(path)
    for path in removed:
        logger.warning("removed, because it describes bytes that the log has lost: %s", path)
    point = None if saved else parts.recovery_point.load()
    if point is not None and max(point.dispatched, point.flushed, point.confirmed) > log_end:
        parts.recovery_point.save(_lowered(parts, point, log_end, rebuilt))


def _offset(data: bytes) -> int:
    try:
        return decode_index_state(data).log_offset
    except (FormatError, ValueError):
        return 0  # damaged, so it is not used


def _lowered(
    parts: StoreParts, point: RecoveryPoint, log_end: int, rebuilt: Collection[str]
) -> RecoveryPoint:
    """The part of the point that is still true: for every queue what was durable and not cut since,
    for one that has to be rebuilt its floor."""
    ends, least, damaged = parts.queues.ends(), parts.queues.next_offsets(), parts.queues.damaged
    lowest: dict[str, dict[int, int]] = {}

    def end_of(topic: str, queue_id: int, noted: int) -> int:
        dense = parts.queue_table.get(topic, queue_id)
        if dense >= 0 and noted >= 0 and dense not in damaged:
            noted = min(noted, int(ends[dense]))
            if f"{topic}/{queue_id}" not in rebuilt:
                return noted
        if dense >= 0:
            # without what it counted in the lost tail
            least_end = noted if noted >= 0 else point.least.get(topic, {}).get(queue_id, 0)
            lowest.setdefault(topic, {})[queue_id] = min(least_end, int(least[dense]))
        return -1

    queues = {
        topic: {queue_id: end_of(topic, queue_id, noted) for queue_id, noted in each.items()}
        for topic, each in point.queues.items()
    }
    return replace(
        point,
        dispatched=min(point.dispatched, parts.queues.next_offset),
        flushed=min(point.flushed, log_end),
        confirmed=min(point.confirmed, log_end),
        queues=queues,
        least=lowest,
    )
