"""What came before a log's begin, given away by one store and taken over by another.

A log that begins later than the first record of its cluster does not tell which numbers its idle
queues have reached (queue_begins.py). Who holds the queues tells the one who gets the log.
"""

from collections.abc import Mapping
from dataclasses import replace

from .disk_refusal import refusing
from .queue_begins import QueueBegins, decode
from .queue_table import QueueTable
from .store_parts import StoreParts


def prologue(parts: StoreParts, log_offset: int) -> bytes:
    """The numbers of all queues of which a log that begins at `log_offset` has no record."""
    queues = parts.queues
    return QueueBegins(log_offset, queues.named(queues.idle(log_offset))).encode()


def needs_prologue(parts: StoreParts, *, foreign: bool) -> bool:
    """Whether nothing here tells it: there is no log yet, or what vouched for its queues is lost
    (`foreign`) and the log begins later."""
    log = parts.log
    if log.wrote.value <= log.min_offset:
        return True
    return foreign and log.min_offset > 0 and parts.queue_begins.load() is None


def take_prologue(parts: StoreParts, data: bytes) -> None:
    """Let queues stand at these numbers, durably. Raises FormatError, StoreReadOnlyError."""
    value = decode(data)
    with refusing(f"{parts.queue_begins.path} cannot be written"):
        parts.queue_begins.save(replace(value, log_offset=parts.log.min_offset))
    parts.queues.begin_empty(dense_numbers(parts.queue_table, value.begins))


def dense_numbers(table: QueueTable, numbers: Mapping[str, Mapping[int, int]]) -> dict[int, int]:
    """dense -> number of {topic: {queue id: number}}; queues that are new are registered."""
    return {
        table.register(topic, queue_id): number
        for topic, queues in numbers.items()
        for queue_id, number in queues.items()
    }
