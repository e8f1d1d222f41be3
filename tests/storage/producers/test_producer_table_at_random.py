"""Producers that repeat what they have no answer for, on a store that is killed, loses power, has a
full disk at any write of any open, and whose clock jumps: what was acknowledged is there once, and
what is known of producers is what the log says."""

import errno
from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from fakes.stores import CONFIG, Bench
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.clock import ACCEPT_JUMP_S
from tandemlog_server.storage.errors import StoreError, StoreReadOnlyError
from tandemlog_server.storage.housekeeping import forget_producers
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.producers.producer_table import ProducerTable

WRITES = ["pwrite", "preallocate", "zero_range", "truncate", "rename", "unlink", "atomic_replace"]


@dataclass
class Client:
    """Sends one request after the other, each as often as it takes."""

    name: str
    counts: list[int] = field(default_factory=list)
    acknowledged: int = 0

    def mark(self, sequence: int) -> ProducerMark:
        return ProducerMark(self.name, 0, sequence, 0, self.counts[sequence], sequence)


class World:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.bench = Bench(replace(CONFIG, buffered=seed % 3 == 1, producer_sequences_kept=8))
        self.clients = [Client(f"c{number}") for number in range(3)]
        self.names = len(self.clients)
        self.gone: list[Client] = []

    @property
    def store(self) -> MessageStore:
        return self.bench.store

    def step(self) -> None:
        random, store = self.random, self.store
        step = random.choice(
            ["put"] * 6 + ["flush", "dispatch", "persist", "again", "jump", "bare", "wait"]
        )
        try:
            if step == "put":
                self.put(random.choice(self.clients))
            elif step == "again":
                self.repeat(random.choice(self.clients))
            elif step == "flush":
                store.flush()
            elif step == "dispatch":
                store.reput.run_to()
            elif step == "persist":
                store.persist()
            elif step == "bare":
                self.bench.put(random.randrange(1, 6), queue_id=1)
            elif step == "jump":
                # the clock alone
                self.bench.clock._now_ms += 8 * 86_400_000
                forget_producers(store._parts)
            elif random.random() < 0.2:
                self.wait()
        except StoreReadOnlyError:
            assert self.bench.files._failures, "the disk is well"

    def put(self, client: Client) -> None:
        """What has no answer yet again, in order, and perhaps one more; answers come by flush."""
        if self.random.random() < 0.6 or not client.counts:
            client.counts.append(self.random.randrange(1, 9))
        for sequence in range(client.acknowledged, len(client.counts)):
            self.bench.put_marked(client.mark(sequence), client.counts[sequence])
        if self.random.random() < 0.5:
            self.store.flush()
            client.acknowledged = len(client.counts)

    def repeat(self, client: Client) -> None:
        """An answer was lost on its way."""
        if client.acknowledged:
            sequence = client.acknowledged - 1
            assert self.bench.put_marked(client.mark(sequence), client.counts[sequence]).duplicate

    def wait(self) -> None:
        """So long that every client has given up, and the store forgets all but the last."""
        for seconds in (ACCEPT_JUMP_S, 8 * 86_400):  # if the clock has jumped, that is the time now
            self.store.clock.now_ms()
            self.bench.clock.advance(seconds)
        self.bench.put(1, queue_id=1)
        self.bench.settle()
        forget_producers(self.store._parts)
        assert len(self.store.producers) == 0
        for client in self.clients:
            self.gone.append(client)
            client.counts = client.counts[: client.acknowledged]
        self.clients = [Client(f"c{self.names + number}") for number in range(3)]
        self.names += 3

    def stop(self) -> None:
        kind = self.random.choice(["close", "kill", "crash", "crash"])
        if kind == "close":
            self.bench.store.close()
        else:
            self.bench._abandon()
            self.bench.files.kill() if kind == "kill" else self.bench.files.crash(self.random)
        if self.random.random() < 0.7:
            times = self.random.choice([1, 2, 1 << 50])
            self.bench.files.fail(
                self.random.choice(WRITES),
                errno.ENOSPC,
                skip=self.random.randrange(12),
                times=times,
            )
        while True:
            try:
                self.bench.open()
                break
            except StoreError:
                assert self.bench.files._failures, "the disk is well"
                self.bench.files.heal()
                if self.random.random() < 0.5:
                    self.bench.files.crash(self.random)
        if self.random.random() < 0.5:
            self.bench.files.heal()

    def check(self) -> None:
        self.bench.files.heal()
        self.store.reput.run_to()
        bodies = Counter(self.bench.bodies())
        assert set(bodies.values()) <= {1}, [body for body, count in bodies.items() if count > 1]
        for client in [*self.gone, *self.clients]:
            for sequence, count in enumerate(client.counts[: client.acknowledged]):
                for number in range(count):
                    assert bodies[b"%s-%d-%d" % (client.name.encode(), sequence, number)] == 1
        made_anew = self.made_anew()
        table = self.store.producers
        assert table.next_offset == made_anew.next_offset
        for name in [f"c{number}" for number in range(self.names)]:
            known = table.describe(name)
            gone = any(client.name == name for client in self.gone)
            assert known == made_anew.describe(name) or (known is None and gone)
            if known is not None:
                key = (known.epoch, known.last_sequence)
                mine, other = (each._producers[name].find(key) for each in (table, made_anew))
                assert mine == other

    def made_anew(self) -> ProducerTable:
        table, source = ProducerTable(), self.store._parts.source
        position, end = self.store.log.min_offset, self.store.confirmed.value
        while position < end:
            batch = source.batch(position, end, index=False)
            each = batch.columns
            table.replay(
                each.physical_offset,
                each.size,
                each.store_timestamp,
                each.producer_marks,
                batch.end,
            )
            position = batch.end
        return table


@pytest.mark.parametrize("seed", range(25))
def test_what_was_acknowledged_is_there_once(seed: int) -> None:
    world = World(seed)
    for _ in range(5):
        for _ in range(world.random.randrange(3, 20)):
            world.step()
        world.stop()
        world.check()
