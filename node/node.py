"""One node: an ordered list of set-up steps, and the same list reversed when it stops.

    addresses ▸ store (lock, recovery) ▸ replication ▸ put path ▸ gRPC ▸ HTTP ▸ open for puts
                                                                                    │
    released  ◂ store (flush, dispatch,◂ replication ◂ threads ◂ gRPC ◂ HTTP ◂ puts drained
                checkpoint, no abort)

The slaves are still connected while the last puts are drained, so these get their confirmation;
the store is closed last, when no caller can reach it any more.
"""

import asyncio
import importlib
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack

from ha.config import HaConfig
from ha.coordinator.etcd_client import connect, since_boot
from ha.election.agent import ElectionAgent
from ha.election.host import Identity
from ha.election.requests import ClusterRequests
from ha.master.master import ReplicationMaster
from ha.protocol.replication_service import ReplicationService
from ha.rocketmq.follow.address import parse_address
from ha.slave.slave import ReplicationSlave
from storage.message_store import MessageStore
from tandemlog.v1 import common_pb2

from .cluster_rows import rows_without_master, with_own_state, with_roster
from .groups.coordinator import GroupCoordinator
from .groups.limits import GroupLimits
from .http.health import Health
from .http.numbers import NodeCounters, NodeNumbers
from .process.machine import Machine
from .process.memory import give_back_at_rest, machine_memory_bytes
from .process.tasks import cancelled, nothing
from .pulls.group_activity import GroupActivity
from .pulls.known_queues import KnownQueues
from .pulls.long_polling import LongPolling
from .pulls.pull_service import FAR_BEHIND_MEMORY_SHARE, PullLimits, PullService
from .pulls.read_turns import ReadTurns
from .pulls.segment_stream import SegmentStream
from .puts.ack_stats import AckStats
from .puts.append_pump import AppendPump, PumpLimits
from .puts.confirm_waiters import ConfirmWaiters
from .roles.elected_roles import AgentCalls, ElectedRoles
from .roles.following_roles import FollowingRoles, Takeover, takeover_of
from .roles.master_role import MasterRole
from .roles.rocketmq_serving import RocketmqServing
from .roles.role import NodeRole, SureRole
from .roles.slave_role import SlaveRole
from .security.node_security import NodeSecurity
from .services.admin_service import AdminService
from .services.broker_service import BrokerService
from .services.call_door import CallDoor
from .services.elections import Elections
from .services.group_service import GroupService
from .services.grpc_server import GrpcServer
from .settings.config import NodeConfig
from .settings.endpoints import Endpoints, choose_endpoints
from .settings.host_port import split_endpoint

logger = logging.getLogger(__name__)

STOP_GRACE_S = 1.0
ADMIN_THREADS = 2


