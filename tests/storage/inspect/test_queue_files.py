"""The units of a store's queues for the tools: what they have mapped they give back."""

import gc
from collections.abc import Callable, Iterator

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreLayoutError
from tandemlog_server.storage.inspect.geometry import Geometry
from tandemlog_server.storage.recovery.analysis import analyze
from tandemlog_server.storage.store_paths import StorePaths
from tandemlog_server.storage.tools.recover import plan
from tandemlog_server.storage.tools.verify import verify

QUEUE = DIRECTORY / "consumequeue" / "T" / "0"
MIDDLE = QUEUE / "00000000000000000400"


@pytest.fixture
def gapped() -> Iterator[MemoryFiles]:
    """The disk of a store: one queue lacks the second of its three files, the one behind it is
    whole. Nothing is collected."""
    bench = Bench()
    bench.put(50)
    bench.put(5, queue_id=1)
    bench.settle()
    bench.store.close()
    bench.files.unlink(MIDDLE)
    gc.disable()
    try:
        yield bench.files
    finally:
        gc.enable()


def examine_as_foreign(config: StoreConfig, files: MemoryFiles) -> None:
    files.unlink(StorePaths(config.directory).recovery_point)
    assert analyze(Geometry.of(config, files), files).clean


@pytest.mark.parametrize("look", [verify, plan, examine_as_foreign])
def test_a_queue_with_a_gap_leaves_no_file_mapped(
    gapped: MemoryFiles, look: Callable[[StoreConfig, MemoryFiles], object]
) -> None:
    look(CONFIG, gapped)
    for directory in (QUEUE, QUEUE.parent / "1", DIRECTORY / "commitlog"):
        for name in gapped.listdir(directory):
            handle = gapped.open(directory / name)
            gapped.truncate(handle, gapped.size(handle) + 1)
            gapped.close(handle)


@pytest.mark.parametrize("look", [verify, plan, examine_as_foreign])
def test_the_only_file_of_a_queue_with_half_a_unit_is_named(
    look: Callable[[StoreConfig, MemoryFiles], object],
) -> None:
    bench = Bench()
    bench.put(5)
    bench.settle()
    bench.store.close()
    path = QUEUE / "00000000000000000000"
    handle = bench.files.open(path)
    bench.files.truncate(handle, 399)
    bench.files.close(handle)
    with pytest.raises(StoreLayoutError, match=f"{path} has 399 bytes, queue files have"):
        look(CONFIG, bench.files)
