"""A chunk of the log as the bytes of a MasterFrame, with one copy.

This module encodes and decodes the protobuf bytes itself, so that a megabyte of log never passes
through a message object: encoding a frame copies the data once, decoding it returns a view. Fields
may stand in any order in protobuf; `data` is put last.

    12 length │ 08 offset  10 epoch  18 epoch_start  20 confirm  28 max  38 sent_at
              │ 40 master_epoch  48 crc  50 round  32 length data

`crc` covers the bytes as the master read them, so bits that flip in memory or on the wire do not
reach the slave's log. A number of more than ten bytes is not valid protobuf: decoding stops there,
or it would search a whole frame for its end.

If another program wrote a chunk with its fields in another order, the generated classes decode it.
"""

from dataclasses import dataclass

from tandemlog.format.constants import Buffer
from tandemlog.format.protobuf_wire import WireError, put_varint, read_varint

from ..errors import ProtocolError

_CHUNK_TAG = 0x12
_DATA_TAG = 0x32
_LAST_FIELD = 10


@dataclass(frozen=True, slots=True)
class Chunk:
    """Log bytes of one epoch and one file; see LogChunk in replication.proto."""

    offset: int
    epoch: int
    epoch_start: int
    confirm: int
    max_offset: int
    sent_at_ms: int
    master_epoch: int
    data: Buffer = b""
    crc: int = 0
    round: int = 0


def encode_chunk(chunk: Chunk) -> bytes:
    """A MasterFrame with this chunk, put together by hand."""
    head = bytearray()
    for tag, value in (
        (0x08, chunk.offset),
        (0x10, chunk.epoch),
        (0x18, chunk.epoch_start),
        (0x20, chunk.confirm),
        (0x28, chunk.max_offset),
        (0x38, chunk.sent_at_ms),
        (0x40, chunk.master_epoch),
        (0x48, chunk.crc),
        (0x50, chunk.round),
    ):
        if value:
            head.append(tag)
            put_varint(head, value)
    if len(chunk.data):
        head.append(_DATA_TAG)
        put_varint(head, len(chunk.data))
    start = bytearray((_CHUNK_TAG,))
    put_varint(start, len(head) + len(chunk.data))
    return b"".join((start, head, chunk.data))


def decode_chunk(data: bytes) -> Chunk | None:
    """The chunk in `data`; None if that is another frame, or not as encode_chunk writes it.
    Raises ProtocolError for a number without an end."""
    if not data or data[0] != _CHUNK_TAG:
        return None
    fields = [0] * (_LAST_FIELD + 1)
    try:
        length, position = read_varint(data, 1)
        if position + length != len(data):
            return None
        for _ in fields:
            if position == len(data):
                break
            tag = data[position]
            value, position = read_varint(data, position + 1)
            if tag == _DATA_TAG:
                if position + value != len(data):
                    return None
                break
            if tag & 7 or not 1 <= tag >> 3 <= _LAST_FIELD:
                return None
            fields[tag >> 3] = value
        else:
            return None
    except IndexError:
        return None
    except WireError as error:
        raise ProtocolError(f"{error} in a chunk") from None
    return Chunk(
        offset=fields[1],
        epoch=fields[2],
        epoch_start=fields[3],
        confirm=fields[4],
        max_offset=fields[5],
        sent_at_ms=fields[7],
        master_epoch=fields[8],
        data=memoryview(data)[position:],
        crc=fields[9],
        round=fields[10],
    )
