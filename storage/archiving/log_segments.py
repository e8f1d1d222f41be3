"""What a store has for its archive: how far, which bytes, which tables.

Bytes are copied before they are named by their content: a log that is cut meanwhile would write
others into the same place of its files.
"""

import logging

from tandemlog.format.archive.object_name import digest_of
from tandemlog.format.archive.segment import Segment, take_segment
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.files.queue_unit import DelayLevels

from ..errors import OffsetOutOfRangeError, UnreadableError
from ..message_store import MessageStore
from .actions import Damaged, Differs, Gone, LogView, NothingWhole, Upload

logger = logging.getLogger(__name__)


def log_view(store: MessageStore, tables: tuple[int, ...], *, is_chosen: bool) -> LogView:
    """As it is now. The history before the positions: of what is confirmed later, terms may be
    missing in it, and are looked for in the next round."""
    history = store.log_identity.history
    end = min(store.confirmed.value, store.reputed.value, store.log.flushed.value)
    return LogView(history, store.log.min_offset, end, store.log.file_size, tables, is_chosen)


def read_segment(
    store: MessageStore, asked: Upload
) -> Segment | NothingWhole | Differs | Damaged | Gone:
    """The bytes that were asked for, whole records, and what is in them."""
    try:
        content = copied(store, asked.start, asked.limit)
        for each in asked.again:
            if digest_of(content[each.start - asked.start : each.end - asked.start]) != each.digest:
                logger.warning(
                    "log bytes %d..%d are not those that were archived, which stay: one of the two "
                    "has changed, and the scrub finds out which",
                    each.start, each.end,
                )  # fmt: skip
                return Differs()
        segment = take_segment(
            content,
            asked.start,
            asked.term_id,
            store.log.file_size,
            delay_levels=DelayLevels(store.config.delay_levels),
            in_batch_queues=store.topics.in_batch_queues,
        )
    except OffsetOutOfRangeError:
        return Gone()
    except (CorruptRecordError, UnreadableError) as error:
        return Damaged(f"the log cannot be archived from {asked.start} on: {error}")
    return NothingWhole() if segment is None else segment


def copied(store: MessageStore, start: int, end: int) -> bytes:
    """Bytes of one file of the log. Raises OffsetOutOfRangeError, UnreadableError."""
    return bytes(store.log.view(start, end - start))
