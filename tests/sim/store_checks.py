"""What a store is asked when the world stands still: on a copy of its disk, so that it may be
opened, promoted, written to and opened again without a change in the world.

    copy ──▶ open ──▶ begin a term ──▶ every fact is there ──▶ producers send again: nothing doubles
         ──▶ a message to every queue: no number is given twice ──▶ dispatched, read, compared
         ──▶ close ──▶ verify: queues and index are those of a fresh rebuild ──▶ opens again
"""

from collections.abc import Iterable
from dataclasses import replace
from random import Random

from fakes.batches import Put, batch_of
from sim.ha_nodes import ViolationError
from sim.store_cluster import StoreCluster, opened
from sim.store_disk import NodeFiles
from sim.store_ledger import Fact, Ledger
from sim.store_nodes import DIRECTORY, NodeClock, StoreNode
from sim.store_requests import Request
from tandemlog.format.errors import FormatError
from tandemlog.format.record.producer_mark import MARK_NAME
from tandemlog_server.ha.errors import HaError
from tandemlog_server.ha.master import term as master_term
from tandemlog_server.ha.replication_file import StateFile
from tandemlog_server.ha.state import decode_state
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.errors import BatchRefusedError, StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig
from tandemlog_server.storage.producers.producer_requests import Resume
from tandemlog_server.storage.producers.producer_table import ProducerTable
from tandemlog_server.storage.puts.retried_requests import mark_of
from tandemlog_server.storage.state_files.recovery_point import RecoveryPointFile
from tandemlog_server.storage.store_paths import StorePaths
from tandemlog_server.storage.tools.verify import verify

CRC_END = 12
"""A record begins with size, magic and the CRC of its body."""
NAMES = (*range(12, 16), *range(20, 28), *range(36, 40))
"""Queue id, queue offset, and the system flag, which says how long the hosts are."""


def check_promotion(
    cluster: StoreCluster,
    node: StoreNode,
    rng: Random,
    *,
    rots: bool = False,
    record: int | None = None,
) -> None:
    """This member of the in-sync set could become master now, with nothing lost; where its disk
    `rots`, nothing but the record that it gives no more: that at log offset `record`, or any."""
    clock = NodeClock(cluster.clock)
    clock.wrong_ms = node.clock.wrong_ms
    files = node.files.copy(clock)
    if node.store is not None and rng.random() < 0.5 and is_durable(cluster, node):
        files.crash(rng)
    promoted = Promoted(cluster, files, clock, node)
    if rots and not promoted.rot(rng, record):
        return
    how = f"{node.name}, promoted with a damaged record" if rots else f"{node.name}, promoted"
    try:
        promoted.run(rng)
    except ViolationError as broken:
        raise ViolationError(f"{how}: {broken}") from broken
    except (StoreError, HaError, FormatError, OSError) as fault:
        raise ViolationError(f"{how}: {fault!r}") from fault


def is_durable(cluster: StoreCluster, node: StoreNode) -> bool:
    """Whether a power cut takes nothing of what others were promised."""
    if cluster.settings.flush is FlushMode.SYNC:
        return True
    assert node.store is not None
    return node.store.log.flushed.value == node.store.log.wrote.value


