"""The fixed numbers and names of the store's bytes.

One commit-log record (both hosts IPv4; each IPv6 host moves everything after it by 12 bytes):

    0 size | 4 magic | 8 body crc | 12 queue id | 16 flag | 20 queue offset | 28 physical offset
    36 system flag | 40 born time | 48 born host | 56 store time | 64 store host
    72 reconsume times | 76 prepared transaction offset | 84 body length
    88 body | topic length (V1: 1 byte, V2: 2) | topic | properties length (2) | properties

All integers are big-endian and signed. A file's last record is BLANK: size and magic, 8 bytes.
"""

from struct import Struct
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview

MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB
MAGIC_BLANK: Final = 0xCBD43194

MAGIC_OFFSET: Final = 4
QUEUE_OFFSET_OFFSET: Final = 20
PHYSICAL_OFFSET_OFFSET: Final = 28
SYS_FLAG_OFFSET: Final = 36
BORN_TIMESTAMP_OFFSET: Final = 40
BORN_HOST_OFFSET: Final = 48
# From here on: for IPv4 hosts.
STORE_TIMESTAMP_OFFSET: Final = 56
BODY_LENGTH_OFFSET: Final = 84

FIXED_SIZE: Final = 88
"""Bytes up to and including the body length, both hosts IPv4."""
IPV6_EXTRA: Final = 12
"""Bytes that an IPv6 host takes more than an IPv4 host."""
MIN_RECORD_SIZE: Final = FIXED_SIZE + 1 + 2
"""V1, IPv4, and no body, topic or properties."""
BLANK_SIZE: Final = 8
SIZE_AND_MAGIC: Final = Struct(">iI")
"""What a record, or a BLANK, begins with."""
CRC_MASK: Final = 0x7FFFFFFF

MAX_PROPERTIES: Final = 32767
"""Bytes of encoded properties; their length is a signed 16-bit field."""
MAX_TOPIC_V1: Final = 127
"""Bytes of a topic that fit a V1 record, and the limit for an ordinary topic."""
MAX_TOPIC: Final = 255
"""Bytes of a retry or dead-letter topic."""
MAX_GROUP: Final = 120

# Property names, as stored.
KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRANSACTION_PREPARED: Final = "TRAN_MSG"
PRODUCER_GROUP: Final = "PGROUP"
TRANSACTION_ID: Final = "__transactionId__"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"
TIMER_DELAY_SEC: Final = "TIMER_DELAY_SEC"
TIMER_DELAY_MS: Final = "TIMER_DELAY_MS"
TIMER_DELIVER_MS: Final = "TIMER_DELIVER_MS"
TIMER_DEL_UNIQKEY: Final = "TIMER_DEL_UNIQKEY"
TIMER_OUT_MS: Final = "TIMER_OUT_MS"
"""When a broker lets the message go: whole seconds, before the time that was asked for."""
TIMER_ROLL_TIMES: Final = "TIMER_ROLL_TIMES"
TIMERS: Final = (TIMER_DELAY_SEC, TIMER_DELAY_MS, TIMER_DELIVER_MS, TIMER_DEL_UNIQKEY)
"""With any of these a broker of RocketMQ 5 keeps a message until its time, or takes one back."""
DUE: Final = "__TL_DUE"
"""tandemlog's own, of a waiting message: the exact ms of its time, or `+` and ms after its store
time."""
SHARDING_KEY: Final = "__SHARDINGKEY"
CLUSTER: Final = "CLUSTER"
MULTI_DISPATCH: Final = "INNER_MULTI_DISPATCH"
MULTI_QUEUE_OFFSET: Final = "INNER_MULTI_QUEUE_OFFSET"
CRC32: Final = "__CRC32#"
PRODUCER_MARK: Final = "__TL_SEQ"
"""tandemlog's own: id, epoch and sequence of an idempotent request; RocketMQ ignores it."""
TRANSACTION: Final = "__TL_TX"
"""tandemlog's own: the id of the transaction that a half message belongs to."""

NAME_END: Final = 0x01
"""Between a property's name and its value."""
PROPERTY_END: Final = 0x02
"""After a property's value."""
CRC_PROPERTY_SIZE: Final = 20
"""`__CRC32#`, 0x01, ten digits, 0x02: the last bytes of a record with a property CRC."""

