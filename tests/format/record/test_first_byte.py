"""The byte that a broker does not send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.record.first_byte import MOST_NEEDED, first_byte
from tandemlog.format.record.record import encode_record

HOSTS = ("10.0.0.1:10911", "[2001:db8:0:0:0:0:0:2]:5")


def record(body: bytes, born_host: str, store_host: str, topic: str = "Orders") -> bytes:
    return encode_record(
        topic=topic, body=body, properties=b"KEYS\x01k\x02", queue_id=0, sys_flag=0,
        born_timestamp=1, born_host=born_host, queue_offset=0, physical_offset=0,
        store_timestamp=2, store_host=store_host, property_crc=False,
    )  # fmt: skip


@given(
    size=st.integers(0, 300),
    born=st.sampled_from(HOSTS),
    store=st.sampled_from(HOSTS),
)
def test_of_a_small_record_it_is_zero(size: int, born: str, store: str) -> None:
    data = record(b"x" * size, born, store)
    assert first_byte(data[1:]) == data[:1]
    assert first_byte(data[1 : 1 + MOST_NEEDED]) == data[:1]


@pytest.mark.parametrize("body", [(1 << 24) - 150, (1 << 24) - 91, 1 << 24, (3 << 24) + 5])
@pytest.mark.parametrize("host", HOSTS)
def test_of_a_record_about_16_mib_and_more_it_is_right(body: int, host: str) -> None:
    data = record(bytes(body), host, host)
    assert first_byte(data[1 : 1 + MOST_NEEDED]) == data[:1]


def test_too_few_bytes_do_not_tell() -> None:
    data = record(b"", HOSTS[0], HOSTS[1])
    assert [first_byte(data[1:at]) for at in (1, 30, 39, 98)] == [None] * 4
