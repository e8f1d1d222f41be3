"""A service's fold that missed a record gets it, without forgetting what it knows meanwhile."""

from dataclasses import replace

import pytest

from fakes.scrubbed_trio import turn
from fakes.stores import CONFIG, DIRECTORY, Bench
from fakes.waiting import come, put_waiting, ready_desk, waiting_put
from tandemlog_server.storage.config import RetentionConfig
from tandemlog_server.storage.errors import FlushFailedError
from tandemlog_server.storage.folds.service_fold import FoldSnapshot
from tandemlog_server.storage.retention.cleaner import Cleaner
from tandemlog_server.storage.scrub.log_mending import Patch

FILE = CONFIG.commit_log_file_size * 64
LOG = DIRECTORY / "commitlog" / f"{0:020d}"


def damaged() -> tuple[Bench, Patch]:
    """Delayed messages a, b, c; a is delivered. The record of b is flipped, and every snapshot of a
    fold is lost: the store opens without b."""
    bench = Bench(replace(CONFIG, commit_log_file_size=FILE, property_crc=True))
    put_waiting(bench, waiting_put(bench, "a", delay_ms=1_000))
    begin = bench.store.log.wrote.value
    put_waiting(bench, waiting_put(bench, "b", delay_ms=50_000))
    end = bench.store.log.wrote.value
    put_waiting(bench, waiting_put(bench, "c", delay_ms=60_000))
    bench.clock.advance(2)
    assert come(bench, ready_desk(bench)) == [b"a"]
    bench.settle()
    good = bytes(bench.store.log.view(begin, end - begin))
    turn(bench.files, LOG, begin + 90, 1)
    bench.store.close()
    for name in bench.files.listdir(DIRECTORY / "tandemlog/folds"):
        bench.files.unlink(DIRECTORY / "tandemlog/folds" / name)
    bench.files.unlink(DIRECTORY / "tandemlog/recovery.json")
    bench.open()
    bench.settle()
    return bench, Patch(begin, good)


def waiting(bench: Bench) -> int:
    return len(bench.store.delays.rows)


def test_a_delayed_message_comes_back_and_what_was_delivered_does_not() -> None:
    bench, patch = damaged()
    store = bench.store
    assert waiting(bench) == 1
    bench.clock.advance(1)
    desk = ready_desk(bench)
    assert come(bench, desk) == [b"a"]
    store.mend([patch])
    seen = set[int]()
    while store.reput.run_once():
        seen.add(waiting(bench))
    assert waiting(bench) == 2
    assert seen <= {1, 2}  # never 0 or 3: the delivered one does not wait again in between
    desk = ready_desk(bench)
    bench.clock.advance(70)
    assert come(bench, desk) == [b"a", b"b", b"c"]


def test_a_fold_gets_back_what_an_earlier_process_has_skipped_for_it_alone() -> None:
    """The queue has had the record all the time, and this process has skipped nothing."""
    bench, patch = damaged()
    bench.store.persist()
    bench.reopen()
    bench.settle()
    assert waiting(bench) == 1
    bench.store.mend([patch])
    bench.settle()
    assert waiting(bench) == 2


@pytest.mark.parametrize("ends", ["close", "crash", "kill"])
@pytest.mark.parametrize("dispatched", [False, True])
def test_what_a_stop_interrupts_is_done_at_the_next_open(ends: str, dispatched: bool) -> None:
    bench, patch = damaged()
    bench.store.persist()
    bench.store.mend([patch])
    if dispatched:
        bench.settle()
    if ends == "close":
        bench.reopen()
    elif ends == "crash":
        bench.crash()
    else:
        bench.kill()
    bench.settle()
    assert waiting(bench) == 2
    assert not bench.store.reput.behind
    bench.store.persist()
    assert bench.files.status(DIRECTORY / "tandemlog/mended.json") is None
    bench.crash()
    assert waiting(bench) == 2


def test_a_cut_meanwhile_leaves_no_fold_that_lacks_records() -> None:
    bench, patch = damaged()
    store = bench.store
    store.mend([patch])
    later = store.log.wrote.value
    bench.put(1)
    store.flush()
    store.truncate(later)
    bench.settle()
    assert waiting(bench) == 2


