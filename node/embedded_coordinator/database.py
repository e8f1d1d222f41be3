"""The coordinator's data on disk: one sqlite file, which one process has open.

    DIR/coordinator.db       WAL, synchronous=FULL: a commit that returned is on the disk
    DIR/coordinator.lock     locked while a process uses DIR, with its number

Versions are rows as key_versions.py has them, leases their times to live. Each open counts the term
up, so that a client tells a restart from a file that was put back.
"""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from .key_versions import Row
from .state_machine import Changes, Saved

FILE = "coordinator.db"
LOCK = "coordinator.lock"
_APPLICATION = 0x74_64_6C_63
_FORMAT = 1
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE versions (
    revision INTEGER NOT NULL,
    sub INTEGER NOT NULL,
    key BLOB NOT NULL,
    value BLOB NOT NULL,
    create_revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    lease INTEGER NOT NULL,
    PRIMARY KEY (revision, sub)
);
CREATE TABLE leases (id INTEGER PRIMARY KEY, ttl_s INTEGER NOT NULL);
"""


class DataError(Exception):
    """DIR cannot be used; the message names it, and what to do."""


class Database(Protocol):
    """What the state machine needs of a disk. `commit` is called by one thread at a time."""

    saved: Saved

    def commit(self, changes: Sequence[Changes]) -> None:
        """All of them or none; durable on return. Any exception means that it is unknown."""
        ...

    def size(self) -> int:
        """Bytes on disk."""
        ...

    def close(self) -> None: ...


class SqliteDatabase:
    """The Database in `directory`, which is made where it is missing. Raises DataError.

    `new_id` gives the ids of a new cluster.
    """

    def __init__(self, directory: Path, new_id: Callable[[], int]) -> None:
        self.path = directory / FILE
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = _locked(directory)
        except OSError as error:
            raise DataError(f"{error.filename or directory}: {error.strerror}") from error
        try:
            self._connection = sqlite3.connect(
                self.path, isolation_level=None, check_same_thread=False
            )
            try:
                self.saved = self._open(new_id)
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            os.close(self._lock)
            raise DataError(f"{self.path}: {error}; {way_out(error)}") from error
        except DataError:
            os.close(self._lock)
            raise

    def commit(self, changes: Sequence[Changes]) -> None:
        """See Database. Raises sqlite3.Error."""
        execute, many = self._connection.execute, self._connection.executemany
        execute("BEGIN IMMEDIATE")
        for each in changes:
            many(
                "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (
                        row.revision,
                        row.sub,
                        row.key,
                        row.value,
                        row.create_revision,
                        row.version,
                        row.lease,
                    )
                    for row in each.rows
                ],
            )
            many(
                "DELETE FROM versions WHERE revision = ? AND sub = ?",
                [(row.revision, row.sub) for row in each.gone],
            )
            for lease, ttl_s in each.leases.items():
                if ttl_s is None:
                    execute("DELETE FROM leases WHERE id = ?", (lease,))
                else:
                    execute("INSERT OR REPLACE INTO leases VALUES (?, ?)", (lease, ttl_s))
            if each.compacted:
                self._set("compacted", each.compacted)
            self._set("revision", each.revision)
        execute("COMMIT")

    def size(self) -> int:
        files = (self.path, self.path.with_name(f"{FILE}-wal"))
        return sum(each.stat().st_size for each in files if each.exists())

    def close(self) -> None:
        """The file is whole without its WAL afterwards; another process may open it."""
        self._connection.close()
        os.close(self._lock)

    def _open(self, new_id: Callable[[], int]) -> Saved:
        execute = self._connection.execute
        execute("PRAGMA locking_mode = EXCLUSIVE")
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        application, form = self._pragma("application_id"), self._pragma("user_version")
        execute("BEGIN IMMEDIATE")
        if not execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for statement in _SCHEMA.split(";"):
                execute(statement)
            execute(f"PRAGMA application_id = {_APPLICATION}")
            execute(f"PRAGMA user_version = {_FORMAT}")
            for name in ("cluster_id", "member_id"):
                self._set(name, new_id())
            for name, value in (("term", 0), ("revision", 1), ("compacted", 0)):
                self._set(name, value)
        elif (application, form) != (_APPLICATION, _FORMAT):
            raise DataError(
                f"{self.path} is not a coordinator's file of format {_FORMAT} (it says {form}); "
                "give --dir another directory"
            )
        execute("UPDATE meta SET value = value + 1 WHERE name = 'term'")
        execute("COMMIT")
        fault = execute("PRAGMA quick_check").fetchone()[0]
        if fault != "ok":
            raise sqlite3.DatabaseError(f"damaged: {fault}")
        meta = dict(execute("SELECT name, value FROM meta").fetchall())
        rows = execute("SELECT * FROM versions ORDER BY revision, sub").fetchall()
        return Saved(
            meta["cluster_id"],
            meta["member_id"],
            meta["term"],
            meta["revision"],
            meta["compacted"],
            tuple(Row(*row) for row in rows),
            dict(execute("SELECT id, ttl_s FROM leases").fetchall()),
        )

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _set(self, name: str, value: int) -> None:
        self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def way_out(error: sqlite3.Error) -> str:
    """What to do about a file that cannot be opened."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    if code == sqlite3.SQLITE_FULL:
        return "free some space on its disk"
    if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY):
        return "check the disk, and that this user may write there"
    return "restore the file from a backup, or move it away to begin with an empty coordinator"


def _locked(directory: Path) -> int:
    """The descriptor that holds the lock. Raises DataError that names the holder."""
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 20, 0).decode(errors="replace").strip()
        os.close(lock)
        raise DataError(
            f"{directory} is used by another coordinator (process {holder or 'unknown'}): stop it, "
            "or give --dir another directory"
        ) from None
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    return lock
