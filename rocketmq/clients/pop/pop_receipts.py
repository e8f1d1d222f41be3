"""What a popped message carries to its consumer, and back with its acknowledgement: POP_CK.

    start offset | pop time | invisible time | delivery | 0 | broker | queue | queue offset | handle
                                                          one space between two of them

The first eight are RocketMQ's (ExtraInfoUtil): clients read them by their places, to find the
broker, the queue and the offset, and to know when the message is visible again. The ninth is the
node's own receipt handle (tandemlog.format.lease.handle): it names the message by its place in the
log, so another master knows the message too, and never takes it for one that came there after a
cut. Clients send the text back as it is.

Two requests lose the ninth: an acknowledgement of many messages (BATCH_ACK_MESSAGE), and what a
client says after CHANGE_MESSAGE_INVISIBLETIME, for which it makes a text of its own. For these the
fourth, which in RocketMQ names a queue of its revive topic, is the number of the delivery: the
master that made the delivery, and no other, finds its message by offset and number.

A record gets the text as a property behind its others, where it counts whatever the producer wrote,
and the number of earlier deliveries as its reconsumeTimes; RocketMQ has both in the copy of the
message in the group's retry topic. A client leaves the property of a record alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import Buffer, byte_array
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.errors import FormatError
from tandemlog.format.lease.handle import HANDLE_CHARS
from tandemlog.format.words import quoted

POP_CK: Final = b"POP_CK"
FIRST_POP_TIME: Final = b"1ST_POP_TIME"
ORIGIN_GROUP: Final = b"ORIGIN_GROUP"
NORMAL_TOPIC: Final = "0"
"""The fifth field; 1 and 2 are RocketMQ's retry topics, which a node does not have."""
MAX_DELIVERY: Final = 0x7FFF_FFFF
MAX_RECEIPT: Final = 1_024
MAX_PROPERTIES: Final = 0x7FFF
_FIELDS: Final = 8
_SEPARATOR: Final = b"\x02"
_SIZE: Final = Struct(">i")
_LENGTH: Final = Struct(">h")
_TIMES_BEFORE_BODY: Final = 16
"""Bytes before the body in which reconsumeTimes begins."""


@dataclass(frozen=True, slots=True)
class Receipt:
    """See the module. Times in ms; `delivery` is below 2**31; `handle` is empty where a client has
    lost it."""

    start_offset: int
    pop_time_ms: int
    invisible_ms: int
    delivery: int
    broker: str
    queue_id: int
    queue_offset: int
    handle: bytes = b""


def delivery_of(lease: int) -> int:
    """The number of a delivery as it fits into Java's int."""
    return lease & MAX_DELIVERY


def encode_receipt(receipt: Receipt) -> bytes:
    """The text of POP_CK."""
    return (
        b"%d %d %d %d 0 %s %d %d %s"
        % (
            receipt.start_offset,
            receipt.pop_time_ms,
            receipt.invisible_ms,
            receipt.delivery,
            receipt.broker.encode(),
            receipt.queue_id,
            receipt.queue_offset,
            receipt.handle,
        )
    ).rstrip()


def decode_receipt(text: str) -> Receipt:
    """Raises FormatError for what no node and no client has written."""
    if len(text) > MAX_RECEIPT:
        raise FormatError(f"extraInfo has {len(text)} characters, the most is {MAX_RECEIPT}")
    parts = text.split(" ")
    if not _FIELDS <= len(parts) <= _FIELDS + 1:
        raise FormatError(
            f"extraInfo {quoted(text)} has {len(parts)} fields: a POP_CK has {_FIELDS} of them, "
            "and the receipt handle"
        )
    if parts[4] != NORMAL_TOPIC:
        raise FormatError(
            f"extraInfo {quoted(text)} is of a retry topic, which only RocketMQ's broker fills: "
            "messages that it has delivered are acknowledged there"
        )
    handle = parts[8].encode() if len(parts) > _FIELDS else b""
    if handle and len(handle) != HANDLE_CHARS:
        raise FormatError(f"extraInfo {quoted(text)} has a receipt handle of another length")
    try:
        start, pop_time, invisible, delivery = map(_number, parts[:4])
        queue_id, queue_offset = _number(parts[6]), _number(parts[7])
    except ValueError:
        raise FormatError(f"extraInfo {quoted(text)} has a field that is no number") from None
    return Receipt(start, pop_time, invisible, delivery, parts[5], queue_id, queue_offset, handle)


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise ValueError(text)
    return int(text)


def popped_records(
    records: Buffer,
    sizes: NDArray[np.int64],
    attempts: NDArray[np.uint16],
    first_pop_ms: NDArray[np.int64],
    receipts: Sequence[bytes],
    group: str,
) -> bytes:
    """The records, end to end in `records`, as a consumer of `group` gets them: each with its
    receipt, and with how often it was delivered before; one that was also with the time of its
    first delivery, and the group. A record without room for that stays as it is: the client makes a
    receipt without a handle then."""
    origin = ORIGIN_GROUP + b"\x01" + group.encode() + _SEPARATOR
    data = byte_array(records)
    starts = np.cumsum(sizes) - sizes
    headers = gather_headers(records, starts, sizes)
    view = data.data
    parts: list[bytes | memoryview] = []
    rows = zip(
        starts.tolist(),
        sizes.tolist(),
        headers.well_formed.tolist(),
        headers.body_start.tolist(),
        headers.properties_start.tolist(),
        headers.properties_length.tolist(),
        headers.reconsume_times.tolist(),
        attempts.tolist(),
        first_pop_ms.tolist(),
        receipts,
        strict=True,
    )
    for start, size, good, body, at, length, before, attempt, first_ms, receipt in rows:
        record = view[start : start + size]
        more = [POP_CK + b"\x01" + receipt + _SEPARATOR]
        if attempt > 1:
            more += (FIRST_POP_TIME + b"\x01%d" % first_ms + _SEPARATOR, origin)
        if good and length and view[at + length - 1] != _SEPARATOR[0]:
            more.insert(0, _SEPARATOR)
        added = b"".join(more)
        if not good or length + len(added) > MAX_PROPERTIES:
            parts.append(record)
            continue
        times = body - start - _TIMES_BEFORE_BODY
        before += max(attempt - 1, 0)
        parts += (
            _SIZE.pack(size + len(added)),
            record[4:times],
            _SIZE.pack(min(before, MAX_DELIVERY)),
            record[times + 4 : at - start - 2],
            _LENGTH.pack(length + len(added)),
            record[at - start : at - start + length],
            added,
            record[at - start + length :],
        )
    return b"".join(parts)
