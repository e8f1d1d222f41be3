"""Single messages into records, in the caller's thread: the hot path of `send`.

    Message ─▶ KEYS, TAGS, UNIQ_KEY, ... as text ─▶ frame_message ─▶ record bytes

A framed record is complete except for the fields that only the master knows, and the producer's
mark: that goes into the first record of a request when the request is numbered (with_property). So
a request can be renumbered without framing anything again.

Names that RocketMQ and this client keep for themselves are refused as user properties, as
RocketMQ's own client does: a broker acts on some of them.
"""

import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Final

from ..delayed import Delayed, Later
from ..errors import (
    InvalidMessageError,
    InvalidTopicNameError,
    MessageTooLargeError,
    PropertiesTooLargeError,
    ReservedPropertyError,
)
from ..format.constants import (
    BODY_LENGTH_OFFSET,
    DUE,
    IPV6_EXTRA,
    MAGIC_V2,
    MAX_PROPERTIES,
    PRODUCER_MARK,
    PROPERTY_END,
    SIZE_AND_MAGIC,
    TRANSACTION,
    UNIQ_KEY,
    client_topic_fault,
)
from ..format.delay.framing import PLACE_OF_TIMERS
from ..format.errors import FormatError
from ..format.record.host import host_bytes
from ..format.record.message_id import UniqueIdGenerator
from ..format.record.properties import encode_properties
from ..format.record.record import TopicFrame, frame_message
from ..format.record.sys_flag import (
    BORN_HOST_IPV6,
    STORE_HOST_IPV6,
    ZLIB,
    with_compression,
)
from ..format.transaction.half import PLACE_OF_HALVES
from ..in_transaction import HeldBack, InTransaction
from ..lazy import lazy
from ..message import Message

if TYPE_CHECKING:
    from ..format.arrays.byte_column import ByteColumn
    from . import unique_columns
else:
    unique_columns = lazy(f"{__package__}.unique_columns")

MARK_ROOM: Final = 160
"""Bytes of properties kept free for the producer's mark."""
USER_PROPERTIES_LIMIT: Final = MAX_PROPERTIES - MARK_ROOM
COMPRESSION_LEVEL: Final = 5

_HEX: Final = [f"{number:02X}" for number in range(256)]

_RESERVED_TEXT: Final = """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET
    BUYER_ID ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION
    TRACE_ON UNIQ_KEY EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE
    DUP_INFO CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__
    TRANSACTION_CHECK_TIMES INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME
    PUSH_REPLY_TIME CLUSTER MSG_TYPE __SHARDINGKEY POP_CK POP_CK_OFFSET 1ST_POP_TIME
    INNER_MULTI_DISPATCH INNER_MULTI_QUEUE_OFFSET __BORNHOST TIMER_DELAY_SEC TIMER_DELAY_MS
    TIMER_DELIVER_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
    TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __CRC32# DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
"""
RESERVED_PROPERTIES: Final = frozenset(_RESERVED_TEXT.split()) | {PRODUCER_MARK, DUE, TRANSACTION}
RESERVED_PREFIX: Final = "__RMQ.TRANSIENT."

_INSTEAD: Final = {
    "KEYS": "use keys=",
    "TAGS": "use tags=",
    "__SHARDINGKEY": "use sharding_key=",
    "UNIQ_KEY": "the client makes it",
    "DELAY": "use send(..., delay=timedelta(...))",
    "TIMER_DELAY_SEC": "use send(..., delay=timedelta(...))",
    "TIMER_DELAY_MS": "use send(..., delay=timedelta(...))",
    "TIMER_DELIVER_MS": "use send(..., deliver_at=...)",
    "TRAN_MSG": "use producer.transaction(...)",
    "WAIT": "use send(..., wait=False)",
}


def place_of(later: Later | InTransaction) -> tuple[str, int]:
    """Topic and queue of the record in which a message waits."""
    return PLACE_OF_HALVES if isinstance(later, InTransaction) else PLACE_OF_TIMERS


def check_topic(topic: str) -> None:
    """Raises InvalidTopicNameError for a name that no topic for messages can have."""
    fault = client_topic_fault(topic, new=False)
    if fault is not None:
        raise InvalidTopicNameError(f"topic {topic!r}: {fault}", field="topic")


