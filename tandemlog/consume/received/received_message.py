"""A message as it came: a view into the bytes of its record, decoded when a field is accessed.

A damaged record raises its error when a field is accessed, and spoils no other one: its CRC is
checked with the body, or with the whole record, so the messages around it can be read.
"""

from datetime import UTC, datetime
from struct import Struct, error
from typing import TYPE_CHECKING, Final

from ...errors import BadRecordError
from ...format.constants import (
    BODY_LENGTH_OFFSET,
    BORN_TIMESTAMP_OFFSET,
    CRC_MASK,
    IPV6_EXTRA,
    SHARDING_KEY,
)
from ...format.errors import CorruptRecordError
from ...format.fast_crc import crc32
from ...format.record.properties import split_keys
from ...format.record.record import Record, decode_record
from ...format.record.sys_flag import BORN_HOST_IPV6, COMPRESSED, STORE_HOST_IPV6
from ...tracing import processing
from ...unpacking import unpacked

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from opentelemetry.trace import Span

_HEAD: Final = Struct(">iIiiiqqi")
"""A record up to its system flag."""
_LENGTH: Final = Struct(">i")
FIRST_ROWS: Final = 16
"""Messages of a batch up to which one by one is quicker than by columns."""
_IPV6: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6

assert _HEAD.size == BORN_TIMESTAMP_OFFSET


class ReceivedMessage:
    """One message. Its fields raise BadRecordError if the record is damaged, and the body
    FormatError if it cannot be decompressed. Most of them decode the whole record, once."""

    __slots__ = ("_buffer", "_position", "_record", "size")

    def __init__(self, buffer: bytes | memoryview, position: int, size: int) -> None:
        self._buffer = buffer
        self._position = position
        self._record: Record | None = None
        self.size = size

    @property
    def raw(self) -> bytes:
        """The record's bytes, as in the log."""
        return bytes(self._buffer[self._position : self._position + self.size])

    @property
    def record(self) -> Record:
        """All fields; the body as it is stored."""
        record = self._record
        if record is None:
            try:
                record = decode_record(
                    self._buffer, self._position, limit=self._position + self.size
                )
            except CorruptRecordError as error:
                raise BadRecordError(f"received record: {error}", field=error.field) from error
            self._record = record
        return record

    @property
    def body(self) -> bytes:
        """As the producer sent it, decompressed. Read without decoding the rest."""
        at = self._position
        try:
            _, _, crc, *_, sys_flag = _HEAD.unpack_from(self._buffer, at)
            at += BODY_LENGTH_OFFSET
            if sys_flag & _IPV6:
                hosts = bool(sys_flag & BORN_HOST_IPV6) + bool(sys_flag & STORE_HOST_IPV6)
                at += IPV6_EXTRA * hosts
            (length,) = _LENGTH.unpack_from(self._buffer, at)
        except error:
            return self.record.body  # says what is wrong
        at += _LENGTH.size
        body = bytes(self._buffer[at : at + length]) if length > 0 else b""
        is_inside = at + length <= self._position + self.size
        if not is_inside or len(body) != length or (body and crc32(body) & CRC_MASK != crc):
            body = self.record.body  # says what is wrong
        return unpacked(sys_flag, body) if sys_flag & COMPRESSED else body

    @property
    def topic(self) -> str:
        return self.record.topic

    @property
    def queue_id(self) -> int:
        return int(_HEAD.unpack_from(self._buffer, self._position)[3])

    @property
    def queue_offset(self) -> int:
        return int(_HEAD.unpack_from(self._buffer, self._position)[5])

    @property
    def physical_offset(self) -> int:
        """Position in the commit log, bytes."""
        return int(_HEAD.unpack_from(self._buffer, self._position)[6])

    @property
    def properties(self) -> dict[str, str]:
        """All properties, including the store's own; do not change them."""
        return self.record.properties

    @property
    def tags(self) -> str | None:
        return self.record.tags

    @property
    def sharding_key(self) -> str | None:
        """What chose its queue; None if the producer gave none."""
        return self.record.properties.get(SHARDING_KEY)

    @property
    def keys(self) -> list[str]:
        return split_keys(self.record.keys or "")

    @property
    def uniq_key(self) -> str | None:
        return self.record.uniq_key

    @property
    def msg_id(self) -> str:
        """The offset id: finds this message on any node that has the log."""
        return self.record.msg_id

    @property
    def flag(self) -> int:
        return self.record.flag

    @property
    def born_timestamp(self) -> int:
        """When the client created it, ms."""
        return self.record.born_timestamp

    @property
    def born_host(self) -> str:
        return self.record.born_host

    @property
    def store_timestamp(self) -> int:
        """When the master stored it, ms."""
        return self.record.store_timestamp

    @property
    def store_time(self) -> datetime:
        return datetime.fromtimestamp(self.store_timestamp / 1000, UTC)

    @property
    def store_host(self) -> str:
        return self.record.store_host

    @property
    def reconsume_times(self) -> int:
        return self.record.reconsume_times

    def span(self, *, group: str | None = None) -> "AbstractContextManager[Span]":
        """For `with`: a span of OpenTelemetry in which this message is processed, linked to that of
        its producer. Raises InvalidArgumentError without the extra `otel`."""
        return processing(self.topic, [self.properties], 1, group)

    def __reduce__(self) -> tuple[type["ReceivedMessage"], tuple[bytes, int, int]]:
        """A copy, or what another process gets, has the bytes of this record alone."""
        return ReceivedMessage, (self.raw, 0, self.size)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, {len(self.record.body)} bytes)"
        )
