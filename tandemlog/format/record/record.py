"""One message in the commit log: encode, decode, check, and frame for a master.

constants.py has the picture; FIXED_SIZE bytes up to the body length, then

    body | topic length (V1: 1 byte, V2: 2 bytes) | topic | properties length (2) | properties

Sizes: V1 91 + body + topic + properties, V2 one more, and 12 for each IPv6 host. Records stand
end to end, unpadded. We write V1 wherever the topic fits it (127 bytes), as RocketMQ does.

The body CRC covers the stored (perhaps compressed) body and is masked to 31 bits; what an
optional second CRC covers is in property_crc.py.

This is the plain path, a record at a time. It checks everything it reads, the position written
inside the record included: a valid record at another offset is rejected.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from ..constants import (
    BLANK_SIZE,
    BORN_HOST_OFFSET,
    CRC_MASK,
    FIXED_SIZE,
    IPV6_EXTRA,
    KEYS,
    MAGIC_BLANK,
    MAGIC_OFFSET,
    MAGIC_V1,
    MAGIC_V2,
    MAX_PROPERTIES,
    MAX_TOPIC_V1,
    MIN_RECORD_SIZE,
    PHYSICAL_OFFSET_OFFSET,
    QUEUE_OFFSET_OFFSET,
    SHARDING_KEY,
    SIZE_AND_MAGIC,
    SYS_FLAG_OFFSET,
    TAGS,
    UNIQ_KEY,
    Buffer,
)
from ..errors import CorruptRecordError, FormatError, RecordTooLargeError
from ..fast_crc import crc32
from .host import IPV4_SIZE, IPV6_SIZE, host_bytes, host_text
from .message_id import encode_offset_id
from .properties import decode_properties, encode_properties, split_keys
from .property_crc import verify_property_crc as verify_property_crc
from .property_crc import with_property_crc, with_room_for_crc
from .sys_flag import BORN_HOST_IPV6, STORE_HOST_IPV6

_HEAD: Final = Struct(">iIiiiqqiq")
"""Size to born timestamp: the part in front of the hosts."""
_I64: Final = Struct(">q")
_STORE_TIMESTAMP: Final = _I64
_TAIL: Final = Struct(">iqi")
"""Reconsume times to body length."""
_MAGIC: Final = Struct(">I")
_I16: Final = Struct(">h")
_MAX_I32: Final = (1 << 31) - 1
_MAX_I16: Final = (1 << 15) - 1
_HOST_FLAGS: Final = BORN_HOST_IPV6 | STORE_HOST_IPV6

assert _HEAD.size == BORN_HOST_OFFSET
assert BORN_HOST_OFFSET + 2 * IPV4_SIZE + _STORE_TIMESTAMP.size + _TAIL.size == FIXED_SIZE


@dataclass(frozen=True, slots=True)
class Record:
    """A record's fields. `physical_offset` counts bytes of the commit log, `queue_offset`
    messages of the queue; times are in ms. `body` is as stored: decompress_body makes it plain.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    version: int
    sys_flag: int
    flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body: bytes
    properties_raw: bytes
    _properties: dict[str, str] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def properties(self) -> dict[str, str]:
        """Decoded once and kept; not to be changed."""
        properties = self._properties
        if properties is None:
            properties = decode_properties(self.properties_raw)
            object.__setattr__(self, "_properties", properties)
        return properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(TAGS)

    @property
    def keys(self) -> str | None:
        """The whole KEYS text; split_keys takes it apart."""
        return self.properties.get(KEYS)

    @property
    def uniq_key(self) -> str | None:
        return self.properties.get(UNIQ_KEY)

    @property
    def sharding_key(self) -> str | None:
        """What its queue was chosen by."""
        return self.properties.get(SHARDING_KEY)

    def has_key(self, key: str) -> bool:
        """Whether it is the unique key, or one of the keys."""
        return self.uniq_key == key or key in split_keys(self.keys or "")

    @property
    def msg_id(self) -> str:
        """The offset message id: store host and physical offset."""
        return encode_offset_id(self.store_host, self.physical_offset)


