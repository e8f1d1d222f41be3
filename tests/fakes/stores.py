"""A small store on a disk in memory, driven step by step: no threads, no real time."""

from dataclasses import replace
from pathlib import Path
from random import Random

from fakes.batches import Put, batch_of
from fakes.clock import FakeClock
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.record.record import Record, decode_record
from tandemlog.testing.memory_files import MemoryFiles
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.puts.put_path import PutResult
from tandemlog_server.storage.reads.results import GetResult

DIRECTORY = Path("/store")
CONFIG = StoreConfig(
    directory=DIRECTORY,
    commit_log_file_size=8192,
    queue_file_size=400,
    index_slots=16,
    index_entries=40,
)


class Bench:
    """A store, its disk and its clock; `reopen` closes cleanly, `crash` loses what was not
    fsynced, `kill` loses nothing that was written."""

    def __init__(
        self,
        config: StoreConfig = CONFIG,
        files: MemoryFiles | None = None,
        topics: tuple[str, ...] = ("T",),
    ) -> None:
        self.config = config
        self.files = files if files is not None else MemoryFiles()
        self.clock = FakeClock()
        self.store = self.open()
        for topic in topics:
            if self.store.topics.get(topic) is None:
                self.store.topics.create(TopicConfig(topic, 4, 4), self.clock.now_ms())

    def open(self, **settings: object) -> MessageStore:
        self.config = replace(self.config, **settings)  # type: ignore[arg-type]
        self.store = MessageStore.open(self.config, files=self.files, clock=self.clock)
        return self.store

    def reopen(self, **settings: object) -> MessageStore:
        self.store.close()
        return self.open(**settings)

    def kill(self, **settings: object) -> MessageStore:
        self._abandon()
        self.files.kill()
        return self.open(**settings)

    def crash(self, survivors: Random | None = None, **settings: object) -> MessageStore:
        self._abandon()
        self.files.crash(survivors)
        return self.open(**settings)

    def _abandon(self) -> None:
        """A process that dies gives its lock up."""
        self.store._lock_file.release()

    def put(self, count: int = 1, topic: str = "T", queue_id: int = 0, size: int = 5) -> PutResult:
        """`count` messages into one queue, in one batch; their bodies are numbered."""
        end = self.store.log.wrote.value
        puts = [
            Put(topic, queue_id, b"%d-%d" % (end, number) + b"." * size) for number in range(count)
        ]
        self.clock.advance(0.001)
        return self.store.put(batch_of(puts))

    def put_marked(self, mark: ProducerMark, count: int, queue_id: int = 0) -> PutResult:
        """A request of an idempotent producer; the same mark makes the same request."""
        self.clock.advance(0.001)
        return self.store.put(batch_of(marked(mark, count, queue_id)))

    def settle(self) -> None:
        """Everything durable and dispatched."""
        self.store.flush()
        self.store.reput.run_to()

    def bodies(self, topic: str = "T", queue_id: int = 0) -> list[bytes]:
        """Every message of a queue that consumers see."""
        found: list[bytes] = []
        offset = 0
        while True:
            result = self.store.reader.get(topic, queue_id, offset, 0, 4096)
            if not result.count and result.next_offset <= offset:
                return found
            found += [record.body for record in records_of(result)]
            offset = result.next_offset


def marked(mark: ProducerMark, count: int, queue_id: int = 0) -> list[Put]:
    bodies = [b"%s-%d-%d" % (mark.producer_id.encode(), mark.sequence, n) for n in range(count)]
    first = b"__TL_SEQ\x01%s\x02" % mark.encode().encode()
    return [
        Put("T", queue_id, body, first if number == 0 else b"TAGS\x01a\x02")
        for number, body in enumerate(bodies)
    ]


def records_of(result: GetResult) -> list[Record]:
    """The records of a get, decoded."""
    found, position = [], 0
    for size in result.sizes.tolist():
        found.append(decode_record(result.records, position, limit=position + size))
        position += size
    return found
