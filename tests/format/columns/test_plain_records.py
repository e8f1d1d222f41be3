"""The quick look never says yes to what the strict one says no to."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.plain_records import all_plain
from tandemlog.format.columns.walk import walk
from tandemlog.format.record.record import encode_record


def log_of(sizes: list[int]) -> bytes:
    out = b""
    for size in sizes:
        out += encode_record(
            topic="t", body=b"x" * size, properties={"A": "b"}, physical_offset=1000 + len(out)
        )
    return out


@given(st.lists(st.integers(0, 60), min_size=1, max_size=8))
def test_records_of_the_common_kind_are_plain(sizes: list[int]) -> None:
    log = log_of(sizes)
    found = walk(log)
    assert found.count == len(sizes)
    assert all_plain(log, found.positions, found.sizes, 1000)
    assert not all_plain(log, found.positions, found.sizes, 1001)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(1, 255)), min_size=1, max_size=3),
)
def test_what_is_plain_is_right(sizes: list[int], flips: list[tuple[int, int]]) -> None:
    log = bytearray(log_of(sizes))
    for at, bits in flips:
        log[at % len(log)] ^= bits
    found = walk(log)
    if all_plain(log, found.positions, found.sizes, 1000):
        strict, _ = walk_strict(log, base_offset=1000, check_crc=False)
        assert strict.count == found.count


def test_nothing_is_plain() -> None:
    assert all_plain(b"", np.empty(0, np.int64), np.empty(0, np.int32), 0)


def test_other_kinds_are_left_to_the_strict_walk() -> None:
    record = encode_record(topic="t", body=b"", store_host="[::1]:1")
    found = walk(record)
    assert not all_plain(record, found.positions, found.sizes, 0)
