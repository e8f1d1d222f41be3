"""What a consumer in POP mode asks, and what it is answered.

    200050  POP_MESSAGE                  messages of one queue, or of all (queueId -1), for a time
    200052  PEEK_MESSAGE                 the same, without a lease
    200054  NOTIFICATION                 whether there is a message
    200055  POLLING_INFO                 how many requests wait
    200051  ACK_MESSAGE                  one message is done
    200151  BATCH_ACK_MESSAGE            many are, by bits from a start offset
    200053  CHANGE_MESSAGE_INVISIBLETIME one comes again then: more time, or another try

The answer to a pop names for each queue an offset and the offsets of its messages, by which a
client would make receipts; here each record has its own already (pop_receipts.py), but a client
still reads these texts, and stumbles over a queue that is in them twice.

    startOffsetInfo  0 queue start;...      msgOffsetInfo  0 queue offset,offset;...
    orderCountInfo   0 qo<queue>%<offset> times;...     in an order: how often it came before
"""

import base64
import binascii
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted

from ..heartbeats import json_object
from ..read_fields import I32, Fields, flag, integer, text
from .pop_receipts import NORMAL_TOPIC, Receipt, decode_receipt

MAX_POP: Final = 32
"""Messages of one request, as with RocketMQ."""
ALL_QUEUES: Final = -1
MIN_MODE: Final = 0
"""initMode: a new group begins at the first message."""
MAX_ACK_BYTES: Final = 1 << 20
MAX_BATCHES: Final = 1_024
MAX_ACKS: Final = 10_000
"""Messages of one BATCH_ACK_MESSAGE."""
MAX_BITS: Final = 1 << 16
"""Of one start offset."""
MAX_ATTEMPT_ID: Final = 255


@dataclass(frozen=True, slots=True)
class PopRequest:
    """`queue_id` ALL_QUEUES: of any queue. `from_first`: where a new group begins. Times in ms.
    `attempt_id`: the same one gets the same messages again, in an order."""

    group: str
    topic: str
    queue_id: int
    max_messages: int
    invisible_ms: int
    wait_ms: int
    from_first: bool
    expression: str
    expression_type: str
    in_order: bool
    attempt_id: str


