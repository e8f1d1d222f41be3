"""Offset ids and unique ids."""

from itertools import count

import pytest
from format.vectors import MSG_ID
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.record.host import host_text
from tandemlog.format.record.message_id import UniqueIdGenerator, decode_offset_id, encode_offset_id

MONTH_START = 1_698_796_800_000  # 2023-11-01 00:00 UTC


def test_known_offset_id() -> None:
    assert encode_offset_id("10.0.0.5:10911", 1073741824) == MSG_ID
    assert decode_offset_id(MSG_ID) == ("10.0.0.5:10911", 1073741824)
    assert decode_offset_id(MSG_ID.lower()) == ("10.0.0.5:10911", 1073741824)


@given(
    st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    st.integers(0, 65535),
    st.integers(0, 2**63 - 1),
)
def test_offset_id_round_trip(address: bytes, port: int, offset: int) -> None:
    host = host_text(address + port.to_bytes(4, "big"))
    text = encode_offset_id(host, offset)
    assert len(text) == 2 * (len(address) + 12)
    assert text == text.upper()
    assert decode_offset_id(text) == (host, offset)


@pytest.mark.parametrize("text", ["", "0A", "x" * 32, MSG_ID[:-1], MSG_ID + "00", " " * 32])
def test_refuses_what_is_no_offset_id(text: str) -> None:
    with pytest.raises(FormatError, match="message id"):
        decode_offset_id(text)


def generator(now: int, address: bytes = bytes((10, 0, 0, 5))) -> UniqueIdGenerator:
    return UniqueIdGenerator(address, 0x1_0042, lambda: now, lambda: 0xCAFEBABE)


def test_parts_of_a_unique_id() -> None:
    ids = generator(MONTH_START + 0x1234)
    assert ids.next_id() == "0A0000050042CAFEBABE000012340000"
    assert ids.next_id() == "0A0000050042CAFEBABE000012340001"
    assert len(generator(MONTH_START, bytes(16)).next_id()) == 56


def test_counter_wraps_and_ids_differ_until_then() -> None:
    ids = generator(MONTH_START)
    given_ids = [ids.next_id() for _ in range(65536)]
    assert len(set(given_ids)) == 65536
    assert ids.next_id() == given_ids[0]


def test_time_counts_from_the_start_of_the_month() -> None:
    december = 1_701_388_800_000
    january = 1_704_067_200_000
    now = iter([december - 1, december, january - 1, january, december])
    ids = UniqueIdGenerator(bytes(4), 0, lambda: next(now), count().__next__)
    times = [int(ids.next_id()[20:28], 16) for _ in range(5)]
    assert times == [december - MONTH_START - 1, 0, january - december - 1, 0, 0]


def test_refuses_another_address_length() -> None:
    with pytest.raises(FormatError, match="not 5"):
        generator(0, bytes(5))
