"""Segments and their indexes: what is in them is what dispatch finds in the same bytes."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.log_builder import LogBuilder, varied
from helpers.record_strategies import LogPiece, log_pieces
from tandemlog.format.archive.object_name import digest_of
from tandemlog.format.archive.segment import Segment, take_segment
from tandemlog.format.archive.segment_index import (
    BLOCK_BYTES,
    NO_RECORD,
    cut_index,
    decode_index,
    encode_index,
)
from tandemlog.format.columns.dispatch import dispatch_columns, unit_columns
from tandemlog.format.errors import CorruptRecordError, FormatError

FILE = 1 << 60
SMALL = 1 << 23


def taken(piece: LogPiece) -> Segment | None:
    content = memoryview(piece.buffer)[piece.start : piece.end]
    return take_segment(content, piece.base_offset + piece.start, 5, FILE)


def same(one: Segment, two: Segment) -> bool:
    return encode_index(one.index) == encode_index(two.index)


@given(log_pieces())
def test_an_index_has_the_units_of_the_records(piece: LogPiece) -> None:
    segment = taken(piece)
    if segment is None:
        assert not piece.count
        return
    assert segment.name.digest == digest_of(segment.content)
    assert (segment.entry.records, segment.name.size) == (piece.count, piece.end - piece.start)
    found = unit_columns(
        dispatch_columns(piece.buffer, piece.positions, piece.sizes, piece.base_offset)
    )
    expected: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for row in range(len(found.units)):
        queue = (found.topics[found.topic_index[row]], int(found.queue_id[row]))
        unit = (int(found.queue_offset[row]), found.units[row].tobytes())
        expected.setdefault(queue, []).append(unit)
    index = decode_index(segment.name, encode_index(segment.index))
    actual: dict[tuple[str, int], list[tuple[int, bytes]]] = {}
    for run in index.runs:
        rows = [unit.tobytes() for unit in index.units_of(run)]
        numbers = range(run.first, run.first + run.count)
        actual.setdefault((run.topic, run.queue_id), []).extend(zip(numbers, rows, strict=True))
    assert actual == expected
    assert index.topics == {topic for topic, _ in expected}
    times = [record.store_timestamp for record in piece.records()]
    assert index.times == (min(times), max(times))


def test_a_long_segment_has_blocks() -> None:
    builder = LogBuilder(Path(), SMALL)
    for number in range(9):
        builder.put(body=bytes([number]) * 400_000, queue_id=number % 2)
    content = bytes(builder._files[0][: builder.end])
    segment = take_segment(content, 0, 5, SMALL)
    assert segment is not None
    index = decode_index(segment.name, encode_index(segment.index))
    starts = np.array([record.physical_offset for record in builder.records])
    times = np.array([record.store_timestamp for record in builder.records])
    assert len(index.blocks) == 4
    for number, block in enumerate(index.blocks):
        inside = (starts // BLOCK_BYTES) == number
        assert block["first_record"] == starts[inside].min() - number * BLOCK_BYTES
        assert (block["first_ms"], block["last_ms"]) == (times[inside].min(), times[inside].max())
    first, last = index.block_bounds(BLOCK_BYTES + 5, BLOCK_BYTES + 6)
    assert (first, last) == (BLOCK_BYTES, 2 * BLOCK_BYTES)
    assert index.block_bounds(0, builder.end) == (0, builder.end)
    index.check_blocks(first, content[first:last])
    index.check_blocks(3 * BLOCK_BYTES, content[3 * BLOCK_BYTES :])
    damaged = bytearray(content)
    damaged[first + 17] ^= 4
    with pytest.raises(FormatError, match=f"the block at {BLOCK_BYTES}"):
        index.check_blocks(0, bytes(damaged))
    for start, end in [(1, BLOCK_BYTES), (0, BLOCK_BYTES - 1), (0, builder.end + 1)]:
        with pytest.raises(FormatError, match="no whole blocks"):
            index.check_blocks(start, bytes(end - start))


def test_a_block_inside_a_record_has_no_first_record() -> None:
    builder = LogBuilder(Path(), SMALL)
    builder.put(body=bytes(3 * BLOCK_BYTES))
    segment = take_segment(bytes(builder._files[0][: builder.end]), 0, 5, SMALL)
    assert segment is not None
    assert segment.index.blocks["first_record"].tolist() == [0, *[NO_RECORD] * 3]
    assert segment.index.times == (builder.records[0].store_timestamp,) * 2


def test_a_file_s_end_is_taken_as_it_is(tmp_path: Path) -> None:
    builder = varied(LogBuilder(tmp_path, 4_096, garbage=b"garbage"))
    first = bytes(builder._files[0])
    segment = take_segment(first, 0, 5, 4_096)
    assert segment is not None
    assert bytes(segment.content) == first
    # the BLANK's file is not there to its end: up to the BLANK
    part = take_segment(first[:-1], 0, 5, 4_096)
    assert part is not None
    last = [record for record in builder.records if record.physical_offset < 4_096][-1]
    assert part.name.end == last.physical_offset + last.size
    rest = take_segment(first[part.name.end :], part.name.end, 5, 4_096)
    assert rest is not None
    assert (rest.name.end, rest.entry.records, rest.index.times) == (4_096, 0, (0, 0))
    assert decode_index(rest.name, encode_index(rest.index)).runs == ()


def test_a_record_that_is_not_whole_is_left_out() -> None:
    builder = LogBuilder(Path(), SMALL)
    sizes = [builder.put(body=bytes(100)).size for _ in range(3)]
    content = bytes(builder._files[0][: builder.end])
    segment = take_segment(content[:-1], 0, 5, SMALL)
    assert segment is not None
    assert segment.name.end == sum(sizes[:2])
    assert take_segment(content[: sizes[0] - 1], 0, 5, SMALL) is None
    assert take_segment(b"", 0, 5, SMALL) is None


def test_damage_is_not_taken() -> None:
    builder = LogBuilder(Path(), SMALL)
    sizes = [builder.put(body=bytes(100)).size for _ in range(3)]
    content = bytearray(builder._files[0][: builder.end])
    content[sizes[0] + 100] ^= 1
    segment = take_segment(bytes(content), 0, 5, SMALL)
    assert segment is not None
    assert segment.name.end == sizes[0]
    with pytest.raises(CorruptRecordError, match=f"record at {sizes[0]}"):
        take_segment(bytes(content[sizes[0] :]), sizes[0], 5, SMALL)
    with pytest.raises(CorruptRecordError):
        take_segment(bytes(500), 0, 5, SMALL)


def test_numbers_that_a_broker_gave_twice_are_runs_of_their_own() -> None:
    builder = LogBuilder(Path(), SMALL)
    for number in (0, 1, 2, 1, 2, 5):
        builder.put(queue_offset=number)
    segment = take_segment(bytes(builder._files[0][: builder.end]), 0, 5, SMALL)
    assert segment is not None
    runs = segment.index.runs_of("Orders", 0)
    assert [(run.first, run.count) for run in runs] == [(0, 3), (1, 2), (5, 1)]
    assert segment.index.runs_of("Orders", 1) == []


def test_topics_in_batch_queues_have_no_units() -> None:
    builder = LogBuilder(Path(), SMALL)
    builder.put("Orders")
    builder.put("Batches")
    content = bytes(builder._files[0][: builder.end])
    segment = take_segment(content, 0, 5, FILE, in_batch_queues={"Batches"})
    assert segment is not None
    assert segment.index.topics == {"Orders"}
    assert segment.entry.records == 2


@given(log_pieces(min_size=1), st.data())
def test_an_index_is_cut_with_its_segment(piece: LogPiece, data: st.DataObject) -> None:
    segment = taken(piece)
    assert segment is not None
    row = data.draw(st.integers(0, piece.count - 1))
    end = piece.base_offset + int(piece.positions[row])
    cut = cut_index(segment.index, end)
    assert cut_index(segment.index, segment.name.end) is segment.index
    expected = segment.index.units[segment.index.units["physical_offset"] < end]
    assert cut.units.tobytes() == expected.tobytes()
    assert sum(run.count for run in cut.runs) == len(cut.units)
    if row:
        part = take_segment(
            segment.content[: end - segment.name.start], segment.name.start, 5, FILE
        )
        assert part is not None
        assert part.index.runs == cut.runs


@given(log_pieces(min_size=1), st.data())
def test_a_damaged_index_is_refused(piece: LogPiece, data: st.DataObject) -> None:
    segment = taken(piece)
    assert segment is not None
    content = bytearray(encode_index(segment.index))
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(FormatError):
        decode_index(segment.name, bytes(content))
    with pytest.raises(FormatError):
        decode_index(segment.name, bytes(content[:at]))


def test_an_index_is_that_of_its_segment() -> None:
    builder = LogBuilder(Path(), SMALL)
    builder.put()
    content = bytes(builder._files[0][: builder.end])
    one, two = take_segment(content, 0, 5, SMALL), take_segment(content, 0, 6, SMALL)
    assert one is not None
    assert two is not None
    assert not same(one, two)
    with pytest.raises(FormatError, match="is of 'log/"):
        decode_index(two.name, encode_index(one.index))
