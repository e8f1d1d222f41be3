"""A log that is set aside: what stays, what goes, and what a disk in trouble makes of it."""

import errno
from dataclasses import replace

import pytest

from fakes.crashed_stores import LOG
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.files.checkpoint import Checkpoint, decode_checkpoint
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import (
    DiskFullError,
    FlushFailedError,
    StoreError,
    StoreLayoutError,
    StoreReadOnlyError,
)
from tandemlog_server.storage.state_files.fsync_flag import FsyncFlag
from tandemlog_server.storage.store_paths import StorePaths
from tandemlog_server.storage.tools.compare_stores import compare
from tandemlog_server.storage.tools.dump import dump
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import plan
from tandemlog_server.storage.tools.verify import verify

SIZE = CONFIG.commit_log_file_size
NOTE = StorePaths(DIRECTORY).set_aside


@pytest.fixture
def bench() -> Bench:
    """A replica with three log files, dispatched and persisted."""
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    bench.store.become_master(1)
    for _ in range(12):
        bench.put(5, size=200)
    bench.store.flush()
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()
    bench.store.persist()
    bench.store.become_slave()
    assert len(bench.store.log.files) >= 3
    return bench


def aside(bench: Bench) -> list[str]:
    return [name for name in bench.files.listdir(DIRECTORY) if name.startswith("resync-")]


def test_nothing_vouches_for_what_is_aside(bench: Bench) -> None:
    """RocketMQ begins to recover at its checkpoint's times, and what comes may be older."""
    bench.store.reset(SIZE)
    saved = decode_checkpoint(bench.files.durable_content(DIRECTORY / "checkpoint"))
    assert saved == Checkpoint()
    bench.store.persist()
    saved = decode_checkpoint(bench.files.durable_content(DIRECTORY / "checkpoint"))
    assert saved == Checkpoint()
    assert bench.store.log.store_timestamp == bench.store.log.flushed_timestamp == 0
    assert bench.files.status(NOTE) is None


def test_an_offset_where_no_file_begins_moves_nothing(bench: Bench) -> None:
    with pytest.raises(StoreLayoutError, match="not a multiple"):
        bench.store.reset(SIZE + 1)
    assert aside(bench) == []
    assert bench.files.status(NOTE) is None
    assert bench.store.failure is None
    assert len(bench.bodies()) == 60


def test_two_in_one_millisecond_have_a_folder_each(bench: Bench) -> None:
    names = bench.files.listdir(LOG)
    bench.store.reset(0)
    bench.store.append_raw(0, b"x" * 100)
    bench.store.reset(0)
    first, second = aside(bench)
    assert bench.files.listdir(DIRECTORY / first / "commitlog") == names
    assert bytes(bench.files.content(DIRECTORY / second / "commitlog" / names[0]))[:1] == b"x"
    assert bytes(bench.files.content(DIRECTORY / first / "commitlog" / names[0]))[:1] != b"x"


def test_an_empty_log_leaves_no_folder() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    bench.store.reset(SIZE)
    bench.store.reset(SIZE)
    assert aside(bench) == []
    bench.crash()
    assert bench.store.recovery.notes == []


def test_a_full_disk_leaves_everything_as_it_was(bench: Bench) -> None:
    bench.files.fail("pwrite", errno.ENOSPC, name="set-aside", times=1)
    with pytest.raises(DiskFullError):
        bench.store.reset(SIZE)
    assert aside(bench) == []
    assert bench.files.status(NOTE) is None
    assert len(bench.bodies()) == 60
    bench.store.reset(SIZE)
    assert bench.store.log.wrote.value == SIZE


@pytest.mark.parametrize("call", ["unlink", "fsync_directory", "status"])
def test_a_note_that_the_disk_does_not_let_go_ends_the_writing(bench: Bench, call: str) -> None:
    """The next open moves the log aside: what came until then would be gone with it."""
    bench.files.fail("fsync_directory", name="tandemlog", times=1)
    bench.files.fail(call, name="tandemlog", times=1)
    with pytest.raises(StoreReadOnlyError, match="restart"):
        bench.store.reset(SIZE)
    assert aside(bench) == []
    with pytest.raises(StoreReadOnlyError):
        bench.store.append_raw(bench.store.log.wrote.value, b"x")
    bench.files.heal()
    gone = bench.files.status(NOTE) is None  # and may be back after a power cut
    assert gone == (call == "fsync_directory")
    bench.reopen()
    assert (aside(bench) == []) == gone
    assert (bench.bodies() == []) != gone


def test_a_note_that_is_gone_again_leaves_everything_as_it_was(bench: Bench) -> None:
    bench.files.fail("fsync_directory", name="tandemlog", times=1)
    with pytest.raises(StoreReadOnlyError):
        bench.store.reset(SIZE)
    assert bench.files.status(NOTE) is None
    assert bench.store.failure is None


