"""Protobuf messages as trees of their wire fields, so that a mutation can do what a class cannot.

    bytes ──parse(descriptor)──▶ [Field(number, kind, value)] ──changed──▶ encode ──▶ bytes

A generated class refuses invalid UTF-8, a wrong wire type, a field twice or two sides of a oneof;
whoever writes bytes to a socket does not ask it. Fields that the descriptor says are messages are
parsed in turn, so the lengths around a changed field are right and the change arrives where it was
made; the mutations of raw bytes are for wrong lengths.
"""

from dataclasses import dataclass
from typing import TypeAlias

from google.protobuf.descriptor import Descriptor, FieldDescriptor

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTH = {FIXED64: 8, FIXED32: 4}

Value: TypeAlias = "int | bytes | list[Field]"


@dataclass(slots=True)
class Field:
    """`value`: an int of a varint, the raw bytes of the others, or the fields of a message.
    `kind` is its wire type; `known` the descriptor's field, None where it has none."""

    number: int
    kind: int
    value: Value
    known: FieldDescriptor | None = None


def varint(value: int) -> bytes:
    """`value` modulo 2**64, as protobuf writes negative numbers."""
    value &= 0xFFFFFFFFFFFFFFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse(data: bytes, descriptor: Descriptor) -> list[Field]:
    """The fields in `data`, a valid message of `descriptor`. Raises IndexError for others."""
    fields, position = [], 0
    while position < len(data):
        tag, position = _read_varint(data, position)
        number, kind = tag >> 3, tag & 7
        known = descriptor.fields_by_number.get(number)
        value: Value
        if kind == VARINT:
            value, position = _read_varint(data, position)
        elif kind == BYTES:
            length, position = _read_varint(data, position)
            value = data[position : position + length]
            position += length
            if known is not None and known.message_type is not None:
                value = parse(value, known.message_type)
        else:
            value = data[position : position + _WIDTH[kind]]
            position += _WIDTH[kind]
        fields.append(Field(number, kind, value, known))
    return fields


def encode(fields: list[Field]) -> bytes:
    """The bytes of a message; what a field says of its kind is written as it stands."""
    parts: list[bytes] = []
    for field in fields:
        parts.append(varint(field.number << 3 | field.kind))
        value = field.value
        if isinstance(value, int):
            parts.append(varint(value))
            continue
        content = encode(value) if isinstance(value, list) else value
        if field.kind == BYTES:
            parts.append(varint(len(content)))
        parts.append(content)
    return b"".join(parts)


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
