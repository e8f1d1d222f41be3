"""Protobuf's wire form by hand, for messages that are mostly bytes of the log.

    field    tag varint = number << 3 | kind      value
    kind 0   varint                               base 128, lowest bits first, 0x80 = more follow
         1   8 bytes
         2   length varint, bytes                 texts, packed columns, messages
         5   4 bytes

A protobuf object copies the bytes that it is given, again while it is encoded, and once more into
the result. So records and chunks of the log are put around and found in encoded messages without
one. Fields may stand in any order, and what is not known is skipped, as protobuf does.
"""

from collections.abc import Iterator
from typing import Final

from .constants import Buffer
from .errors import FormatError

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
FIXED32: Final = 5

_MAX_SHIFT: Final = 63
_U64: Final = (1 << 64) - 1


class WireError(FormatError):
    """Bytes that cannot be parsed as the fields of a message."""


def varint(value: int) -> bytes:
    """`value` in base 128; raises ValueError below zero."""
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def put_varint(out: bytearray, value: int) -> None:
    """Appends `value`; raises ValueError below zero."""
    if value < 0:
        raise ValueError(f"a number below zero: {value}")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def tag(number: int, kind: int = BYTES) -> bytes:
    """The tag that precedes a field's value: number and kind."""
    return varint(number << 3 | kind)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The number at `position`, its lowest 64 bits, and where it ends. Raises IndexError if `data`
    ends within it, WireError if it has more than ten bytes: the search for its end would read all
    that follows."""
    byte: int = data[position]
    if byte < 0x80:
        return byte, position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _U64, position + 1
        shift += 7
        if shift > _MAX_SHIFT:
            raise WireError(f"a number of more than {shift // 7} bytes")


def fields(data: Buffer) -> Iterator[tuple[int, int, int, int, int]]:
    """(number, kind, value, start, end) of each field. `start` and `end` are those of its value,
    without a length before it; the field itself begins at the end of the one before. `value` is
    that of a VARINT, else 0. Raises WireError at bytes that are not a field."""
    position, size = 0, len(data)
    while position < size:
        begin = position
        value = 0
        try:
            # Most heads and lengths are one byte, and a call for each would be the larger cost.
            head: int = data[position]
            start = position + 1
            if head >= 0x80:
                head, start = read_varint(data, position)
            kind = head & 7
            if kind == BYTES:
                length: int = data[start]
                start += 1
                if length >= 0x80:
                    length, start = read_varint(data, start - 1)
                position = start + length
            elif kind == VARINT:
                value, position = read_varint(data, start)
            elif kind == FIXED64:
                position = start + 8
            elif kind == FIXED32:
                position = start + 4
            else:
                raise WireError(f"a field of kind {kind} at byte {begin}")
        except IndexError:
            raise WireError(f"it ends within a number of the field at byte {begin}") from None
        if position > size:
            raise WireError(f"it ends within the field at byte {begin}")
        yield head >> 3, kind, value, start, position
