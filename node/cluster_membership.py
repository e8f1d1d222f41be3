"""A node's part in its cluster: who decides what it is (roles/terms.py), and what that needs.

    role = "master", "slave"    the configuration, once and for all
    [coordinator]               an agent takes part in elections; roles change in the process
    follow                      a relay of a RocketMQ broker's log, until it takes over

`prepare` takes the role, `start` lets the log move, `close` ends it all; the store stays open.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.config import Role
from tandemlog_server.ha.coordinator.etcd_client import connect, since_boot
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.election.requests import ClusterRequests
from tandemlog_server.ha.election.role_host import Identity
from tandemlog_server.ha.replication_file import StateFile
from tandemlog_server.rocketmq.follow.address import parse_address

from .cluster_rows import with_own_state
from .error_status import RequestRefusedError
from .process.tasks import cancelled
from .puts.confirm_waiters import ConfirmWaiters
from .puts.put_pump import PutPump
from .roles.elected_roles import ElectedRoles
from .roles.following_roles import FollowingRoles, Takeover, check_follows
from .roles.terms import Terms
from .services.election_service import ElectionService
from .settings.node_config import NodeConfig


class ConfiguredRole:
    """The role that the configuration names, from the start of the node to its stop."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    async def prepare(self) -> None:
        """Take the role."""
        config = self._terms.config
        if config.role is Role.MASTER:
            await self._terms.lead()
        else:
            self._terms.serve(self._terms.follow(config.master_endpoint).servicer)

    def start(self) -> None:
        self._terms.run_slave()

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return self._terms.role.members()

    async def close(self) -> None:
        await self._terms.close()


class ClusterMembership:
    """See the module. What has to be undone when the node stops goes to `undo`; `elections` is None
    where nothing is elected."""

    roles: ConfiguredRole | ElectedRoles | FollowingRoles
    elections: ElectionService | None = None

    def __init__(self, config: NodeConfig, terms: Terms, undo: AsyncExitStack) -> None:
        self._config = config
        self._terms = terms
        self._undo = undo

    async def prepare(self) -> None:
        """Take the role. Raises StoreError and HaError."""
        config, terms, store = self._config, self._terms, self._terms.store
        await asyncio.to_thread(StateFile(store.directory, store.files).check_role, terms.config)
        if config.follow:
            self.roles = FollowingRoles(terms, parse_address(config.follow), config.following)
        else:
            await asyncio.to_thread(check_follows, store.directory, store.files)
            self.roles = ElectedRoles(terms) if config.elects else ConfiguredRole(terms)
        await self.roles.prepare()
        if isinstance(self.roles, ElectedRoles):
            self._meet_coordinator(self.roles)
        # undone before the connection to the coordinator is: the lease is given back by it
        self._undo.push_async_callback(self.roles.close)

    def _meet_coordinator(self, roles: ElectedRoles) -> None:
        """The agent that decides over the role, once it is started, and what operators ask it."""
        terms, election, state = self._terms.config, self._config.election_config(), roles.state
        coordinator = connect(self._config.coordinator_options())
        self._undo.push_async_callback(coordinator.close)
        identity = Identity(
            terms.node_id,
            terms.endpoint,
            terms.http_endpoint,
            terms.store_host,
            state.cluster_uuid,
            state.starts,
            terms.rocketmq_endpoint,
            terms.rocketmq_grpc_endpoint,
        )
        agent = roles.agent = ElectionAgent(
            coordinator, roles, identity, terms, election, self._terms.clock, since_boot
        )
        self.elections = ElectionService(
            terms.node_id,
            self._config.coordinator.endpoints,
            agent,
            roles,
            ClusterRequests(coordinator, agent.keys, election.lease_ttl_s, terms.required),
            product=coordinator.product,
            now=since_boot,
        )

    def start(self, waiters: ConfirmWaiters, pump: PutPump) -> None:
        """A slave takes log after everything else is set up: a port in use is reported before a
        byte is cut or stored, and late imports do not share the processor with the stream. For the
        same reason a node takes part in elections only now."""
        self._terms.on_change = waiters.check
        self._terms.puts_under_way = lambda: pump.under_way
        self.roles.start()
        if self.elections is not None:
            learning = asyncio.create_task(self.elections.learn_product(), name="product")
            self._undo.push_async_callback(cancelled, learning)

    async def close(self) -> None:
        """The slaves get the newest tables, then the role ends."""
        await self._terms.send_tables()
        await self.roles.close()

    async def take_over(self, *, force: bool, dry_run: bool) -> Takeover:
        """Raises RequestRefusedError if this node follows no RocketMQ broker."""
        if not isinstance(self.roles, FollowingRoles):
            raise RequestRefusedError(
                common_pb2.CHANGE_REFUSED,
                "this node follows no RocketMQ broker (follow is not in its configuration)",
            )
        return await self.roles.takeover(force=force, dry_run=dry_run)

    def members(self, *, stopping: bool) -> Sequence[common_pb2.NodeStatus]:
        """All nodes that are known; of this one also what its role does not know."""
        rows, node_id = self.roles.members(), self._terms.config.node_id
        return with_own_state(rows, node_id, self._terms.store, stopping=stopping)
