"""Records: Java's own bytes, round trips, and one wrong field at a time."""

from typing import Any

import pytest
from format.vectors import BLANK_100, FIELDS, MSG_ID, PROPERTIES, RECORD, RECORD_WITH_CRC
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.plain_format import record_size
from tandemlog.format import constants
from tandemlog.format.errors import CorruptRecordError, FormatError, RecordTooLargeError
from tandemlog.format.record.record import (
    TopicFrame,
    decode_record,
    encode_blank,
    encode_record,
    frame_message,
    is_blank,
    place_at,
    verify_property_crc,
)

OFFSET = 1073741824
LONG_TOPIC = "%RETRY%" + "g" * 128

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.sampled_from(["127.0.0.1:0", "10.1.2.3:65535", "[0:0:0:0:0:0:0:1]:5"])
fields = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["T", "Orders", "x" * 127, "x" * 128, LONG_TOPIC, "标签"]),
        "body": st.binary(max_size=64),
        "properties": st.sampled_from([b"", b"TAGS\x01a\x02", b"k\x01v"]),
        "queue_id": i32,
        "flag": i32,
        "sys_flag": st.integers(0, 2**31 - 1),
        "born_timestamp": i64,
        "born_host": hosts,
        "queue_offset": i64,
        "physical_offset": i64,
        "store_timestamp": i64,
        "store_host": hosts,
        "reconsume_times": i32,
        "prepared_transaction_offset": i64,
    }
)


def test_encodes_as_java_does() -> None:
    assert encode_record(**FIELDS, properties=PROPERTIES) == RECORD
    assert encode_record(**FIELDS, properties=PROPERTIES, property_crc=True) == RECORD_WITH_CRC


def test_decodes_what_java_wrote() -> None:
    record = decode_record(RECORD, physical_offset=OFFSET)
    assert {name: getattr(record, name) for name in FIELDS} == FIELDS
    assert record.properties == PROPERTIES
    assert record.properties is record.properties
    assert (record.tags, record.keys, record.uniq_key) == ("TagA", None, PROPERTIES["UNIQ_KEY"])
    assert (record.size, record.version, record.body_crc) == (157, 1, 0x3610A686)
    assert record.msg_id == MSG_ID


@settings(max_examples=60)
@given(fields, st.integers(0, 3))
def test_round_trip(values: dict[str, Any], margin: int) -> None:
    encoded = encode_record(**values)
    buffer = bytes(margin) + encoded + bytes(margin)
    record = decode_record(buffer, margin, physical_offset=values["physical_offset"])
    ipv6 = ("[" in values["born_host"], "[" in values["store_host"])
    values["sys_flag"] = values["sys_flag"] & ~0x30 | ipv6[0] << 4 | ipv6[1] << 5
    raw = values.pop("properties")
    assert {name: getattr(record, name) for name in values} == values
    assert record.properties_raw == raw
    topic = len(values["topic"].encode())
    assert record.version == (1 if topic <= 127 else 2)
    expected = record_size(len(values["body"]), topic, len(raw), sys_flag=values["sys_flag"])
    assert record.size == len(encoded) == expected
    place = (record.size, record.topic.encode(), record.queue_id, record.queue_offset)
    assert place_at(buffer, margin) == place_at(memoryview(buffer), margin) == place


@given(fields)
@settings(max_examples=20)
def test_property_crc_covers_all_before_it(values: dict[str, Any]) -> None:
    encoded = encode_record(**values, property_crc=True)
    assert verify_property_crc(encoded, 0, len(encoded)) is True
    damaged = bytearray(encoded)
    damaged[20] ^= 1
    assert verify_property_crc(damaged, 0, len(encoded)) is False
    damaged = bytearray(encoded)
    damaged[-2] = ord("x")
    assert verify_property_crc(memoryview(damaged), 0, len(encoded)) is False
    assert decode_record(encoded).properties["__CRC32#"].isdigit()


def test_property_crc_is_optional() -> None:
    assert verify_property_crc(RECORD, 0, len(RECORD)) is None
    assert verify_property_crc(bytes(5) + RECORD_WITH_CRC, 5, len(RECORD_WITH_CRC)) is True


