from pathlib import Path

import numpy as np
import pytest

from tandemlog.format.files.queue_unit import PRE_BLANK, UNIT, UNIT_SIZE
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.file_pool import FilePool
from tandemlog_server.storage.errors import CorruptStoreError, MissingFileError, StoreLayoutError
from tandemlog_server.storage.queues.consume_queue import ConsumeQueue

DIRECTORY = Path("/store/consumequeue/T/0")
A_FILE = 5 * UNIT_SIZE


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def queue_of(files: MemoryFiles) -> ConsumeQueue:
    files.make_directory(DIRECTORY.parent)
    return ConsumeQueue(DIRECTORY, FilePool(DIRECTORY.parent, files), A_FILE)


def data(first: int, last: int) -> bytes:
    return b"".join(UNIT.pack(100 * n, 7, n) for n in range(first, last))


def numbers(units: np.ndarray) -> list[int]:
    codes: list[int] = units["tags_code"].tolist()
    return codes


def test_units_run_through_files_of_full_length(files: MemoryFiles) -> None:
    queue = queue_of(files)
    queue.write(0, data(0, 3))
    queue.write(3, data(3, 12))
    assert files.listdir(DIRECTORY) == [f"{base:020d}" for base in (0, A_FILE, 2 * A_FILE)]
    assert {len(files.content(DIRECTORY / name)) for name in files.listdir(DIRECTORY)} == {A_FILE}
    assert numbers(queue.read(0, 12)) == list(range(12))
    assert numbers(queue.read(4, 2)) == [4, 5]
    assert queue.capacity == 15


def test_a_queue_that_begins_later_is_pre_blank_before(files: MemoryFiles) -> None:
    queue = queue_of(files)
    queue.create_at(7)
    queue.write(7, data(7, 9))
    assert files.listdir(DIRECTORY) == [f"{A_FILE:020d}"]
    content = bytes(files.content(DIRECTORY / f"{A_FILE:020d}"))
    assert content == PRE_BLANK * 2 + data(7, 9) + bytes(UNIT_SIZE)
    assert queue.first_unit == 5


def test_a_cut_leaves_zeros_or_no_file(files: MemoryFiles) -> None:
    queue = queue_of(files)
    queue.write(0, data(0, 12))
    queue.cut(7)
    assert files.listdir(DIRECTORY) == [f"{0:020d}", f"{A_FILE:020d}"]
    assert bytes(files.content(DIRECTORY / f"{A_FILE:020d}")) == data(5, 7) + bytes(3 * UNIT_SIZE)
    queue.cut(5)
    assert (queue.first, queue.last) == (0, 0)
    queue.write(5, data(5, 6))
    queue.cut(0)
    assert (queue.first, queue.last) == (-1, -1)
    assert files.listdir(DIRECTORY) == []


def test_the_first_file_can_go(files: MemoryFiles) -> None:
    queue = queue_of(files)
    queue.write(0, data(0, 12))
    queue.drop_first()
    assert queue.first_unit == 5
    assert numbers(queue.read(5, 7)) == list(range(5, 12))
    with pytest.raises(CorruptStoreError, match="missing"):
        queue.read(3, 1)


def test_opening_finds_the_files(files: MemoryFiles) -> None:
    queue_of(files).write(0, data(0, 12))
    files.open(DIRECTORY / "notes.txt", create=True)
    queue = queue_of(files)
    assert queue.open()
    assert (queue.first, queue.last) == (0, 2 * A_FILE)
    assert numbers(queue.read(9, 3)) == [9, 10, 11]


def test_opening_nothing(files: MemoryFiles) -> None:
    assert not queue_of(files).open()


@pytest.mark.parametrize("length", [0, 20, 80])
def test_a_short_last_file_gets_its_length(files: MemoryFiles, length: int) -> None:
    queue_of(files).write(0, data(0, 7))
    handle = files.open(DIRECTORY / f"{A_FILE:020d}")
    files.truncate(handle, length)
    queue = queue_of(files)
    assert queue.open()
    assert len(files.content(DIRECTORY / f"{A_FILE:020d}")) == A_FILE


def test_a_gap_or_another_length_is_an_error(files: MemoryFiles) -> None:
    queue_of(files).write(0, data(0, 12))
    files.unlink(DIRECTORY / f"{A_FILE:020d}")
    with pytest.raises(MissingFileError, match="missing between 0 and"):
        queue_of(files).open()
    files.unlink(DIRECTORY / f"{0:020d}")
    files.truncate(files.open(DIRECTORY / f"{2 * A_FILE:020d}"), 2 * A_FILE)
    with pytest.raises(StoreLayoutError, match="queue file size"):
        queue_of(files).open()
