"""What a stop may have lost, until somebody acts on it."""

import contextlib
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import FlushMode, StoreConfig
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.state_files.session_file import (
    CUT,
    DAMAGED,
    FSYNC,
    MACHINE,
    MOUNT,
    Session,
    SessionFile,
    next_session,
)
from tandemlog_server.storage.tools.recover import plan, recover

PATH = Path("/store/session.json")
LOG = DIRECTORY / "commitlog" / f"{0:020d}"
MASTER = Session("boot 1", counts_unflushed=True, mount_id="mount 1")
SLAVE = Session("boot 1", mount_id="mount 1")


def doubt(
    last: Session | None, boot: str = "boot 1", mount_id: str = "mount 1", **stop: bool
) -> str:
    kind = {"clean": False, "cut": False} | stop
    return next_session(last, boot, mount_id=mount_id, **kind).doubt


def test_only_the_end_of_the_machine_takes_the_page_cache() -> None:
    assert doubt(MASTER) == ""
    assert doubt(MASTER, "boot 2") == MACHINE
    assert doubt(MASTER, "") == doubt(replace(MASTER, boot_id=""), "") == MACHINE
    assert doubt(MASTER, "boot 2", clean=True) == ""


def test_a_disk_that_is_mounted_again_has_lost_its_page_cache() -> None:
    assert doubt(MASTER, mount_id="mount 2") == doubt(MASTER, mount_id="") == MOUNT
    assert doubt(MASTER, mount_id="mount 2", clean=True) == ""
    assert doubt(SLAVE, mount_id="mount 2") == ""
    unnamed = replace(MASTER, mount_id="")
    assert doubt(unnamed, mount_id="mount 2") == "", "a version before, or no name: the boot tells"
    assert next_session(MASTER, "boot 1", clean=True, cut=False, mount_id="m").mount_id == "m"


def test_who_counts_only_what_is_fsynced_loses_nothing() -> None:
    assert doubt(SLAVE, "boot 2") == ""
    assert doubt(SLAVE, fsync_failed=True) == ""


def test_a_failed_fsync_and_a_cut_leave_a_doubt() -> None:
    assert doubt(MASTER, fsync_failed=True) == FSYNC
    assert doubt(MASTER, clean=True, cut=True) == doubt(SLAVE, cut=True) == CUT


def test_without_a_note_the_worst_is_assumed() -> None:
    assert doubt(None) == MACHINE
    assert doubt(None, clean=True) == ""


def test_a_doubt_stays_over_any_number_of_clean_stops() -> None:
    last = next_session(MASTER, "boot 2", clean=False, cut=False)
    for _ in range(3):
        last = next_session(last, "boot 2", clean=True, cut=False)
    assert last == Session("boot 2", doubt=MACHINE)


def test_what_counted_counts_until_it_is_durable() -> None:
    after_a_kill = next_session(MASTER, "boot 1", clean=False, cut=False, mount_id="mount 1")
    assert (after_a_kill.counts_unflushed, after_a_kill.doubt) == (True, "")
    assert doubt(after_a_kill, "boot 2") == MACHINE


@pytest.fixture
def files() -> MemoryFiles:
    made = MemoryFiles()
    made.make_directory(PATH.parent)
    return made


def test_it_comes_back_from_the_disk(files: MemoryFiles) -> None:
    file = SessionFile(PATH, files)
    assert file.load() is None
    file.save(replace(MASTER, doubt=CUT))
    files.crash()
    again = SessionFile(PATH, files)
    assert again.load() == replace(MASTER, doubt=CUT)
    again.forget_doubt()
    files.crash()
    assert SessionFile(PATH, files).load() == MASTER


@pytest.mark.parametrize("position", range(0, 60, 7))
def test_a_damaged_note_is_a_doubt(files: MemoryFiles, position: int) -> None:
    SessionFile(PATH, files).save(MASTER)
    files.content(PATH)[position] ^= 0x10
    found = SessionFile(PATH, files).load()
    assert found is not None
    assert found.doubt == DAMAGED


# ---- in a store


