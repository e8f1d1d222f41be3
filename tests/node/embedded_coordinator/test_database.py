"""What is committed is there after a reopen; a folder belongs to one process."""

import itertools
import os
import sqlite3
from pathlib import Path

import pytest

from fakes.coordinator_machines import MemoryDisk, delete, new_machine, put, txn
from tandemlog.v1 import coordinator_pb2 as pb
from tandemlog_server.node.embedded_coordinator.database import (
    FILE,
    LOCK,
    DataError,
    SqliteDatabase,
    way_out,
)


def opened(folder: Path) -> SqliteDatabase:
    ids = itertools.count(50)
    return SqliteDatabase(folder, lambda: next(ids))


def test_a_new_cluster_and_its_next_start(tmp_path: Path) -> None:
    database = opened(tmp_path / "new" / "folder")
    first = database.saved
    database.close()
    assert (first.cluster_id, first.member_id, first.term, first.revision) == (50, 51, 1, 1)
    again = opened(tmp_path / "new" / "folder")
    assert (again.saved.cluster_id, again.saved.member_id, again.saved.term) == (50, 51, 2)
    again.close()


def test_the_file_holds_what_the_machine_says(tmp_path: Path) -> None:
    """As the disk in memory, with which the random runs were made."""
    database = opened(tmp_path)
    memory = MemoryDisk(database.saved)
    machine = new_machine(database.saved)
    lease = machine.lease_grant(pb.LeaseGrantRequest(TTL=5), 0.0).ID
    short = machine.lease_grant(pb.LeaseGrantRequest(TTL=7), 0.0).ID
    for number in range(20):
        machine.txn(txn(put(b"k%d" % (number % 4), b"\0%d" % number, lease)), 0.0)
        machine.txn(txn(delete(b"k2", b"k4"), put(b"x")), 0.0)
        if number == 15:
            machine.compact(pb.CompactionRequest(revision=20), 0.0)
            machine.lease_revoke(pb.LeaseRevokeRequest(ID=short), 0.0)
        changes = machine.pop_changes()
        memory.commit(changes)
        database.commit([changes])
    database.close()
    again = opened(tmp_path)
    saved = again.saved
    again.close()
    assert saved.rows == memory.saved.rows
    assert (saved.revision, saved.compacted) == (machine.revision, 20)
    assert saved.leases == memory.saved.leases == {lease: 5}


def test_a_second_process_is_refused_by_name(tmp_path: Path) -> None:
    database = opened(tmp_path)
    with pytest.raises(DataError, match=rf"{tmp_path}.*process {os.getpid()}.*--dir"):
        opened(tmp_path)
    database.close()
    opened(tmp_path).close()


def test_every_commit_reaches_the_disk(tmp_path: Path) -> None:
    """The settings that make it so: a WAL that is fsynced by each commit, and no other reader."""
    database = opened(tmp_path)
    assert database._pragma("synchronous") == 2
    connection = database._connection
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert connection.execute("PRAGMA locking_mode").fetchone() == ("exclusive",)
    database.close()


@pytest.mark.parametrize("content", [b"not a database at all" * 50, b""])
def test_damage_and_an_empty_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    if content:
        with pytest.raises(DataError, match=f"{FILE}.*backup"):
            opened(tmp_path)
        assert (tmp_path / FILE).read_bytes() == content
    else:
        opened(tmp_path).close()


def test_a_damaged_page_is_found(tmp_path: Path) -> None:
    database = opened(tmp_path)
    machine = new_machine(database.saved)
    for number in range(200):
        machine.txn(txn(put(b"k%d" % number, b"v" * 300)), 0.0)
    database.commit([machine.pop_changes()])
    database.close()
    path = tmp_path / FILE
    data = bytearray(path.read_bytes())
    for page in range(4096, len(data), 4096):
        data[page : page + 64] = bytes(64)
    path.write_bytes(data)
    with pytest.raises(DataError, match="restore the file from a backup"):
        opened(tmp_path)


def test_another_programs_file(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / FILE)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(DataError, match="not a coordinator's file"):
        opened(tmp_path)
    with pytest.raises(DataError, match="not a coordinator's file"):
        opened(tmp_path)  # the lock was given back


def test_a_folder_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="file"):
        opened(tmp_path / "file")


def test_a_failed_commit_says_so(tmp_path: Path) -> None:
    database = opened(tmp_path)
    machine = new_machine(database.saved)
    machine.txn(txn(put(b"a")), 0.0)
    changes = machine.pop_changes()
    database.commit([changes])
    with pytest.raises(sqlite3.Error):
        database.commit([changes])  # the same place twice
    database.close()


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (sqlite3.SQLITE_FULL, "free some space"),
        (sqlite3.SQLITE_IOERR | 3 << 8, "check the disk"),
        (sqlite3.SQLITE_READONLY, "may write there"),
        (sqlite3.SQLITE_NOTADB, "backup"),
    ],
)
def test_the_way_out_of_an_error(code: int, named: str) -> None:
    error = sqlite3.OperationalError("it failed")
    error.sqlite_errorcode = code
    assert named in way_out(error)


def test_the_lock_names_its_process(tmp_path: Path) -> None:
    database = opened(tmp_path)
    assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    assert database.size() > 0
    database.close()
