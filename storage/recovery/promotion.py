"""A slave's log becomes a master's: its end is judged before the first put.

A record of which only a part has come is cut: the old master's last chunk may have ended inside it,
so no client can have got an acknowledgement for it. Damage is no end, as in recovery: the log
continues behind it, at the same positions as on the other replicas.
"""

import logging

from ..errors import CorruptStoreError, DiskFullError
from ..log.log_scanner import LogScanner
from ..store_parts import StoreParts
from .persistence import Persistence
from .truncation import lower_offsets, truncate_store
from .undispatched_tail import read_tail

logger = logging.getLogger(__name__)


def take_over_log_end(parts: StoreParts, persistence: Persistence) -> int:
    """Set the next queue offsets and the producer table to the end of the log, of which the last
    part may not be confirmed and so not be in the queues yet; returns the store time (ms) of the
    newest record, 0 if none was looked at.

    Consumer offsets above what the next record gets are lowered, durably: they came from a master
    whose last records this log never got, and consumers would skip those that come instead.
    """
    _judge_log_end(parts, persistence)
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

    lower_offsets(parts, next_of)
    parts.consumer_offsets.save(parts.clock.now_ms())
    return time or parts.reput.store_timestamp


def _judge_log_end(parts: StoreParts, persistence: Persistence) -> None:
    """Judge what is not dispatched yet as recovery does; all of it is durable here."""
    log, end = parts.log, parts.log.committed.value
    start = max(min(parts.queues.next_offset, end), log.min_offset)
    scanner = LogScanner(log.mapped, start, durable=end, keep_tail=True, stop=end).run()
    position = scanner.end if scanner.end <= end else scanner.blank_at
    for damage in scanner.damages:
        logger.error("damaged bytes of the log are skipped: %s", damage)
    parts.source.trust(position, scanner.damages)
    parts.reput.try_again()
    if position < end:
        logger.warning("cutting an incomplete record: offset=%d end=%d", position, end)
        truncate_store(parts, persistence, position)
    log.judged_whole()
    if scanner.damages:
        # or the next open would take it for the end: it is not below what was known to be durable
        persistence.save()
