"""A service's fold over a log in memory: it follows the log, its cuts, and its snapshots."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fakes.count_fold import CountFold
from fakes.derived import Derived
from fakes.memory_log import MemoryLog
from tandemlog.format.errors import FormatError
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.folds.dispatch_batch import DispatchBatch
from tandemlog_server.storage.folds.fold import ANYWHERE
from tandemlog_server.storage.folds.fold_file import FoldFile

ROOT = Path("/store")
PATH = ROOT / "tandemlog" / "folds" / "counts"


class World:
    """A log, a disk, a fold of the log and its file."""

    def __init__(self) -> None:
        self.log = MemoryLog(4096)
        self.files = MemoryFiles()
        self.now = 0.0
        self.ends: list[int] = []
        self.topics: list[str] = []
        self.begin()

    def begin(self, topic: str = "") -> None:
        """A new process: its fold knows nothing yet."""
        self.fold = CountFold(topic)
        self.file = FoldFile(self.fold, PATH, self.files, lambda: self.now)
        self.fold.saved = self.file.read
        self.derived = Derived.over(
            self.log, self.files, ROOT, batch_bytes=600, folds=[self.fold]
        )  # fmt: skip

    def put(self, records: int, topic: str = "T") -> None:
        for _ in range(records):
            self.log.put(topic, 0, later_ms=1)
            self.ends.append(self.log.end)
            self.topics.append(topic)

    def dispatch(self) -> None:
        self.derived.dispatch()

    def cut(self, offset: int) -> None:
        self.derived.reput.truncate(offset)
        self.log.cut(offset)
        self.derived.confirmed.retreat(offset)
        self.ends = [end for end in self.ends if end <= offset]
        self.topics = self.topics[: len(self.ends)]
        self.log.next_queue_offsets = {(topic, 0): n for topic, n in Counter(self.topics).items()}

    def counts(self) -> dict[str, Any]:
        return self.fold.counts

    def fresh(self) -> dict[str, Any]:
        """What a fold of the whole log says."""
        fold = CountFold(self.fold.topic)
        Derived.over(self.log, MemoryFiles(), ROOT, folds=[fold]).dispatch()
        return fold.counts


@pytest.fixture
def world() -> World:
    return World()


def test_the_fold_follows_the_log(world: World) -> None:
    world.put(9)
    world.put(4, "U")
    world.dispatch()
    assert {topic: count for topic, (count, _) in world.counts().items()} == {"T": 9, "U": 4}
    assert world.counts() == world.fresh()
    assert world.derived.reput.reputed.value == world.log.end


def test_a_restored_fold_gets_only_what_its_snapshot_lacks(world: World) -> None:
    world.put(9)
    world.dispatch()
    world.file.save(world.log.end, closing=False)
    world.put(5)
    world.begin()
    assert world.file.load() == ""
    assert world.counts()["T"][0] == 9
    world.dispatch()
    assert world.counts() == world.fresh()


def test_the_position_is_the_least_of_all_folds(world: World) -> None:
    world.put(30)
    world.dispatch()
    world.fold.reset(world.ends[3])
    assert world.derived.reput._to.next_offset == world.ends[3]
    world.derived.reput.truncate(world.ends[28])  # and the queues are there already
    assert world.derived.reput.reputed.value == world.ends[3]
    world.derived.reput.run_once()
    assert world.ends[3] < world.derived.reput.reputed.value < world.ends[28]
    world.derived.reput.run_to()
    assert world.counts()["T"][0] == 26


def test_a_cut_goes_back_to_the_snapshot(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.put(9)
    world.dispatch()
    world.file.save(world.log.end, closing=False)
    world.put(9)
    world.dispatch()
    applied: list[int] = []
    take = world.fold._take

    def noting(batch: DispatchBatch, first: int) -> list[str]:
        applied.append(batch.start)
        return take(batch, first)

    monkeypatch.setattr(world.fold, "_take", noting)
    world.cut(world.ends[12])
    world.dispatch()
    assert world.counts() == world.fresh()
    assert min(applied) == world.ends[8]


def test_a_cut_below_the_snapshot_applies_the_whole_log_again(world: World) -> None:
    world.put(9)
    world.dispatch()
    world.file.save(world.log.end, closing=False)
    world.cut(world.ends[4])
    assert world.fold.noted == 0
    world.put(3, "U")
    world.dispatch()
    assert world.counts() == world.fresh()


def test_a_snapshot_of_a_log_that_was_cut_is_of_no_use_later(world: World) -> None:
    """The first cut makes it wrong; when the log has grown beyond it again, a second cut must not
    take it for true."""
    world.put(9)
    world.dispatch()
    world.file.save(world.log.end, closing=False)
    world.cut(world.ends[4])
    world.put(9, "U")
    world.dispatch()
    world.cut(world.ends[-2])
    world.put(1, "V")
    world.dispatch()
    assert world.counts() == world.fresh()


def test_a_snapshot_waits_for_the_flush(world: World) -> None:
    world.put(9)
    world.dispatch()
    world.file.save(world.ends[4], closing=False)
    assert world.file.read() is None
    assert world.file.keep_from is None
    world.put(2)
    world.dispatch()
    world.file.save(world.ends[9], closing=False)
    world.begin()
    world.file.load()
    assert world.counts()["T"] == [9, world.ends[7]]


def test_what_changes_nothing_is_not_written_again(world: World) -> None:
    """Retention may go on all the same: what is on the disk says all below `noted`."""
    world.begin("T")
    world.put(2)
    world.dispatch()
    world.file.save(world.log.end, closing=False)
    data = world.file.read()
    world.put(9, "U")
    world.dispatch()
    world.now += 1000
    world.file.save(world.ends[6], closing=False)
    assert world.file.keep_from == world.ends[6]
    world.file.save(world.log.end, closing=False)
    assert (world.file.read(), world.file.keep_from) == (data, world.log.end)
    world.cut(world.ends[4])
    assert world.fold.noted == world.ends[4]  # what was cut off has changed nothing
    world.dispatch()
    assert world.counts() == world.fresh()


def test_retention_keeps_what_the_snapshot_on_the_disk_needs(world: World) -> None:
    world.put(9)
    world.dispatch()
    world.fold.needed = world.ends[2]
    world.file.save(world.log.end, closing=False)
    assert world.file.keep_from == world.ends[2]
    # what it needed has ended, but that is not on the disk yet
    world.fold.needed = ANYWHERE
    assert world.file.keep_from == world.ends[2]
    world.put(1)
    world.dispatch()
    world.now += 1000
    world.file.save(world.ends[8], closing=False)
    assert world.file.keep_from == world.ends[2]
    world.file.save(world.log.end, closing=False)
    assert world.file.keep_from == world.log.end


def test_a_damaged_snapshot_is_named_and_the_log_is_applied_again(world: World) -> None:
    world.put(9)
    world.dispatch()
    world.file.save(world.log.end, closing=True)
    data = world.file.read()
    assert data is not None
    for place in range(len(data)):
        wrong = bytearray(data)
        wrong[place] ^= 4
        with pytest.raises(FormatError):
            CountFold().restore(bytes(wrong))
    world.files.atomic_replace(PATH, data[:-3])
    world.begin()
    assert "is damaged and is rebuilt from the log" in world.file.load()
    world.dispatch()
    assert world.counts() == world.fresh()


def test_a_snapshot_of_another_version_is_not_used(world: World) -> None:
    data = world.fold.snapshot().encode()
    newer = CountFold()
    newer.VERSION = 2  # type: ignore[misc]
    with pytest.raises(FormatError, match="counts: its version is not 2"):
        newer.restore(data)


def test_a_snapshot_beyond_the_log_is_withdrawn(world: World) -> None:
    world.put(9)
    world.dispatch()
    world.file.save(world.log.end, closing=False)
    assert not world.file.withdraw(world.log.end)
    assert world.file.withdraw(world.log.end - 1)
    assert world.file.read() is None
    assert world.fold.noted is None
