"""One block of the log by itself."""

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog.format.constants import MAGIC_BLANK, MAGIC_V1
from tandemlog_server.storage.scrub.block_check import (
    BLOCK,
    CheckedBlock,
    check_given,
    check_next,
    checksum_of,
)

FILE = 8192
RECORD_MAGIC = MAGIC_V1.to_bytes(4)
BLANK_MAGIC = MAGIC_BLANK.to_bytes(4)


class Bytes:
    """A log in memory that begins at 0."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)

    def read(self, offset: int, size: int) -> bytes:
        assert offset // FILE == (offset + size - 1) // FILE
        assert offset + size <= len(self.data)
        return bytes(self.data[offset : offset + size])

    def block(self, start: int, *, property_crc: bool = True) -> CheckedBlock:
        return check_next(self.read, start, len(self.data), FILE, property_crc=property_crc)

    def blocks(self) -> list[CheckedBlock]:
        found: list[CheckedBlock] = []
        at = 0
        while at < len(self.data):
            block = self.block(at)
            if block.fault:
                return [*found, block]
            found.append(block)
            at = block.end
        return found


@pytest.fixture(scope="module")
def log() -> bytes:
    bench = Bench()
    bench.reopen(property_crc=True)
    for turn in range(9):
        bench.store.put(batch_of([Put("T", 0, bytes([turn]) * 1500), Put("T", 1, b"short")]))
    data = b"".join(
        bytes(bench.store.log.view(at, min(FILE, bench.store.log.wrote.value - at)))
        for at in range(0, bench.store.log.wrote.value, FILE)
    )
    bench.store.close()
    return data


def test_blocks_follow_each_other_to_the_end(log: bytes) -> None:
    whole = Bytes(log)
    blocks = whole.blocks()
    assert [each.start for each in blocks] == [0, *(each.end for each in blocks[:-1])]
    assert blocks[-1].end == len(log)
    assert not any(each.fault for each in blocks)
    for each in blocks:
        data = log[each.start : each.end]
        assert each.checksum == checksum_of(data)
        assert check_given(data, each.start, FILE, property_crc=True) == ""
    # a file ends with its records, or with a BLANK that is a block of its own
    assert {each.end for each in blocks} >= set(range(FILE, len(log), FILE))


def test_no_block_hides_a_turned_byte(log: bytes) -> None:
    """But for the fill behind the head of a BLANK, which only another copy tells."""
    blocks = Bytes(log).blocks()
    blanks = [each for each in blocks if log[each.start + 4 :].startswith(BLANK_MAGIC)]
    assert len(blanks) == len(log) // FILE
    for at in range(0, len(log), 3):
        turned = Bytes(log)
        turned.data[at] ^= 1 << at % 8
        found = turned.blocks()
        if any(each.start + 8 <= at < each.end for each in blanks):
            assert found != blocks
            continue
        assert found[-1].fault
        assert found[-1].start <= at
        for each in blocks:
            if each.start <= at < each.end:
                data = bytes(turned.data[each.start : each.end])
                assert check_given(data, each.start, FILE, property_crc=True)


def test_damage_ends_a_block_and_begins_the_next(log: bytes) -> None:
    second = Bytes(log)
    size = int.from_bytes(log[:4])
    second.data[size + 100] ^= 1
    first = second.block(0)
    assert (first.end, first.fault) == (size, "")
    damaged = second.block(size)
    assert damaged.fault
    assert damaged.end == size


def test_a_size_beyond_the_log_is_damage(log: bytes) -> None:
    turned = Bytes(log)
    last = max(each for each in range(len(log)) if log[each + 4 :].startswith(RECORD_MAGIC))
    turned.data[last + 2] ^= 0x10
    assert "a record of" in turned.block(last).fault


def test_a_record_longer_than_a_block_is_one() -> None:
    data = bytearray((2 * BLOCK).to_bytes(4) + RECORD_MAGIC + bytes(2 * BLOCK - 8))
    asked: list[int] = []

    def read(offset: int, size: int) -> bytes:
        asked.append(size)
        return bytes(data[offset : offset + size])

    block = check_next(read, 0, 4 * BLOCK, 4 * BLOCK, property_crc=False)
    assert asked == [BLOCK, 2 * BLOCK]
    assert block.fault  # it says that it lies there, and is no record


def test_given_bytes_must_end_with_a_record(log: bytes) -> None:
    assert check_given(log[:300], 0, FILE, property_crc=True)
    assert check_given(b"", 0, FILE, property_crc=True) == ""
