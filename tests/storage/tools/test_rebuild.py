from dataclasses import replace

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog_server.storage.errors import StoreLayoutError, StoreLockedError
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.verify import verify


@pytest.fixture
def bench() -> Bench:
    found = Bench()
    for number in range(12):
        found.put(10, queue_id=number % 3, size=30)
    found.settle()
    found.store.close()
    return found


def files_of(bench: Bench, folder: str) -> dict[str, bytes]:
    directory = DIRECTORY / folder
    return {
        name: bytes(bench.files.content(directory / name))
        for name in bench.files.listdir(directory)
    }


@pytest.mark.parametrize(("queues", "index"), [(True, False), (False, True), (True, True)])
def test_what_is_asked_for_is_made_again(bench: Bench, queues: bool, index: bool) -> None:
    before = files_of(bench, "consumequeue/T/1")
    names = bench.files.listdir(DIRECTORY / "index")
    bench.clock.advance(10)
    told: list[tuple[int, int]] = []
    report = rebuild(
        bench.config,
        queues=queues,
        index=index,
        files=bench.files,
        clock=bench.clock,
        progress=lambda done, whole: told.append((done, whole)),
    )
    assert (report.queues, report.index) == (queues, index)
    assert files_of(bench, "consumequeue/T/1") == before
    assert (bench.files.listdir(DIRECTORY / "index") != names) == index
    assert told[-1][0] == told[-1][1]
    assert not [name for name in bench.files.listdir(DIRECTORY) if name.startswith("rebuild-")]
    assert verify(bench.config, bench.files).faults == []
    bench.open()
    assert bench.store.recovery.dispatched == 0
    assert len(bench.bodies(queue_id=1)) == 40


def test_damaged_files_do_not_matter(bench: Bench) -> None:
    for name in bench.files.listdir(DIRECTORY / "consumequeue" / "T" / "1"):
        bench.files.content(DIRECTORY / "consumequeue" / "T" / "1" / name)[:40] = b"\x7f" * 40
    rebuild(bench.config, files=bench.files, clock=bench.clock)
    assert verify(bench.config, bench.files).holds


def test_a_store_in_use_is_left_alone(bench: Bench) -> None:
    bench.open()
    with pytest.raises(StoreLockedError):
        rebuild(bench.config, files=bench.files, clock=bench.clock)
    assert len(bench.bodies()) == 40


def test_nothing_to_do_and_nothing_to_build_from_are_errors(bench: Bench) -> None:
    with pytest.raises(ValueError, match="nothing to rebuild"):
        rebuild(bench.config, queues=False, index=False, files=bench.files)
    empty = replace(CONFIG, directory=DIRECTORY / "empty")
    with pytest.raises(StoreLayoutError, match="nothing to build from"):
        rebuild(empty, files=bench.files, clock=bench.clock)
