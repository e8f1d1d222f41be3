"""Work queues and transactions in the world of real stores, with the node's own services.

    groups      receive ──▶ ack, retry, release, extend, reject   without order, by queue, by key
    producer    halves ──▶ commit (with offsets), roll back, or nothing until somebody asks

Whoever becomes master begins with what its log says. Clients go on with what they have: handles of
masters that died, requests whose answer never came. What they were promised stands in
work_promises.py and transaction_promises.py.
"""

from dataclasses import dataclass
from functools import partial

from fakes.batches import Put
from fakes.halves import half_put
from sim.ha_nodes import ViolationError
from sim.services_nodes import is_of_a_client
from sim.services_process import ServicesProcess
from sim.store_ledger import Ledger, Place, Queue, records_of, told
from sim.store_nodes import HOUR_S, StoreNode
from sim.store_requests import Producer, Request
from sim.transaction_promises import OFFSETS_GROUP, Transaction, TransactionPromises
from sim.work_clients import SHARDING_KEY, WorkClients
from tandemlog.format.constants import HALF_TOPIC
from tandemlog.format.record.record import Record
from tandemlog.format.transaction.decision import GroupOffset
from tandemlog.v1 import broker_pb2
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.services.transaction_desk import EndRequest
from tandemlog_server.storage.services.transaction_errors import (
    TransactionDecidedError,
    UnknownTransactionError,
)

PRODUCERS = "producers"
ROUNDS = 80
RETENTION_ROUNDS = 12


class ServicesLedger(Ledger):
    """Halves and dead letters have the bodies of messages."""

    def __init__(self, promises: TransactionPromises) -> None:
        super().__init__()
        self._promises = promises

    def counts(self, record: Record) -> bool:
        return is_of_a_client(record)

    def queues(self) -> list[Queue]:
        """Without that of halves, where a put must say whose it is."""
        return [queue for queue in super().queues() if queue[0] != HALF_TOPIC]

    def see(self, place: Place, body: bytes) -> None:
        super().see(place, body)
        if place[0] != HALF_TOPIC:
            self._promises.see(place, body)


@dataclass(eq=False)
class Decision:
    """One that waits for its confirmation: in the master's life, up to there in the log."""

    life: int
    end_offset: int
    transaction: Transaction
    committed: bool


