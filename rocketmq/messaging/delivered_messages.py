"""A stored record as a client of the 5.x API gets it.

The digest is over the body as it travels, and clients refuse a message without an encoding. A body
that an older client has compressed is given as it is if it is gzip, which the encoding names;
zlib, LZ4 and zstd are unpacked here, because clients of the 5.x API know none of them.
"""

from hashlib import md5
from typing import Final

from tandemlog.format.constants import (
    DELAY,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TIMER_OUT_MS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from tandemlog.format.record.record import Record
from tandemlog.format.record.sys_flag import COMPRESSED, decompress_body
from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from .reserved_names import is_reserved
from .resources import as_asked
from .sent_messages import BORN_HOST, KEY_SEPARATOR, TRACE_CONTEXT

MOST_BODY: Final = 32 << 20
"""Of an unpacked body: with the rest of its message it is less than an answer may have."""
DLQ_TOPIC: Final = "DLQ_ORIGIN_TOPIC"
DLQ_MESSAGE_ID: Final = "DLQ_ORIGIN_MESSAGE_ID"
_GZIP: Final = b"\x1f\x8b"
_DELAYS: Final = frozenset({DELAY, TIMER_DELIVER_MS, TIMER_OUT_MS})


def rendered(record: Record, space: str = "", topic: str = "", most: int = MOST_BODY) -> v2.Message:
    """All of the message but what a delivery adds. `topic`: in place of the record's, for a half,
    which is stored elsewhere. Raises FormatError for a body that cannot be unpacked, or not to
    `most` bytes."""
    properties = record.properties
    body, encoding = _body(record, most)
    message = v2.Message(
        topic=as_asked(topic or record.topic, space),
        user_properties={
            name: value for name, value in properties.items() if not is_reserved(name)
        },
        body=body,
    )
    system = message.system_properties
    system.message_id = properties.get(UNIQ_KEY) or record.msg_id
    system.message_type = v2.MessageType.ValueType(_type(properties))
    system.body_encoding = v2.Encoding.ValueType(encoding)
    system.body_digest.type = v2.MD5
    system.body_digest.checksum = md5(body, usedforsecurity=False).hexdigest().upper()
    system.born_timestamp.FromMilliseconds(record.born_timestamp)
    system.born_host = properties.get(BORN_HOST) or record.born_host
    system.store_timestamp.FromMilliseconds(record.store_timestamp)
    system.store_host = record.store_host
    system.queue_id, system.queue_offset = record.queue_id, record.queue_offset
    if tag := properties.get(TAGS):
        system.tag = tag
    if keys := record.keys:
        system.keys.extend(each for each in keys.split(KEY_SEPARATOR) if each)
    if group := properties.get(SHARDING_KEY):
        system.message_group = group
    if trace := properties.get(TRACE_CONTEXT):
        system.trace_context = trace
    due = properties.get(TIMER_DELIVER_MS, "")
    if due.isascii() and due.isdecimal() and len(due) <= 15:
        system.delivery_timestamp.FromMilliseconds(int(due))
    if origin := properties.get(DLQ_TOPIC):
        system.dead_letter_queue.topic = origin
        system.dead_letter_queue.message_id = properties.get(DLQ_MESSAGE_ID, "")
    return message


def delivered(
    record: Record,
    *,
    space: str,
    handle: str,
    attempt: int,
    lease_ms: int,
    most: int = MOST_BODY,
) -> v2.Message:
    """As a receive gives it. `handle` is the receipt handle, `attempt` counts from 1. Raises as
    `rendered`."""
    message = rendered(record, space, most=most)
    system = message.system_properties
    system.receipt_handle, system.delivery_attempt = handle, attempt
    system.invisible_duration.FromMilliseconds(lease_ms)
    return message


def _type(properties: dict[str, str]) -> int:
    if properties.get(TRANSACTION_PREPARED, "").lower() == "true":
        return v2.TRANSACTION
    if not _DELAYS.isdisjoint(properties) and properties.get(DELAY, "") != "0":
        return v2.DELAY
    return v2.FIFO if SHARDING_KEY in properties else v2.NORMAL


def _body(record: Record, most: int) -> tuple[bytes, int]:
    body = bytes(record.body)
    if not record.sys_flag & COMPRESSED:
        return body, v2.IDENTITY
    if body.startswith(_GZIP):
        return body, v2.GZIP
    return decompress_body(record.sys_flag, body, most), v2.IDENTITY
