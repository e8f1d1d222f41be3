"""Delayed messages, work queues and transactions in the world whose disks turn bits.

    rot      a byte of a node's log is turned, and stays so for a while (scrub_world.py)
    then     what was derived of that log is rebuilt without it: queues, or the folds at an open
    clients  go on meanwhile: services_world.py, delay_world.py

Each of these worlds knows its own promises, and they are kept: what is damaged for a moment may
come later, nothing is skipped, and nothing comes twice that the log says is done.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random

from fakes.stores import DIRECTORY
from sim.delay_world import DelayWorld
from sim.scrub_world import Rot, ScrubWorld
from sim.services_world import ServicesLedger, ServicesWorld
from sim.store_clients import Consumer
from sim.store_ledger import Queue
from sim.store_nodes import StoreNode
from tandemlog.format.constants import DELAY_TOPICS
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.scrub.log_mending import Patch
from tandemlog_server.storage.scrub.scrubbed_store import scrub_limit

FOLDS = DIRECTORY / "tandemlog" / "folds"


class AllLedger(ServicesLedger):
    """Neither halves nor messages that wait are messages of clients yet."""

    def queues(self) -> list[Queue]:
        return [queue for queue in super().queues() if queue[0] not in DELAY_TOPICS]


class ScrubbedServicesWorld(ScrubWorld, ServicesWorld, DelayWorld):
    """See the module."""

    mends = 0.3

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.ledger = AllLedger(self.promises)

    def make_events(self, chosen: Random) -> list[tuple[float, Callable[[], None]]]:
        return [*super().make_events(chosen), (10.0, self.derive_again)]

    @property
    def wrong(self) -> Rot | None:
        return self._wrong

    @wrong.setter
    def wrong(self, wrong: Rot | None) -> None:
        """Whoever looks at the log of that node knows that a record is missing."""
        if (before := getattr(self, "_wrong", None)) is not None:
            before.node.damaged.clear()
        if wrong is not None:
            wrong.node.damaged.add(wrong.offset)
        self._wrong = wrong

    def can_spare_a_disk(self) -> bool:
        """A byte is wrong on one node: of a second one it would be the only copy."""
        return self.wrong is None and super().can_spare_a_disk()

    def consume(self, node: StoreNode, consumer: Consumer) -> None:
        """Who reads a queue by himself skips what is damaged on the node that he asks."""
        if not node.damaged:
            super().consume(node, consumer)

    def put_right(self, wrong: Rot, data: bytes) -> None:
        """From an archive: what was derived without the record gets it."""
        node, size = wrong.node, self.settings.commit_log_file_size
        assert node.store is not None
        base = wrong.offset - wrong.offset % size
        right = bytearray(data[: min(scrub_limit(node.store) - base, size)])
        right[wrong.offset - base] = wrong.right
        with self.on(node), suppress(StoreError):
            node.store.mend([Patch(base, bytes(right))])
            self.count("from the archive")
            node.store.reput.run_to()
        if node.store is None:
            return  # with the power, the file of before may come back
        now = node.files.peek(wrong.path(size))
        if now is None or now[wrong.offset - base] == wrong.right:
            self.wrong = None

    def derive_again(self) -> None:
        """A queue of the node with damage is rebuilt from its log, or all folds are."""
        if self.wrong is None:
            return
        node = self.wrong.node
        if self.rng.random() < 0.5:
            self.make_queue_again(node)
        else:
            self.lose_folds(node)

    def make_queue_again(self, node: StoreNode) -> None:
        if node.store is None:
            return
        known = range(node.store.queue_table.count)
        with self.on(node):
            for dense in self.rng.sample(known, min(4, len(known))):
                node.store.queues.mark_damaged(dense, "the world says so")
            self.count("queues rebuilt")
            for _ in range(self.rng.randint(0, 12)):
                self.dispatch_on(node)
        if node is self.master:
            self.receive()

    def lose_folds(self, node: StoreNode) -> None:
        self.note(f"{node.name} ends, and has no snapshots of its folds any more")
        self.stop(node)
        for name in node.files.names(FOLDS):
            node.files.unlink(FOLDS / name)
        node.files.fsync_directory(FOLDS)
        with self.on(node):
            self.start(node)
        self.count("folds rebuilt")
