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
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from tandemlog.lazy import lazy
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.delay_desk import DelayDesk
from tandemlog_server.storage.services.transaction_desk import TransactionDesk

from .archive.node_archive import NodeArchive
from .cluster_membership import ClusterMembership
from .cluster_rows import with_faults
from .groups.group_coordinator import GroupCoordinator
from .http.health import Health
from .http.node_numbers import NodeCounters, NodeNumbers
from .process.log_setup import set_level
from .process.machine import Machine
from .process.machine_bounds import byte_bound, connection_bounds, open_files
from .process.memory_at_rest import give_back_at_rest
from .process.tasks import cancelled
from .pulls.group_activity import GroupActivity
from .pulls.known_queues import KnownQueues
from .pulls.node_reads import node_reads
from .pulls.pull_service import PullService
from .pulls.queue_reads import QueueReads
from .pulls.read_turns import ReadTurns
from .pulls.segment_stream import SegmentStream
from .puts.ack_stats import AckStats
from .puts.confirm_waiters import ConfirmWaiters
from .puts.delay_service import DelayService
from .puts.put_pump import PumpLimits, PutPump
from .roles.following_roles import Takeover
from .roles.rocketmq_serving import RocketmqServing
from .roles.role import NodeRole
from .roles.terms import Terms
from .scrub.scrub_methods import ScrubMethods
from .scrub.scrub_service import ScrubService
from .security.node_security import NodeSecurity
from .services.admin_service import AdminService
from .services.broker_service import BrokerService
from .services.call_door import CallDoor
from .services.data_server import DataServer
from .services.group_service import GroupService
from .services.grpc_server import GrpcServer, data_methods, largest_put
from .services.master_answers import Leadership
from .services.transaction_ends import TransactionEnds
from .services.transaction_service import TransactionService
from .services.work_methods import WorkMethods
from .settings.listen_endpoints import Endpoints, ListenError, choose_endpoints
from .settings.node_config import AUTO, NodeConfig
from .settings.running_settings import RunningSettings
from .transactions.transaction_work import TransactionWork
from .work.dead_letter_service import DeadLetterService
from .work.work_service import WorkService

if TYPE_CHECKING:
    from . import rocketmq_clients, rocketmq_messaging
    from .messaging.messaging_server import MessagingServer
    from .remoting.door.remoting_server import RemotingServer
