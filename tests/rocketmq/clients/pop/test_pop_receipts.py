"""Receipts of popped messages, as texts and in records."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.lease.handle import HANDLE_CHARS
from tandemlog.format.record.record import decode_record, encode_record
from tandemlog_server.rocketmq.clients.pop.pop_receipts import (
    MAX_DELIVERY,
    MAX_PROPERTIES,
    Receipt,
    decode_receipt,
    delivery_of,
    encode_receipt,
    popped_records,
)

HANDLE = b"h" * HANDLE_CHARS
NUMBERS = st.integers(0, (1 << 63) - 1)
NAMES = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=100)


@given(
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.integers(0, MAX_DELIVERY),
    NAMES,
    st.integers(0, 1 << 31),
    NUMBERS,
    st.sampled_from([b"", HANDLE]),
)
def test_a_receipt_comes_back_as_it_was(
    start: int,
    pop_time: int,
    invisible: int,
    delivery: int,
    broker: str,
    queue_id: int,
    queue_offset: int,
    handle: bytes,
) -> None:
    receipt = Receipt(start, pop_time, invisible, delivery, broker, queue_id, queue_offset, handle)
    assert decode_receipt(encode_receipt(receipt).decode()) == receipt


def test_a_receipt_has_rocketmqs_fields_at_their_places() -> None:
    text = encode_receipt(Receipt(7, 1_700_000_000_000, 60_000, 3, "broker-a", 2, 9, HANDLE))
    assert text == b"7 1700000000000 60000 3 0 broker-a 2 9 " + HANDLE


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "1 fields"),
        ("1 2 3 4 0 b 5", "7 fields"),
        ("1 2 3 4 0 b 5 6 h h", "10 fields"),
        ("1 2 3 4 1 b 5 6", "retry topic"),
        ("1 2 3 4 0 b 5 6 short", "another length"),
        ("1 2 -3 4 0 b 5 6", "no number"),
        ("1 2 3 4 0 b 5 ²", "no number"),
        ("1 2 3 4 0 b 5 " + "9" * 20, "no number"),
        ("1 2 3 4 0 " + "b" * 2_000 + " 5 6", "characters"),
    ],
)
def test_what_is_no_receipt_is_refused(text: str, reason: str) -> None:
    with pytest.raises(FormatError, match=reason):
        decode_receipt(text)


@given(st.text(max_size=200))
def test_any_text_is_a_receipt_or_refused(text: str) -> None:
    try:
        receipt = decode_receipt(text)
    except FormatError:
        return
    assert decode_receipt(encode_receipt(receipt).decode()) == receipt


def test_a_delivery_fits_into_an_int_of_java() -> None:
    assert delivery_of(0xFFFF_FFFF) == MAX_DELIVERY
    assert delivery_of(5) == 5


def record_of(body: bytes, properties: bytes, host: str = "127.0.0.1:80", times: int = 0) -> bytes:
    return encode_record(
        topic="orders",
        body=body,
        properties=properties,
        born_timestamp=1,
        born_host=host,
        store_host=host,
        reconsume_times=times,
    )


def popped(records: list[bytes], attempts: list[int]) -> list[bytes]:
    """The records that a consumer of group billing gets, with receipts r0, r1 ..."""
    joined = popped_records(
        b"".join(records),
        np.array([len(each) for each in records], np.int64),
        np.array(attempts, np.uint16),
        np.full(len(records), 1_700, np.int64),
        [b"r%d" % number for number in range(len(records))],
        "billing",
    )
    found, at = [], 0
    while at < len(joined):
        size = int.from_bytes(joined[at : at + 4], "big")
        found.append(joined[at : at + size])
        at += size
    return found


def test_records_get_their_receipts_and_how_often_they_came() -> None:
    records = [
        record_of(b"a", b"KEYS\x01k\x02"),
        record_of(b"", b"", "[::1]:80"),
        record_of(b"bc" * 500, b"KEYS\x01no end", times=2),
    ]
    found = [decode_record(each) for each in popped(records, [1, 2, 3])]
    assert [each.body for each in found] == [b"a", b"", b"bc" * 500]
    assert [each.reconsume_times for each in found] == [0, 1, 4]
    assert [each.properties for each in found] == [
        {"KEYS": "k", "POP_CK": "r0"},
        {"POP_CK": "r1", "1ST_POP_TIME": "1700", "ORIGIN_GROUP": "billing"},
        {"KEYS": "no end", "POP_CK": "r2", "1ST_POP_TIME": "1700", "ORIGIN_GROUP": "billing"},
    ]


def test_a_receipt_of_a_producer_does_not_count() -> None:
    [found] = popped([record_of(b"a", b"POP_CK\x01forged\x02")], [1])
    assert decode_record(found).properties["POP_CK"] == "r0"


def test_a_record_without_room_stays_as_it_is() -> None:
    full = record_of(b"a", b"K\x01" + b"v" * (MAX_PROPERTIES - 8) + b"\x02")
    broken = b"\0\0\0\x64" + bytes(96)
    after = record_of(b"b", b"")
    found = popped([full, broken, after], [2, 2, 1])
    assert found[:2] == [full, broken]
    assert decode_record(found[2]).properties == {"POP_CK": "r2"}
