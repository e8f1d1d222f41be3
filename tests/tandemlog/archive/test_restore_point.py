"""A point in time: the last record that was stored by then, and everything before it."""

import pytest

from fakes.archives import archive, state_of
from fakes.fake_object_store import FakeObjectStore
from fakes.stores import CONFIG, Bench, records_of
from tandemlog.archive.archive_reader import ArchiveReader
from tandemlog.archive.errors import NotArchivedError
from tandemlog.archive.restore_point import RestorePoint, Until, restore_point
from tandemlog.format.record.record import Record

SIZE = CONFIG.commit_log_file_size


def source() -> Bench:
    """60 messages; in the middle the clock goes back."""
    bench = Bench()
    bench.store.become_master(1)
    for number in range(60):
        bench.put(queue_id=number % 2, size=300)
        bench.clock.advance(-3.0 if number == 30 else 1.0)
    bench.settle()
    assert len(bench.store.log.files) > 2
    return bench


def records(bench: Bench) -> list[Record]:
    found: list[Record] = []
    for queue_id in (0, 1):
        dense = bench.store.queue_table.get("T", queue_id)
        for number in range(bench.store.queues.max_offset(dense)):
            found += records_of(bench.store.reader.get("T", queue_id, number, 1, 1 << 20))
    return sorted(found, key=lambda each: each.physical_offset)


BENCH = source()
RECORDS = records(BENCH)
END = BENCH.store.log.wrote.value


def reader(*states: int, begin: int = 0) -> ArchiveReader:
    objects = FakeObjectStore()
    archive(BENCH, objects, [state_of(BENCH, prologue_at=at) for at in states], begin=begin)
    return ArchiveReader.open(objects)


def end_of(record: Record) -> int:
    return record.physical_offset + record.size


def point(until: Until, *states: int, begin: int = 0) -> RestorePoint:
    return restore_point(reader(*states, begin=begin), until)


def test_without_a_point_all_of_it_is_there() -> None:
    assert point(Until()) == RestorePoint(0, END, None, None, None)


def test_every_time_ends_at_the_last_record_that_was_stored_by_then() -> None:
    opened = reader()
    times = sorted({each.store_timestamp + step for each in RECORDS for step in (-1, 0, 1)})
    for time_ms in times[1:]:
        stored = [each for each in RECORDS if each.store_timestamp <= time_ms]
        expected = end_of(stored[-1]) if len(stored) < len(RECORDS) else END
        assert restore_point(opened, Until(time_ms=time_ms)).end == expected
    with pytest.raises(NotArchivedError, match="no record at or before the time"):
        restore_point(opened, Until(time_ms=times[0]))


def test_every_offset_ends_at_the_last_record_that_ends_by_then() -> None:
    opened = reader()
    ends = [end_of(each) for each in RECORDS]
    boundaries = [each.end for each in opened.manifest.segments]
    for offset in sorted({each + step for each in ends for step in (-1, 0, 1)}):
        expected = [each for each in (*ends, *boundaries) if each <= offset]
        if expected:
            assert restore_point(opened, Until(offset=offset)).end == max(expected)
    assert restore_point(opened, Until(offset=END + 1)).end == END
    with pytest.raises(NotArchivedError, match="no record at or before log offset"):
        restore_point(opened, Until(offset=ends[0] - 1))


def test_the_tables_are_the_newest_that_are_not_above_the_end() -> None:
    first, second, third = 0, SIZE, 2 * SIZE
    found = point(Until(offset=second + 700), first, second, third)
    assert found.state is not None
    assert found.later is not None
    assert (found.state.name.log_offset, found.later.name.log_offset) == (second, third)


def test_a_log_that_began_in_a_file_begins_with_the_next_one() -> None:
    """A node's log begins where a file does; with the prologue of that place, if it is there."""
    begin = RECORDS[3].physical_offset
    found = point(Until(), SIZE, begin=begin)
    assert found.begin == SIZE
    assert found.prologue is not None
    assert point(Until(), begin=begin).prologue is None
    with pytest.raises(NotArchivedError, match="no start of a commit log file before"):
        point(Until(offset=end_of(RECORDS[6])), begin=begin)
