"""What a stop may have lost, until somebody acts on it."""

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fakes.memory_files import MemoryFiles
from fakes.stores import CONFIG, DIRECTORY, Bench
from storage.config import FlushMode
from storage.session_file import CUT, DAMAGED, FSYNC, MACHINE, Session, SessionFile
from storage.tools.recover import recover

PATH = Path("/store/session.json")
SESSION_FILE = DIRECTORY / "tandemlog" / "session.json"
ASYNC = Session("boot 1", counts_unflushed=True)
SYNC = Session("boot 1", counts_unflushed=False)


def doubt(last: Session | None, boot: str = "boot 1", **stop: bool) -> str:
    now = Session(boot, counts_unflushed=True)
    return now.following(last, **({"clean": False, "cut": False} | stop)).doubt


def test_only_the_end_of_the_machine_takes_the_page_cache() -> None:
    assert doubt(ASYNC) == ""
    assert doubt(ASYNC, "boot 2") == MACHINE
    assert doubt(ASYNC, "") == doubt(replace(ASYNC, boot_id=""), "") == MACHINE
    assert doubt(ASYNC, "boot 2", clean=True) == ""


def test_in_sync_flush_nothing_counted_that_was_not_fsynced() -> None:
    assert doubt(SYNC, "boot 2") == ""
    assert doubt(SYNC, fsync_failed=True) == ""


def test_a_failed_fsync_and_a_cut_leave_a_doubt() -> None:
    assert doubt(ASYNC, fsync_failed=True) == FSYNC
    assert doubt(ASYNC, clean=True, cut=True) == doubt(SYNC, cut=True) == CUT


def test_without_a_note_the_worst_is_assumed() -> None:
    assert doubt(None) == MACHINE
    assert doubt(None, clean=True) == ""


def test_a_doubt_stays_over_any_number_of_clean_stops() -> None:
    last = ASYNC.following(replace(ASYNC, boot_id="boot 0"), clean=False, cut=False)
    for _ in range(3):
        last = ASYNC.following(last, clean=True, cut=False)
    assert last.doubt == MACHINE


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    made.make_directory(PATH.parent)
    return made


def test_it_comes_back_from_the_disk(files: MemoryFiles) -> None:
    file = SessionFile(PATH, files)
    assert file.load() is None
    file.save(replace(ASYNC, doubt=CUT))
    files.crash()
    again = SessionFile(PATH, files)
    assert again.load() == replace(ASYNC, doubt=CUT)
    again.settle()
    files.crash()
    assert SessionFile(PATH, files).load() == ASYNC


@pytest.mark.parametrize("position", range(0, 60, 7))
def test_a_damaged_note_is_a_doubt(files: MemoryFiles, position: int) -> None:
    SessionFile(PATH, files).save(ASYNC)
    files.content(PATH)[position] ^= 0x10
    found = SessionFile(PATH, files).load()
    assert found is not None
    assert found.doubt == DAMAGED


# ---- in a store


def test_a_power_cut_is_remembered_over_clean_stops_and_tools() -> None:
    bench = Bench()
    bench.put(10)
    assert bench.store.doubt == ""
    assert bench.crash(Random(1)).doubt == MACHINE
    bench.store.close()
    recover(bench.config, files=bench.files, clock=bench.clock)
    assert bench.open().doubt == MACHINE
    bench.store.settle_doubt()
    assert bench.store.doubt == ""
    assert bench.reopen().doubt == ""
    assert bench.kill().doubt == ""


def test_a_killed_process_or_sync_flush_leaves_no_doubt() -> None:
    bench = Bench()
    bench.put(10)
    assert bench.kill().doubt == ""
    synced = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    synced.put(10)
    assert synced.crash(Random(1)).doubt == ""


def test_a_change_of_the_flush_mode_does_not_hide_what_was_counted() -> None:
    bench = Bench()
    bench.put(10)
    assert bench.crash(flush=FlushMode.SYNC).doubt == MACHINE


def test_records_that_are_cut_are_remembered_even_where_the_open_breaks_off() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(3)
    bench.settle()
    starts = [bench.put().segments[0].physical_offset for _ in range(3)]
    bench.files.content(DIRECTORY / "commitlog" / f"{0:020d}")[starts[0]] ^= 0xFF
    bench.store._lock_file.release()
    bench.files.kill()
    bench.files.fail("pwrite", name="cut-", times=1)
    with pytest.raises(Exception, match="cannot be opened"):
        bench.open()
    assert bench.open().doubt == CUT
    assert bench.store.log.wrote.value == starts[0]


def test_every_open_is_noted_before_it_changes_anything() -> None:
    bench = Bench()
    bench.put(10)
    bench.settle()
    bench.store._lock_file.release()
    bench.files.crash(Random(3))
    bench.files.fail("atomic_replace", name="session.json", times=1)
    log = bytes(bench.files.content(DIRECTORY / "commitlog" / f"{0:020d}"))
    with pytest.raises(Exception, match="cannot be opened"):
        bench.open()
    assert bytes(bench.files.content(DIRECTORY / "commitlog" / f"{0:020d}")) == log
    assert bench.open().doubt == MACHINE
