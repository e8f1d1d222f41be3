"""A log, its replicas and consumers, played at random over the real engine and the real state.

    log       m0 m1 P m2 m3 m4 P m5        m: message of the queue, P: progress record
              durable everywhere ▲    ▲ wrote
                           confirmed

A failover cuts the log anywhere at or above what is confirmed, or what was confirmed and is
replicated (`confirmed`), and begins a new master there. Consumers keep the handles that they have.
"""

import random
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.lease.handle import decode_handles
from tandemlog.format.lease.policy import AckResult, Backoff, GroupPolicy, Ordering
from tandemlog.format.lease.progress import (
    Progress,
    ProgressKind,
    QueueProgress,
    decode_progress,
    encode_progress,
)
from tandemlog_server.storage.leases.handle_operations import Found, Kind, Operation, ToRead
from tandemlog_server.storage.leases.lease_engine import LeaseEngine
from tandemlog_server.storage.leases.lease_values import LeaseLimits, Now
from tandemlog_server.storage.leases.progress_table import ProgressTable
from tandemlog_server.storage.leases.read_batch import ReadBatch
from tandemlog_server.storage.leases.unacked import State

GROUP, TOPIC = "billing", "orders"
QUEUES = 2


@dataclass(frozen=True)
class Message:
    """`name`: no two messages ever have the same."""

    name: int
    queue_id: int
    queue_offset: int
    key: int = 0


@dataclass(frozen=True)
class Told:
    body: bytes


@dataclass
class Delivery:
    message: Message
    handle: bytes
    attempt: int


def plain_batch(
    start: int, end: int, messages: list[tuple[int, Message]], selected: Callable[[Message], bool]
) -> ReadBatch:
    """The batch of these (log offset, message)."""
    chosen = [(at, each) for at, each in messages if selected(each)]

    def column(values: list[int], kind: type) -> NDArray[np.int64]:
        return np.array(values, kind)

    return ReadBatch(
        start,
        end,
        column([each.queue_offset for _, each in chosen], np.int64),
        column([at for at, _ in chosen], np.int64),
        column([each.name for _, each in chosen], np.uint32),  # type: ignore[arg-type]
        column([each.key for _, each in chosen], np.uint32),  # type: ignore[arg-type]
        column([1] * len(chosen), np.int64),
        b"x" * len(chosen),
    )


