"""What happens to a log besides growing: it is cut, set aside, or taken over by a new master.

The derived files go first and are durable before the log is touched. So a crash in the middle
leaves queues that are too short, which the next open dispatches again, and never queues that point
to records which are gone and whose place others take.
"""

import logging

import numpy as np

from .persistence import Persistence
from .store_parts import StoreParts

logger = logging.getLogger(__name__)


def cut_store(parts: StoreParts, persistence: Persistence, offset: int) -> None:
    """Remove everything at or after log offset `offset`, everywhere, durably. Caller holds the
    store's write lock."""
    log = parts.log
    if parts.confirmed.value > offset:
        # first: dispatch must not come back to what is being removed
        parts.confirmed.retreat(offset)
    parts.reput.truncate(offset)
    persistence.save()
    log.truncate(offset)
    parts.epochs.truncate_suffix(max(offset, log.min_offset + 1))
    persistence.save()
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


def end_on_a_record(parts: StoreParts, persistence: Persistence) -> None:
    """Cut a record of which only a part has come: the old master's last chunk may have ended
    inside it, so nobody can have been told that it is safe."""
    log = parts.log
    position, end = max(parts.reputed.value, log.min_offset), log.committed.value
    while position < end:
        batch = parts.source.batch(position, end, index=False)
        if batch.end == position:
            logger.warning("cutting an incomplete record: offset=%d end=%d", position, end)
            cut_store(parts, persistence, position)
            return
        position = batch.end


def follow_log_end(parts: StoreParts) -> int:
    """Set the next queue offsets and the producer table to the end of the log, of which the last
    part may not be confirmed and so not be in the queues yet; answers the store time (ms) of the
    newest record, 0 where none was looked at."""
    parts.reput.run_to()
    _take_queue_ends(parts)
    table, following = parts.queue_table, parts.queue_table.next_queue_offsets
    position, end = max(parts.queues.next_offset, parts.log.min_offset), parts.log.committed.value
    time = parts.reput.store_timestamp
    while position < end:
        batch = parts.source.batch(position, end, index=False)
        columns = batch.columns
        for row in np.flatnonzero(columns.dispatch_mask).tolist():
            topic = columns.topics[int(columns.topic_index[row])]
            dense = table.register(topic, int(columns.queue_id[row]))
            following[dense] = max(following[dense], int(columns.queue_offset[row]) + 1)
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
