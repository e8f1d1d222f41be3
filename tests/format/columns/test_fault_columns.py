"""Faults are found in the record, and named by the field, that the plain decoder would name."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.record_strategies import LogPiece, log_of, log_pieces
from tandemlog.format.columns import faults as fault_columns
from tandemlog.format.columns.faults import find_fault, walk_strict
from tandemlog.format.columns.headers import gather_headers
from tandemlog.format.columns.walk import StopReason
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.record.record import decode_record, encode_blank

ALIKE = {"topic": "Topic", "body": b"body" * 20, "properties": {"TAGS": "a", "KEYS": "k1 k2"}}


def plain_fault(
    buffer: bytes, log: LogPiece, *, check_crc: bool
) -> tuple[int, CorruptRecordError] | None:
    for row, (position, size) in enumerate(zip(log.positions, log.sizes, strict=True)):
        try:
            record = decode_record(
                buffer,
                int(position),
                physical_offset=log.base_offset + int(position),
                check_crc=check_crc,
                limit=int(position + size),
            )
        except CorruptRecordError as error:
            return row, error
        if record.size != size:
            return row, CorruptRecordError(log.base_offset + int(position), "size", "")
    return None


@settings(max_examples=150)
@given(log_pieces(min_size=1), st.data(), st.booleans())
def test_the_same_fault_as_the_plain_decoder(
    log: LogPiece, data: st.DataObject, check_crc: bool
) -> None:
    buffer = bytearray(log.buffer)
    for _ in range(data.draw(st.integers(0, 2))):
        row = data.draw(st.integers(0, log.count - 1))
        place = data.draw(
            st.one_of(
                st.integers(0, int(log.sizes[row]) - 1),
                st.sampled_from([0, 3, 7, 9, 35, 39, 84, 86, 87]),
            )
        )
        buffer[int(log.positions[row]) + place] = data.draw(st.integers(0, 255))
    headers = gather_headers(buffer, log.positions, log.sizes)
    fault = find_fault(buffer, headers, base_offset=log.base_offset, check_crc=check_crc)
    expected = plain_fault(bytes(buffer), log, check_crc=check_crc)
    if expected is None:
        assert fault is None
    else:
        assert fault is not None
        row, error = expected
        assert (fault.index, fault.error.field, fault.error.offset) == (
            row,
            error.field,
            error.offset,
        )


@given(log_pieces(min_size=1), st.data())
def test_walk_strict_stops_at_the_first_fault(log: LogPiece, data: st.DataObject) -> None:
    buffer = bytearray(log.buffer)
    row = data.draw(st.integers(0, log.count - 1))
    place = int(log.positions[row]) + data.draw(st.integers(0, int(log.sizes[row]) - 1))
    buffer[place] ^= data.draw(st.integers(1, 255))
    found, headers = walk_strict(buffer, log.start, base_offset=log.base_offset)
    assert headers.count == found.count
    expected, end, error = plain_walk(bytes(buffer), log)
    assert found.positions.tolist() == expected
    assert found.end == end
    if found.error is not None:
        assert error is not None
        assert (found.error.offset, found.error.field) == (error.offset, error.field)
    else:
        assert found.stop in (StopReason.BLANK, StopReason.END)


def plain_walk(buffer: bytes, log: LogPiece) -> tuple[list[int], int, CorruptRecordError | None]:
    positions: list[int] = []
    position = log.start
    while position < len(buffer):
        try:
            record = decode_record(buffer, position, physical_offset=log.base_offset + position)
        except CorruptRecordError as error:
            return positions, position, error
        positions.append(position)
        position += record.size
    return positions, position, None


@settings(max_examples=200)
@given(log_pieces(min_size=1), st.data())
def test_no_guess_changes_what_walk_strict_finds(log: LogPiece, data: st.DataObject) -> None:
    buffer = bytearray(log.buffer)
    for _ in range(data.draw(st.integers(0, 2))):
        place = data.draw(st.integers(log.start, len(buffer) - 1))
        buffer[place] = data.draw(st.integers(0, 255))
    right, size = log.positions.tolist(), len(buffer)
    begin = data.draw(st.integers(0, len(right)))
    guesses = [
        right,
        right[:begin],
        right[begin:],
        right[:begin] + data.draw(st.lists(st.integers(-20, size + 20), max_size=5)),
        [*right, size - data.draw(st.integers(0, 200))],
    ]
    end = data.draw(st.none() | st.integers(log.start, size))
    limit = data.draw(st.none() | st.integers(log.start, size + 100))
    walk_it = partial(walk_strict, buffer, log.start, end, base_offset=log.base_offset, limit=limit)
    plain, plain_headers = walk_it()
    for guess in guesses:
        found, headers = walk_it(guess=np.array(guess, np.int64))
        assert found.positions.tolist() == plain.positions.tolist()
        assert found.sizes.tolist() == plain.sizes.tolist()
        assert (found.end, found.stop, str(found.error)) == (
            plain.end,
            plain.stop,
            str(plain.error),
        )
        assert found.sizes.dtype == plain.sizes.dtype
        assert headers.fixed.tobytes() == plain_headers.fixed.tobytes()


def test_a_whole_right_guess_is_gathered_and_not_walked(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of([ALIKE] * 50, 1 << 30)
    monkeypatch.delattr(fault_columns, "walk")
    part = int(log.positions[40]) + 100
    found, headers = walk_strict(log.buffer, 0, part, base_offset=1 << 30, guess=log.positions[:41])
    assert (found.stop, found.end, headers.count) == (
        StopReason.INCOMPLETE,
        int(log.positions[40]),
        40,
    )


def test_a_whole_log_is_good() -> None:
    log = log_of([ALIKE] * 50, 1 << 30)
    found, headers = walk_strict(log.buffer, base_offset=1 << 30)
    assert (found.stop, found.error, headers.count) == (StopReason.END, None, 50)
    found, headers = walk_strict(log.buffer + encode_blank(99) + bytes(91), base_offset=1 << 30)
    assert (found.stop, found.error, headers.count) == (StopReason.BLANK, None, 50)
    found, headers = walk_strict(b"", base_offset=0)
    assert (found.stop, headers.count) == (StopReason.END, 0)


@pytest.mark.parametrize("kept", [8, 40, 88, 120, 170])
def test_a_record_cut_off_in_the_middle_is_torn(kept: int) -> None:
    log = log_of([ALIKE] * 3)
    buffer = bytearray(log.buffer + bytes(500))
    last = int(log.positions[2])
    buffer[last + kept : log.end] = bytes(log.end - last - kept)
    found, _ = walk_strict(buffer, base_offset=0, limit=len(buffer))
    assert (found.count, found.end, found.stop) == (2, last, StopReason.TORN)
    assert found.error is not None
    assert found.error.offset == last


def test_zero_bytes_behind_the_last_record() -> None:
    log = log_of([ALIKE] * 3)
    found, _ = walk_strict(log.buffer + bytes(4096), base_offset=0)
    assert (found.count, found.end, found.stop) == (3, log.end, StopReason.ZEROS)


def test_a_record_from_elsewhere_is_no_record_here() -> None:
    log, other = log_of([ALIKE] * 3), log_of([ALIKE] * 2, base_offset=77_000)
    found, _ = walk_strict(log.buffer + other.buffer, base_offset=0)
    assert (found.count, found.stop) == (3, StopReason.CORRUPT)
    assert found.error is not None
    assert found.error.field == "physical_offset"
    found, _ = walk_strict(log.buffer + other.buffer, base_offset=None)
    assert found.count == 5


def test_crc_only_where_asked_for_and_never_of_an_empty_body() -> None:
    log = log_of([ALIKE, {**ALIKE, "body": b""}])
    buffer = bytearray(log.buffer)
    buffer[int(log.positions[1]) + 8] ^= 1  # the CRC of the empty body: nobody looks at it
    assert walk_strict(buffer, base_offset=0)[0].count == 2
    buffer[100] ^= 1
    assert walk_strict(buffer, base_offset=0, check_crc=False)[0].count == 2
    found, _ = walk_strict(buffer, base_offset=0)
    assert found.count == 0
    assert found.error is not None
    assert found.error.field == "body_crc"


def test_sizes_that_the_records_do_not_have() -> None:
    log = log_of([ALIKE] * 3)
    sizes = log.sizes.copy()
    sizes[1] += 1
    fault = find_fault(log.buffer, gather_headers(log.buffer, log.positions, sizes))
    assert fault is not None
    assert (fault.index, fault.error.field) == (1, "size")
    assert "given as" in fault.error.reason
    headers = gather_headers(log.buffer, np.array([0, len(log.buffer)]), sizes[:2])
    fault = find_fault(log.buffer, headers)
    assert fault is not None
    assert (fault.index, fault.error.field) == (1, "size")


@pytest.mark.parametrize("bits", [0x10, 0x20, 0x30])
def test_a_record_too_short_for_the_hosts_it_claims(bits: int) -> None:
    log = log_of([{"topic": "T", "body": b"", "properties": b"a"}, ALIKE])
    buffer = bytearray(log.buffer)
    buffer[39] |= bits
    check_equal_to_the_plain_decoder(buffer, log)


def test_properties_of_a_negative_length() -> None:
    short = log_of([{"topic": "T", "body": b""}]).buffer
    size = len(short) + 40_000
    buffer = size.to_bytes(4, "big") + short[4:-2] + (40_000).to_bytes(2, "big") + bytes(40_000)
    log = LogPiece(buffer, 0, 0, np.array([0]), np.array([size]))
    check_equal_to_the_plain_decoder(bytearray(buffer), log)


def check_equal_to_the_plain_decoder(buffer: bytearray, log: LogPiece) -> None:
    fault = find_fault(buffer, gather_headers(buffer, log.positions, log.sizes), base_offset=0)
    expected = plain_fault(bytes(buffer), log, check_crc=False)
    assert fault is not None
    assert expected is not None
    assert (fault.index, fault.error.field) == (expected[0], expected[1].field)
