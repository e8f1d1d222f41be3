"""The records of a batch (request 320), framed as its messages lie in its body.

    body      i32 size | i32 0 | i32 0 | i32 flag | i32 n, text | i16 n, properties | ...
    record    head                               │ text ──┘ topic │ i16 n, properties ──┘

Both forms write properties alike, so they go into the record as they came, with their length. That
holds for messages with properties that end with 0x02, none of which asks for a delay or is one of
the store's own: nearly all. A body with any other message, or with a length that does not fit, is
read message by message, which finds what is wrong with it.
"""

from struct import Struct
from struct import error as struct_error
from typing import Final
from zlib import crc32

from tandemlog.format.constants import CRC_MASK
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import TopicFrame

from .send_requests import MESSAGE_HEAD, MOST_IN_BATCH, SMALLEST_MESSAGE, split_batch
from .stored_message import HOST_FLAGS, StoredMessage, frame_stored, topic_frame
from .stored_properties import MEMBER_HINTS, member_properties

_LENGTH: Final = Struct(">h")
_HEAD_BYTES: Final = MESSAGE_HEAD.size
_END: Final = 2
"""The byte behind a property."""


def batch_records(
    body: bytes, common: StoredMessage, born_host: str, *, store_ipv6: bool, most_bytes: int
) -> list[bytes]:
    """A record for each message in `body`, with what all of them have in `common`; `most_bytes` of
    one text. Raises FormatError as split_batch and frame_stored, and for a longer text."""
    if not common.reconsume_times:
        frame = topic_frame(common.topic, born_host, store_ipv6)
        if (records := _framed(body, frame, common, most_bytes)) is not None:
            return records
    records = []
    for member in split_batch(body):
        check_text(member.body, most_bytes)
        common.flag, common.body = member.flag, member.body
        properties = member_properties(member.properties)
        records.append(frame_stored(common, properties, born_host, store_ipv6=store_ipv6))
    return records


def check_text(text: bytes, most_bytes: int) -> None:
    """Raises FormatError for a message that is too long for the store."""
    if len(text) > most_bytes:
        raise FormatError(
            f"the body has {len(text)} bytes, the limit is {most_bytes} (store.max_message_size)"
        )


def _framed(
    body: bytes, frame: TopicFrame, common: StoredMessage, most_bytes: int
) -> list[bytes] | None:
    """The records; None for a body that is to be read message by message."""
    records: list[bytes] = []
    properties: list[bytes] = []
    keep, note = records.append, properties.append
    head_of, length_of = MESSAGE_HEAD.unpack_from, _LENGTH.unpack_from
    pack, join = frame.pack, b"".join
    magic, born, topic = frame.magic, frame.born, frame.topic_part
    queue_id, born_timestamp = common.queue_id, common.born_timestamp
    flags = common.sys_flag & ~HOST_FLAGS | frame.host_flags
    more = frame.empty_size - SMALLEST_MESSAGE  # bytes of a record, beside those of its message
    end, at = len(body), 0
    try:
        while at < end:
            size, _, _, flag, length = head_of(body, at)
            start = at + _HEAD_BYTES
            split = start + length
            at += size
            if not (0 <= length <= most_bytes and size > SMALLEST_MESSAGE + length and at <= end):
                return None
            text, rest = body[start:split], body[split:at]
            if length_of(rest)[0] != len(rest) - _LENGTH.size or rest[-1] != _END:
                return None
            if len(records) >= MOST_IN_BATCH:
                return None
            head = pack(
                size + more,
                magic,
                crc32(text) & CRC_MASK,
                queue_id,
                flag,
                flags,
                born_timestamp,
                born,
                length,
            )
            keep(join((head, text, topic, rest)))
            note(rest)
    except struct_error:
        return None
    # all at once: no hint has a 0x02 in it, so none is found where two of them meet
    names = join(properties)
    if not records or any(hint in names for hint in MEMBER_HINTS):
        return None
    return records
