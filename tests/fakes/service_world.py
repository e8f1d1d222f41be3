"""A store with every service in use, at random: its folds, and what becomes of their snapshots.

    clients   messages, requests of producers, delayed messages, recalls, halves, decisions
    master    deliveries, progress of groups and their whole state, rolls, what was left to finish
    brokers   records that name nothing: copies that came, halves stored again
    node      dispatch, flush, checkpoint, retention, clocks that are set
    faults    cuts above and below what is confirmed, restarts, kills, power cuts

`check` after any step: whatever the disk holds then is no fault of a snapshot.
"""

from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from fakes.batches import batch_of
from fakes.halves import half_put, put_halves
from fakes.stores import CONFIG, Bench
from fakes.waiting import put_waiting, waiting_put
from tandemlog.format.delay.handle import RecallHandle
from tandemlog.format.lease.progress import QueueProgress
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.transaction.decision import GroupOffset
from tandemlog_server.storage.config import ConfirmSource, RetentionConfig
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.retention.cleaner import Cleaner
from tandemlog_server.storage.services.delay_desk import DelayDesk
from tandemlog_server.storage.services.lease_desk import LeaseDesk
from tandemlog_server.storage.services.transaction_desk import EndRequest, TransactionDesk
from tandemlog_server.storage.tools.faults import Fault, VerifyReport
from tandemlog_server.storage.tools.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

SETTINGS = replace(
    CONFIG,
    commit_log_file_size=16384,
    queue_file_size=4000,
    confirm=ConfirmSource.REPLICATION,
    retention=RetentionConfig(
        reserved_hours=1, delete_hours=tuple(range(24)), delete_batch_max=100
    ),
    producer_retention_ms=3_600_000,
    producer_sequences_kept=3,
)


def of_folds(report: VerifyReport) -> list[Fault]:
    """The faults of snapshots."""
    return [
        each for each in report.faults if "/folds/" in each.file or each.file.endswith("/producers")
    ]


