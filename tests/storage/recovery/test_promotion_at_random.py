"""Random lives of two stores that follow and lead in turn, with crashes, retention, resyncs and
damaged bytes: (queue, queue offset) names one message for ever, and what every in-sync store had is
there once, except what damage has taken."""

from dataclasses import replace
from random import Random

import pytest

from fakes.stores import CONFIG, Bench, records_of
from tandemlog.format.files.epochs import EpochTable
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import DamagedChunkError, StoreBusyError
from tandemlog_server.storage.retention.cleaner import Cleaner

QUEUES = 4
REPLICATED = replace(CONFIG, confirm=ConfirmSource.REPLICATION)


class Pair:
    """A master and a slave that holds a beginning of its log; what was acknowledged was on both."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.master, self.slave = Bench(REPLICATED), Bench(REPLICATED, topics=())
        self.epoch, self.count = 1, 0
        self.named: dict[tuple[int, int], bytes] = {}
        self.master.store.become_master(1)
        self.follow()

    def put(self) -> None:
        # some queues are used rarely, so that they expire
        queue_id = min(int(self.random.expovariate(1.2)), QUEUES - 1)
        self.master.put(self.random.randrange(1, 9), queue_id=queue_id, size=30)

    def follow(self, whole: bool = True) -> None:
        """The slave takes the master's log, and both confirm what is durable on both."""
        master, slave = self.master.store, self.slave.store
        if slave.log.wrote.value < master.log.min_offset or slave.needs_prologue:
            self.reset(master.log.min_offset)
            slave.take_prologue(master.prologue(master.log.min_offset))
        slave.topics.replace_from_json(master.topics.to_json())
        end = master.log.committed.value
        if not whole:
            end = self.random.randrange(slave.log.wrote.value, end + 1)
        self.copy(end)
        confirmed = min(slave.flush(), master.flush())
        for store in (master, slave):
            store.advance_confirmed(confirmed)
            store.reput.run_to()
        self.look(self.master)
        self.look(self.slave)

    def copy(self, end: int) -> None:
        """The master's bytes come as over a stream, and damage in them by the master's word."""
        master, slave = self.master.store, self.slave.store
        intake, position, damaged_until = slave.raw_intake(), slave.log.wrote.value, 0
        file_size = master.log.file_size
        while position < end:
            entry = master.epochs.table.entry_at(position)
            assert entry is not None
            last = slave.epochs.table.last
            if last is None or last.epoch < entry.epoch:
                slave.epochs.append(entry)
            stop = master.epochs.table.end_of(position) or end
            stop = min(stop, end, position - position % file_size + file_size)
            size = min(self.random.randrange(1, 2000), stop - position)
            try:
                intake.take(position, bytes(master.log.read(position, size)), damaged_until)
                position += size
            except DamagedChunkError:
                position = slave.log.wrote.value
                damaged_until = master.damage_end(position)
                assert damaged_until > position
                slave.pass_over(position, damaged_until)
                intake = slave.raw_intake()

    def look(self, bench: Bench) -> None:
        """Whatever a consumer is given under a number is what it was the first time."""
        for queue_id in range(QUEUES):
            offset = 0
            while True:
                try:
                    result = bench.store.reader.get("T", queue_id, offset, 0, 4096)
                except StoreBusyError:
                    bench.store.reput.run_to()
                    continue
                for record in records_of(result):
                    key = (queue_id, record.queue_offset)
                    assert self.named.setdefault(key, record.body) == record.body, key
                if result.next_offset <= offset:
                    break
                offset = result.next_offset

    def crash(self, bench: Bench) -> None:
        master = bench is self.master
        how = self.random.choice(["kill", "crash", "reopen"])
        if how == "crash":
            bench.crash(self.random)
        else:
            bench.kill() if how == "kill" else bench.reopen()
        if master:
            # the acknowledged part is durable: the rest may be gone on one of the two
            self.lead(bench)

    def lead(self, bench: Bench) -> None:
        """`bench` is the master from now on, the other one follows from what both have."""
        other = self.slave if bench is self.master else self.master
        self.epoch += 1
        if other is self.master:
            other.store.become_slave()
        bench.store.become_master(self.epoch)
        point = other.store.epochs.table.find_consistent_point(
            other.store.log.wrote.value, bench.store.epochs.table, bench.store.log.wrote.value
        )
        self.master, self.slave = bench, other
        if point is not None and point < other.store.log.wrote.value:
            assert point >= other.store.confirmed.value
            other.store.truncate(point)
        elif point is None and other.store.log.wrote.value > other.store.log.min_offset:
            self.reset(0)

    def expire(self, bench: Bench) -> None:
        files = bench.store.log.files
        if len(files) > 1:
            cleaner = Cleaner(bench.store._parts, sleep=lambda _: None)
            last = files[self.random.randrange(1, len(files))].base
            if self.random.random() < 0.5:
                bench.store.persist()
            cleaner.drop_before(min(last, bench.store._parts.recovery_point.dispatched))

    def reset(self, offset: int) -> None:
        self.slave.store.reset(offset)
        self.slave.store.epochs.replace(EpochTable(()))

    def spoil(self) -> None:
        """A byte of the head of a message turns on one of the two, which then leads or goes on."""
        bench = self.random.choice([self.master, self.slave])
        store = bench.store
        self.follow()
        for each in (self.master, self.slave):
            each.store.persist()
        units = [
            (queue_id, int(unit["physical_offset"]))
            for queue_id in range(QUEUES)
            if (dense := store.queue_table.get("T", queue_id)) >= 0
            for unit in store.queues.read(dense, store.queues.min_offset(dense), 1000)
            if unit["physical_offset"] >= store.log.min_offset and unit["size"] < 1 << 20
        ]
        if not units:
            return
        _, start = self.random.choice(units)
        file = store.log.mapped.find(start)
        assert file is not None
        field = self.random.choice([*range(8), *range(28, 36)])
        bench.files.content(file.path)[start - file.base + field] ^= 1 << self.random.randrange(8)
        self.look(bench)


@pytest.mark.parametrize("damage", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_number_names_one_message_for_ever(seed: int, damage: bool) -> None:
    pair = Pair(seed)
    random = pair.random
    for _ in range(60):
        step = random.choice(
            ["put"] * 8 + ["follow"] * 4 + ["part", "crash", "crash", "lead", "expire", "expire"]
            + ["resync"] + ["spoil"] * (2 * damage)
        )  # fmt: skip
        if step == "put":
            for _ in range(random.randrange(1, 12)):
                pair.put()
        elif step == "follow":
            pair.follow()
        elif step == "part":
            pair.follow(whole=False)
        elif step == "crash":
            pair.crash(random.choice([pair.master, pair.slave]))
        elif step == "lead":
            # by hand, and only one that has everything that was acknowledged
            pair.follow()
            pair.lead(pair.slave)
        elif step == "expire":
            pair.expire(random.choice([pair.master, pair.slave]))
        elif step == "resync" and not damage:
            # a slave that takes damaged bytes from the only copy is another story
            pair.follow()
            pair.reset(0)
        elif step == "spoil":
            pair.spoil()
    pair.follow()
    pair.lead(pair.slave)
    for queue_id in range(QUEUES):
        for _ in range(2):
            pair.master.put(queue_id=queue_id)
    pair.follow()
    for bench in (pair.master, pair.slave):
        assert bench.store.failure is None
