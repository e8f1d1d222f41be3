"""A message that a consumer of RocketMQ sends back: it could not handle it (request code 36).

    message ─┬─ retries left ──▶ SCHEDULE_TOPIC_XXXX, level 3 + retries so far ──▶ %RETRY%group
             └─ none left, or level < 0 ──▶ %DLQ%group

These consumers read queues in order and do not know leases, so a retry is a copy, as in RocketMQ,
with its properties: RETRY_TOPIC and ORIGIN_MESSAGE_ID name the message of the first delivery. The
copy waits like any message that comes later (delay_desk.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tandemlog.format.constants import RETRY_PREFIX, WAIT
from tandemlog.format.delay.framing import by_level, place_of_level
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.format.lease.dead_letter import (
    FIRST_MESSAGE_ID,
    RETRY_TOPIC,
    encode_dead_letter,
    plain_properties,
)
from tandemlog.format.lease.policy import dead_letter_topic, decode_retries
from tandemlog.format.record.record import Record, decode_record, encode_record
from tandemlog.format.record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6, TRANSACTION_MASK

from ..errors import StoreError
from ..message_store import MessageStore
from ..metadata.topics import MAX_QUEUES, TopicConfig
from .own_batch import no_host, own_batch

FIRST_LEVEL: Final = 3
"""Of the first retry: RocketMQ's levels 1 s and 5 s are left out."""


@dataclass(frozen=True, slots=True)
class SentBack:
    """Where the copy waits or lies, and the log offset up to which it must be confirmed; the topic
    is empty if the group has no retries and nothing was stored."""

    topic: str
    end_offset: int


@dataclass(frozen=True, slots=True)
class Returned:
    """A message that is sent back, as the record that is stored in queue `queue_id` of `topic`. It
    is for `goal`, a topic of the group, which has `queues` queues if it must be made."""

    goal: str
    queues: int
    topic: str
    queue_id: int
    record: bytes


def send_back(
    store: MessageStore,
    group: str,
    log_offset: int,
    *,
    delay_level: int = 0,
    max_retries: int | None = None,
) -> SentBack:
    """The group could not handle the message at `log_offset`. `delay_level` 0: that of the number
    of its retries; below 0: it becomes a dead letter. `max_retries`: the consumer's own limit, None
    for the group's. Raises StoreError for a message or group that is not there, and as
    MessageStore.put_own."""
    row = store.groups.table.get(group)
    if not isinstance(row, dict):
        raise StoreError(f"there is no group {group!r} to send messages back to")
    record = decode_record(store.reader.record_at(log_offset), check_crc=False)
    returned = returned_message(
        store, group, row, record, delay_level=delay_level, max_retries=max_retries
    )
    if returned is None:
        return SentBack("", 0)
    if store.topics.get(returned.goal) is None:
        store.create_topic(TopicConfig(returned.goal, returned.queues, returned.queues))
    result = store.put_own(lambda: own_batch(returned.topic, [returned.record], returned.queue_id))
    return SentBack(returned.goal, result.end_offset if result is not None else 0)


def returned_message(
    store: MessageStore,
    group: str,
    row: Mapping[str, object],
    record: Record,
    *,
    delay_level: int = 0,
    max_retries: int | None = None,
) -> Returned | None:
    """As `send_back`, of a message with this `record` and a group with this `row`, and nothing is
    stored. None if the group has no retries. Raises RecordTooLargeError for properties that have no
    room for those of a retry."""
    most, queues = decode_retries(row)
    if queues <= 0:
        return None
    most = most if max_retries is None else max_retries
    if record.reconsume_times >= most or delay_level < 0:
        return _dead_letter(store, group, record)
    levels = DelayLevels(store.config.delay_levels)
    level = min(delay_level or FIRST_LEVEL + record.reconsume_times, levels.max_level)
    return _retry(store, group, record, level, min(queues, MAX_QUEUES))


def _dead_letter(store: MessageStore, group: str, record: Record) -> Returned:
    framed = encode_dead_letter(
        record,
        group,
        attempts=record.reconsume_times + 1,
        error="",
        first_ms=0,
        last_ms=store.clock.now_ms(),
        store_host=no_host(store.config.store_host),
    )
    topic = dead_letter_topic(group)
    return Returned(topic, 1, topic, 0, framed)


def _retry(store: MessageStore, group: str, record: Record, level: int, queues: int) -> Returned:
    retry_topic = RETRY_PREFIX + group
    own = plain_properties(record)
    topic, queue_id = place_of_level(level)
    framed = encode_record(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        properties={
            **own,
            RETRY_TOPIC: own.get(RETRY_TOPIC, record.topic),
            FIRST_MESSAGE_ID: own.get(FIRST_MESSAGE_ID, record.msg_id),
            WAIT: "false",
            **by_level(retry_topic, record.queue_offset % queues, level),
        },
        flag=record.flag,
        sys_flag=record.sys_flag & ~(TRANSACTION_MASK | BORN_HOST_IPV6 | STORE_HOST_IPV6),
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=no_host(store.config.store_host),
        reconsume_times=record.reconsume_times + 1,
    )
    return Returned(retry_topic, queues, topic, queue_id, framed)
