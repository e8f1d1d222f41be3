"""A world of real stores in which nothing happens but what a scene asks for.

Order on the network, sizes of frames and what a check looks at still follow from the seed. A scene
says at its end whether it was played: what it was about has really come to be.
"""

from collections.abc import Callable, Collection
from random import Random

from fakes.batches import Put
from sim.store_nodes import CONFIG, HOUR_S, StoreNode
from sim.store_requests import Producer, Request
from sim.store_run import small_world
from sim.store_world import StoreWorld
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.state_files.recovery_point import RecoveryPoint, RecoveryPointFile
from tandemlog_server.storage.store_paths import StorePaths

ROUNDS = 400

Scene = Callable[[int], StoreWorld]


class Nothing(Random):
    """Of what is not fsynced, nothing stays."""

    def random(self) -> float:
        return 1.0


class Stage(StoreWorld):
    """See the module. Where `deaf` is set clients get no answers."""

    def __init__(self, seed: int, size: int, settings: StoreConfig = CONFIG) -> None:
        super().__init__(seed, settings, size)
        self.deaf = False
        self.paths = StorePaths(settings.directory)
        self.begin()

    def acknowledge(self, node: StoreNode) -> None:
        if not self.deaf:
            super().acknowledge(node)

    # --- what clients do

    def messages(
        self, producer: Producer, topic: str, queue_id: int, count: int, size: int = 20
    ) -> Request:
        """One request, not sent yet; equal counts and sizes take equal room in the log."""
        puts = []
        for number in range(count):
            self.serial += 1
            body = b"m%06d.%d|" % (self.serial, number % 10) + b"." * size
            puts.append(Put(topic, queue_id, body, b"TAGS\x01t\x02KEYS\x01k%06d\x02" % self.serial))
        return producer.request(puts)

    def stored(
        self,
        producer: Producer,
        topic: str,
        queue_id: int,
        *,
        requests: int = 1,
        count: int = 1,
        size: int = 20,
        lazy: Collection[str] = (),
    ) -> None:
        """So many requests of `count` messages, all answered. Nodes of `lazy` do not dispatch."""
        for _ in range(requests):
            self.messages(producer, topic, queue_id, count, size)
            self.answered(lazy=lazy)

    def fill(self, producer: Producer, topic: str, queue_id: int, files: int) -> None:
        """Until the log has so many more files, all answered and dispatched."""
        end = (len(self.master.store.log.files) + files - 1) * self.settings.commit_log_file_size
        while self.master.store.log.wrote.value < end:
            self.stored(producer, topic, queue_id, count=3, size=300)
        self.heal()

    def answered(self, *, lazy: Collection[str] = ()) -> None:
        """Until every producer has its answers."""
        self.until(self.all_answered, lazy=lazy)

    def all_answered(self) -> bool:
        return not any(each.chain for each in self.producers)

    # --- what nodes do

    def until(
        self,
        holds: Callable[[], bool],
        turn: Callable[[], None] | None = None,
        *,
        lazy: Collection[str] = (),
    ) -> None:
        """Rounds of `turn` (default: calm ones) until it `holds`."""
        for _ in range(ROUNDS):
            if holds():
                return
            if turn is not None:
                turn()
            else:
                self.calm(lazy=lazy)
        raise AssertionError(f"the scene does not go on\n{self.describe()}")

    def calm(self, *, lazy: Collection[str] = (), flush: bool = True) -> None:
        """One round without misfortune, retention and checkpoints; of nodes that are up."""
        self.clock.advance(0.01)
        for node in self.nodes.values():
            if node.slave is not None:
                self.exchange(node, 2)
            store = node.store
            while (
                node.name not in lazy
                and store is not None
                and store.reputed.value < store.confirmed.value
            ):
                self.dispatch_on(node)
        if flush:
            self.flush_master()
        else:
            self.positions(self.master)
        self.persist_set()
        self.answer_all()

    def again(self, node: StoreNode, *, power: bool = False) -> None:
        """The process dies, with `power` the machine, and comes back."""
        self.stop(node)
        if power:
            self.power_cut(node, Nothing())
        self.up(node)

    def up(self, node: StoreNode) -> None:
        with self.on(node):
            self.start(node)

    def checkpoint_on(self, node: StoreNode) -> RecoveryPoint:
        self.task(node, "checkpoint")
        return self.point(node)

    def point(self, node: StoreNode) -> RecoveryPoint:
        """On the disk."""
        found = RecoveryPointFile(self.paths.recovery_point, node.files).load()
        assert found is not None
        return found

    def wait_out(self) -> None:
        """All that the log holds is old enough to go."""
        self.clock.advance(1.1 * HOUR_S)

    def last_of(self, topic: str, queue_id: int) -> int:
        """Where the newest acknowledged record of a queue ends."""
        return max(
            fact.end for fact in self.ledger.facts.values() if fact.place[:2] == (topic, queue_id)
        )

    def played(self, *facts: bool) -> "Stage":
        """At the end of a scene: that all of it came to be, and every promise is kept."""
        if not all(facts):
            raise AssertionError(f"the scene is not played: {facts}\n{self.describe()}")
        self.finish()
        return self


def staged(scene: Callable[[int], StoreWorld]) -> Scene:
    """The scene in a small world."""

    def play(seed: int) -> StoreWorld:
        with small_world():
            return scene(seed)

    play.__name__, play.__doc__ = scene.__name__, scene.__doc__
    return play