def encode_record(
    *,
    topic: str,
    body: bytes,
    properties: bytes | Mapping[str, str] = b"",
    queue_id: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    born_timestamp: int = 0,
    born_host: str = "127.0.0.1:0",
    queue_offset: int = 0,
    physical_offset: int = 0,
    store_timestamp: int = 0,
    store_host: str = "127.0.0.1:0",
    reconsume_times: int = 0,
    prepared_transaction_offset: int = 0,
    version: int | None = None,
    property_crc: bool = False,
) -> bytes:
    """The bytes of a record; size, CRC and the host bits of the system flag are computed.

    `version` None: 1, or 2 for a topic above 127 bytes. Raises RecordTooLargeError naming the
    part above its limit, FormatError for a value that has no stored form.
    """
    born, store = host_bytes(born_host), host_bytes(store_host)
    magic, topic_part = _topic_part(topic, version)
    raw = properties if isinstance(properties, bytes) else encode_properties(properties)
    if property_crc:
        raw = with_room_for_crc(raw)
    if len(raw) > MAX_PROPERTIES:
        raise RecordTooLargeError("properties", len(raw), MAX_PROPERTIES)
    size = FIXED_SIZE - 2 * IPV4_SIZE + len(born) + len(store)
    size += len(body) + len(topic_part) + _I16.size + len(raw)
    if size > _MAX_I32:
        raise RecordTooLargeError("record", size, _MAX_I32)
    try:
        encoded = b"".join(
            (
                _HEAD.pack(
                    size,
                    magic,
                    crc32(body) & CRC_MASK,
                    queue_id,
                    flag,
                    queue_offset,
                    physical_offset,
                    sys_flag & ~_HOST_FLAGS | _host_flags(born, store),
                    born_timestamp,
                ),
                born,
                _STORE_TIMESTAMP.pack(store_timestamp),
                store,
                _TAIL.pack(reconsume_times, prepared_transaction_offset, len(body)),
                body,
                topic_part,
                _I16.pack(len(raw)),
                raw,
            )
        )
    except struct.error as error:
        raise FormatError(f"a field of the record is out of its range: {error}") from error
    return with_property_crc(encoded) if property_crc else encoded


def _host_flags(born: bytes, store: bytes) -> int:
    flags = BORN_HOST_IPV6 if len(born) == IPV6_SIZE else 0
    return flags | (STORE_HOST_IPV6 if len(store) == IPV6_SIZE else 0)


def _topic_part(topic: str, version: int | None) -> tuple[int, bytes]:
    """The magic, and topic length and topic as stored."""
    try:
        encoded = topic.encode()
    except UnicodeEncodeError as error:
        raise FormatError(f"topic: not valid Unicode text: {error}") from error
    if version is None:
        version = 1 if len(encoded) <= MAX_TOPIC_V1 else 2
    if version == 1:
        if len(encoded) > MAX_TOPIC_V1:
            raise RecordTooLargeError("topic", len(encoded), MAX_TOPIC_V1)
        return MAGIC_V1, bytes((len(encoded),)) + encoded
    if version != 2:
        raise FormatError(f"record version {version} is neither 1 nor 2")
    if len(encoded) > _MAX_I16:
        raise RecordTooLargeError("topic", len(encoded), _MAX_I16)
    return MAGIC_V2, _I16.pack(len(encoded)) + encoded


