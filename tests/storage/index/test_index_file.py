import errno
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tandemlog.format.constants import Buffer
from tandemlog.format.files.index_layout import (
    HEADER_SIZE,
    IndexHeader,
    decode_index_header,
    entry_position,
    index_file_size,
)
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.disk.file_pool import FilePool
from tandemlog_server.storage.errors import CorruptStoreError
from tandemlog_server.storage.index.index_file import IndexFile, create_index_file

ROOT = Path("/store")
PATH = ROOT / "index" / "20261121071456450"
SLOTS, ENTRIES = 7, 30
NOW = 1_700_000_000_000


def pool_of(files: MemoryFiles) -> FilePool:
    return FilePool(ROOT, files)


def made(files: MemoryFiles, before: IndexHeader | None = None) -> IndexFile:
    return create_index_file(
        PATH, ROOT / "tandemlog", pool_of(files), SLOTS, ENTRIES, before or IndexHeader()
    )


def opened(files: MemoryFiles) -> IndexFile:
    file = IndexFile(PATH, pool_of(files), SLOTS, ENTRIES)
    file.load()
    return file


def insert(file: IndexFile, hashes: list[int], first_offset: int = 0, now: int = NOW) -> None:
    """Entry i is of the record at first_offset + 10·i, a second later each."""
    count = np.arange(len(hashes))
    file.insert(np.array(hashes, dtype=np.int32), first_offset + 10 * count, now + 1000 * count)
    file.write_back()


def found(file: IndexFile, key_hash: int, begin: int = 0, end: int = 1 << 60) -> list[int]:
    return list(file.query(key_hash, begin, end))


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


def test_a_new_file_is_whole_reserved_and_durable(files: MemoryFiles) -> None:
    made(files)
    files.crash()
    assert files.listdir(PATH.parent) == [PATH.name]
    assert files.listdir(ROOT / "tandemlog") == []
    assert len(files.content(PATH)) == index_file_size(SLOTS, ENTRIES)
    assert opened(files).header == IndexHeader()


def test_a_full_disk_leaves_nothing_behind(files: MemoryFiles) -> None:
    files.capacity = 100
    with pytest.raises(OSError, match="No space"):
        made(files)
    assert files.listdir(PATH.parent) == []
    assert files.listdir(ROOT / "tandemlog") == []


def test_entries_are_found_newest_first(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [5, 12, 5, 6, 19])  # 5, 12 and 19 share a slot
    insert(file, [5], 500)
    assert found(file, 5) == [500, 20, 0]
    assert found(file, 19) == [40]
    assert found(file, 26) == []
    assert found(opened(files), 5) == [500, 20, 0]


def test_times_have_the_resolution_of_a_second(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [5, 5, 5, 5])
    assert found(file, 5, NOW + 1000, NOW + 2000) == [20, 10]
    assert found(file, 5, NOW + 1001, NOW + 3999) == [30, 20]
    assert file.may_hold(NOW + 3000, NOW + 9000)
    assert file.may_hold(0, NOW)
    assert file.may_hold(0, 1 << 60)
    assert not file.may_hold(0, NOW - 1)
    assert not file.may_hold(NOW + 3001, 1 << 60)


def test_the_header_says_where_it_begins_and_ends(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [1, 2, 8], 100)
    assert file.header == IndexHeader(NOW, NOW + 2000, 100, 120, 2, 4)
    assert file.room == ENTRIES - 4
    assert decode_index_header(bytes(files.content(PATH)[:HEADER_SIZE])) == file.header


def test_the_end_of_the_file_before_is_carried_over(files: MemoryFiles) -> None:
    before = IndexHeader(NOW - 99_000, NOW - 5000, 10, 90, 3, ENTRIES)
    file = made(files, before)
    assert file.header == IndexHeader(NOW - 5000, NOW - 5000, 90, 90, 0, 1)
    insert(file, [1, 1], 100)
    assert file.header.begin_timestamp == NOW
    # the first entry's time is measured from the end of the file before
    assert file.read(1, 3)["time_diff"].tolist() == [5, 1]


def test_it_takes_as_many_entries_as_there_is_room(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [3] * (ENTRIES - 1))
    assert file.room == 0
    assert len(found(file, 3)) == ENTRIES - 1
    with pytest.raises(ValueError, match="do not fit"):
        insert(file, [3])


def test_another_length_is_an_error(files: MemoryFiles) -> None:
    made(files)
    file = IndexFile(PATH, pool_of(files), SLOTS, ENTRIES + 1)
    with pytest.raises(CorruptStoreError, match="7 slots and 31 entries"):
        file.load()


def test_a_cut_leaves_the_file_as_if_the_rest_had_never_been(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [5, 12, 5, 6, 19])
    before, header = bytes(files.content(PATH)), file.header
    insert(file, [5, 1, 2, 26], 500, NOW + 60_000)
    file.cut(6, NOW + 4000)
    assert file.header == header
    assert bytes(files.content(PATH)) == before


