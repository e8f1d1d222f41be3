"""The walk finds the records that the plain decoder finds, and says why it stops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.record_strategies import LogPiece, log_of, log_pieces
from tandemlog.format.columns.walk import StopReason, _Chain, walk
from tandemlog.format.record.record import encode_blank

ALIKE = {"topic": "T", "body": b"b" * 50}


@given(log_pieces(), st.binary(max_size=200))
def test_walk_finds_all_records(log: LogPiece, tail: bytes) -> None:
    found = walk(log.buffer, log.start)
    assert found.positions.tolist() == log.positions.tolist()
    assert found.sizes.tolist() == log.sizes.tolist()
    assert (found.stop, found.end, found.error) == (StopReason.END, log.end, None)

    followed = walk(log.buffer + encode_blank(8 + len(tail)) + tail, log.start)
    assert (followed.stop, followed.end) == (StopReason.BLANK, log.end)
    assert followed.positions.tolist() == log.positions.tolist()


@given(st.lists(st.integers(0, 3), max_size=900))
def test_walk_with_runs_of_equal_sizes(choices: list[int]) -> None:
    # Runs: guesses are right for a while, then wrong.
    lengths = [choice for choice in choices for _ in range(choice * 40 + 1)][:3000]
    parts = {length: log_of([{"topic": "T", "body": b"x" * length}]).buffer for length in range(4)}
    sizes = [len(parts[length]) for length in lengths]
    found = walk(b"".join(parts[length] for length in lengths))
    assert found.sizes.tolist() == sizes
    assert found.positions.tolist() == (np.cumsum(sizes) - sizes).astype(int).tolist()
    assert found.stop is StopReason.END


def test_a_guess_does_not_step_over_a_different_record() -> None:
    # After many records of 142 bytes one of 284, which two guesses together would cover.
    alike, twice = log_of([ALIKE]).buffer, log_of([{**ALIKE, "body": b"b" * 192}]).buffer
    assert len(twice) == 2 * len(alike)
    inner = bytearray(twice)
    inner[len(alike) : 2 * len(alike)] = alike  # even with a record inside its body
    found = walk(alike * 400 + bytes(inner) + alike * 400)
    assert found.count == 801
    assert found.sizes[400] == len(twice)


@given(log_pieces(min_size=1), st.data())
def test_walk_stops_inside_a_record(log: LogPiece, data: st.DataObject) -> None:
    end = data.draw(st.integers(log.start, log.end))
    found = walk(log.buffer, log.start, end)
    whole = (log.positions + log.sizes <= end).sum()
    assert found.count == whole
    assert found.end == (log.positions[whole] if whole < log.count else log.end)
    assert found.stop is (StopReason.END if found.end == end else StopReason.INCOMPLETE)


def test_a_walk_ends_with_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window of a large file that ends inside a record, after many of one size."""
    looped, plain = [], _Chain._looped

    def noted(chain: _Chain, steps: int) -> NDArray[np.int64]:
        found = plain(chain, steps)
        looped.append(len(found))
        return found

    monkeypatch.setattr(_Chain, "_looped", noted)
    one = log_of([ALIKE]).buffer
    found = walk(one * 9_000, 0, 3_000 * len(one) + 120)
    assert (found.count, found.stop) == (3_000, StopReason.INCOMPLETE)
    assert sum(looped) < 20


def test_max_records() -> None:
    log = log_of([ALIKE] * 700)
    for most in (0, 1, 63, 300, 699):
        found = walk(log.buffer, max_records=most)
        assert (found.count, found.stop) == (most, StopReason.LIMIT)
        assert found.end == log.positions[most]
    assert walk(log.buffer, max_records=700).stop is StopReason.END


@pytest.mark.parametrize(
    ("tail", "stop", "field"),
    [
        (bytes(100), StopReason.ZEROS, "magic"),
        (b"\0\0\0\x64\xda\xa3\x20\xa7" + bytes(50), StopReason.INCOMPLETE, "size"),
        (b"\0\0\0\x10\xda\xa3\x20\xa7" + bytes(100), StopReason.CORRUPT, "size"),
        (b"\xff\xff\xff\xff\xda\xa3\x20\xa7" + bytes(100), StopReason.CORRUPT, "size"),
        (b"\0\0\0\x64\xda\xa3\x20\xa8" + bytes(100), StopReason.CORRUPT, "magic"),
        (b"\0\0\0\x64\0\0\0\0" + bytes(100), StopReason.CORRUPT, "magic"),
        (b"\0\0\0", StopReason.INCOMPLETE, "size"),
    ],
)
@pytest.mark.parametrize("records", [0, 1, 300])
def test_why_it_stopped(tail: bytes, stop: StopReason, field: str, records: int) -> None:
    log = log_of([ALIKE] * records)
    found = walk(log.buffer + tail, base_offset=1 << 30)
    assert (found.count, found.end, found.stop) == (records, log.end, stop)
    assert found.error is not None
    assert (found.error.field, found.error.offset) == (field, (1 << 30) + log.end)


def test_a_record_past_the_file_is_corrupt_not_incomplete() -> None:
    log = log_of([ALIKE] * 3)
    size = int(log.sizes[0])
    cut = size * 2 + 20
    assert walk(log.buffer, 0, cut, limit=size * 3).stop is StopReason.INCOMPLETE
    assert walk(log.buffer, 0, cut, limit=size * 3 - 1).stop is StopReason.CORRUPT
    beyond = walk(log.buffer, limit=size * 3 - 1)
    assert (beyond.count, beyond.stop) == (2, StopReason.CORRUPT)
    rest = walk(log.buffer + b"\0\0\0", limit=size * 3 + 3)
    assert rest.stop is StopReason.ZEROS
    rest = walk(log.buffer + b"\0\0\1", limit=size * 3 + 3)
    assert rest.stop is StopReason.CORRUPT


@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    found = walk(data)
    assert found.count == 0
    assert found.end == 0


@given(log_pieces(min_size=1), st.data())
def test_overwritten_bytes_never_lose_a_record_before_them(
    log: LogPiece, data: st.DataObject
) -> None:
    place = data.draw(st.integers(log.start, log.end - 1))
    garbage = data.draw(st.binary(min_size=1, max_size=20))
    buffer = bytearray(log.buffer)
    buffer[place : place + len(garbage)] = garbage
    found = walk(bytes(buffer), log.start)
    before = int((log.positions + log.sizes <= place).sum())
    assert found.count >= before
    assert found.positions[:before].tolist() == log.positions[:before].tolist()