class Node:
    """See the module. `start`, then `stop`; a failed `start` undoes what it did.

    `fatal` is done when the node cannot continue, with the reason.
    """

    endpoints: Endpoints
    brokers: RocketmqServing
    security: NodeSecurity
    store: MessageStore
    role: NodeRole
    waiters: ConfirmWaiters
    pump: AppendPump
    pulls: PullService
    server: GrpcServer

    def __init__(self, config: NodeConfig, machine: Machine | None = None) -> None:
        self.config = config
        self._machine = machine or Machine()
        self._clock = self._machine.clock
        self._undo = AsyncExitStack()
        self._stopping = False
        self._started_at = time.monotonic()
        self._close_replication: Callable[[], Awaitable[None]] = nothing
        self._slave: ReplicationSlave | None = None
        self._elected: ElectedRoles | None = None
        self.following: FollowingRoles | None = None
        self.agent: ElectionAgent | None = None
        self.elections: Elections | None = None
        self._taking_part: asyncio.Task[None] | None = None
        self.fatal: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Raises ListenError, ConfigError, StoreError, HaError: one clear line each."""
        try:
            self.security = NodeSecurity(self.config)
            self.endpoints = choose_endpoints(self.config)
            self.brokers = RocketmqServing(self.config)
            await self._open_store()
            replication = await self._start_replication()
            self._start_put_path()
            turns = self._start_reads()
            await self._start_grpc(replication, turns)
            await self._start_http()
            self._follow()
            self._watch_files_and_memory()
            self._undo.push_async_callback(self._drain)
        except BaseException:
            await self._undo.aclose()
            raise
        self._say_started()

    async def stop(self) -> None:
        """Refuse new puts, finish those under way, then take everything down in order."""
        logger.info("stopping")
        self._stopping = True
        await self._undo.aclose()
        logger.info("stopped")

    # ---- the steps

    async def _open_store(self) -> None:
        config = self.config.store_config(store_host=self.endpoints.store_host)
        self.store = await asyncio.to_thread(self._machine.open_store, config)
        self._undo.push_async_callback(asyncio.to_thread, self.store.close)
        await asyncio.to_thread(self.store.start)

    async def _start_replication(self) -> ReplicationService:
        """Take the configured role; returns what other nodes can ask of this one."""
        config = self.config.ha_config(
            endpoint=self.endpoints.advertise,
            http_endpoint=self.endpoints.http,
            store_host=self.endpoints.store_host,
        )
        if self.config.elects:
            return await self._start_election(config)
        if self.config.follow:
            return await self._start_following(config)
        files = self.store.files
        if self.config.role == "master":
            master = ReplicationMaster(self.store, config, self._clock, files=files)
            self._close_replication = self.brokers.closing(master)
            self._undo.push_async_callback(self._close_replication)
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
        """The log comes from a RocketMQ broker; nothing does before `_follow`."""
        put = self.config.put
        roles = self.following = FollowingRoles(
            parse_address(self.config.follow),
            self.store,
            config,
            self._clock,
            self.config.following,
            max_unconfirmed_bytes=put.max_unconfirmed_bytes,
            timeout_ms=put.timeout_ms,
            fatal=self._end_by,
        )
        self._close_replication = roles.close
        self._undo.push_async_callback(roles.close)
        await roles.prepare()
        self.role = roles.switch
        return roles.replication.servicer

    async def _start_election(self, config: HaConfig) -> ReplicationService:
        """The cluster decides over the role; nothing does before `_follow`."""
        endpoints, put, election = self.endpoints, self.config.put, self.config.election_config()
        roles = self._elected = ElectedRoles(
            self.store,
            config,
            self._clock,
            rows=self._rows_without_master,
            brokers=self.brokers,
            max_unconfirmed_bytes=put.max_unconfirmed_bytes,
            timeout_ms=put.timeout_ms,
            fatal=self._end_by,
        )
        self._close_replication = self._leave_cluster
        self._undo.push_async_callback(self._leave_cluster)
        state = await roles.prepare()
        coordinator = connect(self.config.coordinator_options())
        self._undo.push_async_callback(coordinator.close)
        addresses = endpoints.advertise, endpoints.http, endpoints.store_host
        identity = Identity(config.node_id, *addresses, state.cluster_uuid, state.starts)
        agent = self.agent = ElectionAgent(
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

    async def _leave_cluster(self) -> None:
        """The lease is given back first, so that the others elect while this node stops."""
        if self._taking_part is not None:
            await cancelled(self._taking_part)
            self._taking_part = None
        if self._elected is not None:
            self._elected.fence("this node is stopping")
        if self.agent is not None:
            await self.agent.resign()
        if self._elected is not None:
            await self._elected.close()

    def _rows_without_master(self, reason: str) -> Sequence[common_pb2.NodeStatus]:
        assert self.agent is not None
        assert self._elected is not None
        return rows_without_master(
            self.agent.snapshot, self.store, self._elected.state, self.config.node_id, reason
        )

    def _follow(self) -> None:
        """A slave takes log after everything else is set up: a port in use is reported before a
        byte is cut or stored, and late imports do not share the processor with the stream. For the
        same reason a node takes part in elections only now."""
        if self.agent is not None and self._elected is not None:
            self._elected.switch.on_change = self.waiters.look
            self._elected.count_puts = lambda: self.pump.under_way
            self._taking_part = asyncio.create_task(self.agent.run(), name="election")
            self._taking_part.add_done_callback(self._replication_ended)
        if self.elections is not None:
            learning = asyncio.create_task(self.elections.learn_product(), name="product")
            self._undo.push_async_callback(cancelled, learning)
        if self.following is not None:
            self.following.switch.on_change = self.waiters.look
            self.following.start()
        if self._slave is None:
            return
        task = asyncio.create_task(self._slave.run(), name="replication")
        task.add_done_callback(self._replication_ended)
        self._undo.push_async_callback(cancelled, task)

    def _start_put_path(self) -> None:
        loop = asyncio.get_running_loop()
        positions = (self.store.confirmed, self.store.log.flushed)
        self.waiters = ConfirmWaiters(positions, self.role.epoch, loop)
        self._undo.callback(self.waiters.close)
        limits = PumpLimits(self.config.put.max_pending_bytes, self.config.put.timeout_ms)
        self.pump = AppendPump(
            self.store,
            self.role,
            self.waiters,
            loop,
            store_host=self.endpoints.store_host,
            limits=limits,
            stats=AckStats(self.store.stats.put_latency),
        )
        self.pump.start()
        self._undo.push_async_callback(self.pump.stop, 0.0)

    def _start_reads(self) -> ReadTurns:
        store, config = self.store, self.config.pull
        turns = ReadTurns(config.threads, self.config.limits.answer_bytes)
        self._turns = turns
        self._undo.callback(turns.close)
        self._groups = GroupActivity(self.config.limits.metric_groups, time.monotonic)
        polling = LongPolling(asyncio.get_running_loop(), lambda: store.queue_table.count)
        store.on_dispatch(lambda queues: polling.on_dispatch(queues.tolist()))
        self._known = KnownQueues(store.topics, store.queue_table)
        far_behind = round(machine_memory_bytes() * FAR_BEHIND_MEMORY_SHARE)
        self.pulls = PullService(
            store.reader,
            polling,
            turns,
            check=self._known.check_queue,
            dense=store.queue_table.get,
            ends=store.queues.ends_of,
            on_slave=lambda: self.role.epoch() is None,
            limits=PullLimits(
                config.max_bytes, config.max_wait_ms, self.config.limits.long_polls, far_behind
            ),
            groups=self._groups,
        )
        return turns

    async def _start_grpc(self, replication: ReplicationService, turns: ReadTurns) -> None:
        store, config = self.store, self.config
        segments = SegmentStream(store.log, store.confirmed, turns, config.pull.chunk_bytes)
        executor = ThreadPoolExecutor(ADMIN_THREADS, thread_name_prefix="admin")
        self._undo.callback(executor.shutdown, wait=True, cancel_futures=True)
        bounds = {"max_calls": config.limits.calls, "max_streams": config.limits.streams}
        limits = GroupLimits(**config.groups.model_dump())
        self.groups = GroupCoordinator(store, SureRole(self.role), time.monotonic, limits)
        looking = asyncio.create_task(self.groups.run(), name="groups")
        self._undo.push_async_callback(cancelled, looking)
        members = GroupService(store, self.groups, self._known, turns, self._groups)
        self._door = CallDoor(turns, **bounds, keeper=self.security.doorkeeper)
        self._counters = NodeCounters(
            config,
            store,
            door=self._door,
            turns=turns,
            pulls=self.pulls,
            groups=self._groups,
            membership=self.groups,
            waiting=self.waiters,
            acks=self.pump.stats,
            leads=lambda: self.role.epoch() is not None,
            certificate_expiry_s=self.security.certificate_expiry_s,
        )
        self.server = GrpcServer(
            BrokerService(store, self.pump, self.pulls, segments, self._known, turns, members),
            AdminService(
                store,
                self,
                config,
                executor,
                turns,
                self.statistics,
                self.elections,
                members=members,
            ),
            replication,
            self._door,
            max_batch_size=config.store.max_batch_size,
            tls=self.security.tls,
        )
        await self.server.start(self.endpoints.listen)
        self._undo.push_async_callback(self.server.stop, STOP_GRACE_S)

    async def _start_http(self) -> None:
        if not self.endpoints.http:
            return
        # see there why it is imported only now; puts are taken meanwhile
        module = await asyncio.to_thread(importlib.import_module, ".http.http_server", __package__)
        http = await module.serve_http(
            self,
            self.config.cluster_id,
            self.config.node_id,
            split_endpoint(self.endpoints.http),
            self.elections,
            self.security,
        )
        self._undo.push_async_callback(http.stop)

    def _watch_files_and_memory(self) -> None:
        if self.security.watches:
            watching = asyncio.create_task(self.security.watch(), name="security")
            self._undo.push_async_callback(cancelled, watching)
        store, door = self.store, self._door

        def activity() -> int:
            # calls that are refused, or find nothing, take memory too
            return store.log.wrote.value + store.reputed.value + door.calls_total + door.calls

        task = asyncio.create_task(give_back_at_rest(activity), name="memory")
        self._undo.push_async_callback(cancelled, task)

    async def _drain(self) -> None:
        """The first step of a stop: nothing new comes in, what came in is answered."""
        await self.server.say_not_serving()
        self.pulls.close()
        if not await self.pump.stop(self.config.stop_timeout_ms / 1000):
            logger.warning(
                "stopping: %d puts were not confirmed within %d ms, their outcome is unknown",
                len(self.waiters),
                self.config.stop_timeout_ms,
            )
        self.waiters.close()
        self.pump.end_streams()
        # the slaves have what they need; their streams would only keep the server waiting
        await self._close_replication()

    def _replication_ended(self, task: asyncio.Task[None]) -> None:
        # it runs until it is cancelled; any other end is one that only an operator can mend
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._end_by(problem)

    def _end_by(self, problem: BaseException) -> None:
        if not self.fatal.done():
            self.fatal.set_result(problem)

    # ---- what the node says of itself

    def require_master(self, what: str) -> None:
        """Raises RequestRefusedError on a slave."""
        self.role.require_master(what)

    def require_topics(self) -> None:
        """Raises RequestRefusedError if the topics come from a RocketMQ broker."""
        self.role.require_topics()

    async def admit_change(self) -> None:
        """Raises RequestRefusedError if a table cannot be changed now."""
        await self.role.admit_change()

    async def settle(self, table: str) -> None:
        """Wait until a changed table is safe. Raises RequestRefusedError."""
        await self.role.settle(table)

    async def take_over(self, *, force: bool, dry_run: bool) -> Takeover:
        """Raises RequestRefusedError if this node follows no RocketMQ broker."""
        return await takeover_of(self.following, force=force, dry_run=dry_run)

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        """All nodes that are known; of this one also what its role does not know."""
        rows = self.role.members()
        if self.agent is not None:
            rows = with_roster(self.agent.snapshot, rows, self.config.node_id)
        return with_own_state(rows, self.config.node_id, self.store, stopping=self._stopping)

    def status(self) -> common_pb2.NodeStatus:
        """This node as it stands in the list of members."""
        for member in self.members():
            if member.node_id == self.config.node_id:
                return member
        raise AssertionError("a node is a member of its own cluster")

    def health(self) -> Health:
        """For the HTTP endpoints; of no I/O."""
        failure = self.store.failure
        stopping = "the node is stopping" if self._stopping else ""
        fault = str(failure) if failure is not None else ""
        return Health(
            self.status(),
            store_fault=fault,
            alarms=self.role.alarms(),
            put_fault=stopping or fault or self.role.put_fault(),
            read_fault=stopping or self.role.read_fault(),
        )

    def statistics(self) -> Mapping[str, float]:
        """For `Admin.stats()`."""
        return self._counters.statistics()

    def numbers(self) -> NodeNumbers:
        """For /metrics."""
        return self._counters.numbers(
            self.members(),
            can_ack=not self.health().put_fault,
            alarms=self.role.alarms(),
            elections=None if self.elections is None else self.elections.numbers(),
        )

    def _say_started(self) -> None:
        status = self.status()
        logger.info(
            "started role=%s endpoint=%s http=%s epoch=%d log=%d..%d seconds=%.3f",
            self.config.ha_role.value,
            self.endpoints.advertise,
            self.endpoints.http or "none",
            status.epoch,
            status.min_offset,
            status.wrote_offset,
            time.monotonic() - self._started_at,
        )
