"""Archivers beside real stores that fail over, lose their power and cut their logs.

    master ──raw bytes──▶ slaves          asynchronous replication: who leads next may have less,
       │                     │            and what was confirmed and archived is cut
    archiver              archiver        each may believe that it is the one
       └────▶ object store ◀─┘            answers late, twice, or not at all

An old master that was not told continues to take puts, to confirm and to archive. At any moment the
newest manifest must be readable to its last byte, at least as far as the last one whose put was
acknowledged, and equal to the log of the node that published it. In the end all nodes agree, and
the archive has all of their log.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from fakes.batches import Put, batch_of
from fakes.clock import FakeClock
from fakes.fake_object_store import FakeObjectStore, Trouble
from fakes.mortal_files import DeathError
from sim.ha_nodes import ViolationError
from sim.store_run import small_world
from tandemlog.archive.archive_reader import ArchiveReader, newest_manifest
from tandemlog.archive.errors import ArchiveError
from tandemlog.format.archive.manifest import Manifest
from tandemlog.format.archive.object_name import MANIFESTS, ManifestName, manifest_of
from tandemlog.format.files.epochs import EpochTable
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.node.archive.archive_worker import ArchiveWorker
from tandemlog_server.storage.archiving.actions import (
    Action,
    Answer,
    ArchiverConfig,
    Publish,
    Published,
)
from tandemlog_server.storage.archiving.archiver import Archiver
from tandemlog_server.storage.config import ConfirmSource, FlushMode, StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

CONFIG = StoreConfig(
    directory=Path("/store"),
    commit_log_file_size=4096,
    queue_file_size=400,
    index_slots=8,
    index_entries=24,
    flush=FlushMode.SYNC,
    busy_timeout_ms=0,
    confirm=ConfirmSource.REPLICATION,
)
ARCHIVING = ArchiverConfig(
    interval_s=0.05,
    segment_bytes=1_500,
    look_interval_s=0.3,
    stale_s=0.6,
    grace_s=1.2,
    take_over_s=0.5,
    retry_s=0.2,
)
STEPS = 150


class DyingObjects(FakeObjectStore):
    """The process of an archiver ends in a call, before it or behind it."""

    die_in = -1

    def _begin(self, call: str, key: str) -> None:
        super()._begin(call, key)
        if self.die_in >= 0:
            self.die_in -= 1
            if self.die_in < 0:
                raise DeathError(call)


@dataclass
class Node:
    """A machine: its disk, its store, and its archiver. `leads`: it believes that it does."""

    name: str
    files: MemoryFiles = field(default_factory=MemoryFiles)
    store: MessageStore | None = None
    worker: "WatchedWorker | None" = None
    leads: bool = False
    is_chosen: bool = False


class WatchedWorker(ArchiveWorker):
    """A manifest is compared with the node's log before it is put."""

    world: "ArchiveWorld"
    node: Node

    def do(self, action: Action) -> Answer:
        if isinstance(action, Publish):
            self.world.check_published(self.node, action.manifest)
        answer = super().do(action)
        if isinstance(answer, Published):
            self.world.acknowledged(answer.name)
        return answer


