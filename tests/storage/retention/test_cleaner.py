"""Old log files go with what points to them, others stay."""

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from fakes.crashed_stores import assert_whole
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.storage.clock import ACCEPT_JUMP_S
from tandemlog_server.storage.config import ConfirmSource, RetentionConfig
from tandemlog_server.storage.housekeeping import release_maps
from tandemlog_server.storage.reads.results import GetStatus
from tandemlog_server.storage.retention.cleaner import PAUSE_S, Cleaner

PATIENCE_S = 20.0  # never reached by a test that passes
AT_ANY_HOUR = RetentionConfig(reserved_hours=1, delete_hours=tuple(range(24)))


def clean(bench: Bench, sleep: Callable[[float], None] = lambda _: None) -> int:
    """One round, over the store's own lock."""
    return Cleaner(bench.store._parts, sleep).run(bench.store._write_lock)


def fill(bench: Bench) -> None:
    """Many files of the log, dispatched, and all but the newest two hours old."""
    for _ in range(30):
        bench.put(10, size=50)
        bench.settle()
    assert clean(bench) == 0, "they are first seen"
    bench.clock.advance(7200)
    bench.put(1)
    bench.settle()
    bench.store.persist()


def test_old_files_go_with_their_queues_and_index() -> None:
    bench = Bench(replace(CONFIG, retention=replace(AT_ANY_HOUR, delete_batch_max=100)))
    bench.store.epochs.append(EpochEntry(1, 0))
    bench.store.epochs.append(EpochEntry(2, 100))
    fill(bench)
    bench.store.persist()
    files = len(bench.store.log.files)
    assert clean(bench) == files - 1
    bench.clock.advance(7200)
    assert clean(bench) == 0, "the newest file stays"
    start = bench.store.log.min_offset
    assert start > 0
    (only,) = (each for each in bench.store.reader.ranges() if each.queue_id == 0)
    assert 0 < only.min_offset < only.max_offset == 301
    assert bench.files.listdir(DIRECTORY / "consumequeue" / "T" / "0")[0] != f"{0:020d}"
    assert bench.store.epochs.table.entries == (EpochEntry(2, 100),)
    assert bench.store.stats.files_deleted == files - 1
    assert bench.store.reader.get("T", 0, 0, 1, 100).status is GetStatus.OFFSET_TOO_SMALL
    assert len(bench.bodies()) == 301 - only.min_offset
    bench.reopen()
    first = bench.store.reader.ranges()[0]
    assert (first.min_offset, first.max_offset) == (only.min_offset, 301)


def test_files_of_which_the_queues_are_not_durable_stay() -> None:
    """After a crash nothing would tell the number of a queue whose records are gone."""
    bench = Bench(replace(CONFIG, retention=AT_ANY_HOUR))
    bench.put(queue_id=1)
    for _ in range(30):
        bench.put(10, size=50)
        bench.settle()
    clean(bench)
    bench.clock.advance(7200)
    assert clean(bench) == 0
    bench.store.persist()
    assert clean(bench) > 0
    bench.crash()
    assert bench.put(queue_id=1).segments[0].queue_offsets.tolist() == [1]


def test_files_that_an_archive_still_needs_stay() -> None:
    bench = Bench(replace(CONFIG, retention=AT_ANY_HOUR))
    fill(bench)
    second = bench.store.log.files[1].base
    bench.store.hold_log(lambda: second)
    assert bench.store._cleaner.run(bench.store._write_lock) == 1
    assert bench.store.log.min_offset == second
    assert bench.store.retention_waits_for is None
    bench.store.hold_log(None)
    assert bench.store._cleaner.run(bench.store._write_lock) > 0


def test_files_that_are_not_dispatched_stay() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION, retention=AT_ANY_HOUR))
    bench.store.become_master(1)
    for _ in range(20):
        bench.put(10, size=50)
    bench.store.flush()
    bench.clock.advance(7200)
    assert clean(bench) == 0
    assert bench.store.log.min_offset == 0


def test_a_round_has_a_limit() -> None:
    bench = Bench(replace(CONFIG, retention=replace(AT_ANY_HOUR, delete_batch_max=2)))
    fill(bench)
    files = len(bench.store.log.files)
    pauses: list[float] = []
    assert clean(bench, pauses.append) == 2
    assert len(bench.store.log.files) == files - 2
    assert pauses == [PAUSE_S], "between the two, none after the last"


def test_a_put_comes_in_after_the_first_of_several_files() -> None:
    bench = Bench(replace(CONFIG, retention=replace(AT_ANY_HOUR, delete_batch_max=3)))
    fill(bench)
    files = len(bench.store.log.files)
    left: list[int] = []
    stored = threading.Event()

    def put() -> None:
        with bench.store._write_lock:
            left.append(len(bench.store.log.files))
            bench.put()
        stored.set()

    putting = threading.Thread(target=put, daemon=True)

    def pause(_: float) -> None:
        if not left:
            putting.start()
        assert stored.wait(PATIENCE_S), "the lock is held during the pause"

    assert clean(bench, pause) == 3
    putting.join(PATIENCE_S)
    assert left == [files - 1]


def test_log_files_that_somebody_has_deleted_keep_none_on_the_disk() -> None:
    bench = Bench(replace(CONFIG, retention=replace(AT_ANY_HOUR, delete_batch_max=100)))
    fill(bench)
    oldest, _, third, *_ = (file.path for file in bench.store.log.files)
    bench.files.unlink(oldest)
    bench.files.unlink(third)
    clean(bench)
    newest = bench.store.log.files
    assert bench.files.listdir(DIRECTORY / "commitlog") == [file.path.name for file in newest]
    assert len(newest) == 1
    bench.kill()
    assert bench.store.log.min_offset == newest[0].base


