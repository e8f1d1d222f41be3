"""What a master's process does for work queues and transactions: the real services, in a loop.

    consumer ─▶ WorkService ─▶ WorkTerm: engine, ProgressWriter ─▶ rmq_sys_tandemlog, %DLQ%group
    producer ─▶ TransactionWork ─▶ its desk                     ─▶ COMMIT, messages, OP
                      │ role: MasterRole over the term's MasterGroup
                      ▼
                  MessageStore

The loop runs when the world says so. What a thread would do is done at once, so a process that dies
inside of a call dies in the loop: the world looks at its disk afterwards.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from sim.ha_nodes import ViolationError
from sim.served_node import SimReplication
from sim.store_disk import NodeDeathError
from sim.store_nodes import StoreNode
from sim.world_loop import WorldLoop
from tandemlog_server.ha.config import HaConfig
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.pulls.known_queues import KnownQueues
from tandemlog_server.node.roles.master_role import MasterRole
from tandemlog_server.node.roles.role import CurrentRole
from tandemlog_server.node.settings.sections import TransactionsSection, WorkSection
from tandemlog_server.node.transactions.transaction_work import TransactionWork
from tandemlog_server.node.work.work_service import WorkService
from tandemlog_server.storage.services.transaction_desk import TransactionDesk

Result = TypeVar("Result")
TIMEOUT_MS = 2_000
WORK = WorkSection(queue_unacked=12, node_unacked=200, write_interval_ms=100, grace_ms=300)
TRANSACTIONS = TransactionsSection(check_after_ms=2_000, check_interval_ms=5_000, max_checks=2)


class ReadAtOnce:
    """As ReadTurns, without threads and bounds."""

    async def run(self, caller: Caller, work: Callable[[], Result], **_: object) -> Result:
        return work()


class ServicesProcess:
    """See the module; of one term of one process, whose number in the world is `life`."""

    def __init__(self, node: StoreNode, life: int, config: HaConfig) -> None:
        assert node.store is not None
        assert node.master is not None
        self.life = life
        self.store = node.store
        self.caller = Caller(peer="10.0.0.9:1")
        self._files = node.files
        self.loop = WorldLoop(node.clock)
        whole: Any = self.store
        replication = SimReplication(whole, config, node.clock, node.master.group)
        self.role = MasterRole(self.store, replication, timeout_ms=TIMEOUT_MS)
        self.transactions = TransactionWork(self.store, TransactionDesk(self.store), TRANSACTIONS)
        self.begin(self._begin())

    async def _begin(self) -> None:
        known = KnownQueues(self.store.topics, self.store.queue_table)
        turns: Any = ReadAtOnce()
        current = CurrentRole(self.role)
        self.work = WorkService(
            self.store, current, turns, known, WORK, long_polls=100, sync_timeout_s=30.0
        )
        self.work.begin(self.role)
        self.transactions.begin(self.role)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.begin(work)

    def run(self) -> None:
        """Until nothing is left to do at this moment. Raises NodeDeathError where the process has
        died in it."""
        self.loop.run_ready()
        if self._files.dead:
            raise NodeDeathError(self._files, "a task")
        tasks = [self.transactions._task]
        if self.work.term is not None:
            tasks.append(self.work.term._task)
        for task in tasks:
            if task is not None and task.done() and not task.cancelled():
                raise ViolationError(f"a service has ended: {task.exception()!r}")

    def end(self) -> None:
        """The process ends as it should."""

        async def end() -> None:
            await self.work.end()
            await self.transactions.end()

        task = asyncio.ensure_future(end(), loop=self.loop)
        for _ in range(20):
            self.loop.run_ready()
            if task.done() or self._files.dead:
                return
        raise ViolationError("the services do not end")

    def abandon(self) -> None:
        """The process is gone."""
        self.loop.abandon()
