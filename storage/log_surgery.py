"""What happens to a log besides growing: it is cut, set aside, or taken over by a new master.

The derived files go first and are durable before the log is touched. So a crash in the middle
leaves queues that are too short, which the next open dispatches again, and never queues that point
to records which are gone and whose place others take.
"""

import logging

import numpy as np

from tandemlog.format.dispatch import unit_columns

from .persistence import Persistence
from .store_parts import StoreParts
from .unit_queues import queues_of

logger = logging.getLogger(__name__)


def cut_store(parts: StoreParts, persistence: Persistence, offset: int) -> None:
    """Remove everything at or after log offset `offset`, everywhere, durably. Caller holds the
    store's write lock."""
    log = parts.log
    if parts.confirmed.value > offset:
        # first: dispatch must not come back to what is being removed
        parts.confirmed.retreat(offset)
    parts.reput.truncate(offset)

    def cut() -> None:
        log.truncate(offset)
        parts.epochs.truncate_suffix(max(offset, log.min_offset + 1))

    persistence.around_cut(offset, cut)
    _take_queue_ends(parts)

    def end_of(topic: str, queue_id: int) -> int | None:
        dense = parts.queue_table.get(topic, queue_id)
        return (
            None if dense < 0 or dense in parts.queues.damaged else parts.queues.max_offset(dense)
        )

    lowered = parts.consumer_offsets.clamp(end_of)
    if lowered:
        logger.warning("lowered %d consumer offsets after the truncation", len(lowered))
        parts.consumer_offsets.save(parts.clock.now_ms())


def set_aside(parts: StoreParts, persistence: Persistence, offset: int, *, running: bool) -> None:
    """Move log, queues and index into `resync-<ms>` and begin an empty log at `offset`."""
    target = parts.paths.root / f"resync-{parts.clock.now_ms()}"
    parts.reput.stop()
    if parts.confirmed.value > offset:
        parts.confirmed.retreat(offset)
    parts.recovery_point.remove()
    if parts.log.files:
        files = parts.files
        files.make_directory(target)
        parts.queues.close()
        if parts.index is not None:
            parts.index.close()
        for directory in (parts.paths.queues, parts.paths.index):
            if files.status(directory) is not None:
                files.rename(directory, target / directory.name)
        files.fsync_directory(target)
        files.fsync_directory(parts.paths.root)
        logger.warning("log set aside: %s", target)
    parts.log.reset(
        offset, move_to=target / parts.paths.commit_log.name if parts.log.files else None
    )
    parts.queues.reset(offset)
    if parts.index is not None:
        parts.index.reset(offset)
    parts.producers.reset(offset)
    parts.queue_table.clear_offsets()
    parts.confirmed.retreat(offset)
    parts.reput.begin_at(offset)
    parts.source.durable = 0
    persistence.save()
    if running:
        parts.reput.start()


def take_over_log_end(parts: StoreParts, persistence: Persistence) -> int:
    """Set the next queue offsets and the producer table to the end of the log, of which the last
    part may not be confirmed and so not be in the queues yet; answers the store time (ms) of the
    newest record, 0 where none was looked at.

    A record of which only a part has come is cut: the old master's last chunk may have ended
    inside it, so nobody can have been told that it is safe.
    """
    parts.reput.run_to()
    # before the ends, and where both are: what is dispatched meanwhile, to the queues and then to
    # the producers, is looked at twice, never passed over
    dispatched = min(parts.queues.next_offset, parts.producers.next_offset)
    position, end = max(dispatched, parts.log.min_offset), parts.log.committed.value
    _take_queue_ends(parts)
    table, following = parts.queue_table, parts.queue_table.next_queue_offsets
    time = parts.reput.store_timestamp
    while position < end:
        batch = parts.source.batch(position, end, index=False)
        if batch.end == position:
            logger.warning("cutting an incomplete record: offset=%d end=%d", position, end)
            cut_store(parts, persistence, position)
            return take_over_log_end(parts, persistence)  # which ends with a record now
        columns = batch.columns
        found = unit_columns(columns)
        np.maximum.at(following, queues_of(table, found), found.queue_offset + 1)
        parts.producers.take(
            columns.physical_offset,
            columns.size,
            columns.store_timestamp,
            columns.producer_marks,
            batch.end,
        )
        if columns.count:
            time = int(columns.store_timestamp[-1])
        position = batch.end
    return time


def _take_queue_ends(parts: StoreParts) -> None:
    ends = parts.queues.ends()
    parts.queue_table.next_queue_offsets[: len(ends)] = ends
