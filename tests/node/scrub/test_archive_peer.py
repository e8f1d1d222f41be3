"""The archive as a copy of the log for the scrub: it mends what no node has whole."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.archives import archive
from fakes.fake_object_store import FakeObjectStore, Trouble
from fakes.flipped_stores import Base, base_store
from fakes.scrubbed_trio import DAY, Trio, turn
from fakes.stores import DIRECTORY, Bench
from tandemlog.archive.folder_store import FolderStore
from tandemlog.archive.object_store import ObjectStore
from tandemlog.format.files.log_history import LogTerm
from tandemlog_server.node.scrub.archive_peer import REFRESH_S, ArchivePeer
from tandemlog_server.storage.scrub.block_answers import BlockAnswer, BlockQuestion
from tandemlog_server.storage.scrub.scrub_plan import RETRY_MS
from tandemlog_server.storage.scrub.scrubber import PeerError, Scrubber
from tandemlog_server.storage.scrub.verdicts import CopyState

URL = "fake://archive"


class Counted(ArchivePeer):
    """Says how often it was asked."""

    asked = 0

    def ask(self, question: BlockQuestion) -> BlockAnswer:
        self.asked += 1
        return super().ask(question)


class World:
    """Nodes of which the first is scrubbed, and an archive of their log."""

    def __init__(self, base: Base, objects: ObjectStore, *, count: int) -> None:
        self.base = base
        self.objects = objects
        self.trio = Trio(base.config, base.contents, count=count)
        self.archive()
        store = self.trio.store
        self.peer = Counted(
            URL,
            lambda: objects,
            property_crc=bool(base.config.property_crc),
            now=self.trio.clock.monotonic,
        )
        self.trio.scrubber = Scrubber(
            store,
            lambda: self.trio.peers,
            store.directory / "tandemlog" / "scrub.json",
            bytes_per_s=8 << 20,
            interval_ms=DAY,
            last_resort=self.peer,
        )

    def archive(self) -> None:
        bench = Bench.__new__(Bench)
        bench.store, bench.clock = self.trio.store, self.trio.clock
        archive(bench, self.objects)

    def turn(self, number: int, node: int, *, mask: int = 4) -> None:
        """A byte of that record's body, on one node."""
        start, end = sorted(self.base.spans)[number]
        base = start - start % self.base.config.commit_log_file_size
        path = DIRECTORY / "commitlog" / f"{base:020d}"
        turn(self.trio.files[node], path, start - base + (end - start) // 2, mask)

    def log(self, node: int = 0) -> dict[str, bytes]:
        folder, files = DIRECTORY / "commitlog", self.trio.files[node]
        return {each: files.read_file(folder / each) for each in files.listdir(folder)}


@pytest.fixture(scope="module")
def base() -> Base:
    return base_store(clean=True, property_crc=True)


@pytest.fixture(params=["fake", "folder"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return FakeObjectStore() if request.param == "fake" else FolderStore(tmp_path / "archive")


@pytest.fixture
def alone(base: Base, objects: ObjectStore) -> Iterator[World]:
    world = World(base, objects, count=1)
    yield world
    world.trio.close()


def test_a_node_without_others_is_mended_by_the_archive(alone: World) -> None:
    right = alone.log()
    numbers = range(0, len(alone.base.spans), 3)
    for number in numbers:
        alone.turn(number, 0)
    assert alone.log() != right
    alone.trio.round()
    assert alone.log() == right
    assert not alone.trio.scrubber.plan.open
    assert alone.trio.scrubber.counts.mended > 0
    # nothing is asked where nothing is wrong
    asked = alone.peer.asked
    alone.trio.round()
    assert alone.peer.asked == asked


def test_the_archive_is_asked_only_where_no_node_has_the_bytes(
    base: Base, objects: ObjectStore
) -> None:
    world = World(base, objects, count=3)
    right = world.log()
    world.turn(3, 0)
    world.trio.round()
    assert world.log() == right
    assert world.peer.asked == 0
    for node in range(3):
        world.turn(5, node)
    world.trio.round()
    assert world.log() == right
    assert world.peer.asked > 0
    assert world.log(1) != right, "each node mends its own"
    world.trio.close()


def test_the_archive_is_the_third_vote(objects: ObjectStore) -> None:
    """A flip in a field that no CRC covers, on one of two nodes."""
    loose = base_store(clean=True)
    world = World(loose, objects, count=2)
    right = world.log()
    start, _ = sorted(loose.spans)[4]
    base = start - start % loose.config.commit_log_file_size
    # the store timestamp of the record
    place = DIRECTORY / "commitlog" / f"{base:020d}", start - base + 56 + 7
    turn(world.trio.files[0], *place, 1)
    world.trio.round()
    assert world.log() == right
    turn(world.trio.files[1], *place, 1)
    world.trio.round()
    assert world.log() == right, "the other one is wrong"
    assert not world.trio.scrubber.plan.open
    world.trio.close()


def test_an_archive_that_does_not_answer_or_is_damaged_leaves_the_block_open(base: Base) -> None:
    objects = FakeObjectStore()
    world = World(base, objects, count=1)
    right = world.log()
    world.turn(3, 0)
    objects.trouble = Trouble(refused=1.0)
    world.trio.round()
    [opened] = world.trio.scrubber.plan.open.values()
    assert opened.lost
    objects.trouble = Trouble()
    kept = dict(objects.objects)
    for key, content in kept.items():
        if key.startswith("log/"):
            middle = bytearray(content)
            middle[::50] = bytes(each ^ 1 for each in middle[::50])
            objects.objects[key] = bytes(middle)
    assert objects.objects != kept
    again(world)
    assert world.trio.scrubber.plan.open, "an object with other bytes than its name says"
    objects.objects.update(kept)
    again(world)
    assert not world.trio.scrubber.plan.open
    assert world.log() == right
    world.trio.close()


def again(world: World) -> None:
    """What is open is looked at again."""
    world.trio.clock.advance(max(RETRY_MS / 1000, REFRESH_S))
    for _ in range(10):
        world.trio.scrubber.step()


def test_an_archive_says_nothing_of_another_log_or_what_it_lacks(alone: World) -> None:
    store = alone.trio.store
    end, history = store.confirmed.value, store.log_identity.history
    asked = BlockQuestion(0, 0, end, b"", history)
    assert alone.peer.ask(asked).state is CopyState.WHOLE
    other = replace(history, terms=(LogTerm(99, 0, 5),))
    assert alone.peer.ask(replace(asked, history=other)).state is CopyState.ABSENT
    assert alone.peer.ask(replace(asked, start=end, limit=end + 500)).state is CopyState.ABSENT
    assert alone.peer.ask(replace(asked, end=end + 1)).state is CopyState.ABSENT
    with pytest.raises(PeerError, match="no byte of the log"):
        alone.peer.fetch(end - 10, end + 10)


def test_an_empty_archive_has_no_copy() -> None:
    peer = ArchivePeer(URL, FakeObjectStore, property_crc=False)
    with pytest.raises(PeerError, match="nothing is archived"):
        peer.fetch(0, 10)
    peer.close()
