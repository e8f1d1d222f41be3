"""Checks one record of a client's batch, field by field, and words what is wrong with it.

This is the plain path: batches of a few records use it, and the column path uses it to name a fault
that it found.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from tandemlog.format.constants import (
    BODY_LENGTH_OFFSET,
    CRC32,
    CRC_MASK,
    CRC_PROPERTY_SIZE,
    DELAY,
    DELAY_TOPICS,
    FIXED_SIZE,
    HALF_TOPIC,
    IPV6_EXTRA,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES,
    MULTI_QUEUE_OFFSET,
    NAME_END,
    PAGE,
    PRODUCER_MARK,
    REAL_TOPIC,
    TIMER_DEL_UNIQKEY,
    TIMER_OUT_MS,
    TIMER_ROLL_TIMES,
    TIMERS,
    TRANSACTION_PREPARED,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.fast_crc import crc32
from tandemlog.format.record.producer_mark import MARK_NAME, mark_in
from tandemlog.format.record.sys_flag import (
    BORN_HOST_IPV6,
    INNER_BATCH,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
)

from ..errors import BatchRefusedError

LIGHT_NUMBERS: Final = MULTI_QUEUE_OFFSET.encode() + bytes([NAME_END])
"""A property that a broker writes: units in further queues, of any topic, with numbers of its own
choice. A client could write into queues of other topics."""
PAGE_OF_ZEROS: Final = "a zero byte in them is what a lost page looks like"
CRC_NAME: Final = CRC32.encode() + bytes([NAME_END])
"""How a property CRC begins, CRC_PROPERTY_SIZE bytes before the end of a record."""

UNSERVED: Final = frozenset(
    name.encode() for name in (DELAY, REAL_TOPIC, TRANSACTION_PREPARED, TIMER_OUT_MS, *TIMERS)
)
"""Properties with which a broker delays a message, or keeps it back until its transaction ends.
A record has them only in a topic in which messages wait for that."""
ORDINARY: Final = 0
DELAYS: Final = 1
HALVES: Final = 2
UNSERVED_IN: Final = (
    UNSERVED,
    frozenset(
        name.encode() for name in (TIMER_DEL_UNIQKEY, TIMER_ROLL_TIMES, TRANSACTION_PREPARED)
    ),
    UNSERVED - {TRANSACTION_PREPARED.encode(), REAL_TOPIC.encode()},
)
"""Those that a record may not have: in an ordinary topic, in one of delays, in that of halves."""
KIND_OF_TOPIC: Final = {**dict.fromkeys(DELAY_TOPICS, DELAYS), HALF_TOPIC: HALVES}
_KIND_OF_NAME: Final = {topic.encode(): kind for topic, kind in KIND_OF_TOPIC.items()}
_NAMED_SIZE: Final = 8
_NAMED_BEFORE_BODY: Final = 12

_HEAD: Final = Struct(">iIiiiqqi")
_I32: Final = Struct(">i")
_I16: Final = Struct(">h")
_I8: Final = Struct(">b")


@dataclass(frozen=True, slots=True)
class RecordLimits:
    """Bytes: of a body, of a batch, and of a record, which must fit a log file with its BLANK.

    `store_host_ipv6`: the family that records must have room for. `services`: whether delays and
    transactions are acted on; without them such a record would be stored, and never delivered as
    its producer was promised.
    """

    max_body: int
    max_batch: int
    max_record: int
    store_host_ipv6: bool
    services: bool = False


def check_record(
    view: memoryview,
    position: int,
    size: int,
    topic: bytes,
    queue_id: int,
    limits: RecordLimits,
    index: int,
) -> int:
    """The system flag of the record at `position`; `size`, `topic` and `queue_id` are what the
    batch's columns say. Raises BatchRefusedError (BAD_RECORD, MESSAGE_TOO_LARGE,
    PROPERTIES_TOO_LARGE) at the first field that is wrong."""
    sys_flag: int
    stored_size, magic, body_crc, stored_queue, _, _, _, sys_flag = _HEAD.unpack_from(
        view, position
    )
    if magic not in (MAGIC_V1, MAGIC_V2):
        raise bad_record("magic", f"0x{magic:08X} is not that of a record", index)
    if stored_size != size:
        raise bad_record("size", f"it says {stored_size}, the column says {size}", index)
    if size > limits.max_record:
        raise _too_large("record", size, limits.max_record, index)
    _check_sys_flag(sys_flag, limits, index)
    hosts = ((sys_flag & BORN_HOST_IPV6) != 0) + ((sys_flag & STORE_HOST_IPV6) != 0)
    body_start = position + FIXED_SIZE + IPV6_EXTRA * hosts
    end = position + size
    if body_start + 3 > end:
        raise bad_record("size", f"{size} is too short for its header", index)
    (body_length,) = _I32.unpack_from(view, body_start - FIXED_SIZE + BODY_LENGTH_OFFSET)
    if body_length > limits.max_body:
        raise _too_large("body", body_length, limits.max_body, index)
    body_end = body_start + body_length
    if body_length < 0 or body_end + 3 > end:
        raise bad_record("body", f"a length of {body_length} does not fit the record", index)
    if stored_queue != queue_id:
        raise bad_record("queue_id", f"{stored_queue}, its table entry says {queue_id}", index)
    properties_start = _check_topic(view, body_end, magic == MAGIC_V2, end, topic, index)
    named = body_start - _NAMED_BEFORE_BODY
    if not limits.services and any(view[named : named + _NAMED_SIZE]):
        raise bad_record(
            "prepared_transaction_offset",
            "it must be 0: only the node says which record a message follows from",
            index,
        )
    _check_properties(
        view, properties_start, end, limits, index, kind=_KIND_OF_NAME.get(topic, ORDINARY)
    )
    if body_length and crc32(view[body_start:body_end]) & CRC_MASK != body_crc:
        raise bad_record("body_crc", "the body does not have the CRC that the record says", index)
    return sys_flag


def _check_sys_flag(sys_flag: int, limits: RecordLimits, index: int) -> None:
    if bool(sys_flag & STORE_HOST_IPV6) != limits.store_host_ipv6:
        family = "IPv6" if limits.store_host_ipv6 else "IPv4"
        raise bad_record(
            "sys_flag",
            f"bit 0x20 must say that the store host is {family}, as this node's is",
            index,
        )
    if sys_flag & INNER_BATCH:
        raise bad_record(
            "sys_flag",
            "bit 0x80 marks an inner batch, which is not accepted: send the messages one by one",
            index,
        )

    if sys_flag & TRANSACTION_MASK and not limits.services:
        raise bad_record(
            "sys_flag",
            "bits 0x0C mark a message of a transaction, which this node does not serve: leave them "
            "out",
            index,
        )


def may_name_unserved(text: bytes) -> bool:
    """Whether a search for UNSERVED is needed in these properties: looking first for a letter that
    few other texts have takes a tenth of the time."""
    return (b"M" in text and (b"TIMER_" in text or b"TRAN_MSG" in text)) or (
        b"L" in text and (b"DELAY\x01" in text or b"REAL_TOPIC\x01" in text)
    )


def unserved_property(properties: bytes, kind: int = ORDINARY) -> str | None:
    """The first property of a record that asks for a service that is off; None if none does.
    `kind`: of the topic that the record goes to."""
    if not may_name_unserved(properties):
        return None
    unserved = UNSERVED_IN[kind]
    names = (segment.partition(b"\x01")[0] for segment in properties.split(b"\x02"))
    return next((name.decode() for name in names if name in unserved), None)


def _check_topic(
    view: memoryview, position: int, version_2: bool, end: int, topic: bytes, index: int
) -> int:
    """Where the properties start."""
    shape = _I16 if version_2 else _I8
    if position + shape.size + 2 > end:
        raise bad_record("topic", "no room for its length", index)
    length: int = shape.unpack_from(view, position)[0]
    start = position + shape.size
    if length <= 0 or start + length + 2 > end:
        raise bad_record("topic", f"a length of {length} does not fit the record", index)
    if view[start : start + length] != topic:
        said = bytes(view[start : start + length]).decode(errors="replace")
        wanted = topic.decode(errors="replace")
        raise bad_record("topic", f"{said!r}, its table entry says {wanted!r}", index)
    return start + length + 2


def _check_properties(
    view: memoryview, start: int, end: int, limits: RecordLimits, index: int, kind: int
) -> None:
    length = end - start
    if length > MAX_PROPERTIES:
        raise BatchRefusedError(
            "PROPERTIES_TOO_LARGE",
            "properties",
            f"record {index}: properties have {length} bytes, the limit is {MAX_PROPERTIES}",
            limit=MAX_PROPERTIES,
            actual=length,
            record_index=index,
        )
    (said,) = _I16.unpack_from(view, start - 2)
    if said != length:
        raise bad_record("properties", f"their length says {said}, {length} bytes are left", index)
    properties = bytes(view[start:end])
    if LIGHT_NUMBERS in properties:
        raise bad_record(
            "properties", f"{MULTI_QUEUE_OFFSET} is written by brokers only: leave it out", index
        )
    unserved = None if limits.services else unserved_property(properties, kind)
    if unserved is not None:
        raise bad_record(
            "properties",
            f"{unserved} asks for a delay or a transaction, which a client asks for in another way "
            "(send with delay= or deliver_at=, or in a transaction): leave it out",
            index,
        )
    if length >= PAGE and b"\0" in properties:
        raise bad_record("properties", PAGE_OF_ZEROS, index)
    if properties.endswith(b"\0"):
        raise bad_record(
            "properties", "a zero byte at their end is what a torn write looks like", index
        )
    _check_mark(properties, index)
    if length >= CRC_PROPERTY_SIZE and properties[-CRC_PROPERTY_SIZE:].startswith(CRC_NAME):
        raise bad_record(
            "properties", f"{CRC32} is written by the node: leave the property out", index
        )


def _check_mark(properties: bytes, index: int) -> None:
    if MARK_NAME not in properties:
        return
    if index:
        raise bad_record(
            "properties",
            f"{PRODUCER_MARK} may be in the first record of a request only: leave it out "
            "when copying properties from another message",
            index,
        )
    try:
        mark_in(properties)
    except FormatError as error:
        raise bad_record("properties", str(error), index) from error


def bad_record(field: str, reason: str, index: int) -> BatchRefusedError:
    """BAD_RECORD, about one field of record `index`."""
    return BatchRefusedError(
        "BAD_RECORD", field, f"record {index}: {field}: {reason}", record_index=index
    )


def _too_large(part: str, actual: int, limit: int, index: int) -> BatchRefusedError:
    return BatchRefusedError(
        "MESSAGE_TOO_LARGE",
        part,
        f"record {index}: {part} has {actual} bytes, the limit is {limit}",
        limit=limit,
        actual=actual,
        record_index=index,
    )