class ServicesWorld(WorkClients):
    """See the module."""

    def __init__(
        self, seed: int, settings: StoreConfig | None = None, size: int | None = None
    ) -> None:
        super().__init__(seed, settings, size)
        self.promises = TransactionPromises()
        self.ledger: Ledger = ServicesLedger(self.promises)
        self.decisions: list[Decision] = []
        self.producers.append(Producer("halves"))
        self.events += [(14.0, self.put), (10.0, self.end_one), (2.0, self.answer_checks)]
        self.total = sum(weight for weight, _ in self.events)

    # --- producers

    def some_puts(self, producer: Producer) -> list[Put]:
        if producer.name == "halves":
            return self.some_halves()
        shard = f"{SHARDING_KEY}\x01s{self.rng.randrange(3)}\x02".encode()
        return [
            Put(each.topic, each.queue_id, each.body, each.properties + shard)
            for each in super().some_puts(producer)
        ]

    def some_halves(self) -> list[Put]:
        known = self.promises.transactions
        open_ones = [each for each in known.values() if each.wanted is None and not each.lost]
        if open_ones and self.rng.random() < 0.5:
            mine = self.rng.choice(open_ones)
        else:
            mine = known[f"tx{len(known)}"] = Transaction(f"tx{len(known)}")
        puts = []
        for number in range(self.rng.choice((1, 1, 2, 4))):
            topic, queue_id = self.rng.choice(self.busy_topics()), self.rng.randrange(2)
            name = f"h{self.serial}.{number}"
            half = half_put(name, mine.name, topic=topic, queue_id=queue_id, group=PRODUCERS)
            body = f"{name}|".encode() + b"." * self.rng.choice((0, 20, 200, 700))
            mine.sent[body] = topic
            self.promises.of_body[body] = mine
            puts.append(Put(half.topic, half.queue_id, body, half.properties))
        return puts

    def refused(self, producer: Producer, request: Request, why: BatchRefusedError) -> None:
        if producer.name != "halves" or request.acknowledged:
            super().refused(producer, request, why)
            return
        topics = {self.promises.of_body[put.body].sent[put.body] for put in request.puts}
        if why.code == "UNKNOWN_TOPIC":
            for topic in sorted(topics):
                if self.master.store.topics.get(topic) is None:
                    self.create_topic(topic)
        elif why.code == "TRANSACTION_DECIDED":
            for put in request.puts:
                self.promises.of_body[put.body].lost = True
            producer.chain.remove(request)
            producer.renumber = True
            self.count("too late for a transaction")
        else:
            super().refused(producer, request, why)

    def is_stored(self, transaction: Transaction) -> bool:
        """Whether every message of it is acknowledged."""
        acknowledged = {fact.body for fact in self.ledger.facts.values()}
        transaction.bodies = {body for body in transaction.sent if body in acknowledged}
        return len(transaction.bodies) == len(transaction.sent)

    def end_one(self) -> None:
        """Its producer decides, or asks again; whether it has heard the answer or not."""
        services = self.leading
        candidates = list(self.promises.transactions.values())[-8:]
        if services is None or not candidates:
            return
        mine = self.rng.choice(candidates)
        if mine.wanted is None:
            self.decide(mine)
        if mine.wanted is not None:
            self.call(services, self.ended(services, mine, commits=mine.wanted))

    def decide(self, mine: Transaction) -> None:
        if mine.lost:
            mine.wanted = False
        elif self.is_stored(mine):
            mine.wanted = self.rng.random() < 0.7
            if mine.wanted and self.rng.random() < 0.4:
                end = self.ledger.placed
                mine.offset = sum(place[:2] == ("T0", 0) for place in end)
        elif self.rng.random() < 0.2:
            mine.wanted = False

    def answer_checks(self) -> None:
        services = self.leading
        if services is not None:
            self.call(services, self.checked(services))

    async def checked(self, services: ServicesProcess) -> None:
        for name in await services.transactions.poll(PRODUCERS, 4, 0.0, lambda _: True):
            mine = self.promises.transactions[name]
            self.count("checks")
            if mine.wanted is None:
                self.decide(mine)
            if mine.wanted is not None:
                await self.ended(services, mine, commits=mine.wanted)

    async def ended(self, services: ServicesProcess, mine: Transaction, *, commits: bool) -> None:
        """As TransactionService ends one."""
        work, store = services.transactions, services.store
        services.role.admit(broker_pb2.CLUSTER)
        await work.ready()
        if store.reputed.value < store.confirmed.value:
            return
        offsets = ()
        if mine.offset >= 0:
            offsets = (GroupOffset(OFFSETS_GROUP, "T0", 0, mine.offset),)
        count = len(mine.sent) if commits else None
        request = EndRequest(mine.name, count, offsets if commits else ())
        mine.asked_to_commit |= commits
        desk = work.desk
        try:
            ended = await work.in_thread(
                partial(desk.commit if commits else desk.roll_back, request)
            )
        except TransactionDecidedError as fault:
            if services is self.leading and mine.name in store.transactions.outcomes:
                mine.tell(committed=fault.committed)
            return
        except UnknownTransactionError as fault:
            raise ViolationError(f"all of {mine.name} was stored: {fault}") from fault
        if services is not self.leading or not (ended.end_offset or ended.again):
            return
        self.decisions.append(Decision(services.life, ended.end_offset, mine, ended.committed))
        self.count("decisions")

    def acknowledge(self, node: StoreNode) -> None:
        super().acknowledge(node)
        if node.master is None or node is not self.master:
            return
        confirm = node.master.group.tracker.value
        self.decisions = [each for each in self.decisions if each.life == self.life]
        for each in [each for each in self.decisions if each.end_offset <= confirm]:
            self.decisions.remove(each)
            each.transaction.tell(committed=each.committed)
            self.count("committed" if each.committed else "rolled back")

    def look(self, services: ServicesProcess) -> None:
        super().look(services)
        if not services.transactions.desk.offsets_known(OFFSETS_GROUP):
            return
        held = services.store.consumer_offsets.offset(OFFSETS_GROUP, "T0", 0)
        least = self.promises.least_offset()
        if (-1 if held is None else held) < least:
            raise ViolationError(f"{OFFSETS_GROUP} stands at {held}, and {least} was committed")

    def may_go(self, record: Record) -> None:
        super().may_go(record)
        if is_of_a_client(record) and record.body in self.promises.of_body:
            self.promises.seen_at[record.body] = record.physical_offset

    # --- the end

    def finish(self) -> None:
        super().finish()
        for node in self.nodes.values():
            node.clock.wrong_ms = 0
        self.end_sleeper()
        for number in range(ROUNDS):
            self.clock.advance(5.0 if number % 4 == 3 else 0.5)
            self.calm_for(0.4)
            self.end_all()
            self.work_off()
            self.calm_for(0.2)
            if not (self.open_transactions() or self.work_left()):
                break
        else:
            left = self.work_left()
            raise ViolationError(
                f"{self.open_transactions()} transactions hang, {len(left)} messages never come: "
                f"{[(group, told(body)) for group, body in left[:3]]}"
            )
        if self.seed % 3 == 0:
            self.check_retention()
        self.heal()
        self.check_work()
        for node in self.nodes.values():
            assert node.store is not None
            came = [each.body for each in records_of(node.store) if is_of_a_client(each)]
            outcomes = node.store.transactions.outcomes
            self.promises.check(node.name, came, node.store.log.min_offset, outcomes)

    def check_retention(self) -> None:
        """No service keeps the log for ever: when time has passed, what is old goes."""
        end = self.master.store.log.wrote.value
        for _ in range(RETENTION_ROUNDS):
            self.clock.advance(0.6 * HOUR_S)
            for _ in range(6):
                self.put_some()
                self.calm()
            self.work_off()
            self.calm_for(0.4)
            for node in self.nodes.values():
                self.task(node, "checkpoint")
                self.retain(node)
            if self.master.store is not None and self.master.store.log.min_offset >= end:
                return
        begin = self.master.store.log.min_offset
        raise ViolationError(f"retention stops at {begin}, all below {end} is old")

    def put_some(self) -> None:
        """A message for the queues that are in use."""
        self.serial += 1
        topic, body = self.busy_topics()[0], b"r%d.0|" % self.serial + b"." * 700
        if self.master.store is not None and self.master.store.topics.get(topic) is None:
            self.create_topic(topic)
        self.producers[0].request([Put(topic, 0, body, b"TAGS\x01t\x02")])
        self.answer_all()

    def end_all(self) -> None:
        services = self.leading
        if services is None:
            return
        for mine in self.promises.transactions.values():
            if mine.wanted is None:
                self.decide(mine)
            if mine.wanted is not None and mine.told is None:
                self.call(services, self.ended(services, mine, commits=mine.wanted))

    def open_transactions(self) -> int:
        fold = self.master.store.transactions
        return fold.open_transactions + len(fold.unfinished)
