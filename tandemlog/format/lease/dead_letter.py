"""A dead letter: the copy of a message that its group could not handle, and why.

    topic   %DLQ%group, queue 0       body, flag, born time and born host: the message's
    DLQ_ORIGIN_TOPIC  DLQ_ORIGIN_MESSAGE_ID  ORIGIN_MESSAGE_ID  RETRY_TOPIC      as RocketMQ
    reconsume times in the header: attempts                                      as RocketMQ
    TANDEMLOG_ORIGIN_QUEUE  .._ORIGIN_OFFSET     where the message lies in its topic; left out where
                                                 only its copy in the topic of retries is known
    TANDEMLOG_ATTEMPTS  .._LAST_ERROR  .._FIRST_ATTEMPT_MS  .._LAST_ATTEMPT_MS

The message's own properties stay, so a key or a tag finds the dead letter too. What would make the
store act on it again (delays, transactions, a producer's mark) is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from ..constants import (
    CRC32,
    DELAY,
    DUE,
    MAX_PROPERTIES,
    PRODUCER_MARK,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    RETRY_PREFIX,
    TRANSACTION_PREPARED,
    WAIT,
)
from ..errors import RecordTooLargeError
from ..record.properties import decode_properties, encode_properties
from ..record.record import Record, encode_record
from ..record.sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6, TRANSACTION_MASK
from .policy import dead_letter_topic

ORIGIN_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
ORIGIN_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
FIRST_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
RETRY_TOPIC: Final = "RETRY_TOPIC"
ORIGIN_QUEUE: Final = "TANDEMLOG_ORIGIN_QUEUE"
ORIGIN_OFFSET: Final = "TANDEMLOG_ORIGIN_OFFSET"
ATTEMPTS: Final = "TANDEMLOG_ATTEMPTS"
LAST_ERROR: Final = "TANDEMLOG_LAST_ERROR"
FIRST_ATTEMPT: Final = "TANDEMLOG_FIRST_ATTEMPT_MS"
LAST_ATTEMPT: Final = "TANDEMLOG_LAST_ATTEMPT_MS"
OUR_PROPERTIES: Final = frozenset(
    {
        ORIGIN_TOPIC,
        ORIGIN_MESSAGE_ID,
        FIRST_MESSAGE_ID,
        RETRY_TOPIC,
        ORIGIN_QUEUE,
        ORIGIN_OFFSET,
        ATTEMPTS,
        LAST_ERROR,
        FIRST_ATTEMPT,
        LAST_ATTEMPT,
    }
)
_LEFT_OUT: Final = frozenset(
    {CRC32, DELAY, DUE, PRODUCER_MARK, REAL_QUEUE_ID, REAL_TOPIC, TRANSACTION_PREPARED, WAIT}
)
_LEFT_OUT_PREFIXES: Final = ("TIMER_", "INNER_")
_DROPPED_FIRST: Final = (LAST_ERROR, LAST_ATTEMPT, FIRST_ATTEMPT, ORIGIN_OFFSET, ORIGIN_QUEUE)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """What a dead letter says of its message; -1, 0 or "" where it does not say it."""

    topic: str
    queue_id: int
    queue_offset: int
    message_id: str
    attempts: int
    last_error: str
    first_attempt_ms: int
    last_attempt_ms: int


def plain_properties(record: Record) -> dict[str, str]:
    """The properties of a record without those on which a store acts."""
    return {
        name: value
        for name, value in decode_properties(record.properties_raw).items()
        if name not in _LEFT_OUT and not name.startswith(_LEFT_OUT_PREFIXES)
    }


def encode_dead_letter(
    record: Record,
    group: str,
    *,
    attempts: int,
    error: str,
    first_ms: int,
    last_ms: int,
    store_host: str,
) -> bytes:
    """The record of `record`'s dead letter. If the properties have no room for all, the last error
    is left out first."""
    own = plain_properties(record)
    first_topic = own.get(RETRY_TOPIC, record.topic)
    first_id = own.get(FIRST_MESSAGE_ID, record.msg_id)
    # what is looked for is the message, not its copy in the group's topic of retries
    retried = record.topic == RETRY_PREFIX + group
    added = {
        RETRY_TOPIC: first_topic,
        FIRST_MESSAGE_ID: first_id,
        ORIGIN_TOPIC: first_topic if retried else record.topic,
        ORIGIN_MESSAGE_ID: first_id if retried else record.msg_id,
        WAIT: "false",
        ORIGIN_QUEUE: "" if retried else str(record.queue_id),
        ORIGIN_OFFSET: "" if retried else str(record.queue_offset),
        ATTEMPTS: str(attempts),
        FIRST_ATTEMPT: str(first_ms) if first_ms else "",
        LAST_ATTEMPT: str(last_ms) if last_ms else "",
        LAST_ERROR: error,
    }
    return encode_record(
        topic=dead_letter_topic(group),
        body=record.body,
        properties=_fitting(own, added),
        flag=record.flag,
        sys_flag=record.sys_flag & ~(TRANSACTION_MASK | BORN_HOST_IPV6 | STORE_HOST_IPV6),
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        store_host=store_host,
        reconsume_times=attempts,
    )


def _fitting(own: Mapping[str, str], added: Mapping[str, str]) -> bytes:
    left = dict(added)
    for name in (*_DROPPED_FIRST, None):
        try:
            return encode_properties({**own, **left})
        except RecordTooLargeError:
            if name is None:
                break
            left.pop(name, None)
    # the message's own properties fill nearly all room: where it came from counts more
    kept: dict[str, str] = {}
    room = MAX_PROPERTIES - len(encode_properties(left))
    for name, value in own.items():
        size = len(encode_properties({name: value}))
        if size <= room and name not in left:
            kept[name] = value
            room -= size
    return encode_properties({**kept, **left})


def decode_dead_letter(record: Record) -> DeadLetter:
    """What the record says, also one that RocketMQ has written."""
    properties = decode_properties(record.properties_raw)
    origin = properties.get(ORIGIN_TOPIC, "")
    if not origin or origin.startswith(RETRY_PREFIX):
        # a broker's copy of a message that came by the group's retry topic
        origin = properties.get(RETRY_TOPIC, origin)
    return DeadLetter(
        origin,
        _number(properties, ORIGIN_QUEUE),
        _number(properties, ORIGIN_OFFSET),
        properties.get(ORIGIN_MESSAGE_ID) or properties.get(FIRST_MESSAGE_ID, ""),
        max(_number(properties, ATTEMPTS), record.reconsume_times),
        properties.get(LAST_ERROR, ""),
        max(_number(properties, FIRST_ATTEMPT), 0),
        max(_number(properties, LAST_ATTEMPT), 0),
    )


def _number(properties: Mapping[str, str], name: str) -> int:
    text = properties.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else -1