@dataclass(frozen=True, slots=True)
class PlaceRequest:
    """Of NOTIFICATION, POLLING_INFO and PEEK_MESSAGE."""

    group: str
    topic: str
    queue_id: int
    max_messages: int = 1
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class ReceiptRequest:
    """One message that was popped. `invisible_ms`: of CHANGE_MESSAGE_INVISIBLETIME."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    receipt: Receipt
    invisible_ms: int = 0


@dataclass(frozen=True, slots=True)
class BatchAck:
    """Messages of one delivery that are done."""

    group: str
    topic: str
    queue_id: int
    queue_offsets: tuple[int, ...]
    delivery: int


@dataclass(frozen=True, slots=True)
class PoppedQueue:
    """Of one queue that was popped; `counts`: how often each of its messages came before."""

    queue_id: int
    queue_offsets: Sequence[int]
    counts: Sequence[int]


def read_pop(fields: Fields) -> PopRequest:
    """Raises FormatError."""
    attempt_id = fields.get("attemptId", "")
    if len(attempt_id) > MAX_ATTEMPT_ID:
        raise FormatError(
            f"attemptId has {len(attempt_id)} characters, the most is {MAX_ATTEMPT_ID}"
        )
    return PopRequest(
        group=text(fields, "consumerGroup"),
        topic=text(fields, "topic"),
        queue_id=_queue(fields),
        max_messages=integer(fields, "maxMsgNums", None, I32),
        invisible_ms=integer(fields, "invisibleTime"),
        wait_ms=max(0, integer(fields, "pollTime", 0)),
        from_first=integer(fields, "initMode", 1, I32) == MIN_MODE,
        expression=fields.get("exp", ""),
        expression_type=fields.get("expType", ""),
        in_order=flag(fields, "order"),
        attempt_id=attempt_id,
    )


def read_place(fields: Fields) -> PlaceRequest:
    """Raises FormatError."""
    return PlaceRequest(
        text(fields, "consumerGroup"),
        text(fields, "topic"),
        _queue(fields),
        max(1, integer(fields, "maxMsgNums", 1, I32)),
        max(0, integer(fields, "pollTime", 0)),
    )


def read_receipt(fields: Fields) -> ReceiptRequest:
    """Of requests 200051 and 200053. Raises FormatError, also for a receipt of another message."""
    receipt = decode_receipt(text(fields, "extraInfo"))
    asked = ReceiptRequest(
        text(fields, "consumerGroup"),
        text(fields, "topic"),
        integer(fields, "queueId", None, I32),
        integer(fields, "offset"),
        receipt,
        max(0, integer(fields, "invisibleTime", 0)),
    )
    if (receipt.queue_id, receipt.queue_offset) != (asked.queue_id, asked.queue_offset):
        raise FormatError(
            f"the request is about offset {asked.queue_offset} of queue {asked.queue_id}, its "
            f"extraInfo about offset {receipt.queue_offset} of queue {receipt.queue_id}"
        )
    return asked


def read_batch_ack(body: bytes) -> list[BatchAck]:
    """The body of 200151. Raises FormatError."""
    document = json_object(body, "a BATCH_ACK_MESSAGE", MAX_ACK_BYTES)
    rows = document.get("acks")
    if not isinstance(rows, list) or len(rows) > MAX_BATCHES:
        raise FormatError(f"a BATCH_ACK_MESSAGE has a list `acks` of at most {MAX_BATCHES} parts")
    acks: list[BatchAck] = []
    room = MAX_ACKS
    for row in rows:
        acks.append(_batch(row, room))
        room -= len(acks[-1].queue_offsets)
    return acks


def _batch(row: object, room: int) -> BatchAck:
    if not isinstance(row, Mapping):
        raise FormatError("a part of a BATCH_ACK_MESSAGE is no object")
    texts = [_member(row, short, name) for short, name in (("c", "consumerGroup"), ("t", "topic"))]
    numbers = [
        _member(row, short, name)
        for short, name in (("q", "queueId"), ("so", "startOffset"), ("rq", "reviveQueueId"))
    ]
    bits = _member(row, "b", "bitSet")
    retry = _member(row, "r", "retry")
    group, topic = (each if isinstance(each, str) else "" for each in texts)
    queue_id, start, delivery = (each if type(each) is int else -1 for each in numbers)
    if not group or not topic or min(queue_id, start, delivery) < 0 or start >= 1 << 62:
        raise FormatError(
            "a part of a BATCH_ACK_MESSAGE names its group, topic, queue, start offset and delivery"
        )
    if retry not in (NORMAL_TOPIC, None):
        raise FormatError(
            "a part of a BATCH_ACK_MESSAGE is of a retry topic, which only RocketMQ's broker fills"
        )
    data = _bit_set(bits)
    # before any of them is a number: a request of 1 MiB may name six millions
    count = int.from_bytes(data).bit_count()
    if count > room:
        raise FormatError(
            f"a BATCH_ACK_MESSAGE names {MAX_ACKS - room + count} messages or more, the most is "
            f"{MAX_ACKS}"
        )
    offsets = tuple(start + bit for bit in _bits(data))
    return BatchAck(group, topic, queue_id, offsets, delivery)


def _member(row: Mapping[str, object], short: str, name: str) -> object:
    return row.get(short, row.get(name))


def _bit_set(value: object) -> bytes:
    """Of a BitSet: fastjson writes its bytes, the lowest first, as a text of base64."""
    most = MAX_BITS // 8
    try:
        data = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except (binascii.Error, ValueError):
        data = None
    if data is None or len(data) > most:
        raise FormatError(f"a bitSet is a text of base64, of at most {most} bytes")
    return data


def _bits(data: bytes) -> Iterable[int]:
    for index, byte in enumerate(data):
        for bit in range(8) if byte else ():
            if byte >> bit & 1:
                yield index * 8 + bit


def _queue(fields: Fields) -> int:
    return max(integer(fields, "queueId", ALL_QUEUES, I32), ALL_QUEUES)


def pop_answer(
    pop_time_ms: int, invisible_ms: int, delivery: int = 0, rest: int = 0
) -> dict[str, str]:
    """The fields that a client reads of every answer to a pop, and, but for the last one, of a
    change: none may be missing. `rest`: how many messages are left."""
    return {
        "popTime": str(pop_time_ms),
        "invisibleTime": str(invisible_ms),
        "reviveQid": str(delivery),
        "restNum": str(rest),
    }


def queue_fields(queues: Iterable[PoppedQueue], *, in_order: bool) -> dict[str, str]:
    """The three texts of the module; each queue once."""
    starts, offsets, counts = [], [], []
    for each in queues:
        place = f"{NORMAL_TOPIC} {each.queue_id}"
        starts.append(f"{place} {each.queue_offsets[0]}")
        offsets.append(f"{place} {','.join(map(str, each.queue_offsets))}")
        counts += [
            f"{NORMAL_TOPIC} qo{each.queue_id}%{offset} {times}"
            for offset, times in zip(each.queue_offsets, each.counts, strict=True)
        ]
    fields = {"startOffsetInfo": ";".join(starts), "msgOffsetInfo": ";".join(offsets)}
    if in_order:
        fields["orderCountInfo"] = ";".join(counts)
    return fields


def subscription_of(expression: str, expression_type: str) -> tuple[tuple[str, ...], str]:
    """The tags of a pop, none for all, or its SQL92 condition. Raises FormatError."""
    if expression_type == "SQL92":
        if not expression.strip():
            raise FormatError("the subscription is SQL92, and has no condition")
        return (), expression
    if expression_type not in ("", "TAG"):
        raise FormatError(f"expType is {quoted(expression_type)}: this node knows TAG and SQL92")
    tags = tuple(dict.fromkeys(piece.strip() for piece in expression.split("||")))
    if expression in ("", "*"):
        return (), ""
    tags = tuple(each for each in tags if each)
    if not tags:
        raise FormatError(
            f"subscription {quoted(expression)} has no tag: write `a || b`, or * for all"
        )
    return tags, ""


def notification_answer(*, has_message: bool) -> dict[str, str]:
    """Of NOTIFICATION."""
    return {"hasMsg": json.dumps(has_message), "pollingFull": "false"}