def is_reserved(name: str) -> bool:
    """Whether RocketMQ or this client keeps the property for itself."""
    return name in RESERVED_PROPERTIES or name.startswith(RESERVED_PREFIX)


def check_property_names(names: Sequence[str]) -> None:
    """Raises ReservedPropertyError for the first name that is not the user's to set."""
    for name in names:
        if is_reserved(name):
            instead = _INSTEAD.get(name)
            raise ReservedPropertyError(
                f"property {name!r} is reserved" + (f": {instead}" if instead else ""),
                field="properties",
            )


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Framer:
    """Frames the messages of one producer; not for several threads at a time.

    `born_address` is the client's (text), `store_ipv6` the family of the master's address,
    `max_body` the cluster's limit in bytes. Bodies of `compress_above` bytes and more are
    compressed with zlib, None: never.
    """

    def __init__(
        self,
        *,
        born_address: str = "127.0.0.1",
        store_ipv6: bool = False,
        max_body: int = 4 << 20,
        compress_above: int | None = None,
        unique_ids: bool = True,
        now_ms: Callable[[], int] = _wall_clock_ms,
    ) -> None:
        self.born_host = f"[{born_address}]:0" if ":" in born_address else f"{born_address}:0"
        self.store_ipv6 = store_ipv6
        self.max_body = max_body
        self.compress_above = compress_above
        self.unique_ids = unique_ids
        self.now_ms = now_ms
        self.address = host_bytes(self.born_host)[:-4]
        self._next_id = self._generator().next_id
        # Ids of one ms share all but their counter, which is ours here.
        self._id_ms = -1
        self._id_start = ""
        self._id_counter = 0
        self.id_size = 0
        """Bytes of the property UNIQ_KEY; 0 without unique ids."""
        if unique_ids:
            self.id_size = len(UNIQ_KEY) + 2 + len(self._next_id())
        self._id_columns: unique_columns.UniqueIdColumns | None = None
        self._frames: dict[str, TopicFrame] = {}
        self._waiting_frames: dict[str, TopicFrame] = {}

    def _generator(self) -> UniqueIdGenerator:
        return UniqueIdGenerator(
            self.address, os.getpid(), self.now_ms, lambda: int.from_bytes(os.urandom(4))
        )

    def unique_id_column(self, count: int) -> "ByteColumn":
        """Unique ids for `count` messages."""
        if self._id_columns is None:
            self._id_columns = unique_columns.UniqueIdColumns(self._generator())
        return self._id_columns.next_ids(count)

    def topic_frame(self, topic: str) -> TopicFrame:
        """What the records of `topic` have in common; checks the name once."""
        frame = self._frames.get(topic)
        if frame is None:
            check_topic(topic)
            frame = TopicFrame(topic, self.born_host, store_ipv6=self.store_ipv6)
            self._frames[topic] = frame
        return frame

    def empty_size(self, topic: str) -> int:
        """The bytes of a record of `topic` without a body and properties of the user."""
        return self.topic_frame(topic).empty_size + self.id_size

    def frame(self, message: Message, queue_id: int) -> bytes:
        """The record for `message`; raises InvalidMessageError and its kinds, naming the part."""
        frame = self._frames.get(message.topic) or self.topic_frame(message.topic)
        now = self.now_ms()
        return self._framed(frame, message, queue_id, lambda: self.properties(message, now), now)

    def waiting(
        self, message: Message, queue_id: int, later: Later | InTransaction
    ) -> tuple[bytes, Delayed | HeldBack]:
        """The record in which `message` waits until it comes to queue `queue_id`, and what its
        result says. Raises as `frame`."""
        topic = message.topic
        self.topic_frame(topic)  # checks the name
        place, place_queue = place_of(later)
        frame = self._waiting_frames.get(place)
        if frame is None:
            frame = TopicFrame(place, self.born_host, store_ipv6=self.store_ipv6)
            self._waiting_frames[place] = frame
        now = self.now_ms()
        # the message is known by its id until it comes, whatever unique_ids says
        unique = self._unique_id(now)
        key = unique[len(UNIQ_KEY) + 1 : -1].decode()
        if isinstance(later, InTransaction):
            note: Delayed | HeldBack = HeldBack(topic, queue_id)
            extra = later.properties(topic, queue_id, key)
        else:
            note = Delayed(topic, queue_id, key, later)
            extra = later.properties(topic, queue_id, now)
        more = unique + encode_properties(extra)

        def properties() -> bytes:
            own = self._own_properties(message)
            if len(own) + len(more) > USER_PROPERTIES_LIMIT:
                raise too_large_properties(len(own) + len(more))
            return more + own

        return self._framed(frame, message, place_queue, properties, now), note

    def _framed(
        self,
        frame: TopicFrame,
        message: Message,
        queue_id: int,
        properties: Callable[[], bytes],
        now: int,
    ) -> bytes:
        topic = message.topic
        body = message.body
        if not isinstance(body, bytes | bytearray | memoryview):
            raise InvalidMessageError(
                f"message to {topic!r}: the body must be bytes, not {type(body).__name__}; an "
                "empty one is b''",
                field="body",
            )
        length = len(body)
        if length > self.max_body:
            raise too_large_body(length, self.max_body)
        sys_flag = 0
        if self.compress_above is not None and length >= self.compress_above:
            body, sys_flag = compressed(body)
        born = message.born_timestamp
        try:
            return frame_message(
                frame,
                body,
                properties(),
                queue_id,
                now if born is None else born,
                message.flag,
                sys_flag,
            )
        except (FormatError, TypeError, UnicodeEncodeError) as error:
            raise InvalidMessageError(f"message to {topic!r}: {error}") from error

    def row(self, message: Message, queue_id: int) -> tuple[bytes, bytes | None, int]:
        """What is kept of `message` until its request is framed: its body, its properties as
        stored (without the unique id), and the bytes that its record will have. A message with
        anything unusual is framed at once: then the first is its record, and the second None.
        Raises as `frame`."""
        body = message.body
        if (
            body.__class__ is not bytes
            or message.flag
            or message.born_timestamp is not None
            or (self.compress_above is not None and len(body) >= self.compress_above)
        ):
            record = self.frame(message, queue_id)
            return record, None, len(record)
        topic = message.topic
        frame = self._frames.get(topic) or self.topic_frame(topic)
        length = len(body)
        if length > self.max_body:
            raise too_large_body(length, self.max_body)
        size = frame.empty_size + self.id_size + length
        if message.keys or message.tags or message.properties or message.sharding_key:
            try:
                own = self._own_properties(message)
            except (TypeError, UnicodeEncodeError) as error:
                raise InvalidMessageError(f"message to {topic!r}: {error}") from error
            return body, own, size + len(own)
        return body, b"", size

    def framed_row(
        self, topic: str, body: bytes, own: bytes, queue_id: int, born_timestamp: int
    ) -> bytes:
        """The record of a row."""
        properties = self._unique_id(born_timestamp) + own if self.unique_ids else own
        return frame_message(self.topic_frame(topic), body, properties, queue_id, born_timestamp)

    def properties(self, message: Message, now: int) -> bytes:
        """The stored properties of `message`: the client's own first, then the user's."""
        own = self._own_properties(message)
        return self._unique_id(now) + own if self.unique_ids else own

    def _unique_id(self, now: int) -> bytes:
        """The property UNIQ_KEY of the next message."""
        self._id_counter = counter = (self._id_counter + 1) & 0xFFFF
        if now != self._id_ms or not counter & 0xFF:
            self._id_ms = now
            self._id_start = f"{self._next_id()[:-4]}{counter >> 8:02X}"
        return f"UNIQ_KEY\x01{self._id_start}{_HEX[counter & 0xFF]}\x02".encode()

    def _own_properties(self, message: Message) -> bytes:
        """Whatever there is; raises InvalidMessageError if a value would end early."""
        keys, tags = message.keys, message.tags
        if keys.__class__ is not str and keys:
            keys = join_keys(keys)
        pieces = []
        if keys:
            if keys is message.keys and " " in keys:
                raise spaced_key(message.keys)
            pieces.append(f"KEYS\x01{keys}\x02")
        if tags:
            if "||" in tags:
                raise InvalidMessageError(
                    f"tags {tags!r}: a message has one tag, and no subscription could name one "
                    "with ||, which stands between two",
                    field="tags",
                )
            pieces.append(f"TAGS\x01{tags}\x02")
        if message.sharding_key:
            pieces.append(f"__SHARDINGKEY\x01{message.sharding_key}\x02")
        user = message.properties
        if user:
            pieces.append(user_properties(user))
        text = "".join(pieces)
        if text.count("\x02") != len(pieces) + (len(user) - 1 if user else 0):
            raise InvalidMessageError(
                "keys, tags and properties cannot hold the character 0x02", field="properties"
            )
        encoded = text.encode()
        if len(encoded) + self.id_size > USER_PROPERTIES_LIMIT:
            raise too_large_properties(len(encoded) + self.id_size)
        return encoded


