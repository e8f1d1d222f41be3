import errno
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.running import ROOT
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import DiskFullError, StoreLockedError
from tandemlog_server.storage.state_files.abort_file import AbortFile
from tandemlog_server.storage.state_files.lock_file import LockFile

HOLD = """
import fcntl, os, sys
lock = open(sys.argv[1] + "/lock", "w")
fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
open(sys.argv[1] + "/abort", "w").write(str(os.getpid()))
print("held", flush=True)
sys.stdin.read()
"""


def lock_of(directory: Path) -> LockFile:
    files = RealFileSystem()
    return LockFile(directory / "lock", AbortFile(directory / "abort", files), files)


def lock_in_memory() -> tuple[MemoryFiles, LockFile]:
    files = MemoryFiles()
    return files, LockFile(Path("/store/lock"), AbortFile(Path("/store/abort"), files), files)


def test_it_holds_rocketmqs_four_letters(tmp_path: Path) -> None:
    lock = lock_of(tmp_path / "store")
    lock.acquire()
    assert (tmp_path / "store" / "lock").read_bytes() == b"lock"
    lock.release()


def test_a_second_opener_in_the_same_process_is_refused(tmp_path: Path) -> None:
    first = lock_of(tmp_path)
    first.acquire()
    with pytest.raises(StoreLockedError, match="this process"):
        lock_of(tmp_path).acquire()
    first.release()
    again = lock_of(tmp_path)
    again.acquire()
    again.release()


def test_a_link_to_the_store_is_the_same_store(tmp_path: Path) -> None:
    store = tmp_path / "store"
    first = lock_of(store)
    first.acquire()
    (tmp_path / "link").symlink_to(store)
    with pytest.raises(StoreLockedError):
        lock_of(tmp_path / "link").acquire()
    first.release()


def test_another_process_is_named(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match=f"process {holder.pid};"):
            lock_of(tmp_path).acquire()
        (tmp_path / "abort").unlink()
        (tmp_path / "lock").chmod(0o444)
        with pytest.raises(StoreLockedError, match=f"process {holder.pid};"):
            lock_of(tmp_path).check()
        (tmp_path / "lock").chmod(0o644)
        holder.communicate("")
    lock = lock_of(tmp_path)
    lock.acquire()
    lock.release()


def test_a_look_takes_nothing_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock_of(tmp_path / "store").check()
    assert not (tmp_path / "store").exists()
    (tmp_path / "lock").write_bytes(b"")
    monkeypatch.setattr(RealFileSystem, "lock_range", None)
    lock_of(tmp_path).check()
    monkeypatch.undo()
    assert (tmp_path / "lock").read_bytes() == b""
    lock = lock_of(tmp_path)
    lock.acquire()
    lock.release()


def test_a_look_at_a_store_of_this_process_leaves_it_locked(tmp_path: Path) -> None:
    lock = lock_of(tmp_path)
    lock.acquire()
    with pytest.raises(StoreLockedError, match="this process"):
        lock_of(tmp_path).check()
    look = (
        "import fcntl, sys; lock = open(sys.argv[1], 'r+'); "
        "fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)"
    )
    taken = subprocess.run(
        [sys.executable, "-c", look, str(tmp_path / "lock")], capture_output=True, check=False
    )
    assert b"BlockingIOError" in taken.stderr
    lock.release()


def test_a_look_by_somebody_who_may_not_even_read(caplog: pytest.LogCaptureFixture) -> None:
    files, lock = lock_in_memory()
    lock.acquire()
    lock.release()
    files.fail("open", errno.EACCES, name="lock")
    lock.check()
    assert "not known" in caplog.text


@pytest.mark.parametrize(
    "call", ["make_directory", "lock_directory", "open", "lock_range", "pwrite"]
)
def test_what_the_disk_refuses_leaves_nothing_locked(call: str) -> None:
    files, lock = lock_in_memory()
    files.fail(call, errno.ENOSPC, times=1)
    with pytest.raises(DiskFullError, match="/store cannot be opened"):
        lock.acquire()
    assert (files.open_handles, files.locks_held) == (0, 0)
    lock.acquire()
    assert (files.open_handles, files.locks_held) == (1, 1)


def test_a_look_that_the_disk_refuses_leaves_nothing_open() -> None:
    files, lock = lock_in_memory()
    lock.acquire()
    lock.release()
    files.fail("lock_holder", errno.ENOLCK, times=1)
    with pytest.raises(OSError, match="No locks"):
        lock.check()
    assert files.open_handles == 0


def test_a_process_that_the_lock_does_not_tell_is_named_by_its_own_note() -> None:
    files, lock = lock_in_memory()
    lock.acquire()
    lock.release()
    files.lock_elsewhere(lock.path)
    for attempt in (lock.check, lock.acquire):
        with pytest.raises(StoreLockedError, match="another process"):
            attempt()
    AbortFile(Path("/store/abort"), files).create(4711)
    with pytest.raises(StoreLockedError, match="process 4711"):
        lock.check()


OPEN = """
import sys
from pathlib import Path
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreLockedError
from tandemlog_server.storage.message_store import MessageStore

try:
    store = MessageStore.open(StoreConfig(Path(sys.argv[1])))
except StoreLockedError as error:
    print("refused", error, flush=True)
else:
    print("open", flush=True)
    sys.stdin.read()
    store.close()
"""


def opening(directory: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", OPEN, str(directory)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip


def test_a_lock_file_that_somebody_removes_lets_no_second_process_in(tmp_path: Path) -> None:
    with opening(tmp_path) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "open\n"
        (tmp_path / "lock").unlink()
        with opening(tmp_path) as second:
            said, _ = second.communicate("")
            assert said.startswith(f"refused {tmp_path} is open in process {first.pid};")
        first.communicate("")
    with opening(tmp_path) as third:
        assert third.communicate("")[0] == "open\n"
