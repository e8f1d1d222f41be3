"""What a slave stores of a master: whole records, however they were cut, and nothing else."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.record.record import decode_record, encode_blank, encode_record
from tandemlog_server.storage.disk.file_system import Buffer
from tandemlog_server.storage.errors import DamagedChunkError
from tandemlog_server.storage.log.raw_intake import MAX_RECORD_BYTES, RawIntake

FILE = 4096


def log_of(sizes: list[int], store_host: str = "127.0.0.1:1") -> tuple[bytes, list[int]]:
    """Records with bodies of these sizes over files of FILE bytes, and where each ends."""
    out, ends = b"", []
    for size in sizes:
        record = make(len(out), size, store_host)
        left = FILE - len(out) % FILE
        if len(record) + 8 > left:
            out += encode_blank(left).ljust(left, b"\0")
            record = make(len(out), size, store_host)
        out += record
        ends.append(len(out))
    return out, ends


def make(offset: int, size: int, store_host: str = "127.0.0.1:1") -> bytes:
    return encode_record(
        topic="orders", body=b"b" * size, properties={"KEYS": "k"}, physical_offset=offset,
        store_host=store_host,
    )  # fmt: skip


class Taken:
    """A log that only grows at its end."""

    def __init__(self) -> None:
        self.data = b""

    def store(self, offset: int, data: Buffer) -> None:
        assert offset == len(self.data)
        self.data += bytes(data)


def feed(intake: RawIntake, log: bytes, step: Callable[[int], int], start: int = 0) -> None:
    """Chunks of `step(position)` bytes, never across a file."""
    position = start
    while position < len(log):
        end = min(position + step(position), len(log), position - position % FILE + FILE)
        intake.take(position, log[position:end])
        position = end


@given(
    st.lists(st.integers(0, 1500), min_size=1, max_size=12),
    st.lists(st.integers(1, 900), min_size=1, max_size=8),
    st.sampled_from(["127.0.0.1:1", "[::1]:1"]),
)
def test_whole_records_come_through_however_they_are_cut(
    sizes: list[int], steps: list[int], host: str
) -> None:
    log, ends = log_of(sizes, host)
    taken = Taken()
    starts: list[int] = []
    intake = RawIntake(FILE, taken.store, remember=lambda found: starts.extend(found.tolist()))
    stops = {0, *ends}
    position = 0
    while position < len(log):
        step = steps[position % len(steps)]
        end = min(position + step, len(log), position - position % FILE + FILE)
        intake.take(position, log[position:end])
        position = end
        held = len(taken.data)
        assert held in stops or held % FILE == 0, "only whole records are in the log"
    assert taken.data == log
    assert [decode_record(log, start).physical_offset for start in starts] == starts
    assert len(starts) == len(sizes), "dispatch is told where each record begins"


@given(
    st.lists(st.integers(0, 1500), min_size=1, max_size=12),
    st.lists(st.integers(1, 900), min_size=1, max_size=8),
)
def test_a_stream_that_ends_anywhere_is_followed_by_another(
    sizes: list[int], steps: list[int]
) -> None:
    """It begins where the log ends: a record does there, or a BLANK, or a file."""
    log, _ = log_of(sizes)
    taken = Taken()
    for broken_at in range(0, len(log), 97):
        begin = len(taken.data)
        feed(RawIntake(FILE, taken.store), log[: max(begin, broken_at)], steps_of(steps), begin)
    feed(RawIntake(FILE, taken.store), log, steps_of(steps), len(taken.data))
    assert taken.data == log


def steps_of(steps: list[int]) -> Callable[[int], int]:
    return lambda position: steps[position % len(steps)]


@given(
    st.lists(st.integers(20, 900), min_size=3, max_size=9),
    st.integers(1, 700),
    st.data(),
)
def test_what_is_no_record_is_not_stored_and_comes_again_sound(
    sizes: list[int], step: int, data: st.DataObject
) -> None:
    log, ends = log_of(sizes)
    starts = [end - len(make(0, size)) for end, size in zip(ends, sizes, strict=True)]
    bad = data.draw(st.sampled_from(starts))
    where = bad + data.draw(st.sampled_from([0, 5, 28, 35, 84]))
    damaged = bytearray(log)
    damaged[where] ^= 0x55
    taken = Taken()
    with pytest.raises(DamagedChunkError) as fault:
        # what follows shows that a record which says it is longer is none
        feed(RawIntake(FILE, taken.store), bytes(damaged) + b"\0" * (FILE * 2), lambda _: step)
    assert fault.value.offset == bad
    assert taken.data == log[:bad]
    feed(RawIntake(FILE, taken.store), log, lambda _: step, start=len(taken.data))
    assert taken.data == log


def test_random_bytes_are_refused_by_name() -> None:
    taken = Taken()
    with pytest.raises(DamagedChunkError, match=r"not a record at log offset 0: magic: 0x"):
        RawIntake(FILE, taken.store).take(0, bytes(range(1, 251)) * 2)
    assert taken.data == b""


def test_damage_that_the_master_has_too_is_taken_byte_for_byte() -> None:
    log, ends = log_of([100, 100, 100])
    damaged = log[: ends[0]] + b"\xee" * (ends[1] - ends[0]) + log[ends[1] :]
    taken = Taken()
    with pytest.raises(DamagedChunkError):
        RawIntake(FILE, taken.store).take(0, damaged)
    intake = RawIntake(FILE, taken.store)
    for at in range(len(taken.data), len(damaged), 7):
        intake.take(at, damaged[at : at + 7], ends[1])
    assert taken.data == damaged


def test_a_blank_must_fill_its_file() -> None:
    log, ends = log_of([100])
    with pytest.raises(DamagedChunkError, match="a BLANK of 100 bytes"):
        RawIntake(FILE, Taken().store).take(0, log + encode_blank(100).ljust(100, b"\0"))
    taken = Taken()
    blank = encode_blank(FILE - ends[0]).ljust(FILE - ends[0], b"g")
    intake = RawIntake(FILE, taken.store)
    feed(intake, log + blank + make(FILE, 5), lambda _: 33)
    assert taken.data == log + blank + make(FILE, 5)


def test_a_record_that_says_it_is_enormous_is_not_waited_for() -> None:
    record = bytearray(make(0, 10))
    record[0:4] = (MAX_RECORD_BYTES + 1).to_bytes(4)
    with pytest.raises(DamagedChunkError, match=str(MAX_RECORD_BYTES + 1)):
        RawIntake(1 << 30, Taken().store).take(0, bytes(record))
