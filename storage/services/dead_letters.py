"""Dead letters in the store: copies in, lists out, messages sent again.

    message at its place ──read, copy──▶ %DLQ%group ──▶ the engine calls it done
                                        │  list, read
                                        └─ send again ──▶ its own topic ──▶ the letter is done

The copy is in the log before the record that calls the message done, so a crash in between leaves
the message and its dead letter, and the letter comes twice; it is never lost.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tandemlog.format.errors import CorruptRecordError, FormatError
from tandemlog.format.lease.dead_letter import (
    OUR_PROPERTIES,
    DeadLetter,
    decode_dead_letter,
    encode_dead_letter,
    plain_properties,
)
from tandemlog.format.lease.policy import dead_letter_topic
from tandemlog.format.record.record import Record, decode_record, encode_record
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

from ..errors import BatchRefusedError, StoreError
from ..leases.lease_values import DeadLetters
from ..leases.queue_leases import QueueLeases
from ..message_store import MessageStore
from ..metadata.topics import TopicConfig
from .damaged_numbers import DamagedNumbers
from .own_batch import no_host, own_batch

logger = logging.getLogger(__name__)

NO_ANSWER: Final = "its lease ended without an answer"
PAGE_BYTES: Final = 4 << 20
MAX_PAGE: Final = 1_000


@dataclass(frozen=True, slots=True)
class DeadLetterRow:
    """One dead letter in a list; `size` is that of its record in bytes."""

    queue_offset: int
    store_timestamp: int
    size: int
    letter: DeadLetter


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """`rows` in the order of the queue; the list continues at `next_offset`, and ends at
    `end_offset`. `left`: how many dead letters there are in all."""

    rows: Sequence[DeadLetterRow]
    next_offset: int
    end_offset: int
    left: int


class DeadLetterDesk:
    """See the module; any thread."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._damaged = DamagedNumbers(store)

    # ---- in

    def bury(self, letters: DeadLetters) -> Sequence[int]:
        """Store the copies of these messages; returns the queue offsets of those that are stored.
        One that cannot be read or stored is left out, and the log names it. Raises StoreError if
        none can be now."""
        queue = letters.queue
        topic = self._topic(queue.group)
        records, offsets = [], []
        for row, offset in enumerate(letters.offsets.tolist()):
            try:
                record = self._record(queue.topic, queue.queue_id, offset)
            except StoreError as error:
                _say_left_out(queue, offset, error)
                continue
            if record is None:
                # retention has deleted it: there is nothing to copy
                offsets.append(offset)
                continue
            framed = self._framed(record, queue.group, letters, row)
            if framed is not None:
                records.append((offset, framed))
        if not records:
            return offsets
        try:
            self._store.put_own(lambda: own_batch(topic, [framed for _, framed in records]))
            return offsets + [offset for offset, _ in records]
        except BatchRefusedError:
            logger.info("dead letters of group %s are stored one by one", queue.group)
        for offset, framed in records:
            try:
                self._store.put_own(lambda each=framed: own_batch(topic, [each]))  # type: ignore[misc]
                offsets.append(offset)
            except BatchRefusedError as error:
                _say_left_out(queue, offset, error)
        return offsets

    def _framed(self, record: Record, group: str, letters: DeadLetters, row: int) -> bytes | None:
        try:
            return encode_dead_letter(
                record,
                group,
                attempts=int(letters.attempts[row]),
                error=letters.errors[row] or NO_ANSWER,
                first_ms=int(letters.first_ms[row]),
                last_ms=self._store.clock.now_ms(),
                store_host=no_host(self._store.config.store_host),
            )
        except FormatError as error:
            logger.error("no dead letter can be framed of %s: %s", record.msg_id, error)
            return None

    def _topic(self, group: str) -> str:
        topic = dead_letter_topic(group)
        if self._store.topics.get(topic) is None:
            self._store.create_topic(TopicConfig(topic, 1, 1))
            logger.info("topic %s created for dead letters", topic)
        return topic

    def _record(self, topic: str, queue_id: int, queue_offset: int) -> Record | None:
        result = self._store.reader.get(topic, queue_id, queue_offset, 1, PAGE_BYTES)
        if not result.count and result.next_offset <= queue_offset:
            raise StoreError(
                f"message {queue_offset} of {topic}/{queue_id} cannot be read now "
                f"({result.status.name})"
            )
        try:
            record = decode_record(bytes(result.records), check_crc=False) if result.count else None
        except CorruptRecordError as error:
            raise StoreError(f"message {queue_offset} of {topic}/{queue_id}: {error}") from error
        if record is not None and record.queue_offset == queue_offset:
            return record
        # a read skips a number without a record, and gives the next one
        waiting = self._damaged.first(topic, queue_id, queue_offset, queue_offset + 1)
        if waiting is not None:
            raise waiting[1]
        return None

    # ---- out

    def end(self, group: str) -> int:
        """The queue offset behind the last dead letter; 0 if there was none."""
        dense = self._store.queue_table.get(dead_letter_topic(group), 0)
        return self._store.queues.max_offset(dense) if dense >= 0 else 0

    def rows(
        self, group: str, from_offset: int, count: int, is_done: Callable[[int], bool]
    ) -> tuple[list[DeadLetterRow], int]:
        """Up to `count` dead letters from there on that are not done, and where the list
        continues."""
        rows: list[DeadLetterRow] = []
        at = max(from_offset, 0)
        while len(rows) < count:
            result = self._store.reader.get(
                dead_letter_topic(group), 0, at, min(count, MAX_PAGE), PAGE_BYTES
            )
            position = 0
            for size in result.sizes.tolist():
                record = decode_record(
                    bytes(result.records[position : position + size]), check_crc=False
                )
                position += size
                at = record.queue_offset + 1
                if not is_done(record.queue_offset):
                    letter = decode_dead_letter(record)
                    rows.append(
                        DeadLetterRow(record.queue_offset, record.store_timestamp, size, letter)
                    )
                if len(rows) == count:
                    break
            if not result.count and result.next_offset <= at:
                break
            if len(rows) < count:
                at = max(at, result.next_offset)
        return rows, at

    def read(self, group: str, queue_offset: int) -> bytes | None:
        """The raw record; None if there is none."""
        result = self._store.reader.get(dead_letter_topic(group), 0, queue_offset, 1, PAGE_BYTES)
        return bytes(result.records) if result.count else None

    def send_again(self, group: str, queue_offset: int, holder: str) -> int:
        """Put the message of a dead letter into its topic again, as a client would; returns the log
        offset up to which it must be confirmed. Raises as MessageStore.put, and StoreError for a
        letter that is not there or does not say where it came from."""
        data = self.read(group, queue_offset)
        if data is None:
            raise StoreError(f"there is no dead letter {queue_offset} of group {group!r}")
        record = decode_record(data, check_crc=False)
        letter = decode_dead_letter(record)
        if not letter.topic:
            raise StoreError(
                f"dead letter {queue_offset} of group {group!r} does not say its topic: read it, "
                "and send its body by hand"
            )
        config = self._store.topics.get(letter.topic)
        queues = config.write_queues if config is not None else 1
        queue_id = letter.queue_id if 0 <= letter.queue_id < queues else queue_offset % queues
        host = no_host(self._store.config.store_host)
        properties = {
            name: value
            for name, value in plain_properties(record).items()
            if name not in OUR_PROPERTIES
        }
        framed = encode_record(
            topic=letter.topic,
            body=record.body,
            properties=properties,
            queue_id=queue_id,
            flag=record.flag,
            sys_flag=record.sys_flag & ~(BORN_HOST_IPV6 | STORE_HOST_IPV6),
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            store_host=host,
        )
        batch = own_batch(letter.topic, [framed], queue_id)
        return self._store.put(batch, holder=holder).end_offset


def _say_left_out(queue: QueueLeases, queue_offset: int, error: StoreError) -> None:
    logger.error(
        "no dead letter can be stored of %s/%d at queue offset %d: %s",
        queue.topic, queue.queue_id, queue_offset, error,
    )  # fmt: skip
