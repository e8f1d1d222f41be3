"""One file: descriptors and maps come and go, views stay."""

import errno
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.mapped_file import CHUNK, MappedFile, Residency
from tandemlog_server.storage.errors import StoreClosedError, UnreadableError

PATH = Path("/log/00000000000000001000")


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.make_directory(PATH.parent)
    handle = files.open(PATH, create=True)
    files.preallocate(handle, 1000)
    files.close(handle)
    return files


def test_writes_are_seen_through_the_map(files: MemoryFiles) -> None:
    file = MappedFile(files, PATH, 1000, 1000)
    view = file.view(10, 5)
    file.write(10, b"hello")
    assert bytes(view) == b"hello"
    assert file.end == 2000
    assert view.readonly
    file.zero(12, 100)
    assert bytes(view) == b"he\0\0\0"


@pytest.mark.parametrize(("position", "size"), [(-1, 2), (999, 2), (1001, 0)])
def test_nothing_outside_the_file(files: MemoryFiles, position: int, size: int) -> None:
    file = MappedFile(files, PATH, 1000, 1000)
    with pytest.raises(ValueError, match="00000000000000001000"):
        file.write(position, bytes(size))
    with pytest.raises(ValueError, match="00000000000000001000"):
        file.view(position, size)


def test_it_is_opened_when_needed_and_can_be_let_go(files: MemoryFiles) -> None:
    file = MappedFile(files, PATH, 1000, 1000)
    assert files.open_handles == 0
    file.write(0, b"x")
    view = file.view(0, 1)
    assert files.open_handles == 1
    file.release()
    assert files.open_handles == 1, "what was written is not fsynced yet"
    file.sync()
    file.release()
    assert files.open_handles == 0
    file.write(0, b"y")
    assert bytes(view) == b"y"
    assert files.open_handles == 1


def test_a_deleted_file_stays_readable_through_its_views(files: MemoryFiles) -> None:
    file = MappedFile(files, PATH, 1000, 1000)
    file.write(0, b"kept")
    view = file.view(0, 4)
    file.unlink()
    assert files.status(PATH) is None
    assert bytes(file.view(0, 4)) == b"kept"
    file.close()
    assert bytes(view) == b"kept"
    assert files.open_handles == 0
    with pytest.raises(StoreClosedError, match="closed"):
        file.write(0, b"x")
    with pytest.raises(StoreClosedError, match="closed"):
        file.view(0, 1)


def test_a_descriptor_in_use_is_closed_by_its_last_user(files: MemoryFiles) -> None:
    file = MappedFile(files, PATH, 1000, 1000)

    class ClosingFiles(MemoryFiles):
        def fdatasync(self, handle: int) -> None:
            file.close()
            assert files.open_handles == 1  # still ours
            files.fdatasync(handle)

    file._files = ClosingFiles()
    file._files.open = files.open  # type: ignore[method-assign]
    file._files.close = files.close  # type: ignore[method-assign]
    file.sync()
    assert files.open_handles == 0


def test_errors_of_the_disk_come_through(files: MemoryFiles) -> None:
    file = MappedFile(files, PATH, 1000, 1000)
    files.fail("pwrite", errno.ENOSPC, times=1)
    with pytest.raises(OSError, match="No space"):
        file.write(0, b"x")
    files.fail("fdatasync", errno.EIO, times=1)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()


def test_a_read_only_file_is_not_written(files: MemoryFiles) -> None:
    file = MappedFile(files, PATH, 1000, 1000, writable=False)
    assert bytes(file.view(0, 2)) == b"\0\0"
    with pytest.raises(OSError, match="Bad file"):
        file.write(0, b"x")


def test_a_page_that_cannot_be_read_is_named(files: MemoryFiles) -> None:
    handle = files.open(PATH)
    files.preallocate(handle, 20_000)
    files.close(handle)
    file = MappedFile(files, PATH, 1000, 20_000)
    files.spoil(PATH, 9_000, 1)
    assert len(file.view(0, 9_000)) == 9_000
    with pytest.raises(UnreadableError, match=r"1000: bytes 8192\.\.12288 cannot be read") as fault:
        file.view(0, 20_000)
    assert (fault.value.file, fault.value.position) == (str(PATH), 8_192)
    with pytest.raises(UnreadableError, match=r"bytes 8999\.\.9009 cannot"):
        file.view(8_999, 10)
    with pytest.raises(UnreadableError, match=r"bytes 8900\.\.9100 cannot"):
        file.prefault_parts(np.array([0, 8_900, 10_000]), np.array([50, 200, 50]))
    assert len(file.span(0, 20_000)) == 20_000
    file.prefault(9_001, 50_000)
    files.heal()
    assert file.view(9_000, 1)[0] == 0