def test_body_crc_is_masked_to_31_bits() -> None:
    assert decode_record(encode_record(topic="T", body=b"a")).body_crc == 0x68B7BE43
    assert decode_record(encode_record(topic="T", body=b"123456789")).body_crc == 0x4BF43926
    assert decode_record(encode_record(topic="T", body=b"")).body_crc == 0


def test_version_2_can_be_asked_for() -> None:
    record = decode_record(encode_record(topic="T", body=b"b", version=2))
    assert (record.version, record.topic, record.body) == (2, "T", b"b")
    assert record.size == record_size(1, 1, 0, version=2)


@pytest.mark.parametrize("make", [bytes, bytearray, memoryview])
def test_reads_any_buffer(make: Any) -> None:
    record = decode_record(make(RECORD))
    assert record.body == b"hello"
    assert isinstance(record.body, bytes)
    assert isinstance(record.properties_raw, bytes)


def test_text_that_is_not_utf_8_is_read() -> None:
    damaged = bytearray(RECORD)
    damaged[RECORD.index(b"TopicTest")] = 0xFF
    assert decode_record(damaged).topic == "�opicTest"


def patched(position: int, data: bytes) -> bytes:
    changed = bytearray(RECORD)
    changed[position : position + len(data)] = data
    return bytes(changed)


TOPIC_LENGTH_AT = 88 + 5
PROPERTIES_LENGTH_AT = TOPIC_LENGTH_AT + 1 + 9


@pytest.mark.parametrize(
    ("record", "field"),
    [
        (b"", "size"),
        (RECORD[:7], "size"),
        (RECORD[:-1], "size"),
        (bytes(200), "magic"),
        (BLANK_100 + bytes(92), "magic"),
        (patched(4, b"\xda\xa3\x20\xa8"), "magic"),
        (patched(0, b"\x00\x00\x00\x5a"), "size"),
        (patched(0, b"\x00\x00\x00\x9c"), "properties_length"),
        (patched(0, b"\x00\x00\x00\x9e") + b"\0", "size"),
        (patched(0, b"\xff\xff\xff\xff"), "size"),
        (patched(4, b"\xda\xa3\x20\xab"), "topic_length"),
        (patched(28, b"\1"), "physical_offset"),
        (patched(84, b"\x00\x00\x00\x06"), "topic_length"),
        (patched(84, b"\x7f\xff\xff\xff"), "body_length"),
        (patched(84, b"\xff\xff\xff\xff"), "body_length"),
        (patched(84, (157 - 88).to_bytes(4, "big")), "topic_length"),
        (patched(88, b"j"), "body_crc"),
        (patched(8, b"\0"), "body_crc"),
        (patched(TOPIC_LENGTH_AT, b"\x7f"), "topic_length"),
        (patched(TOPIC_LENGTH_AT, b"\xff"), "topic_length"),
        (patched(TOPIC_LENGTH_AT, bytes((157 - 95,))), "properties_length"),
        (patched(PROPERTIES_LENGTH_AT, b"\xff\xff"), "properties_length"),
        (patched(PROPERTIES_LENGTH_AT, b"\x00\x35"), "properties_length"),
        (patched(PROPERTIES_LENGTH_AT, b"\x00\x33"), "size"),
    ],
)
def test_names_the_field_that_is_wrong(record: bytes, field: str) -> None:
    with pytest.raises(CorruptRecordError) as caught:
        decode_record(record, physical_offset=OFFSET)
    assert caught.value.field == field
    assert caught.value.offset == OFFSET
    assert f"record at {OFFSET}: {field}" in str(caught.value)


def test_ipv6_bits_without_room_for_the_addresses() -> None:
    small = bytearray(encode_record(topic="T", body=b""))
    small[39] |= 0x30
    with pytest.raises(CorruptRecordError) as caught:
        decode_record(small)
    assert caught.value.field == "size"