def decode_record(
    buffer: Buffer,
    position: int = 0,
    *,
    physical_offset: int | None = None,
    check_crc: bool = True,
    limit: int | None = None,
) -> Record:
    """The record at `position` of `buffer`, which must end at `limit` (default: its length).

    `physical_offset` is where that is in the commit log: the record must say the same. Raises
    CorruptRecordError at the first field that is wrong; a BLANK is no record (see is_blank).
    """
    at = position if physical_offset is None else physical_offset
    end = len(buffer) if limit is None else min(limit, len(buffer))
    size, version = _check_start(buffer, position, end, at)
    (_, _, body_crc, queue_id, flag, queue_offset, stored_offset, sys_flag, born_timestamp) = (
        _HEAD.unpack_from(buffer, position)
    )
    if physical_offset is not None and stored_offset != physical_offset:
        raise CorruptRecordError(at, "physical_offset", f"it says {stored_offset}")
    end = position + size
    born_end = position + BORN_HOST_OFFSET
    born_end += IPV6_SIZE if sys_flag & BORN_HOST_IPV6 else IPV4_SIZE
    store_start = born_end + _STORE_TIMESTAMP.size
    store_end = store_start + (IPV6_SIZE if sys_flag & STORE_HOST_IPV6 else IPV4_SIZE)
    body_start = store_end + _TAIL.size
    if body_start > end:
        raise CorruptRecordError(at, "size", f"{size} bytes do not hold the hosts' addresses")
    reconsume_times, prepared_offset, body_length = _TAIL.unpack_from(buffer, store_end)
    topic_length_at = _skip(at, "body_length", body_start, body_length, end)
    topic_start = topic_length_at + version
    topic_length = _read_length(buffer, at, "topic_length", topic_length_at, version, end)
    properties_length_at = _skip(at, "topic_length", topic_start, topic_length, end)
    properties_start = properties_length_at + _I16.size
    properties_length = _read_length(
        buffer, at, "properties_length", properties_length_at, _I16.size, end
    )
    if _skip(at, "properties_length", properties_start, properties_length, end) != end:
        said = properties_start + properties_length - position
        raise CorruptRecordError(at, "size", f"it says {size}, its parts are {said} bytes")
    body = bytes(buffer[body_start:topic_length_at])
    if check_crc and body and crc32(body) & CRC_MASK != body_crc:
        raise CorruptRecordError(
            at, "body_crc", f"it says {body_crc}, the body has {crc32(body) & CRC_MASK}"
        )
    return Record(
        topic=bytes(buffer[topic_start:properties_length_at]).decode("utf-8", "replace"),
        queue_id=queue_id,
        queue_offset=queue_offset,
        physical_offset=stored_offset,
        size=size,
        version=version,
        sys_flag=sys_flag,
        flag=flag,
        born_timestamp=born_timestamp,
        born_host=host_text(bytes(buffer[position + BORN_HOST_OFFSET : born_end])),
        store_timestamp=_STORE_TIMESTAMP.unpack_from(buffer, born_end)[0],
        store_host=host_text(bytes(buffer[store_start:store_end])),
        reconsume_times=reconsume_times,
        prepared_transaction_offset=prepared_offset,
        body_crc=body_crc,
        body=body,
        properties_raw=bytes(buffer[properties_start:end]),
    )


def queue_offset_at(buffer: Buffer, position: int) -> int:
    """The queue offset of the record at `position`, without looking at the rest of it; so the two
    below. -1 where the buffer ends before it."""
    return _number_at(buffer, position + QUEUE_OFFSET_OFFSET)


def physical_offset_at(buffer: Buffer, position: int) -> int:
    return _number_at(buffer, position + PHYSICAL_OFFSET_OFFSET)


def store_timestamp_at(buffer: Buffer, position: int) -> int:
    """ms"""
    flag_at = position + SYS_FLAG_OFFSET
    ipv6 = int.from_bytes(buffer[flag_at : flag_at + 4], "big") & BORN_HOST_IPV6
    return _number_at(buffer, position + BORN_HOST_OFFSET + (IPV6_SIZE if ipv6 else IPV4_SIZE))


def place_at(buffer: Buffer, position: int) -> tuple[int, bytes, int, int]:
    """Size, topic, queue id and queue offset of the record at `position`, without looking at the
    rest, and whatever is wrong with them; zeros and no topic where the buffer ends before it."""
    if position + FIXED_SIZE > len(buffer):
        return 0, b"", 0, 0
    size, magic, _, queue_id, _, queue_offset, _, flags, _ = _HEAD.unpack_from(buffer, position)
    at = position + FIXED_SIZE
    if flags & _HOST_FLAGS:
        at += IPV6_EXTRA * (bool(flags & BORN_HOST_IPV6) + bool(flags & STORE_HOST_IPV6))
    at += max(int.from_bytes(buffer[at - 4 : at], signed=True), 0)  # the body
    begin = at + (2 if magic == MAGIC_V2 else 1)
    topic = bytes(buffer[begin : begin + int.from_bytes(buffer[at:begin])])
    return size, topic, queue_id, queue_offset


def _number_at(buffer: Buffer, position: int) -> int:
    if position + _I64.size > len(buffer):
        return -1
    return int(_I64.unpack_from(buffer, position)[0])


