"""What this node is: the one place that begins masters and slaves, and ends them.

    lead     a ReplicationMaster: puts, slaves, RocketMQ's slave brokers
    relay    the same without puts, while the log comes from a RocketMQ broker
    follow   a ReplicationSlave of one master
    wait     neither: reads of what is confirmed

Who decides which: the configuration (cluster_membership.py), an election (elected_roles.py), or a
takeover (following_roles.py). Each ends what was before, by `wait`, then begins the next; one at a
time.

    end      a role without an epoch ▸ no stream of a slave begins ▸ slave brokers cut off ▸ the
             store takes no puts, its log is flushed ▸ streams and threads ended

It is ended completely, threads included, before the next one touches the log, even if the caller is
cancelled. A term that fails to begin is ended the same way. The store stays open, reads continue.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.config import HaConfig, Role
from tandemlog_server.ha.master.master_group import Return
from tandemlog_server.ha.master.node_status import NO_MASTER, own_status
from tandemlog_server.ha.master.record_keeper import RecordKeeper
from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.ha.master.term import WonTerm, end_term
from tandemlog_server.ha.protocol.frames import Refusal, encode_master_frame
from tandemlog_server.ha.protocol.replication_service import Context, ReplicationService
from tandemlog_server.ha.slave.slave import ReplicationSlave
from tandemlog_server.ha.state import HaState
from tandemlog_server.rocketmq.follow.follower import BrokerFollower
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.message_store import MessageStore

from ..process.tasks import stopped, to_its_end, watched
from ..settings.sections import PutSection
from .master_role import MasterRole, TermService
from .relay_role import RelayRole
from .rocketmq_serving import RocketmqServing
from .role import CurrentRole
from .slave_role import SlaveRole, WaitingRole

BEGIN_S = 1.0


class Terms(CurrentRole):
    """See the module. Lives in one event loop; the services ask `role`. `running` is the master or
    slave that has begun and not ended, `last_state` what the one before it remembered of the
    cluster; `rows` gives the known nodes where there is no master, `puts_under_way` how many puts
    were accepted and are not appended yet; `services` work while this node is the master. `fatal`
    hears of problems that only an operator can mend."""

    def __init__(
        self,
        store: MessageStore,
        config: HaConfig,
        clock: Clock,
        brokers: RocketmqServing,
        puts: PutSection,
        fatal: Callable[[BaseException], None],
    ) -> None:
        self.store = store
        self.config = config
        self.clock = clock
        self.brokers = brokers
        self.fatal = fatal
        self.rows = self._own_row
        self.puts_under_way: Callable[[], int] = lambda: 0
        self.services: Sequence[TermService] = ()
        self.running: ReplicationMaster | ReplicationSlave | None = None
        self.last_state: HaState | None = None
        self.servicer = ReplicationService(self._replicate)
        self._serving: ReplicationService | None = None
        self._begun = asyncio.Event()
        self._puts = puts
        self._unlisten: Callable[[], None] = lambda: None
        self._following: asyncio.Task[None] | None = None
        self._started_at = clock.monotonic()
        super().__init__(WaitingRole("this node is starting", self.rows))

    @property
    def master(self) -> ReplicationMaster | None:
        return self.running if isinstance(self.running, ReplicationMaster) else None

    @property
    def state(self) -> HaState | None:
        """What this node remembers of its part in the cluster, as the present role has it."""
        running = self.running
        return (None if running is None else running.ha_state) or self.last_state

    # ---- begin

    async def lead(
        self,
        won: WonTerm | None = None,
        keeper: RecordKeeper | None = None,
        *,
        on_deposed: Callable[[str], None] = lambda _: None,
        on_return: Callable[[Return], None] = lambda _: None,
        lease_fault: Callable[[], str] | None = None,
    ) -> None:
        """On return puts are accepted. What an election gives is as in ReplicationMaster and
        MasterRole; without it roles are configured. Raises StateFileError and what the store
        raises."""
        master = ReplicationMaster(
            self.store,
            replace(self.config, role=Role.MASTER),
            self.clock,
            files=self.store.files,
            won=won,
            keeper=keeper,
            on_deposed=on_deposed,
            on_return=on_return,
        )
        await self._begin(master)
        role = MasterRole(
            self.store,
            master,
            max_unconfirmed_bytes=self._puts.max_unconfirmed_bytes,
            timeout_ms=self._puts.timeout_ms,
            lease_fault=lease_fault,
        )
        self.set(role)
        for service in self.services:
            service.begin(role)
        self.brokers.begin(master)

    async def relay(self, follower: BrokerFollower) -> None:
        """Lead this store's slaves with the log that `follower` brings. Raises as `lead`."""
        config = replace(self.config, role=Role.RELAY)
        master = ReplicationMaster(
            self.store, config, self.clock, files=self.store.files, own=follower.counted
        )
        await self._begin(master)
        self.set(RelayRole(follower, master))

    async def _begin(self, master: ReplicationMaster) -> None:
        try:
            await master.start()
        except BaseException:
            await to_its_end(self._give_up(master))
            raise
        self.running = master
        self._unlisten = self.store.topics.listen(master.metadata_changed)
        self.serve(master.servicer)

    async def _give_up(self, master: ReplicationMaster) -> None:
        await master.close()  # first: a thread of it may still be making the store a master's
        await asyncio.to_thread(end_term, self.store)

    def follow(
        self,
        endpoint: str,
        *,
        unclean_epoch: int = 0,
        master_id: str = "",
        on_lost: Callable[[str], None] = lambda _: None,
        on_joined: Callable[[str], None] = lambda _: None,
    ) -> ReplicationSlave:
        """The slave of the master at `endpoint`; it takes log from `run_slave` on."""
        self.running = slave = ReplicationSlave(
            self.store,
            replace(self.config, role=Role.SLAVE, master_endpoint=endpoint),
            self.clock,
            files=self.store.files,
            unclean_epoch=unclean_epoch,
            master_id=master_id,
            on_lost=on_lost,
            on_joined=on_joined,
        )
        self.set(SlaveRole(slave, endpoint))
        return slave

    def run_slave(self) -> None:
        if isinstance(self.running, ReplicationSlave):
            self._following = watched(self.running.run(), "replication", self.fatal)

    # ---- end

    def fence(self, reason: str) -> None:
        """From the return on nothing is acknowledged."""
        self.set(WaitingRole(reason, self.rows))

    async def wait(self, reason: str) -> None:
        """End the present term completely; from the first line on nothing is acknowledged."""
        self.fence(reason)
        self.serve(None)
        await to_its_end(self._end())

    async def _end(self) -> None:
        self._unlisten()
        await self.brokers.end()
        if (master := self.master) is not None:
            for service in self.services:
                await service.end()
            await asyncio.to_thread(end_term, self.store)
            await master.close()
        if self._following is not None:
            await stopped(self._following)
            self._following = None
        self.last_state, self.running = self.state, None

    async def close(self) -> None:
        """The store stays open; a second call does nothing."""
        await self.wait("this node is stopping")

    async def send_tables(self) -> None:
        """Before this node stops leading: its slaves get what has changed a moment ago."""
        if self.master is not None:
            await self.master.send_tables()

    # ---- what others ask

    def serve(self, current: ReplicationService | None) -> None:
        """What the streams of slaves find from now on."""
        self._serving = current
        if current is None:
            self._begun.clear()
        else:
            self._begun.set()

    async def _replicate(self, requests: AsyncIterator[bytes], context: Context) -> None:
        """Slaves hear of an election at once, and may come before the term has begun: they wait
        here a moment. A refusal would cost them a pause before they come again, and clients with
        them."""
        with suppress(TimeoutError):
            async with asyncio.timeout(BEGIN_S):
                await self._begun.wait()
        if self._serving is not None:
            await self._serving.replicate(requests, context)
            return
        refusal = Refusal(f"{self.config.node_id} is not the master now", retry=True)
        await context.write(encode_master_frame(refusal))

    def _own_row(self, reason: str) -> Sequence[common_pb2.NodeStatus]:
        """This node alone."""
        row = own_status(
            self.store,
            self.config,
            epoch=0,
            incarnation="",
            uptime_s=self.clock.monotonic() - self._started_at,
        )
        row.role, row.state, row.detail = common_pb2.SLAVE, NO_MASTER, reason
        return [row]
