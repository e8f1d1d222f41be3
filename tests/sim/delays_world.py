"""Messages that come later, on three replicas under faults: a seeded simulation of real stores.

    client ── send, recall ──▶ master ── log bytes ──▶ slaves ── flushed ──▶ confirmed
                                 │ desk: what is due                crash, power cut, failover,
                                 ▼                                  truncation, checkpoints
                            visible queue ──▶ the checker

The checker knows what clients were told, and what consumers see of whichever node is the master:

    once        no message comes twice
    not early   no message comes before its time by the log's store times
    no return   one whose recall was confirmed never comes
    no loss     one that was confirmed, and that no client tried to call back, has come when the
                faults are over and its time has passed
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from random import Random

from fakes.clock import FakeClock
from fakes.stores import CONFIG, Bench, records_of
from fakes.waiting import put_waiting, waiting_put
from tandemlog.format.delay.handle import RecallHandle, handle_of
from tandemlog.format.record.record import decode_record
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.services.delay_desk import (
    DelayDesk,
    NotReadyError,
    NotWaitingError,
)

NODES = 3
STEPS = 220
DELAYS_MS = (0, 20, 200, 2_000, 8_000)
SIZES = replace(
    CONFIG,
    commit_log_file_size=1 << 20,
    queue_file_size=20 * 2_000,
    confirm=ConfirmSource.REPLICATION,
)


class BrokenPromiseError(AssertionError):
    """What the checker found."""


@dataclass
class Sent:
    """One message, as its client knows it."""

    name: str
    handle: RecallHandle
    due_ms: int
    end: int
    epoch: int
    acked: bool = False
    recall_tried: bool = False
    recall_confirmed: bool = False


@dataclass
class Recalling:
    """A recall that is stored and not confirmed yet."""

    message: Sent
    end: int
    epoch: int


@dataclass(eq=False)
class Replica:
    """A store, and its desk while it leads."""

    bench: Bench
    desk: DelayDesk
    alive: bool = True

    @property
    def end(self) -> int:
        return self.bench.store.log.wrote.value


@dataclass
class World:
    """One run; `play` raises BrokenPromiseError."""

    seed: int
    seen: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)
        self.clock = FakeClock()
        self.replicas = [self._replica() for _ in range(NODES)]
        self.in_sync = set(range(NODES))
        self.epoch = 0
        self.master = 0
        self.sent: dict[str, Sent] = {}
        self.recalls: list[Recalling] = []
        self._lead(0)

    def _replica(self) -> Replica:
        bench = Bench(SIZES)
        bench.clock = self.clock
        store = bench.reopen()
        return Replica(bench, DelayDesk(store))

    # ---- the run

    def play(self) -> Counter[str]:
        steps = [
            (self.send, 6), (self.recall, 4), (self.deliver, 6), (self.replicate, 8),
            (self.confirm, 8), (self.dispatch, 5), (self.wait, 5), (self.persist, 2),
            (self.crash, 1), (self.come_back, 2), (self.fail_over, 1),
        ]  # fmt: skip
        for _ in range(STEPS):
            step = self.rng.choices([each for each, _ in steps], [weight for _, weight in steps])[0]
            step()
            self.check()
        self.calm()
        return self.seen

    def calm(self) -> None:
        for _ in range(NODES):
            self.come_back()
        for _ in range(NODES + 2):
            # every node leads once more: none may have forgotten what waits
            self._lead_of_calm()
            self.check()
            self.fail_over()
            self.clock.advance(100.0)
        self._lead_of_calm()
        visible = self.visible()
        for each in self.sent.values():
            if each.acked and not each.recall_tried and each.name not in visible:
                raise self.broken(f"{each.name} was confirmed and has not come")
        self.seen["came"] += len(visible)

    def _lead_of_calm(self) -> None:
        for _ in range(6):
            self.replicate(everything=True)
            self.confirm()
            self.dispatch()
            while self.leader.desk.deliver():
                pass

    @property
    def leader(self) -> Replica:
        return self.replicas[self.master]

    def note(self, text: str) -> None:
        self.notes.append(text)

    def broken(self, text: str) -> BrokenPromiseError:
        return BrokenPromiseError("\n".join([*self.notes[-40:], f"seed {self.seed}: {text}"]))

    # ---- clients

    def send(self) -> None:
        name = f"m{len(self.sent)}"
        delay_ms = self.rng.choice(DELAYS_MS)
        bench = self.leader.bench
        result = put_waiting(bench, waiting_put(bench, name, delay_ms=delay_ms))
        due_ms = result.store_timestamp + delay_ms
        handle = handle_of("T", due_ms, name, result.segments[0].physical_offset)
        self.sent[name] = Sent(name, handle, due_ms, result.end_offset, self.epoch)
        self.note(f"send {name} due {due_ms} at {handle.log_offset}")

    def recall(self) -> None:
        known = [each for each in self.sent.values() if each.acked]
        if not known:
            return
        message = self.rng.choice(known[-12:])
        try:
            recalled = self.leader.desk.recall(message.handle)
        except NotReadyError:
            self.seen["not ready"] += 1
            return
        except NotWaitingError:
            self.seen["came before its recall"] += 1
            return
        self.seen["recalls"] += 1
        message.recall_tried = True
        self.recalls.append(Recalling(message, recalled.end_offset, self.epoch))
        self.note(f"recall {message.name} until {recalled.end_offset}")

    # ---- nodes

    def deliver(self) -> None:
        count = self.leader.desk.deliver()
        self.seen["deliveries"] += count
        if count:
            self.note(f"deliver {count} on {self.master} up to {self.leader.end}")

    def wait(self) -> None:
        self.clock.advance(self.rng.choice([0.001, 0.05, 0.5, 3.0]))

    def persist(self) -> None:
        replica = self.rng.choice([each for each in self.replicas if each.alive])
        replica.bench.store.persist()

    def dispatch(self) -> None:
        for replica in self.replicas:
            if replica.alive and (replica is self.leader or self.rng.random() < 0.5):
                replica.bench.store.reput.run_to()

    def replicate(self, *, everything: bool = False) -> None:
        log = self.leader.bench.store.log
        for number, replica in enumerate(self.replicas):
            if number == self.master or not replica.alive:
                continue
            room = log.wrote.value - replica.end
            if room > 0:
                count = room if everything else self.rng.randint(1, room)
                data = bytes(log.read(replica.end, count))
                replica.bench.store.append_raw(replica.end, data)
            replica.bench.store.flush()
            if replica.end == log.wrote.value:
                self.in_sync.add(number)

    def confirm(self) -> None:
        self.leader.bench.store.flush()
        members = [self.replicas[number] for number in self.in_sync]
        if any(not each.alive for each in members):
            return
        confirmed = min(each.bench.store.log.flushed.value for each in members)
        for replica in self.replicas:
            if replica.alive:
                replica.bench.store.advance_confirmed(confirmed)
        reached = self.leader.bench.store.confirmed.value
        for each in self.sent.values():
            if each.epoch == self.epoch and each.end <= reached:
                each.acked = True
        for recalling in [each for each in self.recalls if each.end <= reached]:
            self.recalls.remove(recalling)
            recalling.message.recall_confirmed = True
            self.seen["recalls confirmed"] += 1

    def crash(self) -> None:
        number = self.rng.randrange(NODES)
        replica = self.replicas[number]
        if not replica.alive or sum(each.alive for each in self.replicas) == 1:
            return
        if self.in_sync == {number}:
            return
        self.seen["crashes"] += 1
        replica.alive = False
        self.in_sync.discard(number)
        self.note(f"crash {number}")
        if number == self.master:
            self.fail_over()

    def come_back(self) -> None:
        for replica in self.replicas:
            if replica.alive:
                continue
            how = replica.bench.crash if self.rng.random() < 0.7 else replica.bench.kill
            replica.desk = DelayDesk(how())
            replica.bench.store.become_slave()
            replica.alive = True
            self._join(replica)
            return

    def fail_over(self) -> None:
        able = [n for n in sorted(self.in_sync) if self.replicas[n].alive and n != self.master]
        if not able:
            return
        self.seen["failovers"] += 1
        old = self.leader
        if old.alive:
            old.desk.end()
            old.bench.store.become_slave()
            self.in_sync.discard(self.master)
        self._lead(self.rng.choice(able))
        for replica in self.replicas:
            if replica.alive and replica is not self.leader:
                self._join(replica)

    def _lead(self, number: int) -> None:
        self.master, self.epoch = number, self.epoch + 1
        self.in_sync.add(number)
        for recalling in self.recalls:
            self.seen["recalls in doubt"] += 1
            self.note(f"in doubt: the recall of {recalling.message.name}")
        self.recalls.clear()
        store = self.leader.bench.store
        store.become_master(self.epoch)
        self.leader.desk.begin()
        self.note(f"epoch {self.epoch}: {number} leads from {self.leader.end}")

    def _join(self, replica: Replica) -> None:
        """Cut what the master does not have."""
        mine = bytes(replica.bench.store.log.read(0, replica.end)) if replica.end else b""
        theirs = bytes(self.leader.bench.store.log.read(0, self.leader.end))
        cut, position = 0, 0
        while position < min(len(mine), len(theirs)):
            size = decode_record(theirs, position).size
            if mine[position : position + size] != theirs[position : position + size]:
                break
            cut = position = position + size
        if cut < replica.end:
            self.seen["cuts"] += 1
            self.note(f"cut {self.replicas.index(replica)} at {cut}")
            replica.bench.store.truncate(cut)

    # ---- the checker

    def visible(self) -> dict[str, int]:
        """What consumers of the master see: name -> store time."""
        found: dict[str, int] = {}
        result = self.leader.bench.store.reader.get("T", 0, 0, 0, 1 << 20)
        for record in records_of(result) if result.count else []:
            name = record.body.decode()
            if name in found:
                raise self.broken(f"{name} came twice")
            found[name] = record.store_timestamp
        return found

    def check(self) -> None:
        for name, store_timestamp in self.visible().items():
            message = self.sent[name]
            if store_timestamp < message.due_ms:
                raise self.broken(f"{name} came {message.due_ms - store_timestamp} ms early")
            if message.recall_confirmed:
                raise self.broken(f"{name} came although its recall was confirmed")


def play(seed: int) -> Counter[str]:
    return World(seed).play()