def _check_start(buffer: Buffer, position: int, end: int, at: int) -> tuple[int, int]:
    """Size and version of a record that lies within `end`."""
    if end - position < SIZE_AND_MAGIC.size:
        raise CorruptRecordError(at, "size", f"only {max(end - position, 0)} bytes are left")
    size, magic = SIZE_AND_MAGIC.unpack_from(buffer, position)
    if magic == MAGIC_BLANK:
        raise CorruptRecordError(at, "magic", "it marks the end of the file, not a record")
    if magic != MAGIC_V1 and magic != MAGIC_V2:
        raise CorruptRecordError(at, "magic", f"0x{magic:08X} is none of a record")
    if size < MIN_RECORD_SIZE:
        raise CorruptRecordError(at, "size", f"{size}, a record has at least {MIN_RECORD_SIZE}")
    if size > end - position:
        raise CorruptRecordError(at, "size", f"{size}, only {end - position} bytes are left")
    return size, 1 if magic == MAGIC_V1 else 2


def _read_length(buffer: Buffer, at: int, name: str, start: int, width: int, end: int) -> int:
    if start + width > end:
        raise CorruptRecordError(at, name, "the record ends before it")
    return int.from_bytes(buffer[start : start + width], "big", signed=True)


def _skip(at: int, name: str, start: int, length: int, end: int) -> int:
    if not 0 <= length <= end - start:
        raise CorruptRecordError(at, name, f"{length}, the record has {end - start} bytes left")
    return start + length


def encode_blank(length: int) -> bytes:
    """The 8 bytes that close a file with `length` bytes left; raises FormatError below 8."""
    if not BLANK_SIZE <= length <= _MAX_I32:
        raise FormatError(f"a file's end mark of {length} bytes: at least {BLANK_SIZE} are needed")
    return SIZE_AND_MAGIC.pack(length, MAGIC_BLANK)


def is_blank(buffer: Buffer, position: int = 0) -> bool:
    """Whether a file's end mark stands at `position`: continue with the next file."""
    magic_at = position + MAGIC_OFFSET
    if magic_at + _MAGIC.size > len(buffer):
        return False
    return bool(_MAGIC.unpack_from(buffer, magic_at)[0] == MAGIC_BLANK)


class TopicFrame:
    """What all messages of a topic from one client have in common, ready as bytes.

    `store_ipv6` says whether the master's address in the log is an IPv6 one. Raises as
    encode_record for a topic or host that has no stored form.
    """

    __slots__ = ("born", "empty_size", "host_flags", "magic", "pack", "topic_part")

    def __init__(self, topic: str, born_host: str = "0.0.0.0:0", *, store_ipv6: bool = False):
        self.born = host_bytes(born_host)
        self.magic, self.topic_part = _topic_part(topic, None)
        store_size = IPV6_SIZE if store_ipv6 else IPV4_SIZE
        self.host_flags = _host_flags(self.born, bytes(store_size))
        # 16: queue and physical offset; 12: reconsume times and prepared transaction offset.
        form = Struct(f">iIIii16xiq{len(self.born)}s{_STORE_TIMESTAMP.size + store_size + 12}xi")
        self.empty_size = form.size + len(self.topic_part) + _I16.size
        self.pack = form.pack


def frame_message(
    frame: TopicFrame,
    body: bytes,
    properties: bytes = b"",
    queue_id: int = 0,
    born_timestamp: int = 0,
    flag: int = 0,
    sys_flag: int = 0,
    *,
    _pack_length: Callable[[int], bytes] = _I16.pack,
) -> bytes:
    """A record for a master: the fields that only the master knows (queue offset, physical
    offset, store time and host) are zero. `properties` as stored; `sys_flag` without host bits.

    Raises RecordTooLargeError for properties above 32,767 bytes, FormatError for a field out
    of its range. Limits of topic and body are the master's to know.
    """
    body_length = len(body)
    properties_length = len(properties)
    if properties_length > MAX_PROPERTIES:
        raise RecordTooLargeError("properties", properties_length, MAX_PROPERTIES)
    try:
        head = frame.pack(
            frame.empty_size + body_length + properties_length,
            frame.magic,
            crc32(body) & CRC_MASK,
            queue_id,
            flag,
            sys_flag | frame.host_flags,
            born_timestamp,
            frame.born,
            body_length,
        )
    except struct.error as error:
        raise FormatError(f"a field of the record is out of its range: {error}") from error
    return b"".join((head, body, frame.topic_part, _pack_length(properties_length), properties))
