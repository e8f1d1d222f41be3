"""Hosts as text and as bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.record.host import host_bytes, host_text


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("10.0.0.5:10911", "0a00000500002a9f"),
        ("255.255.255.255:65535", "ffffffff0000ffff"),
        ("[0:0:0:0:0:0:0:1]:5", "00" * 15 + "01" + "00000005"),
        ("[fe80:0:0:0:1:a0:b00:ffff]:10911", "fe800000000000000001" + "00a00b00ffff" + "00002a9f"),
    ],
)
def test_known_hosts(text: str, stored: str) -> None:
    assert host_bytes(text).hex() == stored
    assert host_text(bytes.fromhex(stored)) == text


def test_usual_forms_of_ipv6_are_read() -> None:
    expected = host_bytes("[0:0:0:0:0:0:0:1]:5")
    assert host_bytes("[::1]:5") == expected
    assert host_bytes("[0000::0001]:5") == expected
    assert host_bytes("[FE80::1%eth0]:5") == host_bytes("[fe80:0:0:0:0:0:0:1]:5")


@given(st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)))
def test_round_trip(address: bytes) -> None:
    stored = address + (10911).to_bytes(4, "big")
    assert host_bytes(host_text(stored)) == stored


@pytest.mark.parametrize(
    "text",
    [
        *("", "1.2.3.4", "1.2.3.4:", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3:5", "1.2.3.256:5"),
        *("localhost:5", "::1:5", "[::1]", "[1.2.3.4]:5", "[::g]:5", "1.2.3.4:٣", "1.2.3.4:-1"),
    ],
)
def test_refuses_what_is_no_host(text: str) -> None:
    with pytest.raises(FormatError, match="host"):
        host_bytes(text)


def test_refuses_other_lengths() -> None:
    with pytest.raises(FormatError, match="not 9"):
        host_text(bytes(9))