class ArchiveWorld:
    """See the module. Everything follows from `seed`."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.clock = FakeClock()
        bad = self.rng.choice((0.0, 0.02, 0.1))
        self.objects = DyingObjects(Trouble(bad, bad, bad, bad, bad), seed)
        size = self.rng.choice((1, 2, 3, 3))
        self.nodes = [Node(name) for name in "abc"[:size]]
        self.epoch = 0
        self.acked: ManifestName | None = None
        self.checked: ManifestName | None = None
        self.deleted = 0
        self.numbers = Random(f"bodies of {seed}")
        self.counters: Counter[str] = Counter()
        self.history: deque[str] = deque(maxlen=200)
        chosen = Random(f"misfortune of {seed}")
        several = size > 1
        self.events = [
            (14.0, self.put),
            (8.0, self.flush),
            (10.0, self.dispatch),
            (30.0, self.archive),
            (14.0 if several else 0.0, self.replicate),
            (2.0, self.change_tables),
            (2.0 * chosen.choice((0, 1, 2)), self.kill),
            (1.5 * chosen.choice((0, 1, 2)), self.lose_power),
            (2.0 * chosen.choice((0, 1, 2)), self.promote),
            (2.0 * chosen.choice((0, 1, 2)), self.doom_the_archiver),
            (1.0 * chosen.choice((0, 1, 2)), self.choose),
            (1.0 * chosen.choice((0, 0, 1)), self.expire),
            (0.5 * chosen.choice((0, 1)), self.sleep),
        ]
        self.total = sum(weight for weight, _ in self.events)

    # --- nodes

    def begin(self) -> None:
        for node in self.nodes:
            self.open(node)
        self.nodes[0].is_chosen = True
        self.lead(self.nodes[0])
        for node in self.nodes[1:]:
            self.follow(node, self.up(self.nodes[0]), 0)

    def open(self, node: Node) -> MessageStore:
        node.store = MessageStore.open(CONFIG, files=node.files, clock=self.clock)
        node.store.become_slave()
        node.leads = False
        node.worker = None
        return node.store

    def any_node(self) -> Node:
        return self.rng.choice(self.nodes)

    @property
    def master(self) -> Node | None:
        """The one of the newest epoch."""
        leading = [node for node in self.nodes if node.leads]
        return max(leading, key=lambda each: self.up(each).log_identity.newest[0], default=None)

    def up(self, node: Node) -> MessageStore:
        assert node.store is not None
        return node.store

    def step(self) -> None:
        self.clock.advance(self.rng.choice((0.0, 0.001, 0.01, 0.05)))
        self.objects.now_ms = self.clock.now_ms()
        at = self.rng.random() * self.total
        for weight, event in self.events:
            at -= weight
            if at < 0:
                event()
                break
        self.check()

    # --- work

    def put(self) -> None:
        """To whoever believes to lead."""
        leading = [node for node in self.nodes if node.leads]
        if leading:
            store = self.up(self.rng.choice(leading))
            count = self.rng.choice((1, 1, 3, 10))
            size = self.rng.choice((1, 30, 300, 300, 2_000))
            puts = [
                Put("T", self.rng.randrange(2), self.numbers.randbytes(size)) for _ in range(count)
            ]
            store.put(batch_of(puts[: max(1, 3_000 // size)]))

    def flush(self) -> None:
        node = self.any_node()
        store = self.up(node)
        store.flush()
        if node.leads:
            store.advance_confirmed(store.log.flushed.value)
            self.count("confirmed", store.confirmed.value)

    def dispatch(self) -> None:
        store = self.up(self.any_node())
        for _ in range(self.rng.randint(1, 3)):
            store.reput.run_once()

    def replicate(self) -> None:
        master = self.master
        node = self.any_node()
        if master is not None and node is not master:
            self.follow(node, self.up(master), self.rng.choice((500, 2_000, 10_000)))

    def follow(self, node: Node, master: MessageStore, most: int) -> None:
        """As slaves do it: cut what the master does not have, then take its bytes."""
        store = self.up(node)
        if node.leads:
            store.become_slave()
            node.leads = False
        ours, now = store.log_identity.history, master.log_identity.history
        cut = min(ours.cut_against(now), store.log.wrote.value, master.log.wrote.value)
        if cut < store.log.min_offset:
            store.reset(master.log.min_offset)
            store.take_prologue(master.prologue(master.log.min_offset))
        elif cut < store.log.wrote.value:
            self.note(f"{node.name} is cut at {cut} of {store.log.wrote.value}")
            self.count("cuts")
            store.truncate(cut)
        if store.log.wrote.value < master.log.min_offset:
            store.reset(master.log.min_offset)
            store.take_prologue(master.prologue(master.log.min_offset))
        while most > 0:
            at = store.log.wrote.value
            entries = [each for each in master.epochs.table.entries if each.start_offset <= at]
            store.epochs.replace(EpochTable(tuple(entries)))
            later = [
                each.start_offset for each in master.epochs.table.entries if each.start_offset > at
            ]
            data = bytes(master.log.read(at, min(most, *(end - at for end in later), most)))
            if not data:
                break
            store.append_raw(at, data)
            most -= len(data)
        store.log_identity.replace_from_json(master.log_identity.to_json())
        store.topics.replace_from_json(master.topics.to_json())
        store.flush()
        confirmed = min(master.confirmed.value, store.log.flushed.value)
        store.advance_confirmed(max(confirmed, store.confirmed.value))

    def change_tables(self) -> None:
        master = self.master
        if master is not None:
            store = self.up(master)
            number = len(store.topics.table)
            store.topics.create(TopicConfig(f"N{number}", 4, 4), self.clock.now_ms())

    def archive(self) -> None:
        node = self.any_node()
        if node.worker is None:
            archiver = Archiver(node.name, ARCHIVING, self.clock.now_ms)
            node.worker = WatchedWorker(self.up(node), self.objects, archiver)
            node.worker.world, node.worker.node = self, node
        try:
            for _ in range(self.rng.randint(1, 6)):
                self.clock.advance(0.002)
                self.work(node, node.worker)
        except DeathError as death:
            self.note(f"{node.name}: its archiver dies in {death}")
            self.count("archivers that died")
            node.worker = None

    def work(self, node: Node, worker: "WatchedWorker") -> bool:
        """Whether there was something to do."""
        until = worker.step(self.clock.monotonic(), is_chosen=node.is_chosen)
        return until is None

    # --- misfortune

    def kill(self) -> None:
        node = self.any_node()
        self.note(f"{node.name} is killed")
        self.up(node)._lock_file.release()
        node.files.kill()
        self.open(node)

    def lose_power(self) -> None:
        node = self.any_node()
        self.note(f"{node.name} loses power")
        self.up(node)._lock_file.release()
        node.files.crash(self.rng)
        self.open(node)

    def promote(self) -> None:
        """Anyone may lead, with whatever it has; the old master is not told."""
        self.lead(self.any_node())

    def lead(self, node: Node) -> None:
        self.epoch += 1
        store = self.up(node)
        store.reput.run_once()
        store.become_master(self.epoch)
        node.leads = True
        if store.topics.get("T") is None:
            store.topics.create(TopicConfig("T", 4, 4), self.clock.now_ms())
        self.count("promoted")
        self.note(f"{node.name} leads epoch {self.epoch} from {store.log.wrote.value}")

    def doom_the_archiver(self) -> None:
        self.objects.die_in = self.rng.randint(0, 8)

    def choose(self) -> None:
        """None, one or several believe to be the archiver."""
        for node in self.nodes:
            node.is_chosen = self.rng.random() < 0.5

    def expire(self) -> None:
        """Retention, which does not always wait for the archive."""
        store = self.up(self.any_node())
        files = store.log.files
        known = newest_manifest(self.clean())
        archived = 0 if known is None else known[1].end
        store.persist()
        safe = min(
            store.confirmed.value,
            store.reputed.value,
            store.log.flushed.value,
            store._parts.recovery_point.dispatched,
        )
        if len(files) > 2 and files[0].end <= safe:
            if files[0].end > archived:
                self.count("gaps")
            self.deleted = max(self.deleted, files[0].end)
            store._cleaner.drop_before(files[0].end)

    def sleep(self) -> None:
        self.clock.advance(self.rng.choice((0.3, 1.0, 3.0)))

    # --- checks

    def clean(self) -> FakeObjectStore:
        """The same objects, in a store on a good day."""
        clean = FakeObjectStore()
        clean.objects, clean._modified = self.objects.objects, self.objects._modified
        return clean

    def acknowledged(self, name: ManifestName) -> None:
        self.count("published")
        if self.acked is None or name > self.acked:
            self.acked = name

    def check_published(self, node: Node, manifest: Manifest) -> None:
        """Against the log of the node, before anyone can see it."""
        store = self.up(node)
        if manifest.end > store.confirmed.value or manifest.end > store.log.flushed.value:
            raise ViolationError(f"{node.name} publishes {manifest.end}, which is not confirmed")
        reader = ArchiveReader(self.clean(), manifest)
        for begin, end in manifest.spans():
            low = max(begin, store.log.min_offset)
            try:
                content = reader.read(begin, end)
            except ArchiveError as error:
                raise ViolationError(f"{node.name} publishes what is not there: {error}") from error
            if low < end and content[low - begin :] != log_bytes(store, low, end):
                raise ViolationError(f"{node.name} publishes other bytes than its log has")

    def check(self) -> None:
        """The newest manifest is whole, and no older than the last that was acknowledged."""
        names = [
            name
            for key in self.objects.objects
            if key.startswith(MANIFESTS) and (name := manifest_of(key)) is not None
        ]
        newest = max(names, default=None)
        if self.acked is not None and (newest is None or newest < self.acked):
            raise ViolationError(f"{self.acked.key} was acknowledged, the newest is {newest}")
        if newest is not None:
            self.check_whole(newest)

    def check_whole(self, newest: ManifestName) -> None:
        store = self.clean()
        found = newest_manifest(store)
        if found is None or found[0] != newest:
            raise ViolationError(f"{newest.key} is the newest manifest, and {found} is found")
        missing = {*found[1].keys()} - store.objects.keys()
        if missing:
            raise ViolationError(f"the newest manifest {newest.key} names {missing}: not there")
        if newest == self.checked:
            return
        self.checked = newest
        reader = ArchiveReader(store, found[1])
        try:
            for entry in found[1].segments:
                whole = bytes(reader.segment(entry))
                if reader.read(entry.start, entry.end) != whole:
                    raise ViolationError(f"{entry.name.log_key} has two contents")
            for state in found[1].states:
                reader.state(state)
        except ArchiveError as error:
            raise ViolationError(f"the archive is not whole: {error}") from error

    def finish(self) -> None:
        """No more misfortune: all nodes follow the newest master, and its archiver catches up."""
        self.objects.settle()
        self.objects.trouble = Trouble()
        self.objects.die_in = -1
        master = self.master
        while master is None:
            self.promote()
            master = self.master
        if self.up(master).log_identity.newest[0] < self.epoch:
            self.lead(master)  # the newest master has lost power: no older one leads after it
        for node in self.nodes:
            node.is_chosen = node is master
        self.put()
        store = self.up(master)
        store.flush()
        store.advance_confirmed(store.log.flushed.value)
        for node in self.nodes:
            if node is not master:
                self.follow(node, store, 1 << 30)
        for _ in range(50):
            store.reput.run_once()
        for _ in range(300):
            self.clock.advance(0.05)
            if master.worker is None:
                self.archive()
            elif not self.work(master, master.worker) and self.is_archived(store):
                break
        self.check()
        self.check_all(master)

    def is_archived(self, store: MessageStore) -> bool:
        found = newest_manifest(self.clean())
        if found is None or found[1].epoch != store.log_identity.newest[0]:
            return False  # a dead branch may be as long as the log
        return found[1].end == store.log.wrote.value

    def check_all(self, master: Node) -> None:
        """The archive has the whole log of the master, and what a restore needs beside it."""
        store = self.up(master)
        found = newest_manifest(self.clean())
        archiver = None if master.worker is None else master.worker._archiver
        if found is None or found[1].end != store.log.wrote.value:
            why = None if archiver is None else (archiver.fault, archiver.waits_for)
            raise ViolationError(f"the archive ends at {found and found[1].end}: {why}")
        manifest = found[1]
        reader = ArchiveReader(self.clean(), manifest)
        low = store.log.min_offset
        if manifest.begin > max(low, self.deleted):
            raise ViolationError(f"the archive begins at {manifest.begin}, the log at {low}")
        low = max(low, manifest.begin)
        if reader.read(low, manifest.end) != log_bytes(store, low, manifest.end):
            raise ViolationError("the archive and the log differ")
        if manifest.history.cut_against(store.log_identity.history) < manifest.end:
            raise ViolationError("the archive's history is not the log's")
        begins = range(-(-manifest.begin // 4096) * 4096, manifest.end + 1, 4096)
        for begin in begins:
            if begin and manifest.prologue_at(begin) is None:
                raise ViolationError(f"the archive has no prologue of a log that begins at {begin}")
        state = manifest.state_at(manifest.end)
        if state is None or "topics" not in reader.state(state).tables:
            raise ViolationError("the archive has no tables")
        self.count("archives that are whole")

    def count(self, what: str, number: int = 1) -> None:
        self.counters[what] += number

    def note(self, text: str) -> None:
        self.history.append(f"{self.clock.monotonic():.3f} {text}")

    def describe(self) -> str:
        rows = []
        for node in self.nodes:
            store = self.up(node)
            rows.append(
                f"{node.name}: {store.log.min_offset}..{store.reputed.value}/"
                f"{store.confirmed.value}/{store.log.wrote.value} "
                f"{store.log_identity.history.terms}"
            )
        return "\n".join([*rows, str(dict(self.counters)), *self.history])


def log_bytes(store: MessageStore, start: int, end: int) -> bytes:
    parts = []
    while start < end:
        piece = bytes(store.log.read(start, end - start))
        if not piece:
            break
        parts.append(piece)
        start += len(piece)
    return b"".join(parts)


def play(seed: int, steps: int = STEPS) -> ArchiveWorld:
    """From the first step to the last check. Raises ViolationError with the world's history."""
    with small_world():
        world = ArchiveWorld(seed)
        try:
            world.begin()
            for _ in range(steps):
                world.step()
            world.finish()
        except ViolationError as broken:
            raise ViolationError(f"seed {seed}: {broken}\n{world.describe()}") from broken
        return world
