"""A node's part in its cluster: the role that its configuration gives it, and what that needs.

    role = "master", "slave"    ReplicationMaster, or ReplicationSlave
    [coordinator]               an agent takes part in elections; roles change in the process
    follow                      a relay of a RocketMQ broker's log, until it takes over

`start` takes the role, `begin` lets the log move, `close` ends it all; the store stays open.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.config import HaConfig
from tandemlog_server.ha.coordinator.etcd_client import connect, since_boot
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.host import Identity
from tandemlog_server.ha.election.requests import ClusterRequests
from tandemlog_server.ha.master.master import ReplicationMaster
from tandemlog_server.ha.protocol.replication_service import ReplicationService
from tandemlog_server.ha.slave.slave import ReplicationSlave
from tandemlog_server.ha.state_file import StateFile
from tandemlog_server.rocketmq.follow.address import parse_address
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.message_store import MessageStore

from .cluster_rows import rows_without_master, with_own_state, with_roster
from .process.tasks import cancelled, nothing
from .puts.append_pump import AppendPump
from .puts.confirm_waiters import ConfirmWaiters
from .roles.elected_roles import AgentCalls, ElectedRoles
from .roles.following_roles import FollowingRoles, check_follows
from .roles.master_role import MasterRole
from .roles.rocketmq_serving import RocketmqServing
from .roles.role import NodeRole
from .roles.slave_role import SlaveRole
from .services.elections import Elections
from .settings.config import NodeConfig
from .settings.endpoints import Endpoints


class ClusterPart:
    """See the module. What has to be undone when the node stops goes to `undo`; `fatal` hears of
    what only an operator can mend."""

    role: NodeRole

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        store: MessageStore,
        endpoints: Endpoints,
        brokers: RocketmqServing,
        undo: AsyncExitStack,
        fatal: Callable[[BaseException], None],
    ) -> None:
        self.config = config
        self.store = store
        self.endpoints = endpoints
        self.brokers = brokers
        self.close: Callable[[], Awaitable[None]] = nothing
        self.following: FollowingRoles | None = None
        self.elections: Elections | None = None
        self._agent: ElectionAgent | None = None
        self._clock = clock
        self._undo = undo
        self._fatal = fatal
        self._master: ReplicationMaster | None = None
        self._slave: ReplicationSlave | None = None
        self._elected: ElectedRoles | None = None
        self._taking_part: asyncio.Task[None] | None = None

    async def start(self) -> ReplicationService:
        """Take the role; returns what other nodes can ask of this one. Raises StoreError and
        HaError."""
        config = self.config.ha_config(
            endpoint=self.endpoints.advertise,
            http_endpoint=self.endpoints.http,
            store_host=self.endpoints.store_host,
        )
        store = self.store
        await asyncio.to_thread(StateFile(store.directory, store.files).check_role, config)
        if self.config.follow:
            return await self._start_following(config)
        await asyncio.to_thread(check_follows, self.store.directory, self.store.files)
        if self.config.elects:
            return await self._start_election(config)
        files = self.store.files
        if self.config.role == "master":
            self._master = master = ReplicationMaster(self.store, config, self._clock, files=files)
            self.close = self.brokers.closing(master)
            self._undo.push_async_callback(self.close)
            await master.start()
            self.role = MasterRole(
                self.store,
                master,
                max_unconfirmed_bytes=self.config.put.max_unconfirmed_bytes,
                timeout_ms=self.config.put.timeout_ms,
            )
            self.store.topics.listen(master.metadata_changed)
            await self.brokers.begin(master)
            return master.servicer
        self._slave = slave = ReplicationSlave(self.store, config, self._clock, files=files)
        self.role = SlaveRole(slave, self.config.master)
        return slave.servicer

    async def _start_following(self, config: HaConfig) -> ReplicationService:
        """The log comes from a RocketMQ broker; nothing does before `begin`."""
        put = self.config.put
        roles = self.following = FollowingRoles(
            parse_address(self.config.follow),
            self.store,
            config,
            self._clock,
            self.config.following,
            brokers=self.brokers,
            max_unconfirmed_bytes=put.max_unconfirmed_bytes,
            timeout_ms=put.timeout_ms,
            fatal=self._fatal,
        )
        self.close = roles.close
        self._undo.push_async_callback(roles.close)
        await roles.prepare()
        self.role = roles.switch
        return roles.replication.servicer

    async def _start_election(self, config: HaConfig) -> ReplicationService:
        """The cluster decides over the role; nothing does before `begin`."""
        endpoints, put, election = self.endpoints, self.config.put, self.config.election_config()
        roles = self._elected = ElectedRoles(
            self.store,
            config,
            self._clock,
            rows=self._rows_without_master,
            brokers=self.brokers,
            max_unconfirmed_bytes=put.max_unconfirmed_bytes,
            timeout_ms=put.timeout_ms,
            fatal=self._fatal,
        )
        self.close = self._leave_cluster
        self._undo.push_async_callback(self._leave_cluster)
        state = await roles.prepare()
        coordinator = connect(self.config.coordinator_options())
        self._undo.push_async_callback(coordinator.close)
        addresses = endpoints.advertise, endpoints.http, endpoints.store_host
        identity = Identity(config.node_id, *addresses, state.cluster_uuid, state.starts)
        agent = self._agent = ElectionAgent(
            coordinator,
            roles,
            identity,
            config,
            election,
            self._clock,
            since_boot,
        )
        self.elections = Elections(
            config.node_id,
            self.config.coordinator.endpoints,
            agent,
            roles,
            ClusterRequests(coordinator, agent.keys, election.lease_ttl_s, config.required),
            product=coordinator.product,
            now=since_boot,
        )
        roles.agent = AgentCalls.of(agent)
        self.role = roles.switch
        return roles.replication.servicer

    async def send_tables(self) -> None:
        """Before this node stops leading: the slaves get what has changed a moment ago."""
        master = self._master if self._elected is None else self._elected.master
        if master is not None:
            await master.send_tables()

    async def _leave_cluster(self) -> None:
        """The lease is given back first, so that the others elect while this node stops."""
        if self._taking_part is not None:
            await cancelled(self._taking_part)
            self._taking_part = None
        if self._elected is not None:
            self._elected.fence("this node is stopping")
        if self._agent is not None:
            await self._agent.resign()
        if self._elected is not None:
            await self._elected.close()

    def _rows_without_master(self, reason: str) -> Sequence[common_pb2.NodeStatus]:
        assert self._agent is not None
        assert self._elected is not None
        return rows_without_master(
            self._agent.snapshot, self.store, self._elected.state, self.config.node_id, reason
        )

    def begin(self, waiters: ConfirmWaiters, pump: AppendPump) -> None:
        """A slave takes log after everything else is set up: a port in use is reported before a
        byte is cut or stored, and late imports do not share the processor with the stream. For the
        same reason a node takes part in elections only now."""
        if self._agent is not None and self._elected is not None:
            self._elected.switch.on_change = waiters.look
            self._elected.count_puts = lambda: pump.under_way
            self._taking_part = asyncio.create_task(self._agent.run(), name="election")
            self._taking_part.add_done_callback(self._ended)
        if self.elections is not None:
            learning = asyncio.create_task(self.elections.learn_product(), name="product")
            self._undo.push_async_callback(cancelled, learning)
        if self.following is not None:
            self.following.switch.on_change = waiters.look
            self.following.start()
        if self._slave is None:
            return
        task = asyncio.create_task(self._slave.run(), name="replication")
        task.add_done_callback(self._ended)
        self._undo.push_async_callback(cancelled, task)

    def members(self, *, stopping: bool) -> Sequence[common_pb2.NodeStatus]:
        """All nodes that are known; of this one also what its role does not know."""
        rows = self.role.members()
        if self._agent is not None:
            rows = with_roster(self._agent.snapshot, rows, self.config.node_id)
        return with_own_state(rows, self.config.node_id, self.store, stopping=stopping)

    def _ended(self, task: asyncio.Task[None]) -> None:
        # it runs until it is cancelled; any other end is one that only an operator can mend
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fatal(problem)
