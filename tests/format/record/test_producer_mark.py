"""The mark of an idempotent request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.record.producer_mark import (
    ProducerMark,
    parse_producer_mark,
    producer_id_fault,
)

marks = st.builds(
    lambda name, epoch, sequence, index, more, checksum: ProducerMark(
        name, epoch, sequence, index, index + more, checksum
    ),
    st.from_regex(r"[A-Za-z0-9._:-]{1,64}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 1000),
    st.integers(1, 1000),
    st.none() | st.integers(0, 2**32 - 1),
)


@given(marks)
def test_round_trip(mark: ProducerMark) -> None:
    assert parse_producer_mark(mark.encode()) == mark
    assert parse_producer_mark(mark.encode().encode()) == mark


def test_text() -> None:
    assert ProducerMark("p:1", 2, 3, 0, 100).encode() == "p:1,2,3,0,100"
    assert ProducerMark("p:1", 2, 3, 0, 100, 0xBEEF).encode() == "p:1,2,3,0,100,0000beef"


@pytest.mark.parametrize(
    "value",
    [
        *("", "p", "p,1,2,3", "p,1,2,0,4,5", "p,x,2,0,4", "p,-1,2,0,4", "p, 1,2,0,4", "p,٣,2,0,4"),
        *(",1,2,0,4", "p q,1,2,0,4", "p\n,1,2,0,4", "x" * 65 + ",1,2,0,4", b"\xff,1,2,0,4"),
        *("p,2147483648,2,0,4", "p,1,9223372036854775808,0,4", "p,1,2,4,4", "p,1,2,0,0"),
        "p,1," + "9" * 20 + ",0,4",
        *("p,1,2,0,4,", "p,1,2,0,4,0000BEEF", "p,1,2,0,4,00000beef", "p,1,2,0,4,0000beef,1"),
    ],
)
def test_refuses_what_is_no_mark(value: str | bytes) -> None:
    with pytest.raises(FormatError, match="producer mark"):
        parse_producer_mark(value)


@pytest.mark.parametrize("checksum", [-1, 2**32])
def test_a_checksum_has_32_bits(checksum: int) -> None:
    with pytest.raises(FormatError, match="checksum"):
        ProducerMark("p", 0, 0, 0, 1, checksum)


def test_producer_ids() -> None:
    assert producer_id_fault("A-z.0_9:") is None
    assert producer_id_fault("") is not None
    assert producer_id_fault("a,b") is not None