@pytest.mark.parametrize("damage", ["slots", "entries", "both"])
def test_a_cut_repairs_what_a_crash_left(files: MemoryFiles, damage: str) -> None:
    file = made(files)
    insert(file, [5, 12, 5, 6, 19, 3])
    before, header = bytes(files.content(PATH)), file.header
    insert(file, [5, 1, 2, 26], 500)
    content = files.content(PATH)
    if damage in ("slots", "both"):
        content[HEADER_SIZE + 4 * 5 : HEADER_SIZE + 4 * 6] = (29).to_bytes(4)
    if damage in ("entries", "both"):
        at = entry_position(SLOTS, 7)
        content[at : at + 80] = bytes(80)
    file = opened(files)
    file.cut(7, NOW + 5000)
    assert file.header == header
    assert (
        bytes(files.content(PATH))[: entry_position(SLOTS, 7)] == before[: entry_position(SLOTS, 7)]
    )
    insert(file, [5], 900)
    assert found(file, 5) == [900, 20, 0]


def test_chains_are_made_again_from_the_hashes(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [5, 12, 5, 6, 19, 3])
    before = bytes(files.content(PATH))
    content = files.content(PATH)
    content[HEADER_SIZE : HEADER_SIZE + 4 * SLOTS] = bytes(4 * SLOTS)
    content[entry_position(SLOTS, 3) + 16 : entry_position(SLOTS, 4)] = (9).to_bytes(4)
    file = opened(files)
    assert file.rebuild_chains() == 4
    assert bytes(files.content(PATH)) == before
    assert file.rebuild_chains() == 0


def test_a_damaged_chain_ends_a_query(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [5, 5, 5])
    at = entry_position(SLOTS, 2) + 16
    files.content(PATH)[at : at + 4] = (3).to_bytes(4)  # back to where it came from
    assert found(opened(files), 5) == [20, 10]


def test_where_a_position_of_the_log_begins(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [1, 2, 3, 4])
    assert [file.first_at_or_after(each) for each in (0, 1, 20, 30, 31)] == [1, 2, 3, 4, 5]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 20), min_size=1, max_size=9), min_size=1, max_size=5),
    st.integers(1, 25),
    st.booleans(),
)
def test_cut_and_rebuilt_chains_agree(
    batches: list[list[int]], keep: int, forget_entries: bool
) -> None:
    files = MemoryFiles()
    file = made(files)
    for number, hashes in enumerate(batches):
        insert(file, hashes[: file.room], 1000 * number)
        if file.room == 0:
            break
    keep = min(keep + 1, file.header.next_entry)
    if forget_entries:
        start, end = (entry_position(SLOTS, each) for each in (keep, file.header.next_entry))
        files.content(PATH)[start:end] = bytes(end - start)
    file.cut(keep, NOW)
    assert file.rebuild_chains() == 0


def test_a_full_disk_is_an_error_where_pages_are_written_anew(files: MemoryFiles) -> None:
    """With copy on write a page that has its space may need new space: through a map that would be
    a signal that ends the process."""
    file = made(files)
    insert(file, [5, 6])
    files.fail("pwrite", errno.ENOSPC, name="index")
    with pytest.raises(OSError, match="No space"):
        insert(file, [5])
    files.heal()
    insert(file, [5])
    files.fail("pwrite", errno.ENOSPC, skip=1, name="index")  # the entries have their place
    with pytest.raises(OSError, match="No space"):
        insert(file, [6])
    assert found(file, 6) == [0, 10]
    files.heal()
    file.write_back()
    assert found(opened(files), 6) == [0, 10]


def test_no_store_file_is_written_through_a_map(files: MemoryFiles) -> None:
    file = made(files)
    insert(file, [5, 6, 7] * 3)
    file.cut(4, NOW)
    file.rebuild_chains()
    assert not files.calls["map"]


def test_a_file_that_was_begun_again_gets_what_is_written_to_it(files: MemoryFiles) -> None:
    pool = pool_of(files)

    def make() -> IndexFile:
        return create_index_file(PATH, ROOT / "tandemlog", pool, SLOTS, ENTRIES, IndexHeader())

    files.fail("pwrite", errno.ENOSPC, name=str(PATH), times=1)
    with pytest.raises(OSError, match="No space"):
        make()
    file = make()
    insert(file, [1, 8, 15])
    pool.sync()
    assert found(opened(files), 8) == [10]


class WritesBesideOthers(MemoryFiles):
    """The first write of a page waits until another thread has had its chance to overtake it."""

    def __init__(self) -> None:
        super().__init__()
        self.overtaker: threading.Thread | None = None

    def pwrite(self, handle: int, data: Buffer, offset: int) -> None:
        waiting = self.overtaker
        if waiting is not None and waiting.ident is None and offset == HEADER_SIZE:
            waiting.start()
            waiting.join(0.3)  # without a lock it is done by then
        super().pwrite(handle, data, offset)


def test_an_older_copy_of_a_page_never_lands_on_a_newer_one() -> None:
    files = WritesBesideOthers()
    file = made(files)
    hashes = np.array([3], dtype=np.int32)
    file.insert(hashes, np.array([0]), np.array([NOW]))

    def overtake() -> None:
        file.insert(hashes, np.array([10]), np.array([NOW + 1000]))
        file.write_back()

    files.overtaker = threading.Thread(target=overtake)
    file.write_back()
    files.overtaker.join()
    assert opened(files).header == file.header
    assert found(opened(files), 3) == [10, 0]
