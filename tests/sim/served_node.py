"""What a process of a world serves to clients: the real services over its store, in its own loop.

    call ─▶ BrokerService, PullService, GroupCoordinator, PutPump (without its thread)
                     │ role: MasterRole over the term's MasterGroup, or one without a master
                     ▼
               ServedStore

The world tells the role when it changes, and runs the loop while the process does not stand still.
"""

import asyncio
import queue
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fakes.clock import FakeClock
from sim.served_store import QUEUES, TOPIC, ServedStore
from sim.world_loop import WorldLoop
from tandemlog.format.record.batch import RecordBatch
from tandemlog.v1 import admin_pb2, broker_pb2, common_pb2
from tandemlog_server.ha.config import HaConfig
from tandemlog_server.ha.election.key_values import LeaderValue
from tandemlog_server.ha.master import waiters
from tandemlog_server.ha.master.master_group import MasterGroup
from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.ha.store_port import tables_of
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError, error_of
from tandemlog_server.node.groups.group_coordinator import GroupCoordinator
from tandemlog_server.node.pulls.dispatch_wait import DispatchWait
from tandemlog_server.node.pulls.group_activity import GroupActivity
from tandemlog_server.node.pulls.long_polling import LongPolling
from tandemlog_server.node.pulls.pull_service import PullService
from tandemlog_server.node.pulls.queue_reads import QueueReads
from tandemlog_server.node.pulls.reading import PullLimits
from tandemlog_server.node.puts.confirm_waiters import ConfirmWaiters, Outcome
from tandemlog_server.node.puts.put_pump import PumpLimits, PutPump
from tandemlog_server.node.puts.put_stream import PendingPut, PutStream
from tandemlog_server.node.roles.master_role import MasterRole
from tandemlog_server.node.roles.role import CurrentRole, NodeRole
from tandemlog_server.node.services.broker_service import BrokerService
from tandemlog_server.node.services.group_service import GroupService
from tandemlog_server.node.services.master_answers import Leadership, speaks
from tandemlog_server.node.services.permissions import ADMIN, BROKER
from tandemlog_server.node.settings.sections import GroupsSection
from tandemlog_server.storage.puts.put_path import PutResult

if TYPE_CHECKING:
    from tandemlog_server.storage.errors import StoreError

PUT_TIMEOUT_MS = 5_000
TABLE_LOOK_S = 0.05
ADMIN_METHODS = ("DescribeCluster", "ListTopics")
ANSWERS = {
    name: getattr(module, f"{name}Response")
    for module, names in (
        (broker_pb2, ("QueueRanges", "SearchOffset", "CommitOffsets", "FetchOffsets", "Pull",
                      "GroupHeartbeat", "DescribeGroup", "DescribeProducer", "CheckPositions")),
        (admin_pb2, ADMIN_METHODS),
    )
    for name in names
}  # fmt: skip