else:
    # 150 modules: where RocketMQ's clients have no door, the first put does not wait for them
    rocketmq_clients = lazy(f"{__package__}.rocketmq_clients")
    rocketmq_messaging = lazy(f"{__package__}.rocketmq_messaging")

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
    terms: Terms
    delays: DelayService
    work: WorkService
    dead_letters: DeadLetterService
    transactions: TransactionWork
    membership: ClusterMembership
    waiters: ConfirmWaiters
    pump: PutPump
    reads: QueueReads
    pulls: PullService
    group_members: GroupService
    scrub: ScrubService
    server: GrpcServer
    data: DataServer
    rocketmq: "tuple[RemotingServer | MessagingServer, ...]" = ()

    def __init__(
        self, config: NodeConfig, machine: Machine | None = None, *, path: Path | None = None
    ) -> None:
        """`path` is the file that `config` was read from, if it was."""
        self.config = config
        self._settings = RunningSettings(config, path, self._apply_later)
        self._machine = machine or Machine()
        self._clock = self._machine.clock
        self._bounds = connection_bounds(open_files())
        self._undo = AsyncExitStack()
        self._stopping = False
        self.archive = NodeArchive()
        self._started_at = time.monotonic()
        self.fatal: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()

    async def start(self) -> None:
        """Raises ListenError, ConfigError, StoreError, HaError: one clear line each."""
        try:
            self.security = NodeSecurity(self.config)
            self.endpoints = choose_endpoints(self.config)
            self.brokers = RocketmqServing(self.config)
            await self._open_store()
            await self.archive.open(self.store, self.config, self._undo)
            await self._take_role()
            self._start_put_path()
            turns = self._start_reads()
            await self._start_grpc(turns)
            await self._start_http()
            self.membership.start(self.waiters, self.pump)
            self._undo.push_async_callback(asyncio.to_thread, self.scrub.stop)
            self.scrub.start()
            self._watch_files_and_memory()
            self.archive.start(self.members, self.config.node_id, self._undo)
            self._undo.push_async_callback(self._drain)
            self._undo.push_async_callback(self.archive.keep_choice)
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

    async def _take_role(self) -> None:
        endpoints, config = self.endpoints, self.config
        part = config.ha_config(**endpoints.told)
        self.terms = Terms(self.store, part, self._clock, self.brokers, config.put, self._end_by)
        self._start_services()
        self.membership = ClusterMembership(config, self.terms, self._undo)
        await self.membership.prepare()

    def _start_services(self) -> None:
        """What the node does by itself while it is the master; the role is taken afterwards."""
        store, config = self.store, self.config
        self.delays = DelayService(store, DelayDesk(store))
        self._undo.callback(self.delays.close)
        self._known = KnownQueues(store.topics, store.queue_table)
        self._turns = ReadTurns(config.pull.threads, byte_bound(config.limits.answer_bytes))
        self._undo.callback(self._turns.close)
        self.work = WorkService(
            store,
            self.terms,
            self._turns,
            self._known,
            config.work,
            long_polls=config.limits.long_polls,
            sync_timeout_s=config.put.timeout_ms / 1000,
        )
        self.dead_letters = DeadLetterService(self.work)
        self.transactions = TransactionWork(store, TransactionDesk(store), config.transactions)
        self.terms.services = (self.delays, self.work, self.transactions)
        self._undo.callback(self.work.close)
        self._undo.callback(self.transactions.close)

    def _start_put_path(self) -> None:
        loop = asyncio.get_running_loop()
        positions = (self.store.confirmed, self.store.log.flushed)
        self.waiters = ConfirmWaiters(positions, lambda: self.role.epoch(), loop)
        self._undo.callback(self.waiters.close)
        limits = PumpLimits(
            byte_bound(self.config.put.max_pending_bytes), self.config.put.timeout_ms
        )
        self.pump = PutPump(
            self.store,
            self.terms,
            self.waiters,
            loop,
            store_host=self.endpoints.store_host,
            limits=limits,
            stats=AckStats(self.store.stats.put_latency),
        )
        self.pump.start()
        self._undo.push_async_callback(self.pump.stop, 0.0)

    def _start_reads(self) -> ReadTurns:
        store, turns = self.store, self._turns
        self._groups = GroupActivity(self.config.limits.metric_groups, time.monotonic)
        self.reads = node_reads(
            store,
            turns,
            self._known,
            self._groups,
            self.config,
            on_slave=lambda: self.role.epoch() is None,
            cold=self.archive.cold,
        )
        self.pulls = PullService(self.reads)
        return turns

    async def _start_grpc(self, turns: ReadTurns) -> None:
        store, config = self.store, self.config
        self.scrub = ScrubService(store, config, self.members)
        segments = SegmentStream(store.log, store.confirmed, turns, config.pull.chunk_bytes)
        executor = ThreadPoolExecutor(ADMIN_THREADS, thread_name_prefix="admin")
        self._undo.callback(executor.shutdown, wait=True, cancel_futures=True)
        bounds = {"max_calls": config.limits.calls, "max_streams": config.limits.streams}
        self.group_members = members = self._group_service(turns)
        self._door = CallDoor(
            turns, **bounds, keeper=self.security.doorkeeper, leadership=Leadership(self.terms)
        )
        self._counters = NodeCounters(
            config,
            store,
            door=self._door,
            turns=turns,
            pulls=self.pulls,
            groups=self._groups,
            coordinator=self.groups,
            delays=self.delays.desk,
            work=self.work.numbers,
            transactions=self.transactions,
            waiting=self.waiters,
            acks=self.pump.stats,
            leads=lambda: self.role.epoch() is not None,
            scrub=self.scrub.statistics,
            archived=self.archive.statistics,
            certificate_expiry_s=self.security.certificate_expiry_s,
        )
        broker = BrokerService(
            store, self.pump, self.pulls, segments, self._known, turns, members,
            require_master=lambda: self.role.require_master("compare positions with"),
            recall=self._recall, cold=self.archive.cold,
        )  # fmt: skip
        self._start_data(broker)
        await self._start_rocketmq(members)
        admin = AdminService(
            store, self, self.terms, config, executor, turns, self.statistics,
            self.membership.elections, members=members, settings=self._settings,
            keeper=self._door.keeper, scrub=self.scrub,
        )  # fmt: skip
        self.server = GrpcServer(
            broker,
            admin,
            WorkMethods(self.work, self.dead_letters),
            self._transaction_service(turns, members),
            self.terms.servicer,
            self._scrub_methods(),
            self._door,
            max_batch_size=config.store.max_batch_size,
            tls=self.security.tls,
            connections=self._bounds.grpc,
        )
        self._undo.push_async_callback(self._stop_serving)
        await self.server.start(self.endpoints.listen)

    def _scrub_methods(self) -> ScrubMethods:
        rate = self.config.scrub.bytes_per_s
        methods = ScrubMethods(self.store, self.config.cluster_id, rate)
        self._undo.callback(methods.close)
        return methods

    async def _recall(self, request: broker_pb2.RecallRequest) -> broker_pb2.RecallResponse:
        timeout_s = self.config.put.timeout_ms / 1000
        return await self.delays.recall(request, self.waiters, self.role.epoch(), timeout_s)

    def _group_service(self, turns: ReadTurns) -> GroupService:
        limits, kinds = self.config.groups, self.work.kinds
        self.groups = GroupCoordinator(self.store, self.terms, time.monotonic, limits, kinds)
        looking = asyncio.create_task(self.groups.run(), name="groups")
        self._undo.push_async_callback(cancelled, looking)
        return GroupService(
            self.store,
            self.groups,
            self._known,
            turns,
            self._groups,
            self.transactions,
            self.work.group_deleted,
            self.work.setting,
        )

    def _transaction_service(self, turns: ReadTurns, members: GroupService) -> TransactionService:
        put = self.config.put
        ends = TransactionEnds(self.store, self.transactions, self.terms, self.waiters, put)
        return TransactionService(self.store, self.transactions, ends, self.terms, turns, members)

    async def _stop_serving(self) -> None:
        stops = [each.stop(STOP_GRACE_S) for each in self.rocketmq]
        await asyncio.gather(self.server.stop(STOP_GRACE_S), self.data.stop(STOP_GRACE_S), *stops)

    async def _start_rocketmq(self, members: GroupService) -> None:
        """Raises ListenError."""
        if not self.config.rocketmq_clients.on:
            return
        node = rocketmq_clients.ClientsNode(
            self.config,
            self.endpoints,
            self.security,
            self._door,
            self._turns,
            self.store,
            self.terms,
            self.membership,
            self.pump,
            self.waiters,
            self.reads,
            self._known,
            self.groups,
            self._groups,
            self.delays,
            self.work,
            self.transactions,
            members,
        )
        topics = rocketmq_clients.topic_creation(node)
        joint = rocketmq_clients.joint_sends(node)
        self._undo.callback(joint.close)
        data, grpc = self._bounds.data, self._bounds.grpc
        doors = rocketmq_clients.started_clients(node, topics, joint, connections=data)
        self.rocketmq = doors
        more = await rocketmq_messaging.started_messaging(node, topics, joint, connections=grpc)
        self.rocketmq = (*doors, *more)

    def _start_data(self, broker: BrokerService) -> None:
        """Raises ListenError for an address that was chosen by hand."""
        config = self.config
        self.data = DataServer(
            data_methods(broker, self._door),
            self._door.keeper,
            largest_put=largest_put(config.store.max_batch_size),
            connections=self._bounds.data,
            frame_bytes=byte_bound(config.put.max_pending_bytes),
        )
        if not self.endpoints.data:
            return
        try:
            self.data.start(self.endpoints.data)
        except ListenError as error:
            if config.data_listen != AUTO:
                raise
            logger.warning("no data connections, clients use gRPC: %s", error)

    async def _start_http(self) -> None:
        if not self.endpoints.http:
            return
        # see there why it is imported only now; puts are taken meanwhile
        module = await asyncio.to_thread(importlib.import_module, ".http_port", __package__)
        http = await module.serve_http_port(self, self._bounds)
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
        for each in self.rocketmq:
            each.answer_parked()
        self.pulls.close()
        self.work.cancel_waiting()
        if not await self.pump.stop(self.config.stop_timeout_ms / 1000):
            logger.warning(
                "stopping: %d puts were not confirmed within %d ms, their outcome is unknown",
                len(self.waiters),
                self.config.stop_timeout_ms,
            )
        self.waiters.close()
        self.pump.end_streams()
        # the slaves have what they need; their streams would only keep the server waiting
        await self.membership.close()

    def _end_by(self, problem: BaseException) -> None:
        if not self.fatal.done():
            self.fatal.set_result(problem)

    def _apply_later(self, config: NodeConfig) -> None:
        """From any thread: see `_apply`."""
        self.fatal.get_loop().call_soon_threadsafe(self._apply, config)

    def _apply(self, config: NodeConfig) -> None:
        """Settings that are LIVE count from now on."""
        self.config = config
        set_level(config.log.level)
        self.store.set_retention(config.store.retention)
        self.groups.limits = config.groups
        self.transactions.limits = config.transactions
        logger.info("settings changed while running: see `tandemlog config show`")

    # ---- what the node says of itself

    @property
    def role(self) -> NodeRole:
        return self.terms.role

    def data_offer(self) -> tuple[int, bytes]:
        """Port and key of the data connections; port 0 if there are none."""
        return self.data.port, self.data.key

    async def take_over(self, *, force: bool, dry_run: bool) -> Takeover:
        """Raises RequestRefusedError if this node follows no RocketMQ broker."""
        return await self.membership.take_over(force=force, dry_run=dry_run)

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        """All nodes that are known; of this one also what its role does not know."""
        members = self.membership.members(stopping=self._stopping)
        own = (self.security.certificate_fault(), *self.scrub.faults(), *self.archive.faults())
        return with_faults(members, self.config.node_id, own)

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
            store_fault=fault or next((str(each) for each in self.store.log.unreadable), ""),
            alarms=self.role.alarms(),
            put_fault=stopping or fault or self.role.put_fault(),
            read_fault=stopping or self.role.read_fault(),
        )

    def statistics(self) -> Mapping[str, float]:
        """For `Admin.stats()`."""
        return self._counters.statistics()

    def numbers(self) -> NodeNumbers:
        """For /metrics."""
        elections = self.membership.elections
        return self._counters.numbers(
            self.members(),
            can_ack=not self.health().put_fault,
            alarms=self.role.alarms(),
            elections=None if elections is None else elections.numbers(),
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