def test_the_log_begins_behind_files_that_somebody_has_deleted() -> None:
    bench = Bench()
    for _ in range(30):
        bench.put(10, size=50)
    bench.settle()
    bench.store.persist()
    release_maps(bench.store.log)
    first, second, third, *_ = bench.store.log.files
    for file in (first, second):
        bench.files.unlink(file.path)
    assert clean(bench) == 2
    assert bench.store.log.min_offset == third.base
    (only,) = (each for each in bench.store.reader.ranges() if each.queue_id == 0)
    assert only.min_offset > 0
    assert bench.store.reader.get("T", 0, 0, 1, 100).status is GetStatus.OFFSET_TOO_SMALL
    assert len(bench.bodies()) == 300 - only.min_offset
    assert clean(bench) == 0


def test_a_disk_that_is_not_there_drops_nothing() -> None:
    bench = Bench(replace(CONFIG, retention=AT_ANY_HOUR))
    fill(bench)
    for file in bench.store.log.files:
        bench.files.unlink(file.path)
    assert clean(bench) == 0
    assert bench.store.log.min_offset == 0


def test_deleted_files_that_are_not_dispatched_stay_in_the_log() -> None:
    """Dispatch would pass over them without a word."""
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    bench.store.become_master(1)
    for _ in range(20):
        bench.put(10, size=50)
    bench.store.flush()
    bench.files.unlink(bench.store.log.files[0].path)
    assert clean(bench) == 0
    assert bench.store.log.min_offset == 0


def test_a_log_file_that_cannot_be_deleted_leaves_no_gap() -> None:
    """The next one would go in its place, and the store could not be opened any more."""
    bench = Bench(replace(CONFIG, retention=replace(AT_ANY_HOUR, delete_batch_max=2)))
    fill(bench)
    bench.files.fail("unlink", name="commitlog", times=1)
    with pytest.raises(OSError, match="Input/output"):
        clean(bench)
    assert bench.store.log.min_offset == 0
    assert clean(bench) == 2
    start, before = bench.store.log.min_offset, bench.bodies()
    bench.kill()
    assert bench.store.log.min_offset == start
    assert bench.bodies() == before


@pytest.mark.parametrize("kind", ["consumequeue", "index"])
def test_a_derived_file_that_cannot_be_deleted_goes_later_and_damages_nothing(kind: str) -> None:
    bench = Bench(replace(CONFIG, retention=replace(AT_ANY_HOUR, delete_batch_max=4)))
    bench.store.epochs.append(EpochEntry(1, 0))
    bench.store.epochs.append(EpochEntry(2, 100))
    fill(bench)
    bench.store.persist()
    bench.files.fail("unlink", name=kind, times=1)
    with pytest.raises(OSError, match="Input/output"):
        clean(bench)
    assert bench.store.epochs.table.entries == (EpochEntry(2, 100),)
    assert clean(bench) == 4
    before = bench.bodies()
    bench.kill()
    assert bench.store.recovery.queues_rebuilt == {}
    assert bench.bodies() == before
    bench.put(3)
    assert_whole(bench)


def test_a_queue_file_that_somebody_has_deleted_is_made_again() -> None:
    bench = Bench(replace(CONFIG, retention=replace(AT_ANY_HOUR, delete_batch_max=4)))
    fill(bench)
    bench.store.persist()
    bench.store.queues.close()
    bench.files.unlink(DIRECTORY / "consumequeue" / "T" / "0" / f"{0:020d}")
    assert clean(bench) == 4
    bench.settle()
    (only,) = (each for each in bench.store.reader.ranges() if each.queue_id == 0)
    assert len(bench.bodies()) == 301 - only.min_offset
    assert_whole(bench)


def test_a_clock_that_jumps_ahead_deletes_nothing() -> None:
    bench = Bench(replace(CONFIG, retention=AT_ANY_HOUR))
    for _ in range(30):
        bench.put(10, size=50)
    bench.settle()
    bench.store.persist()
    clean(bench)
    bench.clock.jump(4 * 86_400)
    assert clean(bench) == 0
    bench.clock.advance(ACCEPT_JUMP_S + 1)
    bench.store.clock.now_ms()
    bench.clock.advance(1)
    assert bench.store.clock.jump is None, "it counts as right now"
    assert clean(bench) == 0
    bench.clock.advance(3600)
    assert clean(bench) > 0, "they are an hour old by any clock"


def test_a_clock_that_is_wrong_at_the_start_deletes_nothing() -> None:
    bench = Bench(replace(CONFIG, retention=AT_ANY_HOUR))
    for _ in range(30):
        bench.put(10, size=50)
    bench.settle()
    clean(bench)
    bench.clock.advance(1800)
    bench.store.persist()
    clean(bench)
    bench.clock.jump(4 * 86_400)
    bench.reopen()
    assert clean(bench) == 0
    bench.clock.advance(1900)
    assert clean(bench) > 0, "half an hour before the restart, and the rest after it"


def test_a_full_disk_does_not_keep_retention_from_its_work() -> None:
    bench = Bench(replace(CONFIG, retention=AT_ANY_HOUR))
    fill(bench)
    bench.put(10, size=3000)
    bench.settle()
    bench.files.fail("replace", name="seen-time", times=1)
    assert clean(bench) > 0