class NoMasterRole(NodeRole):
    """Of a slave, or of a node without a master: as SlaveRole and WaitingRole, without rows."""

    def __init__(self, reason: str, hint: str = "") -> None:
        self.reason = reason
        self.hint = hint

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, "this node is not the master any more"

    def no_master(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(
            common_pb2.NOT_MASTER, f"{what} the master: {self.reason}", hint=self.hint
        )

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return ()

    def put_fault(self) -> str:
        return self.reason

    def read_fault(self) -> str:
        return self.reason


class SimReplication(ReplicationMaster):
    """The term of a simulated master as its role sees it; its streams are the world's."""

    def __init__(
        self, store: ServedStore, config: HaConfig, clock: FakeClock, group: MasterGroup
    ) -> None:
        self.store = store
        self.config = config
        self.clock = clock
        self._group = group
        self._closing = False
        self._rounds = waiters.Waiters[int](lambda number: group.led_in_round(number))

    def _wake_all(self) -> None:
        """The world sends what is to be sent."""

    def look(self) -> None:
        """Whatever may have changed the answers of the set."""
        self._rounds.check()

    async def table_replicated(
        self, kind: str, timeout_s: float, version: int | None = None
    ) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        if version is None:
            version = tables_of(self.store)[kind].version
        while not self.group.tables_held(kind, version):
            if loop.time() >= deadline:
                return False
            await asyncio.sleep(TABLE_LOOK_S)
        if self.config.mode.waits:
            needed = self.group.needed_tables
            needed[kind] = max(needed.get(kind, version), version)
        return True


class Waiters(ConfirmWaiters):
    """The real ones; the world hears of a promise in the moment in which it is given."""

    promised: Callable[[PendingPut], None]

    def _resolve(
        self, number: int, waiter: Any, outcome: Outcome, failure: "StoreError | None" = None
    ) -> None:
        if outcome is Outcome.CONFIRMED and isinstance(waiter, PendingPut):
            self.promised(waiter)
        super()._resolve(number, waiter, outcome, failure)


class InlineQueue(queue.SimpleQueue[Any]):
    """What would be the writer thread's is done at once, and delivered in the loop's next turn."""

    def __init__(self, pump: "InlinePump") -> None:
        self._pump = pump

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        if item is not None:
            done: list[Any] = []
            self._pump._append(item, done)
            self._pump._loop.call_soon(self._pump._deliver, done)


class InlinePump(PutPump):
    """The real one, without a thread."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._queue = InlineQueue(self)


class Turns:
    """Reads are done at once."""

    async def run(self, caller: Caller, work: Callable[[], Any], **more: Any) -> Any:
        return work()

    def may_read_now(self, caller: Caller, room: int) -> bool:
        return True

    def hold(self, caller: Caller, size: int) -> None:
        return

    def release(self, caller: Caller) -> None:
        return


class AllKnown:
    """Of KnownQueues, what is asked for."""

    def check_topic(self, topic: str) -> None:
        return

    def check_queue(self, topic: str, queue_id: int) -> None:
        return


class Service:
    """See the module. `appended` is called behind each append, `promised` with each put whose
    answer is PUT_OK; `describe` is the answer to DescribeCluster; `answering` is told of each
    other question, and what it returns of the answer."""

    def __init__(
        self,
        store: ServedStore,
        clock: FakeClock,
        *,
        appended: Callable[[], None],
        promised: Callable[[PendingPut, PutResult], None],
        describe: Callable[[], admin_pb2.DescribeClusterResponse],
        answering: Callable[[str, Any], Callable[[Any], None]],
    ) -> None:
        self.store = store
        self.loop = WorldLoop(clock)
        self._clock = clock
        self._appended = appended
        self._describe = describe
        self.answering = answering
        self._results: dict[PendingPut, PutResult] = {}
        self.calls: set[asyncio.Future[Any]] = set()
        self.streams: list[Any] = []
        self.current = CurrentRole(NoMasterRole("this node is starting"))
        self.leadership = Leadership(self.current)
        self.replication: SimReplication | None = None
        positions = (store.confirmed, store.log.flushed)
        self.waiters = Waiters(positions, lambda: self.current.role.epoch(), self.loop)
        self.waiters.promised = lambda put: promised(put, put.result) if put.result else None
        self.current.on_change = self.waiters.check
        limits = PumpLimits(max_pending_bytes=128 << 20, timeout_ms=PUT_TIMEOUT_MS)
        self.pump = InlinePump(
            self, self.current, self.waiters, self.loop, store_host="10.0.0.1:1", limits=limits
        )
        turns: Any = Turns()
        known: Any = AllKnown()
        activity = GroupActivity(100, clock.monotonic)
        reader: Any = store.reader
        self.polling = LongPolling(self.loop, lambda: reader.count)
        store.reputed.listen(lambda: self.polling.on_dispatch(range(QUEUES)))
        whole: Any = store  # it has of a MessageStore what these ask for
        reads = QueueReads(
            reader,
            self.polling,
            turns,
            check=known.check_queue,
            dense=reader.dense,
            ends=reader.ends_of,
            dispatched=DispatchWait(whole).confirmed,
            on_slave=lambda: self.current.role.epoch() is None,
            limits=PullLimits(max_bytes=8 << 20, max_wait_ms=60_000, long_polls=4_096),
            log_term=lambda: store.log_identity.newest,
        )
        self.pulls = PullService(reads)
        self.groups = GroupCoordinator(whole, self.current, clock.monotonic, GroupsSection())
        members = GroupService(whole, self.groups, known, turns, activity)
        segments: Any = None
        self.broker = BrokerService(
            whole,
            self.pump,
            self.pulls,
            segments,
            known,
            turns,
            members,
            require_master=lambda: self.current.role.require_master("compare positions with"),
            recall=segments,
        )
        self.loop.begin(self.groups.run())

    # --- the role

    def lead(self, group: MasterGroup, config: HaConfig, lease_fault: Callable[[], str]) -> None:
        self.replication = replication = SimReplication(self.store, config, self._clock, group)
        whole: Any = self.store
        self.current.set(
            MasterRole(whole, replication, timeout_ms=PUT_TIMEOUT_MS, lease_fault=lease_fault)
        )

    def follow(self, leader: LeaderValue) -> None:
        self.current.set(NoMasterRole("this node is a slave", f"{leader.node_id}:1"))

    def fence(self, reason: str) -> None:
        self.current.set(NoMasterRole(reason))

    def hold_puts(self, reason: str) -> None:
        if isinstance(self.current.role, MasterRole):
            self.current.role.held_back = reason

    # --- what clients ask

    def put(self, batch: RecordBatch, **more: object) -> PutResult:
        """The pump's store."""
        result = self.store.put(batch)
        self._appended()
        return result

    async def answer(self, method: str, request: Any) -> Any:
        """As call_door: an error becomes the answer's."""
        told = self.answering(method, request)
        answer = await self._answer(method, request)
        told(answer)
        return answer

    async def _answer(self, method: str, request: Any) -> Any:
        """As CallDoor, around a method."""
        kind, begun_in = speaks(ADMIN if method in ADMIN_METHODS else BROKER, method), None
        try:
            begun_in = await self.leadership.begin(kind, request)
            made = await self._made(method, request)
            await self.leadership.vouch(kind, request, made, begun_in)
        except Exception as problem:
            error = error_of(problem)
            if error.code == common_pb2.INTERNAL:
                raise
            made = ANSWERS[method](error=await self.leadership.refuse(error, begun_in))
        return made.SerializeToString() if method == "Pull" else made

    async def _made(self, method: str, request: Any) -> Any:
        if method == "Pull":
            return broker_pb2.PullResponse.FromString(
                await self.broker.pull_bytes(request, Caller())
            )
        if method == "DescribeCluster":
            return self._describe()
        if method == "ListTopics":
            topic = admin_pb2.Topic(name=TOPIC, read_queues=QUEUES, write_queues=QUEUES)
            return admin_pb2.ListTopicsResponse(topics=[topic])
        return await getattr(self.broker, method)(request, Caller())

    def open_stream(self) -> PutStream:
        return self.pump.open_stream(Caller())

    def end(self) -> None:
        """The process is gone."""
        for call in self.calls:
            if not call.done():
                call.set_exception(ConnectionResetError("the node is gone"))
        for stream in self.streams:
            stream.break_off()
        self.loop.abandon()


def later(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *arguments: Any) -> None:
    """In another loop of the world."""
    if not loop.is_closed():
        loop.call_soon(partial(call, *arguments))