class ServiceWorld:
    """See the module."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench(SETTINGS)
        self.epoch = 0
        self.sequences: dict[str, int] = {}
        self.names = 0
        self.waits: dict[int, str] = {}
        self.compared: set[str] = set()
        self.lead()

    def lead(self) -> None:
        self.epoch += 1
        store = self.bench.store
        store.become_master(self.epoch)
        self.delays, self.leases = DelayDesk(store), LeaseDesk(store)
        self.transactions = TransactionDesk(store)
        for desk in (self.delays, self.leases, self.transactions):
            desk.begin()

    def step(self) -> None:
        actions: dict[Callable[[], object], int] = {
            self.put: 4,
            self.produce: 4,
            self.wait: 4,
            self.deliver: 3,
            self.recall: 2,
            self.roll: 1,
            self.half: 4,
            self.decide: 4,
            self.finish: 3,
            self.set_offsets: 1,
            self.progress: 5,
            self.state: 2,
            self.broker: 2,
            self.pass_time: 3,
            self.confirm: 6,
            self.dispatch: 6,
            self.persist: 4,
            self.clean: 2,
            self.fail_over: 1,
        }
        (action,) = self.random.choices(list(actions), list(actions.values()))
        with suppress(StoreError):
            action()

    def check(self) -> None:
        report = verify(self.bench.config, self.bench.files)
        assert [str(each) for each in of_folds(report)] == []
        self.compared |= report.folds.keys()

    # ---- clients

    def name(self) -> str:
        self.names += 1
        return f"m{self.names}"

    def put(self) -> None:
        self.bench.put(self.random.randint(1, 20), queue_id=self.random.randrange(4), size=100)

    def produce(self) -> None:
        who = f"p{self.random.randrange(4)}"
        sequence = self.sequences.get(who, 0)
        if sequence and self.random.random() < 0.2:
            sequence -= 1  # once more
        try:
            self.bench.put_marked(ProducerMark(who, 0, sequence, 0, count=3), 3)
        except StoreError:
            self.sequences[who] = 0  # cut, or forgotten: it begins again where it may
            raise
        self.sequences[who] = sequence + 1

    def wait(self) -> None:
        name, level = self.name(), 1 + self.random.randrange(5)
        delayed = waiting_put(self.bench, name, delay_ms=self.random.choice([5, 10**7]))
        levelled = waiting_put(self.bench, name, level=level)
        result = put_waiting(self.bench, self.random.choice([delayed, levelled]))
        self.waits[result.segments[0].physical_offset] = name

    def recall(self) -> None:
        """One that waits, or one that was called back before."""
        fold = self.bench.store.delays
        rows = [*fold.rows.below(1 << 62, 100).offsets.tolist(), *fold.recalled]
        known = [each for each in rows if each in self.waits]
        if known:
            offset = self.random.choice(known)
            self.delays.recall(RecallHandle("T", 0, self.waits[offset], offset))

    def half(self) -> None:
        put_halves(self.bench, half_put(self.name(), self.transaction()))

    def transaction(self) -> str:
        return f"tx{self.random.randint(self.names // 12, self.names // 12 + 3)}"

    def decide(self) -> None:
        name = self.transaction()
        if self.random.random() < 0.2:
            self.transactions.give_up(name)
        elif self.random.random() < 0.4:
            self.transactions.roll_back(EndRequest(name))
        else:
            offsets = (GroupOffset("g", "T", self.random.randrange(3), self.random.randrange(99)),)
            self.transactions.commit(
                EndRequest(name, offsets=offsets if self.random.random() < 0.5 else ())
            )

    # ---- a master

    def deliver(self) -> None:
        self.delays.deliver()

    def roll(self) -> None:
        self.delays.roll(self.random.randint(0, self.bench.store.log.wrote.value))

    def finish(self) -> None:
        self.transactions.finish()

    def set_offsets(self) -> None:
        offset = self.random.randint(-1, 99)
        self.transactions.set_offsets([GroupOffset("g", "T", self.random.randrange(3), offset)])

    def progress(self) -> None:
        self.leases.put_progress([self.entry() for _ in range(self.random.randint(1, 3))])

    def entry(self) -> QueueProgress:
        chosen, place = self.random, ("g", "T", self.random.randrange(3))
        if chosen.random() < 0.05:
            return QueueProgress(*place, dropped=True)
        start = chosen.randrange(200)
        tried = np.array(sorted(chosen.sample(range(300), 3)))
        return QueueProgress(
            *place,
            chosen.choice([0, 0, 0, self.epoch % 3]),
            chosen.choice([None, None, chosen.randrange(50)]),
            np.array([start]),
            np.array([start + chosen.randint(1, 9)]),
            tried,
            np.array([chosen.randint(1, 9) for _ in tried], np.uint16),
            np.array([chosen.randrange(1000) for _ in tried]),
            {int(tried[0]): self.name()},
        )

    def state(self) -> None:
        if self.leases.ready and self.leases.has_applied(self.leases.written):
            self.bench.clock.advance(0.001)
            self.leases.put_state(self.bench.clock.now_ms())

    # ---- a broker

    def broker(self) -> None:
        name = f"m{self.random.randint(max(self.names - 5, 0), self.names)}"
        wait = waiting_put(self.bench, name, level=1)
        half = half_put(name, self.transaction(), TRANSACTION_CHECK_TIMES="1")
        chosen = self.random.choice([wait, replace(wait, topic="T", queue_id=0), half])
        self.bench.clock.advance(0.001)
        self.bench.store.put_own(lambda: batch_of([chosen]))

    # ---- the node

    def pass_time(self) -> None:
        self.bench.clock.advance(self.random.choice([0.01, 1, 30, 4000]))

    def confirm(self) -> None:
        store = self.bench.store
        store.flush()
        store.confirmed.advance(self.random.randint(store.confirmed.value, store.log.wrote.value))

    def dispatch(self) -> None:
        for _ in range(self.random.randint(1, 3)):
            self.bench.store.reput.run_once()

    def persist(self) -> None:
        self.bench.store.producers.forget(SETTINGS.producer_retention_ms)
        self.bench.store.persist()

    def clean(self) -> None:
        """Retention, once nothing needs the records of the oldest files any more."""
        store, cleaner = self.bench.store, Cleaner(self.bench.store._parts, lambda _: None)
        cleaner.run(store._write_lock)
        self.bench.clock.advance(4000)
        if self.random.random() < 0.7:
            with suppress(StoreError):
                self.delays.roll(store.log.wrote.value)
                for name, _ in list(store.transactions.transactions()):
                    self.transactions.give_up(name)
            self.settle()
            with suppress(StoreError):
                self.state()
            self.settle()
            store.persist()
        cleaner.run(store._write_lock)

    def settle(self) -> None:
        store = self.bench.store
        for _ in range(3):
            store.flush()
            store.confirmed.advance(store.log.wrote.value)
            store.reput.run_to()
            if not self.transactions.finish():
                return

    def fail_over(self) -> None:
        """Another master, with a log that lacks a part; now and then of what was confirmed."""
        store, chosen = self.bench.store, self.random
        store.become_slave()
        store.flush()
        least = store.confirmed.value
        if chosen.random() < 0.2:
            least = store.log.min_offset
        bounds = self.boundaries(least)
        if chosen.random() < 0.7 and bounds:
            store.truncate(chosen.choice(bounds))
        how = chosen.choice(["stay", "reopen", "kill", "crash", "broken off"])
        confirmed = self.bench.store.confirmed.value
        if how == "broken off":
            self.bench._abandon()
            self.bench.files.crash(chosen)
            self.check()
            self.bench.open()
        elif how != "stay":
            getattr(self.bench, how)()
        store = self.bench.store
        store.confirmed.advance(min(confirmed, store.log.wrote.value))
        self.lead()

    def boundaries(self, least: int) -> list[int]:
        """Where records begin, from `least` on."""
        store = self.bench.store
        source, found, at = store._parts.source, [store.log.wrote.value], store.log.min_offset
        while (batch := source.batch(at, store.log.wrote.value, index=False)).end > at:
            found += batch.columns.physical_offset.tolist()
            at = batch.end
        return [each for each in found if each >= max(least, 1)]