def user_properties(user: Mapping[str, str]) -> str:
    """Encoded; raises InvalidMessageError for what has no stored form, ReservedPropertyError."""
    if not RESERVED_PROPERTIES.isdisjoint(user) or RESERVED_PREFIX in "\x00".join(user):
        check_property_names(list(user))
    for name, value in user.items():
        if not name or not value or "\x01" in name:
            raise InvalidMessageError(
                f"property {name!r}={value!r}: name and value must not be empty, and a name "
                "cannot hold the character 0x01",
                field="properties",
            )
    return "".join([f"{name}\x01{value}\x02" for name, value in user.items()])


def spaced_key(key: object, index: int = -1) -> InvalidMessageError:
    """RocketMQ separates keys by spaces, so one text would be several keys without a word."""
    return InvalidMessageError(
        f"key {key!r} has a space in it, which separates keys: give several keys as a list, "
        "keys=['a', 'b']",
        field="keys",
        record_index=index,
    )


def join_keys(keys: Sequence[str]) -> str:
    """The stored KEYS text; raises InvalidMessageError for a key with a space in it."""
    for key in keys:
        if " " in key:
            raise spaced_key(key)
        if not key:
            raise InvalidMessageError("an empty key among several", field="keys")
    return " ".join(keys)


def compressed(body: bytes) -> tuple[bytes, int]:
    """The body to store and the system flag; as it was where compression does not pay."""
    packed = zlib.compress(body, COMPRESSION_LEVEL)
    return (packed, with_compression(0, ZLIB)) if len(packed) < len(body) else (body, 0)


