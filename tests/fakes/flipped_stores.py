"""A small store with everything in it, of which one byte is turned; and what must still hold.

    base     a few KB on a disk in memory: three topics, keys, tags, requests of a producer, a file
             of the log that ends in a BLANK, two terms, consumer offsets, several index files, a
             queue of which the log has nothing any more
    turned   a copy of its files in which one byte is another

What is served from a turned store is the right message or none: the payload of each (topic, queue,
number) is known. What is not served must be named, by an error or by `verify`.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from fakes.batches import Put, batch_of
from fakes.clock import FakeClock
from fakes.stores import DIRECTORY
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.record.record import Record, decode_record
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.reads.results import GetStatus, NoRecordError
from tandemlog_server.storage.state_files.queue_begins import QueueBegins
from tandemlog_server.storage.tools.faults import VerifyReport
from tandemlog_server.storage.tools.verify import verify

CONFIG = StoreConfig(
    directory=DIRECTORY,
    commit_log_file_size=4096,
    queue_file_size=100,
    index_slots=4,
    index_entries=24,
)
TOPICS = ("orders", "audit", "x")
TURNS = 7
LONG = b"." * 1500
"""What makes the log go on in a second file; of all else in it are a few KB."""
IDLE = ("idle", 0, 7)
"""Topic, queue id and number of a queue whose records had all expired before this log begins."""
STRETCH = 32
BLANK_HEAD = 8
CHECKPOINT_USED = 48
Place = tuple[Path, int, int]
"""File, position, and how many bytes from there on are turned."""
Where = tuple[str, int, int]
"""Topic, queue id and queue offset of a message."""


@dataclass
class Base:
    """The whole store: its files, and each message by its place."""

    config: StoreConfig
    contents: dict[Path, bytes]
    records: dict[Where, bytes]
    offsets: dict[Where, int] = field(default_factory=dict)
    """Where each record lies in the log."""
    spans: list[tuple[int, int]] = field(default_factory=list)
    """Where each record begins and ends in the log."""
    texts: dict[Where, int] = field(default_factory=dict)
    """Where the properties of each record begin, counted from the record."""
    has_idle: bool = False

    def places(self, *folders: str) -> Iterator[Place]:
        """Every byte of every file below these, or of all files; those that hold nothing, and of
        the long body, in stretches whose bytes are all turned at once."""
        for path, data in sorted(self.contents.items()):
            name = str(path.relative_to(DIRECTORY))
            if folders and not name.startswith(folders):
                continue
            at = 0
            while at < len(data):
                count = 1
                while count < STRETCH and self._are_alike(path, at, count + 1):
                    count += 1
                yield path, at, count
                at += count

    def _are_alike(self, path: Path, at: int, count: int) -> bool:
        end = at + count
        data = self.contents[path][at:end]
        if len(data) < count or data in LONG:
            return len(data) == count
        if path.name == "checkpoint":
            return at >= CHECKPOINT_USED
        if path.parent.name != "commitlog":
            return False
        first, last = int(path.name) + at, int(path.name) + end
        if any(at < last and first < end for at, end in self.spans):
            return False
        return first >= max((end for end in self.ends if end <= first), default=0) + BLANK_HEAD

    @property
    def ends(self) -> list[int]:
        """Where each record ends in the log."""
        return [end for _, end in self.spans]

    def turned(self, path: Path, at: int, mask: int, count: int = 1) -> MemoryFiles:
        """With `count` bytes turned from there on."""
        files = MemoryFiles()
        for each, data in self.contents.items():
            files.make_directory(each.parent)
            handle = files.open(each, create=True)
            if each == path:
                turned = bytes(byte ^ mask for byte in data[at : at + count])
                data = data[:at] + turned + data[at + count :]
            files.pwrite(handle, data, 0)
            files.close(handle)
        return files


def base_store(*, clean: bool, property_crc: bool = False) -> Base:
    """Filled and stopped, its log beginning at 0; or killed in the middle of its work, its log
    beginning later, as one does that was copied from another node."""
    config = replace(CONFIG, property_crc=property_crc)
    files, clock = MemoryFiles(), FakeClock()
    store = MessageStore.open(config, files=files, clock=clock)
    if not clean:
        topic, queue_id, number = IDLE
        start = 5 * config.commit_log_file_size
        store.reset(start)
        begins = QueueBegins(start, {topic: {queue_id: number}}).encode()
        producers = store.producers.snapshot().encode()
        store.take_prologue(len(begins).to_bytes(8) + begins + producers)
    store.epochs.append(EpochEntry(1, store.log.wrote.value))
    for topic in TOPICS:
        store.topics.create(TopicConfig(topic, 2, 2), clock.now_ms())
    numbers = random.Random(7)
    for turn in range(TURNS):
        clock.advance(1.5)
        puts = [
            Put(
                topic,
                numbers.randrange(2),
                b"%s body %d %d" % (topic.encode(), turn, number)
                + (LONG if (turn, number) == (4, 1) else b""),
                b"KEYS\x01k%d\x02TAGS\x01%s\x02" % (turn % 3, b"ab"[number % 2 :][:1]),
            )
            for number, topic in enumerate(TOPICS)
        ]
        if turn in (2, 5):
            mark = ProducerMark("producer", 1, int(turn == 5), 0, len(puts))
            head = b"__TL_SEQ\x01%s\x02" % mark.encode().encode()
            puts[0] = replace(puts[0], properties=head + puts[0].properties)
        store.put(batch_of(puts))
        store.reput.run_to() if not clean or turn % 2 else None
        if turn == 3:
            store.flush()
            store.epochs.append(EpochEntry(2, store.log.wrote.value))
            store.consumer_offsets.commit("g", "orders", 0, 1)
            store.consumer_offsets.save(clock.now_ms())
    store.flush()
    store.reput.run_to()
    if clean:
        store.close()
    else:
        store.persist()
        store.persist()  # the table of producers that one finds may be of the save before
        store._lock_file.release()
        files.kill()
    contents = {path: bytes(files.content(path)) for path in sorted(_files_below(files, DIRECTORY))}
    base = Base(config, contents, {}, has_idle=not clean)
    found = Served(base, files)
    assert not found.named, found.named
    assert len(found.messages) == TURNS * len(TOPICS)
    for where, data in found.messages.items():
        record = decode_record(data)
        base.records[where] = data
        base.offsets[where] = record.physical_offset
        base.spans.append((record.physical_offset, record.physical_offset + record.size))
        base.texts[where] = len(data) - len(record.properties_raw)
    return base


def _files_below(files: MemoryFiles, folder: Path) -> Iterator[Path]:
    for name in files.listdir(folder):
        status = files.status(folder / name)
        if status is not None and status.is_directory:
            yield from _files_below(files, folder / name)
        else:
            yield folder / name


class Served:
    """Everything that a store gives when all of it is asked for, and what it names: `messages` by
    the place that a reader asked for, `named` errors, damages and notes in words."""

    def __init__(self, base: Base, files: MemoryFiles) -> None:
        self.base = base
        self.messages: dict[Where, bytes] = {}
        self.named: list[str] = []
        self.wrong: list[str] = []
        # records that were served with other bytes than they were stored with
        self.altered: set[bytes] = set()
        self.idle = IDLE[2]
        try:
            store = MessageStore.open(base.config, files=files, clock=FakeClock())
        except StoreError as fault:
            self.opened = False
            self.named.append(str(fault))
            return
        self.opened = True
        try:
            report = store.recovery
            self.named += report.notes
            self.named += [str(each) for each in report.damages]
            self.named += [f"{name}: {why}" for name, why in report.queues_rebuilt.items()]
            for topic in TOPICS:
                for queue_id in range(2):
                    self._pull(store, topic, queue_id)
            self._ask_otherwise(store)
            if base.has_idle:
                self._ask_idle(store)
            self.named += [str(each) for each in store._parts.source.passed.values()]
        finally:
            store._lock_file.release()

    def _pull(self, store: MessageStore, topic: str, queue_id: int) -> None:
        offset = 0
        for _ in range(100):
            try:
                found = store.reader.get(topic, queue_id, offset, 0, 1 << 20)
            except StoreError as fault:
                self.named.append(str(fault))
                try:
                    store.reput.run_to()
                except StoreError as stopped:
                    self.named.append(str(stopped))
                    return
                continue
            if found.status is GetStatus.OFFSET_TOO_SMALL:
                self.named.append(f"{topic}/{queue_id}: begins at {found.min_offset}")
            position, number = 0, offset
            for size in found.sizes.tolist():
                data = bytes(found.records[position : position + size])
                position += size
                number = self._take(topic, queue_id, data, number)
            if found.next_offset <= offset:
                return
            offset = found.next_offset
        self.wrong.append(f"{topic}/{queue_id}: pulling comes to no end")

    def _take(self, topic: str, queue_id: int, data: bytes, number: int) -> int:
        try:
            record = decode_record(data)
        except CorruptRecordError as fault:
            self.named.append(f"client: {fault}")  # as the client's decoder says it
            return number + 1
        if record.queue_offset < number:
            self.wrong.append(f"{topic}/{queue_id}: {record.queue_offset} comes after {number}")
        self._hold(topic, queue_id, record, data)
        return record.queue_offset + 1

    def _hold(self, topic: str, queue_id: int, record: Record, data: bytes) -> None:
        where = (topic, queue_id, record.queue_offset)
        self.messages.setdefault(where, data)
        right = self.base.records.get(where)
        if (record.topic, record.queue_id) != (topic, queue_id):
            self.wrong.append(f"{where}: served is one of {record.topic}/{record.queue_id}")
        elif self.base.records and right is None:
            self.wrong.append(f"{where}: served is a message that nobody sent")

    def _ask_otherwise(self, store: MessageStore) -> None:
        """By key, by position and by time: what comes is right, or an error."""
        for topic in TOPICS:
            for key in ("k0", "k1", "k2"):
                try:
                    found = store.reader.query_key(topic, key, max_messages=0)
                except StoreError as fault:
                    self.named.append(str(fault))
                    continue
                for data in found.records:
                    record = decode_record(data)
                    if key not in (record.keys or "").split():
                        self.wrong.append(f"key {key} of {topic} finds another message")
                    self._known(data)
            for queue_id in range(2):
                for boundary in Boundary:
                    try:
                        store.reader.search_offset(topic, queue_id, 1, boundary)
                    except StoreError as fault:
                        self.named.append(str(fault))
        for offset in self.base.offsets.values():
            try:
                self._known(store.reader.record_at(offset))
            except (NoRecordError, StoreError) as fault:
                self.named.append(str(fault))

    def _ask_idle(self, store: MessageStore) -> None:
        """The number that the next message of a queue gets which has none in this log."""
        topic, queue_id, number = IDLE
        dense = store.queue_table.get(topic, queue_id)
        self.idle = 0 if dense < 0 else int(store.queue_table.next_queue_offsets[dense])
        if self.idle > number:
            self.wrong.append(f"{topic}/{queue_id} goes on at {self.idle}, it stood at {number}")

    def _known(self, data: bytes) -> None:
        if self.base.records and data not in self.base.records.values():
            self.altered.add(data)

    def altered_in_queues(self) -> list[Where]:
        known = self.base.records
        return [where for where, data in self.messages.items() if data != known.get(where)]

    def missing(self) -> list[Where]:
        return sorted(self.base.records.keys() - self.messages.keys())


def verified(base: Base, files: MemoryFiles) -> VerifyReport:
    return verify(base.config, files)
