"""Messages that come later, in the world of real stores: each comes once, and not before its time.

    put ──▶ waits ──▶ the master's desk: comes ──▶ the log has its body once, in the queue it is for
              └─────▶ recall, confirmed        ──▶ the log never has it

Whoever becomes master gets a desk of its own, and it decides by the log alone. Between two
decisions anything may happen: power cuts, promotions, cuts of the log, retention, clocks that jump.
Where retention has deleted the message that came, its delivery was seen before.
"""

from collections import Counter
from dataclasses import dataclass

from fakes.batches import Put
from sim.ha_nodes import ViolationError
from sim.store_ledger import Ledger, Queue, records_of, told
from sim.store_nodes import StoreNode
from sim.store_requests import Producer, Request
from sim.store_world import StoreWorld
from tandemlog.format.constants import DELAY_TOPICS, SCHEDULE_TOPIC, TIMER_TOPIC
from tandemlog.format.delay.framing import after, by_level
from tandemlog.format.delay.handle import handle_of
from tandemlog.format.record.properties import encode_properties
from tandemlog.format.record.record import Record
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import BatchRefusedError, StoreError
from tandemlog_server.storage.services.delay_desk import DelayDesk, NotReadyError, NotWaitingError

LEVELS_S = {1: 1.0, 2: 5.0}
EARLY_S = 0.002
"""Times of records are whole milliseconds."""


@dataclass
class Later:
    """A message that was put to come later, and what became of it."""

    topic: str
    key: str
    delay_s: float
    recalls: int = 0
    recalled: bool = False
    came_at: int = -1
    """Log offset of its message the last time that it was appended."""


class DelayLedger(Ledger):
    """Waiting records have the bodies of the messages that come of them."""

    def counts(self, record: Record) -> bool:
        return record.topic not in DELAY_TOPICS

    def queues(self) -> list[Queue]:
        """Without those in which messages wait: there a put must say when it is due."""
        return [queue for queue in super().queues() if queue[0] not in DELAY_TOPICS]