def test_stretches_of_more_than_a_chunk_are_brought_in_whole(files: MemoryFiles) -> None:
    size = 4 * CHUNK
    handle = files.open(PATH)
    files.preallocate(handle, size)
    files.close(handle)
    file = MappedFile(files, PATH, 0, size)
    begins, lengths = np.array([10, 2 * CHUNK + 500]), np.array([2 * CHUNK, 100])
    file.prefault_parts(begins, lengths)
    files.spoil(PATH, CHUNK + 5000, 1)
    file.release()
    with pytest.raises(UnreadableError, match=f"bytes {CHUNK + 4096}"):
        file.prefault_parts(begins, lengths)
    file.prefault_parts(begins[1:], lengths[1:])


def test_a_failed_write_back_is_seen_by_the_next_fsync(files: MemoryFiles) -> None:
    """The kernel tells it to who has the file open, and forgets it with the last descriptor: a
    release between write and fsync, as there is one each second, must not be that."""
    file = MappedFile(files, PATH, 1000, 1000)
    file.write(0, b"x")
    file.release()
    files.lose_write_back(file.path)
    file.release()
    with pytest.raises(OSError, match="Input/output"):
        file.sync()


def test_what_is_only_read_keeps_no_descriptor(files: MemoryFiles) -> None:
    before = files.open_handles
    file = MappedFile(files, PATH, 1000, 1000, writable=False)
    assert bytes(file.view(0, 1)) == b"\0"
    assert files.open_handles == before


@pytest.mark.parametrize(
    "number",
    [errno.EIO, errno.ENOENT, errno.EACCES, errno.ESTALE, errno.EISDIR, errno.ENODEV, errno.EPERM],
)
@pytest.mark.parametrize("call", ["open", "map"])
def test_a_file_that_cannot_be_opened_is_unreadable(
    files: MemoryFiles, call: str, number: int
) -> None:
    """Whatever became of it, another node may have its bytes."""
    file = MappedFile(files, PATH, 1000, 1000)
    files.fail(call, number)
    with pytest.raises(UnreadableError, match=re.escape(str(PATH))):
        file.view(0, 10)
    files.heal()
    assert len(file.view(0, 10)) == 10


@pytest.mark.parametrize("call", ["open", "map"])
def test_a_disk_that_became_read_only_is_read(files: MemoryFiles, call: str) -> None:
    """By a descriptor that is not kept: the next write needs another one."""
    file = MappedFile(files, PATH, 1000, 1000)
    files.fail(call, errno.EROFS, times=1)  # with the descriptor for writing
    assert bytes(file.view(0, 10)) == bytes(10)
    file.write(0, b"mounted again")
    assert bytes(file.view(0, 13)) == b"mounted again"


def test_a_process_without_descriptors_does_not_blame_the_file(files: MemoryFiles) -> None:
    file = MappedFile(files, PATH, 1000, 1000)
    files.fail("open", errno.EMFILE)
    with pytest.raises(OSError, match="Too many open files"):
        file.view(0, 10)


RESIDENCY_SIZE = 5 * CHUNK + 1000
RESIDENCY_PLACES = st.integers(0, RESIDENCY_SIZE // 500).map(
    lambda number: min(number * 500, RESIDENCY_SIZE - 1)
)


@given(
    noted=st.lists(st.tuples(RESIDENCY_PLACES, RESIDENCY_PLACES)),
    asked=st.lists(st.tuples(RESIDENCY_PLACES, RESIDENCY_PLACES)),
)
def test_only_chunks_that_were_noted_as_a_whole_are_known(
    noted: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    residency = Residency(RESIDENCY_SIZE)
    known: set[int] = set()
    for one, other in noted:
        begin, end = min(one, other), max(one, other) + 1
        residency.note(begin, end - begin)
        known |= {
            chunk
            for chunk in range(6)
            if begin <= chunk * CHUNK and min((chunk + 1) * CHUNK, RESIDENCY_SIZE) <= end
        }
    for one, other in asked:
        begin, end = min(one, other), max(one, other) + 1
        there = set(range(begin // CHUNK, (end - 1) // CHUNK + 1)) <= known
        assert residency.covers(begin, end - begin) is there
        if end - begin <= CHUNK:
            [missing] = residency.missing(np.array([begin]), np.array([end])).tolist()
            assert missing is not there
