"""Clients of the simulated cluster: producers that send again, consumers that check it all."""

from dataclasses import dataclass

from fakes.batches import Put
from sim.ha_nodes import ViolationError
from sim.store_cluster import StoreCluster
from sim.store_ledger import place_of, split
from sim.store_nodes import CONFIG, StoreNode
from sim.store_requests import Producer, Request, some_puts
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import BatchRefusedError, StoreBusyError, StoreError
from tandemlog_server.storage.reads.results import GetStatus


@dataclass
class Consumer:
    """A member of `group` that reads one queue; `position` is the next queue offset it wants."""

    group: str
    topic: str
    queue_id: int
    position: int = 0


class Clients(StoreCluster):
    """See the module."""

    def __init__(self, seed: int, size: int, settings: StoreConfig = CONFIG) -> None:
        super().__init__(seed, size, settings)
        self.topics = ["T0", "T1"]
        self.producers = [Producer("p0"), Producer("p1")]
        self.consumers: dict[tuple[str, int], Consumer] = {}

    # --- producers

    def put(self) -> None:
        producer = self.rng.choice(self.producers)
        store = self.master.store
        if store is None or self.master.master is None:
            return
        if self.size > 1 and self.master.master.group.admission(self.now) is not None:
            self.count("not admitted")
            self.replicate()
            return
        with self.on(self.master):
            if self.rng.random() < 0.03:
                producer.restart(store)
            if len(producer.chain) < 3 and self.rng.random() < 0.8:
                self.serial += 1
                producer.request(self.some_puts(producer))
            self.advance(producer, again=self.rng.random() < 0.2)
            if self.rng.random() < 0.05 and producer.done:
                # a repetition of what was answered: a proxy's, say
                self.send(producer, self.rng.choice(producer.done))
            if self.rng.random() < 0.5:
                store.flush()
            self.positions(self.master)

    def some_puts(self, producer: Producer) -> list[Put]:
        """What its next request holds."""
        return some_puts(self.rng, self.busy_topics(), self.serial)

    def replicate(self) -> None:
        """The world's."""

    def busy_topics(self) -> list[str]:
        """Those that get messages now: others are idle until their last message expires."""
        start = int(self.clock.now_ms() / 3_600_000) % len(self.topics)
        return (
            (self.topics + self.topics)[start : start + 2]
            if len(self.topics) > 2
            else [self.topics[start]]
        )

    def advance(self, producer: Producer, *, again: bool) -> None:
        """Send what this master has not been sent yet, in order; all of it with `again`, as after
        a stream that broke."""
        taken = [each for each in producer.chain if self.is_taken(each)]
        if producer.renumber and not (taken and self.rng.random() < 0.9):
            producer.begin_epoch(producer.epoch + 1)
        if producer.renumber:
            return  # what was taken gets its answer first
        for request in list(producer.chain):
            if (again or not self.is_taken(request)) and not self.send(producer, request):
                return

    def is_taken(self, request: Request) -> bool:
        """Whether an answer of this master may come."""
        return request.result is not None and request.life == self.life

    def answer_all(self) -> None:
        """Until every producer has its answers."""
        for producer in self.producers:
            group = self.master.master and self.master.master.group
            if not group or (self.size > 1 and group.admission(self.now) is not None):
                return
            with self.on(self.master):
                self.advance(producer, again=self.rng.random() < 0.2)
                self.positions(self.master)

    @property
    def life(self) -> int:
        """Of the master's process, over all nodes."""
        return self.master.lives * 10 + ord(self.master_name) - ord("a")

    def send(self, producer: Producer, request: Request) -> bool:
        """Whether the next request may follow."""
        node = self.master
        store = node.store
        try:
            result = store.put(request.batch)
        except BatchRefusedError as refused:
            self.refused(producer, request, refused)
            return False
        except (StoreBusyError, StoreError) as fault:
            self.note(f"{request} is not taken: {fault}")
            return False
        request.result, request.life = result, self.life
        self.ledger.appended(request, result, self.now)
        self.count("repeated" if result.duplicate else "stored")
        node.answers[:] = [each for each in node.answers if each is not request]
        node.answers.append(request)
        return True

    def refused(self, producer: Producer, request: Request, why: BatchRefusedError) -> None:
        self.note(f"{request}: {why}")
        self.count(why.code)
        if why.code == "UNKNOWN_TOPIC":
            for topic in sorted({put.topic for put in request.puts}):
                if self.master.store.topics.get(topic) is None:
                    self.create_topic(topic)
        elif request.acknowledged:
            if not self.forgets:
                raise ViolationError(f"{request} was acknowledged, and sent again: {why}")
        elif why.code in ("SEQUENCE_GAP", "UNKNOWN_PRODUCER"):
            producer.renumber = True
        else:
            raise ViolationError(f"{request}: {why}")

    # --- consumers

    def read(self) -> None:
        node = self.nodes[self.rng.choice(sorted(self.nodes))]
        if node.store is None:
            return
        queue = (self.rng.choice(self.topics), self.rng.randrange(2))
        consumer = self.consumers.setdefault(queue, Consumer("g", *queue))
        with self.on(node):
            self.consume(node, consumer)

    def consume(self, node: StoreNode, consumer: Consumer) -> None:
        topic, queue_id, position = consumer.topic, consumer.queue_id, consumer.position
        store = node.store
        result = store.reader.get(topic, queue_id, position, 4, 4000)
        if result.status not in (GetStatus.FOUND, GetStatus.OFFSET_TOO_SMALL):
            return
        read = set()
        for record in split(bytes(result.records), result.sizes.tolist()):
            self.ledger.see(place_of(record), record.body)
            read.add(place_of(record))
        passed = range(position, result.next_offset)
        for fact in self.ledger.facts.values():
            mine = fact.place[:2] == (topic, queue_id) and fact.place[2] in passed
            if mine and fact.place not in read and fact.start >= store.log.min_offset:
                raise ViolationError(f"{node.name}: a reader at {position} passes {fact.place}")
        consumer.position = result.next_offset
        master = self.master
        if master.store is not None and self.rng.random() < 0.7:
            key = (consumer.group, topic, queue_id)
            with self.on(master):
                master.store.consumer_offsets.commit(*key, consumer.position)
                committed = self.ledger.committed
                committed[key] = max(committed.get(key, 0), consumer.position)