def test_a_disk_that_is_full_at_the_end_of_it_heals(bench: Bench) -> None:
    bench.files.fail("atomic_replace", errno.ENOSPC, name="recovery.json", skip=1)
    with pytest.raises(DiskFullError):
        bench.store.reset(SIZE)
    assert bench.store.failure is None
    bench.files.heal()
    bench.store.reset(2 * SIZE)
    assert len(aside(bench)) == 1
    assert bench.store.log.wrote.value == 2 * SIZE
    bench.crash()
    assert bench.store.recovery.notes == []
    assert bench.store.recovery.damages == []


def test_a_folder_that_cannot_be_looked_for_moves_nothing(bench: Bench) -> None:
    bench.files.fail("status", name="resync-", times=1)
    with pytest.raises(StoreReadOnlyError):
        bench.store.reset(SIZE)
    assert bench.store.failure is None
    assert len(bench.bodies()) == 60


@pytest.mark.parametrize("name", ["commitlog", "consumequeue", "index"])
def test_what_the_disk_breaks_off_the_next_open_ends(bench: Bench, name: str) -> None:
    names = bench.files.listdir(LOG)
    bench.files.fail("rename", name=f"/store/{name}", times=1, skip=name == "commitlog")
    with pytest.raises(StoreReadOnlyError):
        bench.store.reset(SIZE)
    assert bench.store.failure is not None
    with pytest.raises(StoreError, match="next open"):
        bench.store.persist()
    with pytest.raises(StoreReadOnlyError):
        bench.store.reset(SIZE)
    bench.store.close()
    assert "was being set aside" in plan(bench.config, bench.files).notes[-1]
    bench.open()
    (folder,) = aside(bench)
    assert bench.files.listdir(DIRECTORY / folder / "commitlog") == names
    assert bench.files.listdir(DIRECTORY / folder) == ["commitlog", "consumequeue", "index"]
    (note,) = bench.store.recovery.notes
    assert folder in note
    assert bench.store.log.wrote.value == 0
    bench.store.close()
    assert plan(bench.config, bench.files).notes == []
    bench.open()
    assert bench.store.recovery.notes == []


@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("rename", "/store/commitlog/"),
        ("make_directory", "/store/resync-"),
        ("fsync_directory", "/store/resync-"),
        ("fsync_directory", "/store/commitlog"),
        ("rename", "/store/index"),
    ],
)
def test_what_breaks_it_off_is_told_and_is_no_failed_fsync(
    bench: Bench, call: str, name: str
) -> None:
    """The remedy of a failed fsync is for bytes that are still believed, and none are."""
    names = bench.files.listdir(LOG)
    bench.store.count_unflushed()
    bench.files.fail(call, name=name, times=1)
    with pytest.raises(StoreReadOnlyError, match=f"Input/output error: '{name}.*restart") as told:
        bench.store.reset(SIZE)
    assert not isinstance(told.value, FlushFailedError)
    assert bench.store.failure is told.value
    bench.clock.advance(60)
    bench.store._keeper.run_due()
    bench.store.close()
    assert not FsyncFlag(StorePaths(DIRECTORY).fsync_flag, bench.files).is_raised()
    assert not any("page cache" in str(fault) for fault in verify(bench.config, bench.files).faults)
    bench.open()
    assert bench.store.doubt == ""
    (folder,) = aside(bench)
    assert bench.files.listdir(DIRECTORY / folder / "commitlog") == names
    assert bench.store.log.wrote.value == 0


def test_a_damaged_note_takes_a_folder_of_its_own(bench: Bench) -> None:
    bench.kill()
    handle = bench.files.open(NOTE, create=True)
    bench.files.pwrite(handle, b"../../etc\xff", 0)
    bench.kill()
    (folder,) = aside(bench)
    assert bench.files.listdir(DIRECTORY / folder / "commitlog")
    assert bench.files.status(NOTE) is None


@pytest.mark.parametrize("broken_off", [False, True])
def test_a_log_on_a_disk_of_its_own_stays_there(bench: Bench, broken_off: bool) -> None:
    names = bench.files.listdir(LOG)
    bench.files.fail("rename", errno.EXDEV, name=f"/store/commitlog/{2 * SIZE:020d}", times=1)
    if broken_off:
        bench.files.fail("rename", name=f"/store/commitlog/{0:020d}", times=1)
        with pytest.raises(StoreError):
            bench.store.reset(0)
        bench.files.fail("rename", errno.EXDEV, name=f"/store/commitlog/{SIZE:020d}", times=1)
        bench.files.fail("rename", errno.EXDEV, name=f"/store/commitlog/{0:020d}", times=1)
        bench.kill()
    else:
        bench.store.reset(0)
    (folder,) = aside(bench)
    assert bench.files.listdir(LOG) == [folder]
    assert bench.files.listdir(LOG / folder) == names
    assert bench.files.listdir(DIRECTORY / folder) == ["commitlog", "consumequeue", "index"]
    bench.store.append_raw(0, b"")
    bench.reopen()
    assert bench.store.recovery.notes == []