@dataclass
class LeaseWorld:
    """See the module. `engine_type` is for rules that are switched off."""

    random: random.Random
    policy: GroupPolicy = field(
        default_factory=lambda: GroupPolicy(1_000, Backoff((5, 50)), Ordering.NONE)
    )
    engine_type: type[LeaseEngine] = LeaseEngine
    deliver_unconfirmed: bool = False
    confirming: float = 0.15
    """How often replicas catch up: rarely means that a failover takes more away."""
    failing: float = 0.02
    grace_ms: int = 0
    filtered: Callable[[Message], bool] = lambda message: True

    def __post_init__(self) -> None:
        self.log: list[Message | Told] = []
        self.queues: list[list[tuple[int, Message]]] = [[] for _ in range(QUEUES)]
        self.confirmed = 0
        self.agreed = ProgressTable()
        """What the log below `applied` says."""
        self.applied = 0
        self.now = 1_000
        self.term = 0
        self.names = 0
        self.held: list[Delivery] = []
        self.done: set[int] = set()
        """Names that consumers have ended."""
        self.safe: set[int] = set()
        """Names whose end is confirmed."""
        self.dead: list[int] = []
        self.faults: list[str] = []
        self.begin_term()

    # ---- the log

    def put(self, queue_id: int, key: int = 0) -> None:
        self.names += 1
        message = Message(self.names, queue_id, len(self.queues[queue_id]), key)
        self.queues[queue_id].append((len(self.log), message))
        self.log.append(message)
        if self.deliver_unconfirmed:
            self.grow()

    def queue(self, queue_id: int, limit: int | None = None) -> list[tuple[int, Message]]:
        queue = self.queues[queue_id]
        if limit is None:
            return queue
        return queue[: bisect_left(queue, limit, key=lambda each: each[0])]

    def confirm(self, up_to: int) -> None:
        """Everything below is on every node that can be elected."""
        self.confirmed = max(self.confirmed, up_to)
        for at, said in list(self.writing):
            if at < self.confirmed:
                self.engine.confirmed(said)
                self.writing.remove((at, said))
        for at in range(self.applied, self.confirmed):
            each = self.log[at]
            if isinstance(each, Told):
                self.agreed.apply(decode_progress(each.body), at)
        if self.applied < self.confirmed:
            self._compare()
        self.applied = self.confirmed
        self.grow()

    def _compare(self) -> None:
        """What the confirmed log calls done was ended by a consumer, a filter, or is dead."""
        for (_, queue_id), state in self.agreed.groups.get(GROUP, {}).items():
            for _, message in self.queue(queue_id):
                offset = message.queue_offset
                if offset < state.floor or offset in state.ended:
                    self.safe.add(message.name)
                    if message.name not in self.done and self.filtered(message):
                        self.faults.append(f"message {message.name} is lost: nothing ended it")

    def state(self, limit: int) -> ProgressTable:
        table = ProgressTable()
        for at, each in enumerate(self.log[:limit]):
            if isinstance(each, Told):
                table.apply(decode_progress(each.body), at)
        return table

    def visible(self) -> int:
        return len(self.log) if self.deliver_unconfirmed else self.confirmed

    def grow(self) -> None:
        for queue_id in range(QUEUES):
            self.engine.grew(GROUP, TOPIC, queue_id, 0, len(self.queue(queue_id, self.visible())))

    # ---- masters

    def begin_term(self) -> None:
        self.term += 1
        self.writing: list[tuple[int, list[QueueProgress]]] = []
        limits = LeaseLimits(queue_unacked=8, node_unacked=100, grace_ms=self.grace_ms)
        self.engine = self.engine_type(limits, self.term)
        self.engine.open_group(GROUP, self.policy)
        said = {each.queue_id: each for each in self.state(len(self.log)).of_group(GROUP)}
        ranges = [(0, len(self.queue(each, self.visible()))) for each in range(QUEUES)]
        self.engine.open_topic(GROUP, TOPIC, ranges, said, self.when())

    def fail_over(self) -> None:
        """Another master begins with any log that has what was confirmed."""
        del self.log[self.random.randint(self.confirmed, len(self.log)) :]
        for queue in self.queues:
            del queue[bisect_left(queue, len(self.log), key=lambda each: each[0]) :]
        self.begin_term()
        self.confirm(len(self.log) if self.random.random() < 0.5 else self.confirmed)

    def when(self) -> Now:
        return Now(self.now, 1_000_000 + self.now)

    def write(self) -> None:
        """One progress record, sometimes one that is lost."""
        said = self.engine.collect(self.random.choice((1, 1 << 30)))
        if not said:
            return
        if self.random.random() < 0.2:
            self.engine.put_back(said)
            return
        self.writing.append((len(self.log), said))
        self.log.append(Told(encode_progress(Progress(said))))

    def write_state(self) -> None:
        """Everything, in pieces. Its writer waits until what it wrote is applied."""
        entries = list(self.state(len(self.log)).entries())
        for piece, entry in enumerate(entries):
            state = Progress([entry], ProgressKind.STATE, self.now, piece, len(entries))
            self.log.append(Told(encode_progress(state)))

    def bury(self) -> None:
        for letters in self.engine.take_dead_letters(self.random.randint(1, 3)):
            if self.random.random() < 0.3:
                self.engine.not_buried(letters)
                continue
            queue = self.queue(letters.queue.queue_id)
            for offset in letters.offsets.tolist():
                self.dead.append(queue[offset][1].name)
                self.done.add(queue[offset][1].name)
            self.engine.buried(letters)

    # ---- consumers

    def receive(self, count: int, lease_ms: int = 100) -> list[Delivery]:
        """Everything that one receive gets; checked against what is confirmed as done."""
        self.engine.tick(self.when())
        reading, _ = self.engine.begin(GROUP, [TOPIC], count, "consumer", self.when())
        if reading is None:
            return []
        queue = self.queue(reading.queue.queue_id, self.visible())
        if len(reading.again):
            found = [queue[offset] for offset in reading.again.tolist()]
            found = found[: self.random.randint(1, len(found))]
            first, last = found[0][1].queue_offset, found[-1][1].queue_offset
            batch = plain_batch(first, last + 1, found, self.filtered)
        else:
            end = self.random.randint(reading.start + 1, reading.end)
            batch = plain_batch(reading.start, end, queue[reading.start : end], self.filtered)
        if self.random.random() < 0.1:
            self.engine.abandon(reading, self.when(), self.random.choice((0, 20)))
            return []
        leased = self.engine.finish(reading, batch, lease_ms, self.when())
        if leased is None:
            return []
        got = [
            Delivery(queue[offset][1], leased.handles[64 * row : 64 * row + 64], int(attempt))
            for row, (offset, attempt) in enumerate(
                zip(leased.batch.offsets.tolist(), leased.attempts, strict=True)
            )
        ]
        for each in got:
            if each.message.name in self.safe:
                self.faults.append(f"message {each.message.name} came after its end was confirmed")
        self.held += got
        return got

    def send(self, deliveries: list[Delivery], operation: Operation) -> list[int]:
        """A consumer's word on these deliveries; its answers."""
        handles = decode_handles(b"".join(each.handle for each in deliveries))
        results, unread = self.engine.operate(GROUP, handles, operation, self.when())
        for part in unread:
            results[part.rows] = self.engine.operate_read(
                part, self.found(part), operation, self.when()
            )
        if operation.kind is Kind.ACK:
            for each, result in zip(deliveries, results.tolist(), strict=True):
                # the consumer has done the work of this message, whatever lies there now
                if result in (AckResult.OK, AckResult.ALREADY_DONE):
                    self.done.add(each.message.name)
        return [int(each) for each in results]

    def found(self, part: ToRead) -> Found:
        queue = self.queue(part.queue.queue_id)
        log_offsets, names, keys = [], [], []
        for offset in part.handles["queue_offset"].tolist():
            at, message = queue[offset] if offset < len(queue) else (-1, Message(0, 0, 0))
            log_offsets.append(at)
            names.append(message.name)
            keys.append(message.key)
        return Found(
            np.array(log_offsets, np.int64), np.array(names, np.uint32), np.array(keys, np.uint32)
        )

    # ---- at random

    def step(self) -> None:
        choice = self.random.random()
        if choice < 0.4 - self.confirming:
            self.put(self.random.randrange(QUEUES), self.random.randint(0, 2))
        elif choice < 0.4:
            self.confirm(self.random.randint(self.confirmed, len(self.log)))
        elif choice < 0.55:
            self.receive(self.random.randint(1, 5))
        elif choice < 0.8:
            self._answer()
        elif choice < 0.9:
            self.write()
        elif choice < 0.93:
            self.now += self.random.choice((1, 30, 200))
        elif choice < 0.96:
            self.bury()
        elif choice < 0.965:
            self.write_state()
        elif choice < 0.965 + self.failing:
            self.fail_over()
        self.check()

    def _answer(self) -> None:
        if not self.held:
            return
        held = self.held
        cut = [each for each in held if self._is_cut(each.message)]
        if cut and self.random.random() < 0.7:
            # what makes acknowledgements dangerous: another message lies there now
            held = cut
        chosen = self.random.sample(held, self.random.randint(1, min(3, len(held))))
        kind = self.random.choice((*[Kind.ACK] * 4, *Kind))
        ms = self.random.choice((0, 20, None)) if kind is Kind.RETRY else 60
        self.send(chosen, Operation(kind, ms, self.random.choice(("", "it failed"))))
        if self.random.random() < 0.7:
            self.held = [each for each in self.held if each not in chosen]

    def _is_cut(self, message: Message) -> bool:
        queue = self.queues[message.queue_id]
        return message.queue_offset < len(queue) and queue[message.queue_offset][1] != message

    def check(self) -> None:
        """What the engine counts by itself agrees with its columns."""
        live = 0
        for queue in self.engine.groups.queues(GROUP):
            states = queue.rows.state
            if queue.ready != int((states == State.READY).sum()):
                self.faults.append(f"ready is {queue.ready}")
            if queue.rows.live != int((states != State.GONE).sum()):
                self.faults.append(f"live is {queue.rows.live}")
            offsets = queue.rows.offset
            if len(offsets) > 1 and not (np.diff(offsets) > 0).all():
                self.faults.append("rows do not ascend")
            live += queue.rows.live
        if self.engine.owners.shares.held != live:
            self.faults.append(f"{self.engine.owners.shares.held} rows counted, {live} there")

    def drain(self) -> None:
        """All goes well from now on: everything comes, and is ended."""
        idle = 0
        while idle < 12:
            self.confirm(len(self.log))
            self.now += 1_000
            got = [self.receive(8) for _ in range(4)]
            idle = 0 if any(got) or self.engine.has_news else idle + 1
            for each in got:
                if each:
                    self.send(each, Operation(Kind.ACK))
            self.bury()
            self.write()
            self.check()
        self.write()
        self.confirm(len(self.log))
        for queue_id in range(QUEUES):
            for _, message in self.queue(queue_id):
                if message.name not in self.done and self.filtered(message):
                    self.faults.append(f"message {message.name} never came")
