"""What a producer sends: requests 10, 310 and 320, read from their header and body.

    10   header with long names    producerGroup, topic, queueId, ...
    310  the same fields           a, b, e, ...                     one message, which is the body
    320  the same as 310           m=true                           many messages in the body

    body of 320   i32 size | i32 0 | i32 0 | i32 flag | i32 n, body | i16 n, properties | ...

All values of a header are texts, whatever a client has sent. The body of a batch says lengths:
none is used before it is known to lie within the body, and within its own message.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Final, NamedTuple

from tandemlog.format.errors import FormatError
from tandemlog.format.words import shortened
from tandemlog_server.rocketmq.wire.remoting import Command

from .codes import RequestCode

MOST_IN_BATCH: Final = 65_536
"""Messages of one request 320; a client's own limit is the size of the body."""
_MOST_DIGITS: Final = 19
_MIN_I32: Final = -(1 << 31)
_MAX_I32: Final = (1 << 31) - 1
_MAX_I64: Final = (1 << 63) - 1

MESSAGE_HEAD: Final = Struct(">iiiii")
"""Size, magic, CRC, flag, length of the body; magic and CRC are 0."""
_I16: Final = Struct(">h")
SMALLEST_MESSAGE: Final = MESSAGE_HEAD.size + _I16.size
"""Without a body and properties."""


class _Names(NamedTuple):
    """What the fields are called."""

    group: str
    topic: str
    default_topic: str
    default_queues: str
    queue_id: str
    sys_flag: str
    born_timestamp: str
    flag: str
    properties: str
    reconsume_times: str
    unit_mode: str
    max_reconsume_times: str
    batch: str


_LONG: Final = _Names(
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
)
_SHORT: Final = _Names("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m")


class SendRequest(NamedTuple):
    """A request to store `body`: one message, or with `batch` many. `queue_id` below 0: any queue.
    `properties` as they came; times in ms. `max_reconsume_times` None: what the group says."""

    group: str
    topic: str
    default_topic: str
    default_queues: int
    queue_id: int
    sys_flag: int
    born_timestamp: int
    flag: int
    properties: str
    reconsume_times: int
    max_reconsume_times: int | None
    batch: bool
    body: bytes


class BatchedMessage(NamedTuple):
    """One of the messages of a request 320."""

    flag: int
    body: bytes
    properties: bytes


def read_send(request: Command) -> SendRequest:
    """Raises FormatError, which names the field, for a header that no send has."""
    code, fields = request.code, request.fields
    names = _LONG if code == RequestCode.SEND_MESSAGE else _SHORT
    get, small = fields.get, _SMALL.get
    topic = get(names.topic)
    if not topic:
        raise FormatError(f"request {code}: field {names.topic!r} (the topic) is missing")
    # nearly every number of a header is one of a few texts
    queues = small(get(names.default_queues, "0"))
    queue_id = small(get(names.queue_id, "-1"))
    sys_flag = small(get(names.sys_flag, "0"))
    flag = small(get(names.flag, "0"))
    times = small(get(names.reconsume_times, "0"))
    most = get(names.max_reconsume_times)
    return SendRequest(
        get(names.group, ""),
        topic,
        get(names.default_topic, ""),
        _i32(fields, names.default_queues, code) if queues is None else queues,
        _i32(fields, names.queue_id, code) if queue_id is None else queue_id,
        _i32(fields, names.sys_flag, code) if sys_flag is None else sys_flag,
        _number(fields, names.born_timestamp, code, -_MAX_I64, _MAX_I64),
        _i32(fields, names.flag, code) if flag is None else flag,
        get(names.properties) or "",
        _i32(fields, names.reconsume_times, code) if times is None else times,
        None if most is None else _i32(fields, names.max_reconsume_times, code),
        code == RequestCode.SEND_BATCH_MESSAGE or get(names.batch) == "true",
        request.body,
    )


_SMALL: Final[Mapping[str, int]] = {str(number): number for number in range(-1, 1024)}


def _i32(fields: Mapping[str, str], name: str, code: int) -> int:
    return _number(fields, name, code, _MIN_I32, _MAX_I32)


def _number(fields: Mapping[str, str], name: str, code: int, least: int, most: int) -> int:
    text = fields.get(name, "0")
    try:
        # a text of a million digits costs seconds to read
        number = int(text) if len(text) <= _MOST_DIGITS + 1 else _MAX_I64 + 1
    except ValueError:
        number = _MAX_I64 + 1
    if not least <= number <= most:
        raise FormatError(
            f"request {code}: field {name!r} says {shortened(repr(text), 60)}, a number of "
            f"{least} to {most} is needed"
        )
    return number


def split_batch(body: bytes) -> list[BatchedMessage]:
    """The messages in the body of a request 320. Raises FormatError, with the position in the body,
    for a length that does not fit, and for a body without a message."""
    messages: list[BatchedMessage] = []
    end, at = len(body), 0
    while at < end:
        if len(messages) >= MOST_IN_BATCH:
            raise FormatError(f"the batch has more than {MOST_IN_BATCH} messages")
        if end - at < SMALLEST_MESSAGE:
            raise _unfit(
                at, f"{end - at} bytes are left, a message has {SMALLEST_MESSAGE} at least"
            )
        size, _, _, flag, body_length = MESSAGE_HEAD.unpack_from(body, at)
        if not SMALLEST_MESSAGE <= size <= end - at:
            raise _unfit(at, f"it says {size} bytes, {end - at} are left")
        start = at + MESSAGE_HEAD.size
        room = size - SMALLEST_MESSAGE
        if not 0 <= body_length <= room:
            raise _unfit(start - 4, f"a body of {body_length} bytes, its message has {room}")
        properties_at = start + body_length
        (length,) = _I16.unpack_from(body, properties_at)
        if length != room - body_length:
            raise _unfit(
                properties_at, f"properties of {length} bytes, {room - body_length} are left"
            )
        first = properties_at + _I16.size
        messages.append(
            BatchedMessage(flag, body[start:properties_at], body[first : first + length])
        )
        at += size
    if not messages:
        raise FormatError("the batch has no message")
    return messages


def has_more_messages(body: bytes, few: int) -> bool:
    """Whether the body of a request 320 may have more than `few` messages, by the sizes that they
    say: looks at so many. False for a body that cannot be read that far."""
    end, at = len(body), 0
    if end <= few * SMALLEST_MESSAGE:
        return False
    size_of = MESSAGE_HEAD.unpack_from
    for _ in range(few):
        if end - at < SMALLEST_MESSAGE:
            return False
        size = size_of(body, at)[0]
        if size < SMALLEST_MESSAGE:
            return False
        at += size
    return at < end


def _unfit(position: int, what: str) -> FormatError:
    return FormatError(f"the batch cannot be read at byte {position}: {what}")
