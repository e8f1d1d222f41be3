"""Where frames end: with records, and inside of one only if it is larger than a frame."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.constants import MAGIC_BLANK, MAGIC_V1
from tandemlog_server.ha.errors import HaError
from tandemlog_server.rocketmq.serve.framing import (
    FRAME_BYTES,
    Cut,
    Place,
    begins_at,
    cut,
    large_record_at,
)
from tandemlog_server.storage.positions import Position

LIMIT = 100


def record(size: int, magic: int = MAGIC_V1) -> bytes:
    return struct.pack(">iI", size, magic) + bytes(size - 8)


def log_of(sizes: list[int]) -> bytes:
    return b"".join(map(record, sizes))


def boundaries(sizes: list[int], start: int = 0) -> list[int]:
    found = [start]
    for size in sizes:
        found.append(found[-1] + size)
    return found


class OneFile:
    """A log of `data` in one file that begins at `min_offset`."""

    def __init__(self, data: bytes, file_size: int, min_offset: int = 0) -> None:
        self.min_offset, self.file_size = min_offset, file_size
        self._data = data
        self.committed = self.wrote = self.flushed = Position("end", min_offset + len(data))

    def read(self, offset: int, max_bytes: int) -> bytes:
        at = offset - self.min_offset
        return self._data[at : at + max_bytes]

    def in_memory(self, offset: int, max_bytes: int) -> bool:
        return True

    def next_record(self, offset: int, below: int) -> int | None:
        raise AssertionError("whoever cuts frames knows where records begin")


def test_a_frame_holds_as_many_whole_records_as_it_can() -> None:
    made = cut(log_of([40, 40, 40, 10]), 1000, Place(1000), LIMIT)
    assert made == Cut(Place(1130), ends=[1080, 1130])


def test_a_record_that_has_not_come_whole_is_left_for_later() -> None:
    data = log_of([40, 50])[:70]
    assert cut(data, 0, Place(0), LIMIT) == Cut(Place(40), ends=[40])
    assert cut(data[40:], 40, Place(40), LIMIT) == Cut(Place(40)), "nothing can be sent yet"


def test_a_record_larger_than_a_frame_is_sent_in_slices() -> None:
    made = cut(log_of([30, 250, 20]), 0, Place(0), LIMIT)
    assert made.ends == [30, 130, 230, 280, 300]
    assert made.midway == {130: 30, 230: 30}


def test_a_record_larger_than_a_batch_continues_in_the_next_one() -> None:
    data = log_of([330, 20])
    first = cut(data[:150], 0, Place(0), LIMIT)
    assert (first.ends, first.midway) == ([100, 150], {100: 0, 150: 0})
    assert first.place == Place(0, 180)
    second = cut(data[150:], 150, first.place, LIMIT)
    assert (second.ends, second.midway) == ([250, 330, 350], {250: 0})
    assert second.place == Place(350)


@given(
    sizes=st.lists(st.integers(8, 400), min_size=1, max_size=30),
    batch=st.integers(20, 500),
    start=st.integers(0, 1 << 40),
)
def test_batches_of_any_size_give_the_log_in_frames_of_whole_records(
    sizes: list[int], batch: int, start: int
) -> None:
    data, place, at = log_of(sizes), Place(start), start
    known = dict(zip(boundaries(sizes, start), [*sizes, 0], strict=True))
    while at < start + len(data):
        piece = data[at - start : at - start + batch]
        made = cut(piece, at, place, LIMIT)
        if not made.ends:
            batch *= 2  # more of the log has come
            continue
        for end in made.ends:
            assert 0 < end - at <= LIMIT or end in known
            assert end - at <= LIMIT
            if end in known:
                assert end not in made.midway
            else:
                assert known[made.midway[end]] > LIMIT
            at = end
        place = made.place
    assert at == start + len(data)


def test_where_the_log_has_no_record_nothing_is_cut() -> None:
    with pytest.raises(HaError, match="no record at 1040"):
        cut(log_of([40]) + bytes(40), 1000, Place(1000), LIMIT)


def test_the_filler_at_the_end_of_a_file_is_a_record_too() -> None:
    made = cut(record(40) + record(60, MAGIC_BLANK), 0, Place(0), LIMIT)
    assert made.ends == [100]


def test_a_slave_may_stand_between_records_and_inside_of_a_large_one() -> None:
    large = FRAME_BYTES + 500
    data = log_of([40, large, 60])
    log = OneFile(data, file_size=len(data), min_offset=3 * len(data))
    base = log.min_offset
    for offset in (0, 40, 40 + large, len(data)):
        assert begins_at(log, base + offset)
    for offset in (20, 40 + FRAME_BYTES, len(data) - 5):
        assert not begins_at(log, base + offset)
    assert large_record_at(log, base + 40 + FRAME_BYTES) == Place(base + 40, 500)
    assert large_record_at(log, base + 20) is None
    assert large_record_at(log, base + len(data) - 5) is None


def test_no_record_is_found_in_a_log_that_is_damaged_before() -> None:
    data = bytes(40) + record(2 * FRAME_BYTES)
    assert large_record_at(OneFile(data, file_size=len(data)), 50 + FRAME_BYTES) is None
