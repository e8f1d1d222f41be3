"""A message of a client of the 5.x API, as it is stored: what RocketMQ's proxy makes of it.

    message_id            UNIQ_KEY                     tag, keys            TAGS, KEYS
    message_group         __SHARDINGKEY, and its queue delivery_timestamp   TIMER_DELIVER_MS
    message_type          TRAN_MSG of a half, and the  trace_context        traceparent
                          topic as its PGROUP          born_host            __BORNHOST
    body_encoding GZIP    a bit of the system flag     user_properties      as they are

What a client may not say is refused: names that RocketMQ keeps for itself, control characters,
which separate properties, and a type that contradicts the other fields. The client checks most of
it too, so this is for those that do not.
"""

from typing import Final

from tandemlog.format.constants import (
    KEYS,
    PRODUCER_GROUP,
    SHARDING_KEY,
    TAGS,
    TIMER_DELIVER_MS,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
)
from tandemlog.format.record.sys_flag import COMPRESSED
from tandemlog.format.words import quoted
from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from ..clients.stored_message import StoredMessage
from .refusals import MessagingRefusedError
from .reserved_names import is_reserved
from .resources import full_name
from .times import milliseconds

BORN_HOST: Final = "__BORNHOST"
TRACE_CONTEXT: Final = "traceparent"
KEY_SEPARATOR: Final = " "
MOST_PROPERTIES: Final = 128
MOST_USER_BYTES: Final = 16 << 10
MOST_KEYS: Final = 256
MOST_ID_CHARACTERS: Final = 80
MOST_GROUP_CHARACTERS: Final = 64
MOST_TAG_CHARACTERS: Final = 128
MOST_TEXT_CHARACTERS: Final = 1_024
_TYPES: Final = frozenset({v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION})


def stored_message(message: v2.Message, queue_id: int, now_ms: int) -> StoredMessage:
    """Where its topic has this queue; a half and a delayed message too, which are put aside later
    (half_messages.py, stored_message.py). Raises MessagingRefusedError."""
    system = message.system_properties
    kind = system.message_type
    _check_type(message)
    properties = _user_properties(message)
    properties[UNIQ_KEY] = _message_id(system)
    if system.tag:
        properties[TAGS] = _tag(system.tag)
    if system.keys:
        properties[KEYS] = _keys(system)
    if kind == v2.TRANSACTION:
        properties[TRANSACTION_PREPARED] = "true"
        # whom the node asks about it is known by the topic
        properties[PRODUCER_GROUP] = full_name(message.topic)
    if kind == v2.DELAY:
        properties[TIMER_DELIVER_MS] = str(milliseconds(system.delivery_timestamp))
    if system.message_group:
        properties[SHARDING_KEY] = message_group_of(system)
    if system.trace_context:
        _check_text(system.trace_context, "trace_context", MOST_TEXT_CHARACTERS, v2.BAD_REQUEST)
        properties[TRACE_CONTEXT] = system.trace_context
    if system.born_host:
        _check_text(system.born_host, "born_host", MOST_TEXT_CHARACTERS, v2.BAD_REQUEST)
        properties[BORN_HOST] = system.born_host
    born_ms = milliseconds(system.born_timestamp) if system.HasField("born_timestamp") else 0
    return StoredMessage(
        full_name(message.topic),
        queue_id,
        properties,
        message.body,
        sys_flag=COMPRESSED if system.body_encoding == v2.GZIP else 0,
        born_timestamp=born_ms if born_ms > 0 else now_ms,
    )


def message_group_of(system: v2.SystemProperties) -> str:
    """Raises MessagingRefusedError for a name that is too long, or has control characters."""
    group = system.message_group
    _check_text(group, "message_group", MOST_GROUP_CHARACTERS, v2.ILLEGAL_MESSAGE_GROUP)
    return group


def _check_type(message: v2.Message) -> None:
    system = message.system_properties
    kind = system.message_type
    if kind not in _TYPES:
        raise MessagingRefusedError(
            v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a node stores messages of the types NORMAL, FIFO, DELAY and TRANSACTION, not {kind}",
        )
    if not message.body:
        raise MessagingRefusedError(v2.MESSAGE_BODY_EMPTY, "the message has no body")
    wrong = ""
    if system.message_group and kind != v2.FIFO:
        wrong = "a message with a message_group has the type FIFO"
    elif system.HasField("delivery_timestamp") and kind != v2.DELAY:
        wrong = "a message with a delivery_timestamp has the type DELAY"
    elif kind == v2.FIFO and not system.message_group:
        wrong = "a message of the type FIFO has a message_group"
    elif kind == v2.DELAY and not system.HasField("delivery_timestamp"):
        wrong = "a message of the type DELAY has a delivery_timestamp"
    if wrong:
        raise MessagingRefusedError(v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, wrong)


def _message_id(system: v2.SystemProperties) -> str:
    text = system.message_id
    if not text:
        raise MessagingRefusedError(v2.ILLEGAL_MESSAGE_ID, "the message has no message_id")
    _check_text(text, "message_id", MOST_ID_CHARACTERS, v2.ILLEGAL_MESSAGE_ID)
    return text


def _tag(tag: str) -> str:
    _check_text(tag, "tag", MOST_TAG_CHARACTERS, v2.ILLEGAL_MESSAGE_TAG)
    if "|" in tag or not tag.strip():
        raise MessagingRefusedError(
            v2.ILLEGAL_MESSAGE_TAG, f"tag {quoted(tag)}: it may not be blank, nor have a |"
        )
    return tag


def _keys(system: v2.SystemProperties) -> str:
    if len(system.keys) > MOST_KEYS:
        raise MessagingRefusedError(
            v2.ILLEGAL_MESSAGE_KEY, f"{len(system.keys)} keys, the limit is {MOST_KEYS}"
        )
    for key in system.keys:
        _check_text(key, "key", MOST_TEXT_CHARACTERS, v2.ILLEGAL_MESSAGE_KEY)
        if not key.strip():
            raise MessagingRefusedError(v2.ILLEGAL_MESSAGE_KEY, "a key may not be blank")
    return KEY_SEPARATOR.join(system.keys)


def _user_properties(message: v2.Message) -> dict[str, str]:
    properties = dict(message.user_properties)
    if len(properties) > MOST_PROPERTIES:
        raise MessagingRefusedError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"{len(properties)} properties, the limit is {MOST_PROPERTIES}",
        )
    size = 0
    for name, value in properties.items():
        size += len(name.encode()) + len(value.encode())
        if not name or is_reserved(name):
            raise MessagingRefusedError(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"property {quoted(name)}: RocketMQ keeps this name for itself",
            )
        if _has_control(name) or _has_control(value):
            raise MessagingRefusedError(
                v2.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"property {quoted(name)}: it may not have control characters",
            )
    if size > MOST_USER_BYTES:
        raise MessagingRefusedError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the properties have {size} bytes, the limit is {MOST_USER_BYTES}",
        )
    return properties


def _check_text(text: str, what: str, most: int, code: int) -> None:
    if len(text) > most:
        raise MessagingRefusedError(code, f"{what}: {len(text)} characters, the limit is {most}")
    if _has_control(text):
        raise MessagingRefusedError(code, f"{what} {quoted(text)}: it has control characters")


def _has_control(text: str) -> bool:
    return any(each < " " or each == "\x7f" for each in text)
