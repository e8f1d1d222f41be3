import errno
from pathlib import Path

import pytest

from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochEntry, EpochTable, decode_epochs
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.small_files import backup_of
from tandemlog_server.storage.errors import CorruptStoreError, StoreReadOnlyError
from tandemlog_server.storage.metadata.epoch_file import EpochFile

PATH = Path("/store/epochFileCheckpoint")
BACKUP = backup_of(PATH)


def opened(files: MemoryFiles) -> EpochFile:
    files.make_directory(PATH.parent)
    found = EpochFile(PATH, files)
    found.load()
    return found


def test_no_file_is_an_empty_table() -> None:
    assert opened(MemoryFiles()).table == EpochTable()


def test_rocketmqs_file_is_read() -> None:
    files = MemoryFiles()
    files.make_directory(PATH.parent)
    files.atomic_replace(PATH, b"3\n989759746\n1-0\n2-431694\n3-737788\n")
    assert opened(files).table.last == EpochEntry(3, 737788)


def test_every_change_is_durable() -> None:
    files = MemoryFiles()
    epochs = opened(files)
    epochs.append(EpochEntry(1, 0))
    epochs.append(EpochEntry(2, 500))
    epochs.append(EpochEntry(4, 900))
    files.crash()
    epochs = opened(files)
    assert epochs.table.entries == (EpochEntry(1, 0), EpochEntry(2, 500), EpochEntry(4, 900))
    epochs.truncate_suffix(900)
    epochs.truncate_prefix(500)
    files.crash()
    assert opened(files).table.entries == (EpochEntry(2, 500),)


def test_an_older_epoch_is_refused_and_changes_nothing() -> None:
    files = MemoryFiles()
    epochs = opened(files)
    epochs.append(EpochEntry(5, 10))
    with pytest.raises(FormatError):
        epochs.append(EpochEntry(4, 20))
    assert opened(files).table.entries == (EpochEntry(5, 10),)


def spoil(files: MemoryFiles) -> None:
    files.atomic_replace(PATH, b"2\n1\n1-0\n2-500\n")


def test_a_damaged_file_is_read_from_its_backup_which_lacks_nothing() -> None:
    """A master that lacks its last term takes every slave for one that went another way."""
    files = MemoryFiles()
    epochs = opened(files)
    epochs.append(EpochEntry(1, 0))
    epochs.append(EpochEntry(2, 500))
    spoil(files)
    again = opened(files)
    assert again.table == epochs.table
    assert "CRC" in again.note
    files.fail("rename", errno.EIO, name=f"{PATH}.tmp", times=1)
    with pytest.raises(StoreReadOnlyError):
        again.append(EpochEntry(3, 600))
    assert opened(files).table == epochs.table
    again.append(EpochEntry(3, 600))
    assert opened(files).table.last == EpochEntry(3, 600)
    spoil(files)
    assert opened(files).table == again.table


@pytest.mark.parametrize("before", ["rocketmq", "crash", "disk"])
def test_a_backup_that_is_behind_catches_up_when_the_store_is_opened(before: str) -> None:
    files = MemoryFiles()
    epochs = opened(files)
    epochs.append(EpochEntry(1, 0))
    files.fail("rename", errno.ENOSPC, name=f"{BACKUP}.tmp")
    epochs.append(EpochEntry(2, 500))
    assert epochs.table.last == EpochEntry(2, 500), "the file itself is written"
    assert decode_epochs(files.content(BACKUP)).last == EpochEntry(1, 0)
    if before == "disk":  # still, and nothing is the worse for it
        opened(files).truncate_suffix(600)
    files.heal()
    if before == "rocketmq":
        files.unlink(BACKUP)
    files.crash()
    opened(files).truncate_suffix(600)  # as recovery does
    assert files.durable_content(BACKUP) == files.durable_content(PATH)
    spoil(files)
    assert opened(files).table == epochs.table


def test_a_damaged_file_is_a_warning_until_its_table_is_known_to_be_whole() -> None:
    files = MemoryFiles()
    epochs = opened(files)
    epochs.append(EpochEntry(1, 0))
    spoil(files)
    for _ in range(2):
        again = opened(files)
        assert again.note
        again.truncate_suffix(600)
        again.truncate_prefix(0)
    again.replace(again.table)
    assert opened(files).note == ""


def test_a_damaged_file_without_a_backup_is_an_error() -> None:
    files = MemoryFiles()
    files.make_directory(PATH.parent)
    files.atomic_replace(PATH, b"what")
    with pytest.raises(CorruptStoreError, match=r"epochFileCheckpoint.*a slave that was in sync"):
        EpochFile(PATH, files).load()


def test_an_empty_table_leaves_no_file_behind() -> None:
    files = MemoryFiles()
    epochs = opened(files)
    epochs.append(EpochEntry(1, 0))
    epochs.append(EpochEntry(2, 500))
    epochs.replace(EpochTable())
    files.crash()
    assert opened(files).table == EpochTable()
    assert files.listdir(PATH.parent) == []
