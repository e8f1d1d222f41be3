from pathlib import Path

import pytest

from tandemlog.format.files.checkpoint import Checkpoint
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.state_files.store_checkpoint import StoreCheckpoint

PATH = Path("/store/checkpoint")
VALUE = Checkpoint(1, 2, 3, 4, 5, 6)


def checkpoint(files: MemoryFiles) -> StoreCheckpoint:
    files.make_directory(PATH.parent)
    return StoreCheckpoint(PATH, files)


def test_it_is_durable_and_has_rocketmqs_length() -> None:
    files = MemoryFiles()
    checkpoint(files).save(VALUE)
    files.crash()
    assert len(files.read_file(PATH)) == 4096
    again = checkpoint(files)
    assert again.load() == VALUE
    assert again.note == ""


def test_it_is_changed_in_place() -> None:
    files = MemoryFiles()
    held = checkpoint(files)
    held.save(VALUE)
    held.save(Checkpoint(7, 8, 9))
    files.crash()
    assert checkpoint(files).load() == Checkpoint(7, 8, 9)


def test_a_missing_one_says_that_nothing_is_known() -> None:
    held = checkpoint(MemoryFiles())
    assert held.load() == Checkpoint()
    assert "missing" in held.note


@pytest.mark.parametrize("length", [0, 7, 24, 100])
def test_a_short_one_is_read_as_far_as_it_goes(length: int) -> None:
    files = MemoryFiles()
    held = checkpoint(files)
    files.atomic_replace(PATH, VALUE.encode()[:length])
    found = held.load()
    assert str(length) in held.note
    assert found.physic_msg_timestamp == (1 if length >= 8 else 0)
    held.save(found)
    assert len(files.read_file(PATH)) == 4096