# Topics that RocketMQ keeps for itself.
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
DELAY_TOPICS: Final = frozenset({SCHEDULE_TOPIC, TIMER_TOPIC})
"""Where messages wait that come later: one of RocketMQ's levels, or any time."""
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
UNDECIDED_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Where a broker puts half messages that were never decided, before it drops them."""
BROKER_TRANSACTIONS: Final = "CID_RMQ_SYS_TRANS"
"""The group as which a broker reads the two topics above: below its offsets, all is decided."""
TRACE_TOPIC: Final = "RMQ_SYS_TRACE_TOPIC"
"""Where RocketMQ's clients write what became of their messages (`enableMsgTrace`)."""
SYSTEM_TOPICS: Final = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        OP_HALF_TOPIC,
        "TBW102",
        "BenchmarkTest",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        TRACE_TOPIC,
        UNDECIDED_TOPIC,
        "CHECKPOINT_TOPIC",
    }
)
SYSTEM_TOPIC_PREFIX: Final = "rmq_sys_"
SERVICE_TOPIC: Final = "rmq_sys_tandemlog"
"""Where the services of a node write what no record of RocketMQ says: the progress of groups, and
what was taken over from a broker. One queue, 0."""
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"

_NAME_CHARACTERS: Final = frozenset(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789%|_-"
)


def is_system_topic(topic: str) -> bool:
    """Whether RocketMQ keeps `topic` for itself."""
    return topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX)


def is_closed_topic(topic: str) -> bool:
    """Whether it is one of these to which no client may put."""
    return is_system_topic(topic) and topic != TRACE_TOPIC


def topic_fault(topic: str, *, new: bool = True) -> str | None:
    """Why `topic` cannot be a topic's name, or None: characters `[%|a-zA-Z0-9_-]`, 1 to 127
    of them; 255 for the retry and dead-letter topics of a group, and for one that is not `new`: a
    broker may have made it, and our limit is for what is created here."""
    if not topic:
        return "the name is empty"
    of_group = topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))
    return _name_fault(topic, MAX_TOPIC if of_group or not new else MAX_TOPIC_V1)


def client_topic_fault(topic: str, *, new: bool = True) -> str | None:
    """As topic_fault, and of the topics that RocketMQ keeps for itself, for delayed messages and
    open transactions: no client puts to them, makes or deletes them."""
    fault = topic_fault(topic, new=new)
    if fault is None and is_closed_topic(topic):
        return "it is one of the store's own topics"
    return fault


def group_fault(group: str, *, new: bool = True) -> str | None:
    """Why `group` cannot be a consumer group's name, or None; at most 120 characters, and any
    number where it is not `new`: a broker may have made it."""
    return _name_fault(group, MAX_GROUP if new else None) if group else "the name is empty"


def stored_name_fault(name: str) -> str | None:
    """Why no table can have a topic or group of this name, or None. A broker has more names than
    may be created here, and of any length: the topic that it names after its own host has dots."""
    if not name:
        return "the name is empty"
    return None if name.isprintable() else "it has control characters"


def _name_fault(name: str, limit: int | None = None) -> str | None:
    if limit is not None and len(name) > limit:
        return f"it has {len(name)} characters, the limit is {limit}"
    for character in name:
        if character not in _NAME_CHARACTERS:
            return f"character {character!r} is not one of a-z A-Z 0-9 % | _ -"
    return None


PERM_READ: Final = 4
PERM_WRITE: Final = 2
"""Bits of a topic's permission, and of a broker's."""
DEFAULT_QUEUES: Final = 4
"""Of a new topic, if the request for it names no number."""
MAX_QUERY: Final = 64
"""Messages of one answer to a query by key, RocketMQ's limit."""
MAX_QUERY_ALL: Final = 100_000
"""The same if all of them are asked for."""

NO_END: Final = (1 << 63) - 1
"""A time in ms, an offset or a size above all that there are."""

MAX_TABLE: Final = 65_535
"""Entries of a put request's table of queues."""

PAGE: Final = 4096
"""Bytes that the page cache writes, or a power cut loses, at the least."""

MAX_GRPC_MESSAGE: Final = 64 << 20
"""Bytes of the largest message between two programs; all of them tell gRPC so."""