@pytest.mark.parametrize("moved", [{0}, {1}, {0, 1}, {0, 2}, {2}])
@pytest.mark.parametrize("name", ["", "consumequeue", "index"])
def test_whichever_moves_a_power_cut_has_left_the_next_open_ends_it(
    bench: Bench, moved: set[int], name: str
) -> None:
    """The disk may write them in any order: what is left then need not fit together."""
    names = bench.files.listdir(LOG)
    folder = DIRECTORY / "resync-7"
    bench.store.close()
    handle = bench.files.open(NOTE, create=True)
    bench.files.pwrite(handle, folder.name.encode(), 0)
    bench.files.make_directory(folder / LOG.name)
    for number in moved:
        bench.files.rename(LOG / names[number], folder / LOG.name / names[number])
    if name:
        bench.files.rename(DIRECTORY / name, folder / name)
    assert "was being set aside" in plan(bench.config, bench.files).notes[-1]
    assert bench.files.status(NOTE) is not None
    bench.open()
    assert bench.files.listdir(folder / LOG.name) == names
    assert bench.files.listdir(folder) == ["commitlog", "consumequeue", "index"]
    (note,) = bench.store.recovery.notes
    assert str(folder) in note
    assert bench.store.log.wrote.value == 0
    bench.store.append_raw(SIZE, b"x")
    bench.reopen()
    assert bench.store.recovery.notes == []


@pytest.mark.parametrize("number", [errno.EXDEV, errno.EBUSY])
@pytest.mark.parametrize("broken_off", [False, True])
def test_queues_and_index_on_disks_of_their_own_are_emptied(
    bench: Bench, number: int, broken_off: bool
) -> None:
    """A mount point cannot be moved, and no open could end what never ends."""
    for name in ("consumequeue", "index"):
        bench.files.fail("rename", number, name=f"/store/{name}", times=2)
    if broken_off:
        bench.files.fail("unlink", name="/store/consumequeue", skip=2, times=1)
        with pytest.raises(StoreError):
            bench.store.reset(0)
        bench.kill()
    else:
        bench.store.reset(0)
    (folder,) = aside(bench)
    assert bench.files.listdir(DIRECTORY / folder) == ["commitlog"]
    assert bench.files.listdir(DIRECTORY / "consumequeue") == []
    assert bench.files.listdir(DIRECTORY / "index") == []
    bench.store.append_raw(0, b"")
    bench.reopen()
    assert bench.store.recovery.notes == []


def test_who_only_looks_says_that_the_log_was_being_set_aside(bench: Bench) -> None:
    names = bench.files.listdir(LOG)
    bench.store.close()
    handle = bench.files.open(NOTE, create=True)
    bench.files.pwrite(handle, b"resync-7", 0)
    bench.files.unlink(LOG / names[1])
    for report in (
        verify(bench.config, bench.files),
        compare(bench.config, bench.config, bench.files),
    ):
        assert "was being set aside" in report.faults[0].reason
    rows = dump(bench.config, "checkpoint", bench.files)
    assert len(list(rows)) == 1
    assert "was being set aside" in rows.notes[0]
    with pytest.raises(StoreLayoutError, match="was being set aside"):
        rebuild(bench.config, files=bench.files)
    assert bench.files.status(NOTE) is not None


def test_logs_set_aside_go_but_for_the_newest_and_those_in_time(bench: Bench) -> None:
    for _ in range(4):
        bench.store.append_raw(bench.store.log.wrote.value, b"x" * 100)
        bench.clock.advance(3600)
        bench.store.reset(SIZE)
    found = sorted(aside(bench))
    assert len(found) == 4
    assert bench.store.drop_set_aside() == 2
    assert sorted(aside(bench)) == found[2:]
    assert bench.store.drop_set_aside() == 0
    bench.clock.advance(167.5 * 3600)
    assert bench.store.drop_set_aside() == 1
    assert aside(bench) == found[3:]
    bench.clock.advance(3600)
    assert bench.store.drop_set_aside() == 1


def test_the_folder_that_a_log_is_moving_to_stays(bench: Bench) -> None:
    bench.files.make_directory(DIRECTORY / "resync-1")
    bench.files.make_directory(DIRECTORY / "resync-2")
    bench.files.make_directory(DIRECTORY / "resync-of-somebody")
    bench.files.atomic_replace(NOTE, b"resync-1")
    bench.clock.advance(168 * 3600)
    assert bench.store.drop_set_aside() == 1
    assert sorted(aside(bench)) == ["resync-1", "resync-of-somebody"]
