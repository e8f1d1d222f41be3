"""An index that is lost or damaged is made again from the log, as far as it has to be."""

from unittest.mock import patch

import pytest

from fakes.batches import Put, batch_of
from fakes.crashed_stores import assert_whole, flip, full
from fakes.stores import DIRECTORY, Bench
from tandemlog_server.storage.dispatch.dispatch_source import DispatchSource
from tandemlog_server.storage.errors import CorruptStoreError, StoreLayoutError


def test_a_missing_index_is_made_again() -> None:
    bench, _ = full()
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0).physical_offsets
    assert len(found) == 200
    bench.store.close()
    for name in bench.files.listdir(DIRECTORY / "index"):
        bench.files.unlink(DIRECTORY / "index" / name)
    bench.open()
    assert bench.store.recovery.index
    again = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert again.physical_offsets == found
    assert_whole(bench)


@pytest.mark.parametrize("byte", [3, 11, 19])
def test_garbage_behind_the_durable_end_of_the_index_is_cut(byte: int) -> None:
    bench, _ = full(5)
    newest = DIRECTORY / "index" / bench.files.listdir(DIRECTORY / "index")[-1]
    bench.put(5)
    bench.settle()
    assert bench.store.index is not None
    bench.store.index.flush()
    content = bench.files.content(newest)
    position = len(content) - 20 + byte
    content[position] ^= 0x40
    bench.kill()
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert len(found.physical_offsets) == 55


def test_the_first_index_file_is_made_again_from_the_records_behind_the_last_checkpoint() -> None:
    bench = Bench()
    bench.store.put(batch_of([Put("T", 0, b"no keys, no tag", b"")]))
    bench.settle()
    bench.store.persist()
    assert bench.files.listdir(DIRECTORY / "index") == []
    before = bench.store.log.wrote.value
    bench.put(3)
    bench.settle()
    (name,) = bench.files.listdir(DIRECTORY / "index")
    real = DispatchSource.batch
    with patch.object(DispatchSource, "batch", autospec=True, side_effect=real) as batch:
        bench.kill()
    read = [call.args[1] for call in batch.call_args_list]
    assert bench.store.recovery.index == [f"index file {name} is rebuilt from the log"]
    assert min(read) == before
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert len(found.physical_offsets) == 3
    assert_whole(bench)


def test_a_damaged_index_state_is_left_out() -> None:
    bench, _ = full()
    path = DIRECTORY / "tandemlog" / "index.json"
    flip(bench, path, 20)
    bench.kill()
    assert any("damaged" in note for note in bench.store.recovery.index)
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert len(found.physical_offsets) == 200
    assert_whole(bench)


@pytest.mark.parametrize("length", [0, 452])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_what_the_error_of_a_damaged_length_says_helps(number: int, length: int) -> None:
    bench, _ = full()
    bench.store.close()
    directory = DIRECTORY / "index"
    names = bench.files.listdir(directory)
    del bench.files.content(directory / names[number])[length:]
    way_out = "remove this index file and all later ones"
    with pytest.raises((StoreLayoutError, CorruptStoreError), match=way_out):
        bench.open()
    for name in names[number:]:
        bench.files.unlink(directory / name)
    bench.open()
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert len(found.physical_offsets) == 200
    assert_whole(bench)


def test_an_index_file_of_a_wrong_length_is_an_error_with_the_way_out() -> None:
    bench, _ = full()
    bench.store.close()
    with pytest.raises(StoreLayoutError, match="index_slots"):
        bench.open(index_slots=17)
    bench.open(index_slots=16)
