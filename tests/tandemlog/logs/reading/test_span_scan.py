"""Windows give whole records and name what is none; spans together give every record once."""

from contextlib import closing
from pathlib import Path

import pytest

from fakes.log_builder import LogBuilder, flip, overwrite, varied
from tandemlog.format.columns.walk import StopReason
from tandemlog.logs.reading.log_bytes import LocalLog
from tandemlog.logs.reading.log_files import find_log
from tandemlog.logs.reading.log_spans import Span, split
from tandemlog.logs.reading.span_scan import DamagedPiece, Ending, Piece, SpanScan


def scanned(store: Path, end: int, piece: int = 1 << 30, **how: int) -> list[int | DamagedPiece]:
    """Offsets of all records, and the damages, of all spans."""
    files = find_log(store)
    found: list[int | DamagedPiece] = []
    with closing(LocalLog(files)) as log:
        for span in split(files, files.start, end, piece):
            for part in SpanScan(log, span, **how):  # type: ignore[arg-type]
                if isinstance(part, Piece):
                    found += (part.walk.positions + part.base).tolist()
                else:
                    found.append(part)
    return found


@pytest.mark.parametrize("window", [64, 300, 1000, 1 << 20])
@pytest.mark.parametrize("piece", [200, 1500, 1 << 30])
def test_every_record_once_whatever_the_windows(tmp_path: Path, window: int, piece: int) -> None:
    builder = varied(LogBuilder(tmp_path, garbage=b"\xda\xa3\x20\xa7 garbage" * 99))
    builder.write()
    found = scanned(tmp_path, builder.end, piece, window_bytes=window, window_records=7)
    assert found == [record.physical_offset for record in builder.records]


def test_a_record_larger_than_the_window_makes_it_grow(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, 1 << 20)
    for size in (10, 600_000, 20, 300_000):
        builder.put(body=b"x" * size)
    builder.write()
    found = scanned(tmp_path, builder.end, window_bytes=1000)
    assert found == [record.physical_offset for record in builder.records]


def test_a_flipped_size_costs_no_memory(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path, 1 << 20)
    records = [builder.put() for _ in range(9)]
    builder.write()
    flip(builder, records[4].physical_offset + 1, 3)  # 512 KiB more: still inside the file
    found = scanned(tmp_path, builder.end, window_bytes=1000)
    (damage,) = [part for part in found if isinstance(part, DamagedPiece)]
    assert (damage.start, damage.end) == (records[4].physical_offset, records[5].physical_offset)
    assert damage.stop is StopReason.CORRUPT


@pytest.mark.parametrize("piece", [400, 1 << 30])
def test_damage_ends_at_the_next_record(tmp_path: Path, piece: int) -> None:
    builder = LogBuilder(tmp_path)
    records = [builder.put(body=b"b" * 40) for _ in range(20)]
    builder.write()
    flip(builder, records[7].physical_offset + 100)
    overwrite(builder, records[12].physical_offset, bytes(20))
    found = scanned(tmp_path, builder.end, piece)
    damages = [part for part in found if isinstance(part, DamagedPiece)]
    bad = {records[7].physical_offset, records[12].physical_offset}
    assert {damage.start for damage in damages} >= bad
    good = [part for part in found if isinstance(part, int)]
    assert good == [each.physical_offset for each in records if each.physical_offset not in bad]


def test_without_crc_a_body_may_be_anything(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    record = builder.put(body=b"b" * 40)
    builder.write()
    flip(builder, record.physical_offset + 100)
    files = find_log(tmp_path)
    with closing(LocalLog(files)) as log:
        (part,) = SpanScan(log, Span(0, 4096, 0, builder.end), check_crc=False)
    assert isinstance(part, Piece)


def test_how_a_span_ended(tmp_path: Path) -> None:
    builder = LogBuilder(tmp_path)
    while builder.end < 5000:
        builder.put()
    builder.write()
    files = find_log(tmp_path)
    with closing(LocalLog(files)) as log:
        first = SpanScan(log, Span(0, 4096, 0, 300))
        list(first)
        assert (first.first, first.ending) == (0, Ending.NEXT)
        last = SpanScan(log, Span(0, 4096, 300, 4096, at_record=False))
        list(last)
        assert (last.first, last.end, last.ending) == (first.end, 4096, Ending.BLANK)
        behind = SpanScan(log, Span(4096, 8192, builder.end, 8192, at_record=False))
        assert list(behind) == []
        assert behind.ending is Ending.NOTHING
