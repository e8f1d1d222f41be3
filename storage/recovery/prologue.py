"""The state from before a log's begin, exported by one store and adopted by another.

A log that begins later than the first record of its cluster does not contain the numbers that its
idle queues have reached (queue_begins.py). The store that has the queues passes them on with the
log.
"""

from collections.abc import Mapping
from dataclasses import replace
from struct import Struct
from typing import Final

from tandemlog.format.errors import FormatError

from ..disk.file_system import FileSystem
from ..disk_errors import refusing
from ..queues.queue_table import QueueTable
from ..state_files.producer_begins import ProducerBeginsFile, table_before
from ..state_files.queue_begins import QueueBegins, QueueBeginsFile, decode
from ..store_parts import StoreParts
from ..store_paths import StorePaths

_LENGTH: Final = Struct(">Q")


def prologue(parts: StoreParts, log_offset: int) -> bytes:
    """The numbers of all queues of which a log that begins at `log_offset` has no record, and what
    producers have stored below it."""
    queues = parts.queues
    numbers = QueueBegins(log_offset, queues.named(queues.idle(log_offset))).encode()
    return b"".join(
        (_LENGTH.pack(len(numbers)), numbers, table_before(parts.producers, log_offset))
    )


def needs_prologue(parts: StoreParts, *, foreign: bool) -> bool:
    """Whether this store has to ask for it: there is no log yet, or the notes about its queues or
    producers are lost (`foreign`) and the log begins later."""
    log = parts.log
    if log.wrote.value <= log.min_offset:
        return True
    return foreign and log.min_offset > 0 and parts.queue_begins.load() is None


def take_prologue(parts: StoreParts, data: bytes) -> None:
    """Adopt these ends of queues, and these producers, durably. Raises FormatError,
    StoreReadOnlyError."""
    numbers, producers = _parted(data)
    value, start = decode(numbers), parts.log.min_offset
    if parts.log.wrote.value <= start:
        parts.producers.reset(start)  # of an earlier prologue
    # the producers first: without the numbers the next open asks for all of it again
    with refusing(f"{parts.producer_begins.path} cannot be written"):
        known = parts.producer_begins.save(producers, start)
    parts.producers.add_missing(known)
    with refusing(f"{parts.queue_begins.path} cannot be written"):
        parts.queue_begins.save(replace(value, log_offset=start))
    parts.queues.set_empty_ends(dense_numbers(parts.queue_table, value.begins))


def write_prologue(files: FileSystem, paths: StorePaths, data: bytes, log_offset: int) -> None:
    """Put it into the folder of a store that is not open yet and whose log begins at `log_offset`,
    durably. Raises FormatError, OSError."""
    numbers, producers = _parted(data)
    ProducerBeginsFile(paths.producer_begins, files).save(producers, log_offset)
    value = replace(decode(numbers), log_offset=log_offset)
    QueueBeginsFile(paths.queue_begins, files).save(value)


def _parted(data: bytes) -> tuple[bytes, bytes]:
    if len(data) < _LENGTH.size:
        raise FormatError(f"a prologue of {len(data)} bytes")
    (length,) = _LENGTH.unpack_from(data)
    if length > len(data) - _LENGTH.size:
        raise FormatError(f"a prologue of {len(data)} bytes whose numbers take {length}")
    return data[_LENGTH.size : _LENGTH.size + length], data[_LENGTH.size + length :]


def dense_numbers(table: QueueTable, numbers: Mapping[str, Mapping[int, int]]) -> dict[int, int]:
    """dense -> number of {topic: {queue id: number}}; queues that are new are registered."""
    return {
        table.register(topic, queue_id): number
        for topic, queues in numbers.items()
        for queue_id, number in queues.items()
    }
