"""Where a log ends, and whether what stands there is a tail or damage."""

from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder, flip, overwrite
from tandemlog.format.record.record import encode_record
from tandemlog.logs.reading.log_end import Tail, find_log_end
from tandemlog.logs.reading.log_files import find_log


@pytest.fixture
def log(tmp_path: Path) -> LogBuilder:
    builder = LogBuilder(tmp_path)
    while builder.end < 6000:
        builder.put(body=b"b" * 60)
    builder.write()
    return builder


@pytest.fixture(autouse=True, params=[8 << 20, 500, 100])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """However little of a file is looked at in one go, a record or less."""
    monkeypatch.setattr("tandemlog.logs.reading.log_end._WINDOW", request.param)


def end(log: LogBuilder, durable: int = 0) -> tuple[int, Tail]:
    found = find_log_end(find_log(log.store), durable)
    return found.offset, found.tail


@pytest.mark.parametrize("known", [False, True])
def test_zeros_end_a_log(log: LogBuilder, known: bool) -> None:
    assert end(log, log.end if known else 0) == (log.end, Tail.ZEROS)


def test_preallocated_files_are_not_the_log(log: LogBuilder) -> None:
    log.path(8192).write_bytes(bytes(4096))
    log.path(12288).write_bytes(bytes(4096))
    assert end(log) == (log.end, Tail.ZEROS)


def test_an_empty_log_ends_where_it_begins(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    builder.write()
    assert end(builder) == (0, Tail.ZEROS)
    builder.path(0).write_bytes(bytes(4096))
    assert end(builder) == (0, Tail.ZEROS)


@pytest.mark.parametrize("durable", [False, True])
def test_a_record_cut_off_by_a_crash_is_torn(log: LogBuilder, durable: bool) -> None:
    last = log.records[-1]
    overwrite(log, last.physical_offset + 90, bytes(last.size - 90))
    assert end(log, last.physical_offset if durable else 0) == (last.physical_offset, Tail.TORN)


def test_a_header_cut_off_is_torn(log: LogBuilder) -> None:
    last = log.records[-1]
    overwrite(log, last.physical_offset + 40, bytes(last.size - 40))
    assert end(log)[0] == last.physical_offset


def test_a_whole_last_record_with_a_flipped_bit_is_damage(log: LogBuilder) -> None:
    last = log.records[-1]
    flip(log, last.physical_offset + 100)
    assert end(log) == (last.physical_offset, Tail.CORRUPT)


def test_a_record_of_elsewhere_is_stale(log: LogBuilder) -> None:
    overwrite(log, log.end, encode_record(topic="Orders", body=b"old", physical_offset=17))
    assert end(log) == (log.end, Tail.STALE)


def test_a_truncated_suffix_is_not_taken_for_the_log(log: LogBuilder) -> None:
    """The log was cut and written again; behind its new end old records lie in their places."""
    old = [encode_record(topic="Orders", body=b"o" * 60, physical_offset=log.end + 300,
                         store_timestamp=1_600_000_000_000)]  # fmt: skip
    overwrite(log, log.end, b"the rest of a record that was cut")
    overwrite(log, log.end + 300, old[0])
    assert end(log) == (log.end, Tail.STALE)


def test_damage_in_the_middle_is_no_end(log: LogBuilder) -> None:
    inside = next(each for each in log.records if each.physical_offset > 4400)
    flip(log, inside.physical_offset + 4, 7)
    assert end(log) == (log.end, Tail.ZEROS)
    assert end(log, log.end) == (log.end, Tail.ZEROS)


def test_above_what_was_dispatched_the_first_bad_record_is_the_end(log: LogBuilder) -> None:
    inside = next(each for each in log.records if each.physical_offset > 4400)
    flip(log, inside.physical_offset + 100)
    found = find_log_end(find_log(log.store), 4096)
    assert (found.offset, found.tail) == (inside.physical_offset, Tail.CORRUPT)
    assert "whole records follow" in found.reason


def test_a_file_that_is_cut_off(log: LogBuilder) -> None:
    with log.path(4096).open("r+b") as file:
        file.truncate(log.records[-1].physical_offset - 4096 + 50)
    assert end(log) == (log.records[-1].physical_offset, Tail.CUT)


def test_a_full_last_file(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    while builder.end < 4096:
        builder.put(body=b"b" * 60)
    builder.write()
    builder.path(4096).unlink()
    assert end(builder) == (4096, Tail.FULL)
