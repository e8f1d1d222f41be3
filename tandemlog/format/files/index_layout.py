"""The bytes of an index file: a hash table from key to commit-log offset.

    0     header, 40 bytes: begin and end time, begin and end offset, used slots, next number
    40    S slots of 4: number of the chain's newest entry, 0 for none
    40+4S N entries of 20: key hash, physical offset, time difference (s), previous number

Entries are numbered from 1, number 0 is never written: a file holds N-1. `next_entry` is the
number that the next entry gets; a stored value below 1 means 1.

The key text is `topic#key`; a tag is indexed under `topic#T#tag` (RocketMQ 5.4 and later).
Only its 31-bit hash is stored, so a reader compares the record's own keys.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..errors import FormatError
from ..java_hash import java_hash

HashT = TypeVar("HashT", int, NDArray[Any])

DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000

INDEX_HEADER: Final = Struct(">qqqqii")
HEADER_SIZE: Final = INDEX_HEADER.size
HEADER_DTYPE: Final = np.dtype(
    [
        ("begin_timestamp", ">i8"),
        ("end_timestamp", ">i8"),
        ("begin_physical_offset", ">i8"),
        ("end_physical_offset", ">i8"),
        ("used_slots", ">i4"),
        ("next_entry", ">i4"),
    ]
)
SLOT_SIZE: Final = 4
SLOT_DTYPE: Final = np.dtype(">i4")
ENTRY: Final = Struct(">iqii")
ENTRY_SIZE: Final = ENTRY.size
ENTRY_DTYPE: Final = np.dtype(
    [("key_hash", ">i4"), ("physical_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")]
)
MAX_TIME_DIFF: Final = (1 << 31) - 1

assert HEADER_SIZE == HEADER_DTYPE.itemsize == 40
assert ENTRY_SIZE == ENTRY_DTYPE.itemsize == 20


@dataclass(frozen=True, slots=True)
class IndexHeader:
    """The header's six fields; times in ms, offsets in the commit log."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_physical_offset: int = 0
    end_physical_offset: int = 0
    used_slots: int = 0
    next_entry: int = 1

    def encode(self) -> bytes:
        return INDEX_HEADER.pack(
            self.begin_timestamp,
            self.end_timestamp,
            self.begin_physical_offset,
            self.end_physical_offset,
            self.used_slots,
            self.next_entry,
        )


def decode_index_header(data: bytes | bytearray | memoryview) -> IndexHeader:
    """The header at the start of `data`; raises FormatError if it has fewer than 40 bytes."""
    if len(data) < HEADER_SIZE:
        raise FormatError(f"index header has {len(data)} bytes, it needs {HEADER_SIZE}")
    begin, end, begin_offset, end_offset, used, next_entry = INDEX_HEADER.unpack_from(data)
    return IndexHeader(begin, end, begin_offset, end_offset, used, max(next_entry, 1))


def index_file_size(slots: int, entries: int) -> int:
    """Bytes of a file with `slots` hash slots and numbers 0 to `entries`-1."""
    return HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * entries


def slot_of(key_hash: HashT, slots: int) -> HashT:
    """The slot of a stored hash, or of an array of them, in a file of `slots` slots."""
    return key_hash % slots


def slot_position(slot: int) -> int:
    """Where slot `slot` stands in its file."""
    return HEADER_SIZE + SLOT_SIZE * slot


def entry_position(slots: int, number: int) -> int:
    """Where entry `number` stands in a file of `slots` slots."""
    return HEADER_SIZE + SLOT_SIZE * slots + ENTRY_SIZE * number


def index_hash(text_hash: int) -> int:
    """The stored form of a Java hash: its absolute value, 0 for -2**31, which has none."""
    return 0 if text_hash == -(1 << 31) else abs(text_hash)


def key_hash(topic: str, key: str) -> int:
    """The hash that a message of `topic` is found by under `key`, 0 to 2**31-1."""
    return index_hash(java_hash(f"{topic}#{key}"))


def tag_key(tag: str) -> str:
    """The key that stands for a tag: `T#tag`."""
    return f"T#{tag}"