class DelayWorld(StoreWorld):
    """See the module."""

    def __init__(
        self, seed: int, settings: StoreConfig | None = None, size: int | None = None
    ) -> None:
        super().__init__(seed, settings, size)
        self.ledger: Ledger = DelayLedger()
        self.later: dict[bytes, Later] = {}
        self.desks: dict[str, DelayDesk] = {}
        # recalls that wait for their confirmation: (life, end in the log, body)
        self.asked: list[tuple[int, int, bytes]] = []
        self.producers.append(Producer("later"))
        self.jumped = False
        self.events += [(14.0, self.let_come), (3.0, self.recall)]
        self.total = sum(weight for weight, _ in self.events)

    # --- nodes

    def open(self, node: StoreNode) -> None:
        super().open(node)
        if node.master is not None:
            assert node.store is not None
            self.desks[node.name] = desk = DelayDesk(node.store)
            desk.begin()

    def stop(self, node: StoreNode) -> None:
        self.desks.pop(node.name, None)
        super().stop(node)

    def jump(self) -> None:
        self.jumped = True
        super().jump()

    # --- clients

    def some_puts(self, producer: Producer) -> list[Put]:
        if producer.name != "later":
            return super().some_puts(producer)
        return [self.put_later(number) for number in range(self.rng.choice((1, 1, 2, 4)))]

    def put_later(self, number: int) -> Put:
        topic, queue_id = self.rng.choice(self.busy_topics()), self.rng.randrange(2)
        body = b"d%d.%d|" % (self.serial, number) + b"." * self.rng.choice((0, 20, 200))
        key = f"K{self.serial}.{number}"
        level = self.rng.choice((0, 0, 1, 2))
        delay_s = LEVELS_S.get(level, self.rng.choice((0.05, 0.5, 3.0, 60.0)))
        self.later[body] = Later(topic, key, delay_s)
        if level:
            more = by_level(topic, queue_id, level)
        else:
            more = after(topic, queue_id, round(delay_s * 1000), self.master.clock.now_ms())
        place = (SCHEDULE_TOPIC, level - 1) if level else (TIMER_TOPIC, 0)
        return Put(*place, body, encode_properties({"UNIQ_KEY": key, "TAGS": "later", **more}))

    def refused(self, producer: Producer, request: Request, why: BatchRefusedError) -> None:
        if producer.name == "later" and why.code == "UNKNOWN_TOPIC":
            for topic in {self.later[put.body].topic for put in request.puts}:
                if self.master.store.topics.get(topic) is None:
                    self.create_topic(topic)
            return
        super().refused(producer, request, why)

    # --- what a master does

    def let_come(self) -> None:
        node = self.master
        desk = self.desks.get(node.name)
        if desk is None or node.store is None:
            return
        self.clock.advance(self.rng.choice((0.0, 0.1, 1.0, 5.0)))
        before = node.store.log.wrote.value
        with self.on(node):
            self.step_of(desk)
            if self.rng.random() < 0.5:
                node.store.flush()
            self.positions(node)
        self.look_at_deliveries(node, before)

    def step_of(self, desk: DelayDesk) -> bool:
        """One append, as the node's service does it: what refuses it now is asked again later."""
        try:
            done = desk.deliver()
            end = self.master.store.retention_waits_for
            if not done and end is not None and desk.roll(end):
                self.count("rolled")
        except StoreError as fault:
            self.note(f"delayed messages wait: {fault}")
            return False
        if done:
            self.count("deliveries")
        return bool(done)

    def look_at_deliveries(self, node: StoreNode, before: int) -> None:
        """What was appended since `before`; of a node that died meanwhile nothing is known."""
        if node.store is None:
            return
        ahead = node.files.fail_in, node.files.die_in
        node.files.fail_in = node.files.die_in = -1  # who looks here is no part of the world
        records = list(records_of(node.store, node.damaged))
        node.files.fail_in, node.files.die_in = ahead
        for record in records:
            later = self.later.get(record.body)
            if record.physical_offset < before or later is None or not self.ledger.counts(record):
                continue
            later.came_at = record.physical_offset
            self.count("came")
            waited_s = self.now - self.ledger.born_at[record.body]
            if not self.jumped and waited_s < later.delay_s - EARLY_S:
                raise ViolationError(
                    f"{told(record)} comes after {waited_s:.3f} s, not {later.delay_s} s"
                )

    def recall(self) -> None:
        node, facts = self.master, list(self.ledger.facts.values())
        desk = self.desks.get(node.name)
        mine = [fact for fact in facts if fact.body in self.later and fact.place[0] in DELAY_TOPICS]
        if desk is None or not mine:
            return
        fact = self.rng.choice(mine[-6:])
        later = self.later[fact.body]
        handle = handle_of(later.topic, 0, later.key, fact.start)
        with self.on(node):
            later.recalls += 1
            try:
                recalled = desk.recall(handle)
            except NotReadyError:
                later.recalls -= 1
                return
            except NotWaitingError as fault:
                if later.recalled:
                    raise ViolationError(f"{told(fact.body)} was called back: {fault}") from fault
                self.count("too late to recall")
                return
            except StoreError as fault:
                self.note(f"no recall: {fault}")
                return
            self.count("recalls")
            self.asked.append((self.life, recalled.end_offset, fact.body))
            self.positions(node)

    def acknowledge(self, node: StoreNode) -> None:
        super().acknowledge(node)
        if node.master is None or node is not self.master:
            return
        confirm = node.master.group.tracker.value
        self.asked = [each for each in self.asked if each[0] == self.life]
        for each in [each for each in self.asked if each[1] <= confirm]:
            self.asked.remove(each)
            self.later[each[2]].recalled = True
            self.count("recalled")

    # --- the end

    def finish(self) -> None:
        super().finish()
        for node in self.nodes.values():
            node.clock.wrong_ms = 0
        for _ in range(60):
            # who began a term by a wrong clock lets messages wait for as long as it was wrong
            self.clock.advance(600.0 if self.jumped else 20.0)
            desk = self.desks[self.master_name]
            before = self.master.store.log.wrote.value
            with self.on(self.master):
                for _ in range(4):
                    self.step_of(desk)
            self.look_at_deliveries(self.master, before)
            self.heal()
            if not len(self.master.store.delays.rows):
                break
        else:
            raise ViolationError(f"{len(self.master.store.delays.rows)} messages never come")
        for node in self.nodes.values():
            assert node.store is not None
            self.check_later(node)

    def check_later(self, node: StoreNode) -> None:
        """Each that was acknowledged came once, or never if it was called back."""
        store = node.store
        assert store is not None
        came = Counter(record.body for record in records_of(store) if self.ledger.counts(record))
        acknowledged = {fact.body for fact in self.ledger.facts.values()}
        for body, later in self.later.items():
            count = came[body]
            if count > 1:
                raise ViolationError(f"{node.name}: {told(body)} comes {count} times")
            if later.recalled and count:
                raise ViolationError(f"{node.name}: {told(body)} was called back, and comes")
            expired = 0 <= later.came_at < store.log.min_offset
            if body in acknowledged and not (count or expired or later.recalls):
                raise ViolationError(f"{node.name}: {told(body)} never comes")