def too_large_body(actual: int, limit: int, index: int = -1) -> MessageTooLargeError:
    return MessageTooLargeError(
        f"the body has {actual} bytes, the cluster's limit max_message_size is {limit}",
        field="body",
        limit=limit,
        actual=actual,
        record_index=index,
    )


def too_large_properties(actual: int, index: int = -1) -> PropertiesTooLargeError:
    return PropertiesTooLargeError(
        f"keys, tags and properties take {actual} bytes, the limit is {USER_PROPERTIES_LIMIT}",
        field="properties",
        limit=USER_PROPERTIES_LIMIT,
        actual=actual,
        record_index=index,
    )


_I32: Final = Struct(">i")
_I16: Final = Struct(">h")
_SYS_FLAG: Final = Struct(">i")


def with_property(record: bytes, name: str, value: str) -> bytes:
    """A framed record with one property more at its end; the rest is as it was."""
    size, magic = SIZE_AND_MAGIC.unpack_from(record)
    (sys_flag,) = _SYS_FLAG.unpack_from(record, 36)
    hosts = bool(sys_flag & BORN_HOST_IPV6) + bool(sys_flag & STORE_HOST_IPV6)
    body_length_at = BODY_LENGTH_OFFSET + hosts * IPV6_EXTRA
    topic_at = body_length_at + 4 + _I32.unpack_from(record, body_length_at)[0]
    if magic == MAGIC_V2:
        length_at = topic_at + 2 + _I16.unpack_from(record, topic_at)[0]
    else:
        length_at = topic_at + 1 + record[topic_at]
    (length,) = _I16.unpack_from(record, length_at)
    joint = b"\x02" if length and record[-1] != PROPERTY_END else b""
    extra = joint + f"{name}\x01{value}\x02".encode()
    return b"".join(
        (
            _I32.pack(size + len(extra)),
            record[4:length_at],
            _I16.pack(length + len(extra)),
            record[length_at + 2 :],
            extra,
        )
    )
