"""Truncating a log, with everything derived from it.

The derived files go first and are durable before the log is touched. So a crash in the middle
leaves queues that are too short, which the next open dispatches again, and never queues that point
to records which are gone and whose place others take.

Whole records after a bad one may have been acknowledged: a copy of such bytes stays in
`tandemlog/cut-<offset>-<ms>`, as they lay in the log from `offset` on.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from ..disk_errors import refusing
from ..errors import FlushFailedError, StoreBusyError, StoreReadOnlyError
from ..store_parts import StoreParts
from .persistence import Persistence, telling
from .undispatched_tail import reset_to_queue_ends

logger = logging.getLogger(__name__)

COPY_STEP = 1 << 20


def truncate_store(parts: StoreParts, persistence: Persistence, offset: int) -> None:
    """Remove everything at or after log offset `offset`, everywhere, durably. Caller holds the
    store's write lock.

    Raises StoreError that says what the disk refused, and whether the log is cut by then: the cut
    may be repeated. If the log is cut and its epochs are not, it accepts no more writes, and the
    next open completes the cut. FlushFailedError ends all writing: a second fsync proves nothing.
    """
    log = parts.log
    # before the derived files are touched: after a failed fsync they may not be durable
    log.require_writable()
    if parts.confirmed.value > offset:
        # first: dispatch must not come back to what is being removed
        parts.confirmed.retreat(offset)
    try:
        with refusing(f"the log is not cut at {offset}: what is derived from it"):
            parts.reput.truncate(offset)
    except FlushFailedError as error:
        log.fail(error)
        raise
    persistence.around_cut(offset, lambda: _cut(parts, offset))
    with telling(f"the log is cut at {offset}"):
        parts.consumer_offsets.save(parts.clock.now_ms())


def _cut(parts: StoreParts, offset: int) -> None:
    """Cut the log, and what is known of it in memory: all or nothing, whatever is saved then."""
    log = parts.log
    log.truncate(offset)
    parts.source.cut(offset)
    try:
        parts.epochs.truncate_suffix(max(offset, log.min_offset + 1))
    except (StoreReadOnlyError, StoreBusyError) as error:
        # new bytes would count as those of a term that was cut
        raise log.fail(
            StoreReadOnlyError(
                f"the log is cut at {offset}, its epochs are not: {error}; restart the "
                "node, which ends that"
            )
        ) from error
    reset_to_queue_ends(parts)
    if parts.queues.next_offset >= offset:
        # else the queues do not know yet what the log still holds

        def end_of(topic: str, queue_id: int) -> int | None:
            dense = parts.queue_table.get(topic, queue_id)
            damaged = parts.queues.damaged
            return None if dense < 0 or dense in damaged else parts.queues.max_offset(dense)

        lower_offsets(parts, end_of)


def lower_offsets(parts: StoreParts, end_of: Callable[[str, int], int | None]) -> None:
    lowered = parts.consumer_offsets.clamp(end_of)
    if lowered:
        logger.warning("lowered %d consumer offsets to the ends of their queues", len(lowered))


def save_copy(parts: StoreParts, start: int, end: int) -> Path:
    """Keep log bytes start..end, durably; returns its path. Raises OSError."""
    path = _unused(parts, start)
    handle = parts.files.open(path, create=True)
    try:
        position = start
        while position < end:
            piece = parts.log.mapped.view(position, min(COPY_STEP, end - position))
            if not len(piece):
                break
            parts.files.pwrite(handle, piece, position - start)
            position += len(piece)
        parts.files.fdatasync(handle)
    finally:
        parts.files.close(handle)
    parts.files.fsync_directory(path.parent)
    return path


def _unused(parts: StoreParts, start: int) -> Path:
    """A name that no other copy has: the clock may not have advanced, or was set back."""
    now_ms = parts.clock.now_ms()
    while parts.files.status(path := parts.paths.own / f"cut-{start}-{now_ms}") is not None:
        now_ms += 1
    return path