def test_must_end_at_the_limit() -> None:
    buffer = RECORD + RECORD
    assert decode_record(buffer, len(RECORD), limit=2 * len(RECORD)).size == len(RECORD)
    with pytest.raises(CorruptRecordError, match="record at 157: size: 157, only 156 bytes"):
        decode_record(buffer, len(RECORD), limit=2 * len(RECORD) - 1)
    with pytest.raises(CorruptRecordError, match="only 0 bytes are left"):
        decode_record(buffer, len(RECORD), limit=3)


def test_crc_check_can_be_left_out() -> None:
    damaged = patched(88, b"j")
    assert decode_record(damaged, check_crc=False).body == b"jello"


@settings(max_examples=200)
@given(st.integers(0, len(RECORD) - 1), st.integers(1, 255))
def test_a_changed_byte_is_an_error_or_another_value(position: int, change: int) -> None:
    damaged = patched(position, bytes((RECORD[position] ^ change,)))
    try:
        record = decode_record(damaged)
    except CorruptRecordError:
        return
    assert record != decode_record(RECORD)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_typed_error(data: bytes) -> None:
    assert len(place_at(data, 0)) == 4
    with pytest.raises(CorruptRecordError):
        decode_record(data)
    with pytest.raises(CorruptRecordError):
        decode_record(RECORD[:8] + data, limit=len(data) + 8 if len(data) < 149 else 156)


@pytest.mark.parametrize(
    ("values", "error", "named"),
    [
        ({"topic": "x" * 128, "version": 1}, RecordTooLargeError, "topic has 128 bytes"),
        ({"topic": "x" * 32768}, RecordTooLargeError, "topic has 32768 bytes"),
        ({"topic": "\ud800"}, FormatError, "topic"),
        ({"version": 3}, FormatError, "version 3"),
        ({"properties": bytes(32768)}, RecordTooLargeError, "properties has 32768"),
        (
            {"properties": b"k\x01" + bytes(32746), "property_crc": True},
            RecordTooLargeError,
            "properties has 32769",
        ),
        ({"queue_id": 2**31}, FormatError, "range"),
        ({"store_timestamp": 2**63}, FormatError, "range"),
        ({"born_host": "nowhere"}, FormatError, "nowhere"),
    ],
)
def test_refuses_what_has_no_stored_form(
    values: dict[str, Any], error: type[FormatError], named: str
) -> None:
    with pytest.raises(error, match=named):
        encode_record(**{"topic": "T", "body": b"", **values})


def test_blank() -> None:
    assert encode_blank(100) == BLANK_100
    assert is_blank(BLANK_100)
    assert is_blank(RECORD + BLANK_100, len(RECORD))
    assert not is_blank(RECORD)
    assert not is_blank(BLANK_100[:7])
    assert not is_blank(b"")
    for length in (-1, 7, 2**31):
        with pytest.raises(FormatError, match="end mark"):
            encode_blank(length)


def test_fixed_size() -> None:
    assert len(encode_record(topic="", body=b"")) == constants.MIN_RECORD_SIZE == 91


@settings(max_examples=40)
@given(fields, st.booleans())
def test_framing_equals_encoding(values: dict[str, Any], store_ipv6: bool) -> None:
    frame = TopicFrame(values["topic"], values["born_host"], store_ipv6=store_ipv6)
    values["sys_flag"] &= ~0x30
    framed = frame_message(
        frame,
        values["body"],
        values["properties"],
        queue_id=values["queue_id"],
        born_timestamp=values["born_timestamp"],
        flag=values["flag"],
        sys_flag=values["sys_flag"],
    )
    for name in ("queue_offset", "physical_offset", "store_timestamp"):
        values[name] = 0
    for name in ("reconsume_times", "prepared_transaction_offset"):
        values[name] = 0
    values["store_host"] = "[0:0:0:0:0:0:0:0]:0" if store_ipv6 else "0.0.0.0:0"
    assert framed == encode_record(**values)


def test_framing_refuses_what_has_no_stored_form() -> None:
    frame = TopicFrame("T")
    with pytest.raises(RecordTooLargeError, match="properties has 32768"):
        frame_message(frame, b"", bytes(32768))
    with pytest.raises(FormatError, match="range"):
        frame_message(frame, b"", b"", queue_id=2**31)