def test_what_was_delivered_and_is_not_dispatched_yet_does_not_come_twice() -> None:
    bench, patch = damaged()
    store = bench.store
    desk = ready_desk(bench)
    bench.clock.advance(70)
    dispatched = store.reput.reputed.value
    assert desk.deliver() == 1  # c is appended, and no follower has it yet
    store.mend([patch])
    while store.reput.run_once(dispatched):
        pass
    assert waiting(bench) == 2
    assert come(bench, desk) == [b"a", b"c", b"b"]


def put_one(bench: Bench, name: str) -> Patch:
    """A delayed message; its bytes in the log."""
    begin = bench.store.log.wrote.value
    put_waiting(bench, waiting_put(bench, name, delay_ms=50_000))
    end = bench.store.log.wrote.value
    return Patch(begin, bytes(bench.store.log.view(begin, end - begin)))


def without_two() -> tuple[Bench, list[Patch]]:
    """As `damaged`; the snapshot of the fold on the disk is behind b, and before d, which was
    turned after it had been dispatched."""
    bench, first = damaged()
    bench.store.persist()
    second = put_one(bench, "d")
    bench.settle()
    turn(bench.files, LOG, second.start + 90, 1)
    return bench, [first, second]


@pytest.mark.parametrize("together", [False, True])
def test_a_second_place_that_is_mended_takes_nothing_from_the_first(together: bool) -> None:
    bench, patches = without_two()
    for each in [patches] if together else [[patch] for patch in patches]:
        bench.store.mend(each, again=True)
    bench.settle()
    assert waiting(bench) == 3


def test_two_places_are_in_the_folds_after_a_crash_too() -> None:
    bench, patches = without_two()
    bench.store.mend(patches, again=True)
    bench.kill()
    bench.settle()
    assert waiting(bench) == 3


def put_unflushed(bench: Bench, name: str) -> None:
    """Confirmed and dispatched before it is flushed, as where the flush is async."""
    put_one(bench, name)
    bench.store.confirmed.advance(bench.store.log.committed.value)
    bench.store.reput.run_to()


def test_the_note_stays_while_the_snapshot_waits_for_the_flush() -> None:
    bench, patch = damaged()
    bench.store.persist()
    bench.store.mend([patch])
    put_unflushed(bench, "d")
    assert waiting(bench) == 3
    bench.store.persist()
    bench.kill()
    bench.settle()
    assert waiting(bench) == 3


def test_a_checkpoint_while_the_file_is_written_again_leaves_the_note() -> None:
    bench, patch = damaged()
    bench.store.mend([patch], pace=lambda _size: bench.store.persist())
    bench.kill()
    bench.settle()
    assert waiting(bench) == 2


def test_the_note_stays_if_the_name_of_the_mended_file_may_not_be_durable() -> None:
    bench, patch = damaged()
    bench.store.persist()
    bench.files.fail("fsync_directory", name="commitlog")
    with pytest.raises(FlushFailedError):
        bench.store.mend([patch])
    bench.files.heal()
    bench.kill()
    bench.settle()
    assert waiting(bench) == 2


def test_a_snapshot_that_was_taken_before_the_fold_was_rebuilt_does_not_count() -> None:
    bench, patch = damaged()
    store = bench.store
    fold = store.delays
    store.persist()
    put_one(bench, "d")
    bench.settle()
    store.mend([patch])
    bench.clock.advance(40)  # a snapshot is due
    take = fold.snapshot

    def beside_dispatch() -> FoldSnapshot:
        taken = take()
        store.reput.run_to()
        return taken

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fold, "snapshot", beside_dispatch)
        store.persist()
    assert fold.noted is None
    put_unflushed(bench, "e")
    assert waiting(bench) == 4
    store.persist()
    bench.kill()
    bench.settle()
    assert waiting(bench) == 4


def test_retention_keeps_what_a_fold_has_not_got_back_yet() -> None:
    bench, patch = damaged()
    store = bench.store
    while store.log.wrote.value < 2 * FILE:
        bench.put(40, size=2000)
        bench.settle()
    bench.clock.advance(61)
    come(bench, ready_desk(bench))  # c: nothing that is known waits
    store.persist()
    retention = RetentionConfig(reserved_hours=1, delete_hours=tuple(range(24)))
    cleaner = Cleaner(store._parts, lambda _: None)
    cleaner.config = retention
    cleaner.run(store._write_lock)
    bench.clock.advance(7200)
    store.mend([patch])
    assert cleaner.run(store._write_lock) == 0
    bench.settle()
    store.persist()
    assert waiting(bench) == 1
    assert cleaner.run(store._write_lock) == 0
    assert come(bench, ready_desk(bench), "T")[-1] == b"b"