def as_master(config: StoreConfig = CONFIG) -> Bench:
    """One whose acknowledgements others wait for."""
    bench = Bench(config)
    bench.store.count_unflushed()
    return bench


def test_a_power_cut_is_remembered_over_clean_stops_and_tools() -> None:
    bench = as_master()
    bench.put(10)
    assert bench.store.doubt == ""
    assert bench.crash(Random(1)).doubt == MACHINE
    bench.store.close()
    recover(bench.config, files=bench.files, clock=bench.clock)
    assert bench.open().doubt == MACHINE
    bench.store.forget_doubt()
    assert bench.store.doubt == ""
    assert bench.reopen().doubt == ""
    assert bench.crash().doubt == "", "this process has counted nothing"


def test_a_disk_that_was_gone_for_a_moment_leaves_a_doubt() -> None:
    """The machine has not stopped."""
    bench = as_master()
    bench.put(10)
    bench.store._lock_file.release()
    bench.files.crash(Random(1), reboot=False)
    assert bench.open().doubt == MOUNT
    assert len(bench.bodies()) < 10


def test_a_killed_process_leaves_no_doubt() -> None:
    bench = as_master()
    bench.put(10)
    assert bench.kill().doubt == ""


def test_a_slave_and_a_single_node_have_nothing_to_doubt() -> None:
    bench = Bench()
    bench.put(10)
    assert bench.crash(Random(1)).doubt == ""


def test_a_change_of_the_flush_mode_does_not_hide_what_was_counted() -> None:
    bench = as_master()
    bench.put(10)
    assert bench.crash(flush=FlushMode.SYNC).doubt == MACHINE


@pytest.mark.parametrize("call", ["fdatasync", "pwrite", "atomic_replace"])
def test_a_second_power_cut_in_the_middle_of_an_open_hides_nothing(call: str) -> None:
    """kill -9, an open in the same boot that the power ends before it has fsynced the rest."""
    deaths = 0
    for skip in range(200):
        bench = as_master()
        bench.put(10)
        bench.store._lock_file.release()
        bench.files.kill()
        bench.files.fail(call, skip=skip)
        try:
            bench.open(flush=FlushMode.SYNC)
        except (StoreError, OSError):
            deaths += 1
        else:
            break
        bench.files.heal()
        bench.crash(flush=FlushMode.SYNC)
        assert bench.store.log.wrote.value or bench.store.doubt, skip
    assert deaths


def test_a_stop_that_flushed_all_leaves_no_doubt_though_it_is_not_clean() -> None:
    bench = as_master()
    bench.put(10)
    bench.files.fail("unlink", name="abort", times=1)
    with contextlib.suppress(OSError):
        bench.store.close()
    assert bench.crash().doubt == ""
    assert len(bench.bodies()) == 10


def test_records_that_are_cut_are_remembered_even_where_the_open_breaks_off() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(3)
    bench.settle()
    starts = [bench.put().segments[0].physical_offset for _ in range(3)]
    bench.files.content(LOG)[starts[0]] ^= 0xFF
    bench.store._lock_file.release()
    bench.files.kill()
    bench.files.fail("pwrite", name="cut-", times=1)
    with pytest.raises(StoreError, match="cannot be opened"):
        bench.open()
    assert bench.open().doubt == CUT
    assert bench.store.log.wrote.value == starts[0]


def test_every_open_is_noted_before_it_changes_anything() -> None:
    bench = as_master()
    bench.put(10)
    bench.settle()
    bench.put(10)
    bench.store._lock_file.release()
    bench.files.crash(Random(3))
    bench.files.fail("atomic_replace", name="session.json", times=1)
    log = bytes(bench.files.content(LOG))
    with pytest.raises(StoreError, match="cannot be opened"):
        bench.open()
    assert bytes(bench.files.content(LOG)) == log
    assert bench.open().doubt == MACHINE


def test_a_dry_run_says_what_the_open_would() -> None:
    bench = as_master()
    bench.put(10)
    bench.store._lock_file.release()
    bench.files.crash(Random(1))
    assert plan(bench.config, bench.files).doubt == MACHINE
    assert bench.open().doubt == MACHINE
