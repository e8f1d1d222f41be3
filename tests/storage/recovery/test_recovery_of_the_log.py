"""Damage of the log at open: what is said of it, what is cut, and that nothing else is lost."""

from dataclasses import replace
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.crashed_stores import LOG, QUEUE, assert_whole, everything, flip, full, log_byte, text
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.record.properties import encode_properties
from tandemlog_server.storage.config import ConfirmSource, FlushMode
from tandemlog_server.storage.errors import StoreLayoutError
from tandemlog_server.storage.tools.recover import plan
from tandemlog_server.storage.tools.verify import verify


@pytest.mark.parametrize("lost", [1, 9, 30, 100, 139])
def test_a_torn_tail_is_cut_and_said(lost: int) -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.put(1, size=40)
    bench.store.flush()
    path, end = log_byte(bench.store.log.wrote.value)
    bench.files.content(path)[end - lost : end] = bytes(lost)
    bench.kill()
    report = bench.store.recovery
    assert report.cut_bytes > 0
    assert "cut" in text(report)
    assert everything(bench) == kept
    assert_whole(bench)


def test_records_behind_a_bad_one_above_what_was_durable_are_cut_and_kept_aside() -> None:
    bench, _ = full()
    kept = everything(bench)
    start = bench.put(5).segments[0].physical_offset
    bench.put(5)
    bench.store.flush()
    path, position = log_byte(start)
    flip(bench, path, position + 90)
    bench.kill()
    report = bench.store.recovery
    assert report.log_end == start
    assert report.cut_saved
    assert len(bench.files.content(Path(report.cut_saved))) == report.cut_bytes
    assert everything(bench) == kept
    assert_whole(bench)


def test_cut_bytes_never_come_back() -> None:
    bench, _ = full()
    start = bench.put(2).segments[0].physical_offset
    bench.put(5)
    bench.store.flush()
    path, position = log_byte(start)
    flip(bench, path, position + 90)
    bench.kill()
    bench.put(2)
    bench.crash()
    bench.kill()
    assert bench.store.recovery.log_end <= start + 2 * 200
    assert_whole(bench)


@pytest.mark.parametrize("field", [0, 5, 30, 90])
def test_a_flipped_bit_below_the_recovery_point_cuts_nothing(field: int) -> None:
    bench, starts = full()
    kept = everything(bench)
    path, position = log_byte(starts[4])
    flip(bench, path, position + field)
    bench.kill()
    report = bench.store.recovery
    assert report.damages == []
    assert report.log_end == bench.store.log.wrote.value > starts[-1]
    assert len(kept) == 200
    assert bench.put().segments[0].queue_offsets.tolist() == [100]
    bench.settle()
    bench.store.close()
    found = verify(bench.config, bench.files)
    assert str(starts[4]) in str(found.faults[0])
    assert str(path) in str(found.faults[0])


def test_damage_below_is_passed_over_when_the_queues_are_made_again() -> None:
    bench, starts = full()
    kept = everything(bench)
    path, position = log_byte(starts[4])
    flip(bench, path, position)
    for name in bench.files.listdir(QUEUE):
        bench.files.unlink(QUEUE / name)
    bench.kill()
    report = bench.store.recovery
    assert "T/0" in report.queues_rebuilt
    assert report.damages[0].start == starts[4]
    found = everything(bench)
    assert len(found) == len(kept) - 1
    assert [body for body in kept if body in set(found)] == found
    assert bench.put().segments[0].queue_offsets.tolist() == [100]


def test_a_missing_log_file_is_named() -> None:
    bench, _ = full(40)
    names = bench.files.listdir(LOG)
    assert len(names) > 3
    bench.store.close()
    bench.files.unlink(LOG / names[1])
    with pytest.raises(StoreLayoutError, match=names[1]):
        bench.open()


def test_a_replica_that_lacks_its_last_log_files_says_it_and_serves_the_rest() -> None:
    bench, _ = full(40)
    names = bench.files.listdir(LOG)
    bench.store.consumer_offsets.commit("G", "T", 0, 200)
    bench.store.close()
    for name in names[2:]:
        bench.files.unlink(LOG / name)
    bench.open(confirm=ConfirmSource.REPLICATION)
    report = bench.store.recovery
    end = bench.store.queues.max_offset(bench.store.queue_table.get("T", 0))
    assert bench.store.consumer_offsets.offset("G", "T", 0) == end < 200
    assert any("is missing or empty" in note for note in report.notes)
    assert 0 < len(everything(bench)) < 400


@pytest.mark.parametrize("end", ["closed", "killed"])
def test_a_log_of_which_every_file_is_missing_is_not_taken_for_an_empty_one(end: str) -> None:
    """A disk of its own that is not mounted: the queues would go, and consumers be set back."""
    bench, _ = full()
    bench.store.consumer_offsets.commit("G", "T", 0, 20)
    bench.store.consumer_offsets.save(1)
    kept = everything(bench)
    if end == "closed":
        bench.store.close()
    else:
        bench._abandon()
        bench.files.kill()
    away = LOG.with_name("away")
    bench.files.rename(LOG, away)
    point = DIRECTORY / "tandemlog" / "recovery.json"
    with pytest.raises(StoreLayoutError, match=f"{LOG} has no files.*mount.*remove {point}"):
        bench.open()
    with pytest.raises(StoreLayoutError, match="has no files"):
        plan(bench.config, bench.files)
    bench.files.rename(away, LOG)
    bench.open()
    assert everything(bench) == kept
    assert bench.store.consumer_offsets.offset("G", "T", 0) == 20
    bench.store.close()
    bench.files.rename(LOG, away)
    bench.files.unlink(point)
    bench.open()
    assert bench.store.log.wrote.value == 0
    bench.put(1)


def test_an_empty_newest_file_is_no_obstacle() -> None:
    bench, _ = full()
    end = bench.store.log.mapped.end
    bench.store.close()
    bench.files.atomic_replace(LOG / f"{end:020d}", b"")
    bench.open()
    assert len(everything(bench)) == 200


def test_a_page_that_is_lost_inside_long_properties_ends_the_log_there() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC, commit_log_file_size=1 << 17))
    bench.put(1)
    bench.settle()
    bench.store.persist()
    long = batch_of([Put("T", 0, b"body", encode_properties({"document": "x" * 20_000}))])
    begin = bench.store.put(long).segments[0].physical_offset
    bench.put(1)
    # the power goes while its pages are written: the third is not, those behind it are
    bench.files.content(LOG / f"{0:020d}")[8192:12288] = bytes(4096)
    bench.kill()
    assert bench.store.log.wrote.value == begin
    assert "a page of them is zero bytes" in bench.store.recovery.cut_reason
    assert bench.store.put(long).segments[0].physical_offset == begin
