"""The world of real stores, whose masters serve work queues and transactions too.

Each master's process has a loop (services_process.py), which runs after every step. Of two things a
world must remember what its nodes may forget: what retention deletes, and a master that stands
still while another one leads, and does not know it when it goes on (`sleeper`).
"""

from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

from sim.services_process import ServicesProcess
from sim.store_ledger import records_of
from sim.store_nodes import StoreNode
from sim.store_world import StoreWorld
from tandemlog.format.constants import (
    DEAD_LETTER_PREFIX,
    DELAY_TOPICS,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SERVICE_TOPIC,
    UNDECIDED_TOPIC,
)
from tandemlog.format.record.record import Record
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.storage.config import StoreConfig
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.metadata.topics import MetadataError
from tandemlog_server.storage.services.transaction_desk import DECISION_BYTES

NOT_OF_CLIENTS = DELAY_TOPICS | {HALF_TOPIC, OP_HALF_TOPIC, SERVICE_TOPIC, UNDECIDED_TOPIC}
SMALL_APPENDS = (100, 600, 2_000)


def is_of_a_client(record: Record) -> bool:
    """Whether it is a message as readers of topics see them."""
    return record.topic not in NOT_OF_CLIENTS and not record.topic.startswith(DEAD_LETTER_PREFIX)


class ServicesNodes(StoreWorld):
    """See the module."""

    def __init__(
        self, seed: int, settings: StoreConfig | None = None, size: int | None = None
    ) -> None:
        super().__init__(seed, settings, size)
        chosen = Random(f"services of {seed}")
        if chosen.random() < 0.5:
            # what one append of a decision has no room for is written by the next look
            room = DECISION_BYTES + chosen.choice(SMALL_APPENDS)
            self.settings = replace(self.settings, max_batch_size=room)
        self.services: dict[str, ServicesProcess] = {}
        self.sleeper: ServicesProcess | None = None
        self.events.append((4.0, self.let_time_pass))

    def open(self, node: StoreNode) -> None:
        super().open(node)
        if node.master is not None:
            services = ServicesProcess(node, self.life, self.config(node.name))
            self.services[node.name] = services
            services.run()

    def stop(self, node: StoreNode) -> None:
        services = self.services.pop(node.name, None)
        if services is not None:
            services.abandon()
        super().stop(node)

    def close(self, node: StoreNode) -> None:
        services = self.services.get(node.name)
        if services is not None and node.store is not None:
            services.end()
        super().close(node)

    def lead(self, node: StoreNode) -> None:
        old = self.master
        if old is not node and old.name in self.services and self.rng.random() < 0.5:
            self.end_sleeper()
            self.sleeper = self.services.pop(old.name)
            self.note(f"{old.name} stands still, and was master")
            self.count("sleepers")
            old.files = old.files.copy(old.clock)  # the process keeps its own until it ends
            self.stop(old)  # and closes nothing: a death at its own files would be nobody's
        super().lead(node)

    def end_sleeper(self) -> None:
        sleeper, self.sleeper = self.sleeper, None
        if sleeper is not None:
            sleeper.abandon()

    def abandon(self) -> None:
        """The world ends."""
        self.end_sleeper()
        for services in self.services.values():
            services.abandon()
        self.services.clear()

    @property
    def leading(self) -> ServicesProcess | None:
        """What the master serves, if it is up."""
        return self.services.get(self.master_name)

    def step(self) -> None:
        super().step()
        self.serve()

    def serve(self) -> None:
        """All that the master's services do at this moment."""
        node, services = self.master, self.leading
        if services is None:
            return
        with self.on(node):
            services.run()
            self.positions(node)
            self.look(services)

    def look(self, services: ServicesProcess) -> None:
        """What must hold of a master at any moment."""

    def call(self, services: ServicesProcess, work: Coroutine[Any, Any, None]) -> None:
        """A client's call; what refuses it now may take it later."""

        async def called() -> None:
            try:
                await work
            except (RequestRefusedError, StoreError, MetadataError, OSError) as refusal:
                self.note(f"refused: {refusal}")
                self.count("refused calls")

        if services is self.leading:
            with self.on(self.master):
                services.begin(called())
                services.run()
                self.positions(self.master)
        else:
            services.begin(called())
            services.run()

    def let_time_pass(self) -> None:
        """And whoever is there hears of the others again."""
        self.clock.advance(self.rng.choice((0.1, 0.3, 1.0, 1.0, 5.0)))
        for node in self.nodes.values():
            if node.slave is not None:
                self.exchange(node, 2)
        self.persist_set()

    # --- what retention deletes

    def retain(self, node: StoreNode) -> None:
        if node.store is not None:
            with self.unseen(node):
                confirmed = node.store.confirmed.value
                for record in records_of(node.store, node.damaged):
                    if record.physical_offset < confirmed:
                        self.may_go(record)
        super().retain(node)

    def may_go(self, record: Record) -> None:
        """This confirmed record may be deleted next."""

    def unseen(self, node: StoreNode) -> "Unseen":
        """Around what is no part of the world: the node's disk has no misfortune in it."""
        return Unseen(node)

    # --- when all goes well

    def calm(self) -> None:
        """A moment without misfortune, in which everybody works."""
        self.clock.advance(0.03)
        for node in self.nodes.values():
            self.look_after(node, often=False)
        self.flush_master()
        self.persist_set()
        self.obey_alarms()
        self.answer_all()
        self.serve()

    def calm_for(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.calm()


class Unseen:
    """See ServicesNodes.unseen."""

    def __init__(self, node: StoreNode) -> None:
        self._files = node.files

    def __enter__(self) -> None:
        files = self._files
        self._ahead = files.fail_in, files.die_in
        files.fail_in = files.die_in = -1

    def __exit__(self, *_: object) -> None:
        self._files.fail_in, self._files.die_in = self._ahead
