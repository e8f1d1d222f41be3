"""Offsets of groups that were there and are gone are not "no offsets"."""

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.errors import CorruptStoreError, StoreLayoutError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.tools.verify import verify

OFFSETS = DIRECTORY / "config" / "consumerOffset.json"
BACKUP = OFFSETS.with_name("consumerOffset.json.bak")


def committed() -> Bench:
    bench = Bench()
    bench.put(3)
    bench.settle()
    bench.store.consumer_offsets.commit("g", "T", 0, 2)
    bench.store.close()
    return bench


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_the_backup_is_taken_and_verify_names_it(how: str) -> None:
    bench = committed()
    bench.files.unlink(OFFSETS)
    if how == "empty":
        bench.files.atomic_replace(OFFSETS, b"")
    (fault,) = verify(bench.config, bench.files).faults
    assert "consumerOffset.json" in str(fault)
    store = bench.open()
    assert store.consumer_offsets.offset("g", "T", 0) == 2
    assert any("consumerOffset.json" in note for note in store.recovery.notes)
    store.close()


@pytest.mark.parametrize("how", ["missing", "empty"])
def test_without_either_the_store_does_not_open(how: str) -> None:
    bench = committed()
    for path in (OFFSETS, BACKUP):
        bench.files.unlink(path)
        if how == "empty":
            bench.files.atomic_replace(path, b"")
    (fault,) = verify(bench.config, bench.files).faults
    assert "are lost" in str(fault)
    with pytest.raises(CorruptStoreError, match=r"write \{\} into the file"):
        bench.open()
    bench.files.atomic_replace(OFFSETS, b"{}")
    bench.open().close()


def test_a_store_whose_groups_never_committed_opens_without_the_file() -> None:
    bench = Bench()
    bench.put()
    bench.settle()
    bench.kill()
    bench.reopen().close()
    assert verify(bench.config, bench.files).holds


def test_offsets_that_were_not_saved_yet_are_not_missed() -> None:
    bench = Bench()
    bench.put()
    bench.settle()
    bench.store.consumer_offsets.commit("g", "T", 0, 1)
    bench.store.persist()
    bench.kill().close()


def test_tables_in_a_rocksdb_are_named_and_not_taken_for_none() -> None:
    files = MemoryFiles()
    folder = DIRECTORY / "config" / "consumerOffsets"
    files.make_directory(folder)
    files.atomic_replace(folder / "CURRENT", b"MANIFEST-000005\n")
    (fault,) = verify(CONFIG, files).faults
    assert "rocksDBConfigToJson" in str(fault)
    with pytest.raises(StoreLayoutError, match="follow the running broker"):
        MessageStore.open(CONFIG, files=files)
    files.atomic_replace(OFFSETS, b'{"offsetTable": {}}')
    MessageStore.open(CONFIG, files=files).close()