class Promoted:
    """A copy of a node's disk, as its next master."""

    def __init__(
        self, cluster: StoreCluster, files: NodeFiles, clock: NodeClock, node: StoreNode
    ) -> None:
        self.cluster = cluster
        self.ledger = cluster.ledger
        self.files = files
        self.clock = clock
        self.node = node
        self.damaged: frozenset[int] = frozenset()
        self.store: MessageStore

    def run(self, rng: Random) -> None:
        # what is seen on a copy, clients have not been told: the copy holds what nobody confirmed
        placed = dict(self.ledger.placed)
        try:
            self.open()
            self.check()
            self.send_again()
            self.put_to_every_queue()
            self.settle()
            self.check()
            if rng.random() < 0.5:
                self.store.close()
            else:
                self.files.rest()
            self.reopen()
            self.check()
            self.store.reput.run_to()
            if not self.damaged:
                check_producers(self.store, self.requests(), self.ledger)
            self.store.close()
            if not self.damaged:
                check_derived(self.cluster, self.files)
        finally:
            self.ledger.placed = placed

    def rot(self, rng: Random, record: int | None = None) -> bool:
        """A bit of an acknowledged record changes: of one that is noted as durable, so that it is
        damage and no torn write. False where there is none."""
        paths = StorePaths(DIRECTORY)
        point = RecoveryPointFile(paths.recovery_point, self.files).load()
        begin = self.node.log_begin
        if point is None:
            return False
        facts = sorted(self.ledger.facts)
        facts = [at for at in facts if at >= begin and self.ledger.facts[at].end <= point.flushed]
        if not facts:
            return False
        behind = [at for at in facts if at >= point.dispatched]
        chosen = rng.choice(behind if behind and rng.random() < 0.7 else facts[-4:])
        chosen = chosen if record is None else record
        at = self.told_of(self.ledger.facts[chosen], rng)
        size = self.cluster.settings.commit_log_file_size
        path = paths.commit_log / f"{at - at % size:020d}"
        if self.files.peek(path) is None:
            return False
        self.files.flip(path, at % size, 1 << rng.randrange(8))
        self.damaged = frozenset({at})
        self.cluster.note(
            f"a copy of {self.node.name} has another bit at {at}, in {self.ledger.facts[chosen]}, "
            f"dispatched {point.dispatched}, flushed {point.flushed}"
        )
        return True

    def told_of(self, fact: Fact, rng: Random) -> int:
        """A byte that a check covers: of size, magic, CRC or body; with property_crc any but those
        that say which record it is, and where its parts are. A turned bit in a queue offset makes
        another good record without it (decision 0021)."""
        size = self.cluster.settings.commit_log_file_size
        base = fact.start - fact.start % size
        data = self.files.peek(StorePaths(DIRECTORY).commit_log / f"{base:020d}") or b""
        at, length = data.find(fact.body, fact.start - base, fact.end - base), len(fact.body)
        if at < 0:
            return fact.start + rng.randrange(CRC_END)
        at += base - fact.start
        covered = [*range(CRC_END), *range(at, at + length)]
        if self.cluster.settings.property_crc:
            names = {*NAMES, *range(at - 4, at)}
            mark = data.find(MARK_NAME, fact.start - base, fact.end - base)
            end = at + length + 3 + len(fact.place[0])
            if mark < 0:
                covered += range(end, fact.end - fact.start)
            covered += [each for each in range(CRC_END, at) if each not in names]
        return fact.start + rng.choice((rng.randrange(4), rng.choice(covered)))

    def open(self) -> None:
        store = self.store = opened(self.cluster.settings, self.files, self.clock)
        self.lead()
        self.settle()
        self.cluster.count("damaged promotions" if self.damaged else "promotions checked")
        if not store.writable:
            raise ViolationError(f"it takes no puts: {store.read_only_reason}")

    def lead(self) -> None:
        """In a set of its own: the others are looked at another time."""
        config = replace(self.cluster.config(self.node.name), min_in_sync=1)
        file = StateFile(DIRECTORY, self.files)
        data = self.files.peek(file.path)
        assert data is not None
        master_term.begin_term(self.store, decode_state(data), file.save, config)

    def reopen(self) -> None:
        self.store = opened(self.cluster.settings, self.files, self.clock)
        self.lead()

    def settle(self) -> None:
        self.store.flush()
        self.store.advance_confirmed(self.store.log.wrote.value)
        self.store.reput.run_to()

    def check(self) -> None:
        self.ledger.check_topics(self.store)
        self.ledger.check_log(self.store, self.damaged)
        self.ledger.check_once(self.store, self.damaged)
        self.ledger.check_queues(self.store, self.damaged)

    def send_again(self) -> None:
        """Producers do what they do when an answer is late."""
        refused_of = set()
        for request in self.requests():
            if request.producer in refused_of:
                continue
            try:
                result = self.store.put(request.batch)
            except BatchRefusedError as refused:
                if not self.may_refuse(request, refused):
                    raise ViolationError(f"{request} sent again: {refused}") from refused
                refused_of.add(request.producer)
                continue
            if request.acknowledged and not (result.duplicate or self.damaged):
                raise ViolationError(f"{request} was acknowledged, and is stored again")

    def requests(self) -> list[Request]:
        """Those that may still be sent again, in order."""
        producers = self.cluster.producers
        return [each for producer in producers for each in (*producer.done, *producer.chain)]

    def may_refuse(self, request: Request, refused: BatchRefusedError) -> bool:
        """A producer that is forgotten, or a request that never came; damage takes marks along."""
        if self.damaged or self.cluster.forgets:
            return True
        return not request.acknowledged or refused.code == "UNKNOWN_TOPIC"

    def put_to_every_queue(self) -> None:
        for topic, queue_id in self.ledger.queues():
            if self.store.topics.get(topic) is None:
                self.store.topics.create(TopicConfig(topic, 2, 2), self.clock.now_ms())
            self.cluster.serial += 1
            body = b"x%d|" % self.cluster.serial
            result = self.store.put(batch_of([Put(topic, queue_id, body)]))
            place = (topic, queue_id, int(result.segments[0].queue_offsets[0]))
            self.ledger.see(place, body)


def check_derived(cluster: StoreCluster, files: NodeFiles) -> None:
    """Queues and index are what the log says."""
    report = verify(cluster.settings, files)
    if report.faults:
        raise ViolationError(f"verify: {report.faults[0]}")


def check_producers(store: MessageStore, requests: Iterable[Request], ledger: Ledger) -> None:
    """What the table says of requests that the log holds is what the log says."""
    log, source, table = store.log, store._parts.source, store.producers
    fresh = ProducerTable(kept=store.config.producer_sequences_kept)
    position = log.min_offset
    while position < table.next_offset:
        batch = source.batch(position, table.next_offset, index=False)
        if batch.end == position:
            break
        columns = batch.columns
        fresh.replay(
            columns.physical_offset, columns.size, columns.store_timestamp,
            columns.producer_marks, batch.end,
        )  # fmt: skip
        position = batch.end
    for request in requests:
        if ledger.appended_at.get(request.puts[0].body, -1) < log.min_offset:
            continue
        known, made = said(table, request), said(fresh, request)
        if known != made:
            raise ViolationError(f"of {request} the table says {known}, the log says {made}")


def said(table: ProducerTable, request: Request) -> str:
    """What would be done with the request if it came now."""
    mark = mark_of(request.batch)
    assert mark is not None
    try:
        outcome = table.check(mark, request.batch.count)
    except BatchRefusedError as refused:
        return refused.code
    have = f" {outcome.have}" if isinstance(outcome, Resume) else ""
    return type(outcome).__name__ + have
