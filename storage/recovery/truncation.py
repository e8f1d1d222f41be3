"""All changes of a log except appends: truncating it, setting it aside, and adopting it as a new
master.

The derived files go first and are durable before the log is touched. So a crash in the middle
leaves queues that are too short, which the next open dispatches again, and never queues that point
to records which are gone and whose place others take.

Setting a log aside removes everything; after a crash it is either done or not (set_aside.py).
"""

import logging
from collections.abc import Callable

from ..disk_errors import refusal, refusing
from ..errors import (
    CorruptStoreError,
    DiskFullError,
    FlushFailedError,
    StoreBusyError,
    StoreError,
    StoreReadOnlyError,
)
from ..log.commit_log import CommitLog, require_file_start
from ..log.log_scanner import LogScanner
from ..store_parts import StoreParts
from .persistence import Persistence, telling
from .set_aside import SetAsideNote, move_aside
from .undispatched_tail import begin_at_ends, read_tail

logger = logging.getLogger(__name__)


def cut_store(parts: StoreParts, persistence: Persistence, offset: int) -> None:
    """Remove everything at or after log offset `offset`, everywhere, durably. Caller holds the
    store's write lock.

    Raises StoreError that names what the disk refuses, and whether the log is cut by then: nothing
    vouches for what goes any more, and the cut may be repeated. Where the log is cut and its epochs
    are not, it takes no more writes, and the next open ends it. FlushFailedError is the end of
    writing: a second fsync proves nothing.
    """
    log = parts.log
    _require_writable(log)
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
    """The log, and what is known of it in memory: all of it or nothing, whatever is saved then."""
    log = parts.log
    log.truncate(offset)
    parts.source.cut(offset)
    try:
        parts.epochs.truncate_suffix(max(offset, log.min_offset + 1))
    except (StoreReadOnlyError, StoreBusyError) as error:
        # what came now would count as bytes of a term that is gone
        raise log.fail(
            StoreReadOnlyError(
                f"the log is cut at {offset}, its epochs are not: {error}; restart the "
                "node, which ends that"
            )
        ) from error
    begin_at_ends(parts)
    if parts.queues.next_offset >= offset:
        # else the queues do not know yet what the log still holds

        def end_of(topic: str, queue_id: int) -> int | None:
            dense = parts.queue_table.get(topic, queue_id)
            damaged = parts.queues.damaged
            return None if dense < 0 or dense in damaged else parts.queues.max_offset(dense)

        _lower_offsets(parts, end_of)


def _lower_offsets(parts: StoreParts, end_of: Callable[[str, int], int | None]) -> None:
    lowered = parts.consumer_offsets.clamp(end_of)
    if lowered:
        logger.warning("lowered %d consumer offsets to the ends of their queues", len(lowered))


def set_aside(parts: StoreParts, persistence: Persistence, offset: int, *, running: bool) -> None:
    """Move log, queues and index into `resync-<ms>` and begin an empty log at `offset`
    (set_aside.py). Raises StoreError; if something has moved by then, or may be moved by the
    next open, the log takes no more writes, and the next open ends it."""
    log = parts.log
    _require_writable(log)
    require_file_start(offset, log.file_size)
    note = SetAsideNote(parts.paths, parts.files)
    try:
        folder = note.unused_folder(parts.clock.now_ms()) if log.files else None
        if folder is not None:
            note.save(folder)
    except OSError as error:
        if note.remains:
            raise log.fail(_broken_off(error)) from error
        raise refusal("the log cannot be set aside", error) from error
    parts.reput.stop()
    try:
        with persistence.starting_over():
            if folder is None:
                log.reset(offset)
            else:
                move_aside(parts, folder, offset)
                note.remove()
            _forget_all(parts, offset)
    except StoreError as error:
        log.fail(error)
        raise
    except OSError as error:
        raise log.fail(_broken_off(error)) from error
    if running:
        parts.reput.start()
    # where that raises the log continues: nothing vouches for what it held, and the next save is as
    # good
    persistence.save()


def _broken_off(fault: OSError) -> StoreReadOnlyError:
    return StoreReadOnlyError(f"setting the log aside failed: {fault}; restart the node")


def _require_writable(log: CommitLog) -> None:
    """Before the derived files are touched: after a failed fsync nothing vouches for them."""
    if log.failure is not None:
        raise log.failure.with_traceback(None)


def _forget_all(parts: StoreParts, offset: int) -> None:
    """The log is empty and begins at `offset`."""
    parts.queues.reset(offset)
    if parts.index is not None:
        parts.index.reset(offset)
    parts.producers.reset(offset)
    parts.time_steps.truncate(0)
    parts.queue_table.clear_offsets()
    parts.confirmed.retreat(offset)
    parts.reput.begin_at(offset)
    parts.source.cut(0)
    parts.queue_begins.remove()
    parts.producer_begins.remove()


def _settle_log_end(parts: StoreParts, persistence: Persistence) -> None:
    """The judgement of recovery on what is not dispatched yet, all of which is durable here."""
    log, end = parts.log, parts.log.committed.value
    start = max(min(parts.queues.next_offset, end), log.min_offset)
    found = LogScanner(log.mapped, start, durable=end, keep_tail=True, stop=end).run()
    position = found.end if found.end <= end else found.blank_at
    for damage in found.damages:
        logger.error("damaged bytes of the log are skipped: %s", damage)
    parts.source.trust(position, found.damages)
    parts.reput.try_again()
    if position < end:
        logger.warning("cutting an incomplete record: offset=%d end=%d", position, end)
        cut_store(parts, persistence, position)
    log.judged_whole()
    if found.damages:
        # or the next open would take it for the end: it is not below what was known to be durable
        persistence.save()


def take_over_log_end(parts: StoreParts, persistence: Persistence) -> int:
    """Set the next queue offsets and the producer table to the end of the log, of which the last
    part may not be confirmed and so not be in the queues yet; returns the store time (ms) of the
    newest record, 0 if none was looked at.

    Consumer offsets above what the next record gets are lowered, durably: they came from a master
    whose last records this log never got, and consumers would skip those that come instead.

    A record of which only a part has come is cut: the old master's last chunk may have ended inside
    it, so no client can have got an acknowledgement for it. Damage is no end, as in recovery: the
    log continues behind it, at the same positions as on the other replicas.
    """
    _settle_log_end(parts, persistence)
    try:
        parts.reput.run_to()
    except DiskFullError as error:
        logger.error("dispatch is waiting: reputed=%d %s", parts.reputed.value, error)
    table, end = parts.queue_table, parts.log.committed.value
    position, time = read_tail(parts, end)
    if position < end:
        raise CorruptStoreError(
            str(parts.paths.commit_log), position, f"the log ends at {end}, no record begins here"
        )

    def next_of(topic: str, queue_id: int) -> int:
        dense = table.get(topic, queue_id)
        return 0 if dense < 0 else int(table.next_queue_offsets[dense])

    _lower_offsets(parts, next_of)
    parts.consumer_offsets.save(parts.clock.now_ms())
    return time or parts.reput.store_timestamp
