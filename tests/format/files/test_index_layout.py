"""The index file's header, positions and hashes."""

import numpy as np
import pytest

from fakes.plain_format import time_diff
from tandemlog.format.errors import FormatError
from tandemlog.format.files.index_layout import (
    DEFAULT_ENTRIES,
    DEFAULT_SLOTS,
    ENTRY,
    ENTRY_DTYPE,
    HEADER_DTYPE,
    IndexHeader,
    decode_index_header,
    entry_position,
    index_file_size,
    index_hash,
    key_hash,
    slot_position,
    tag_key,
)


def test_size_and_positions() -> None:
    assert index_file_size(DEFAULT_SLOTS, DEFAULT_ENTRIES) == 420_000_040
    assert slot_position(0) == 40
    assert entry_position(500, 0) == slot_position(500) == 2040
    assert entry_position(500, 2000) == index_file_size(500, 2000)


def test_header_round_trip() -> None:
    header = IndexHeader(1, 2**40, 3, 2**62, 5, 6)
    encoded = header.encode()
    assert decode_index_header(encoded + b"more") == header
    assert np.frombuffer(encoded, HEADER_DTYPE).tolist() == [(1, 2**40, 3, 2**62, 5, 6)]


def test_a_new_file_numbers_from_1() -> None:
    assert decode_index_header(bytes(40)) == IndexHeader() == IndexHeader(next_entry=1)
    with pytest.raises(FormatError, match="39 bytes"):
        decode_index_header(bytes(39))


def test_entry_layouts_agree() -> None:
    entry = ENTRY.pack(7, 2**40, -1, 3)
    assert np.frombuffer(entry, ENTRY_DTYPE).tolist() == [(7, 2**40, -1, 3)]


def test_hashes() -> None:
    assert key_hash("TopicTest", "key1") == 1655984460
    assert key_hash("TopicTest", "key1") % DEFAULT_SLOTS == 984460
    assert index_hash(-(2**31)) == 0
    assert index_hash(2**31 - 1) == 2**31 - 1
    assert tag_key("TagA") == "T#TagA"


@pytest.mark.parametrize(
    ("begin", "stored", "expected"),
    [
        (0, 5000, 0),
        (-1, 5000, 0),
        (1000, 1999, 0),
        (1000, 3000, 2),
        (5000, 1000, 0),
        (1, 2**60, 2**31 - 1),
    ],
)
def test_time_difference_in_seconds(begin: int, stored: int, expected: int) -> None:
    assert time_diff(begin, stored) == expected
