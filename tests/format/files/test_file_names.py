"""Names of log, queue and index files."""

from datetime import UTC, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.files.names import (
    index_file_name,
    offset_file_name,
    parse_index_file_name,
    parse_offset_file_name,
)


def test_known_names() -> None:
    assert offset_file_name(0) == "0" * 20
    assert offset_file_name(6000000) == "00000000000006000000"
    assert index_file_name(1_700_000_000_123, UTC) == "20231114221320123"
    assert index_file_name(1_700_000_000_123, timezone(timedelta(hours=8))) == "20231115061320123"


@given(st.integers(0, 2**63 - 1))
def test_queue_names_round_trip(offset: int) -> None:
    assert parse_offset_file_name(offset_file_name(offset)) == offset


@given(st.integers(0, 4_102_444_800_000), st.integers(-12, 14))
def test_index_names_round_trip(created_ms: int, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    assert parse_index_file_name(index_file_name(created_ms, zone), zone) == created_ms


def test_the_own_zone_is_the_default() -> None:
    assert parse_index_file_name(index_file_name(1_700_000_000_123)) == 1_700_000_000_123


@pytest.mark.parametrize(
    "name",
    ["", "0" * 19, "0" * 21, "x" * 20, "9" * 20, "0000000000000000000a", "٣" * 20, "-" + "0" * 19],
)
def test_no_queue_file(name: str) -> None:
    assert parse_offset_file_name(name) is None


@pytest.mark.parametrize(
    "name", ["", "20231114221320", "20231314221320123", "2023111422132012x", "0" * 17]
)
def test_no_index_file(name: str) -> None:
    assert parse_index_file_name(name) is None


@pytest.mark.parametrize("offset", [-1, 2**63])
def test_refuses_other_offsets(offset: int) -> None:
    with pytest.raises(FormatError, match=str(offset)):
        offset_file_name(offset)
