"""The slave: connect, follow the master, and reconnect when a stream ends, forever.

load state ──▶ become slave ──▶ greet ──▶ follow ──▶ stream over
                                 ▲                      │ followed, resync, diverged: at once
                                 └──────── pause ◀──────┤ unreachable: growing pauses
                                                        │ refused permanently: now and then
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tandemlog.format.constants import MAX_GRPC_MESSAGE
from tandemlog.transport.channels import open_channel
from tandemlog.transport.security_files import SecurityFileError, SecurityFiles
from tandemlog.transport.tls_faults import explain, may_be_handshake
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.real_file_system import RealFileSystem
from tandemlog_server.storage.errors import StoreError

from ..config import HaConfig
from ..errors import DivergedError, HaError, HandshakeRefusedError, NotRunningError
from ..intake import StoreThreads, follow_forever
from ..master.node_status import (
    CATCHING_UP,
    IN_SYNC,
    NO_MASTER,
    READ_ONLY,
    REFUSED,
    STARTING,
    merged,
    own_status,
    row_of,
)
from ..protocol.frames import Hello
from ..protocol.replication_service import PATH, ReplicationService, refusing_service
from ..protocol.versions import OURS
from ..replication_file import StateFile, new_incarnation
from ..state import HaState
from ..store_port import StorePort
from .session import Disconnect, SlaveSession
from .store import SlaveStore
from .stream import Call, SlaveStream

logger = logging.getLogger(__name__)

CLEAN_INTERVAL_S = 600.0
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_GRPC_MESSAGE),
    ("grpc.max_send_message_length", MAX_GRPC_MESSAGE),
    # our own back-off decides when to try again
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1_000),
)


class StreamEndedError(HaError):
    """A stream ended before the slave followed the master."""


def _ignore(reason: str) -> None:
    return


@dataclass(frozen=True, slots=True)
class FollowState:
    """How the slave is doing. `fault` is empty while it follows, or is about to."""

    name: str = STARTING
    fault: str = ""
    read_only: bool = False
    master_id: str = ""
    epoch: int = 0


class ReplicationSlave:
    """See the module. `run` until it is cancelled. `on_lost` is told each time when a stream could
    not be opened or has ended, `on_joined` when one works. `master_id` is empty where only the
    endpoint is configured: then the master tells it. What goes wrong is logged when it changes, not
    with each attempt."""

    def __init__(
        self,
        store: StorePort,
        config: HaConfig,
        clock: Clock,
        *,
        files: FileSystem | None = None,
        unclean_epoch: int = 0,
        master_id: str = "",
        on_lost: Callable[[str], None] = _ignore,
        on_joined: Callable[[str], None] = _ignore,
    ) -> None:
        self._master_id = master_id
        self._said = ""
        self._lost_at: float | None = None
        self.store = store
        self.config = config
        self.state = FollowState()
        self._unclean_epoch = unclean_epoch
        self._on_lost, self._on_joined = on_lost, on_joined
        self.servicer: ReplicationService = refusing_service(
            lambda: f"{config.node_id} is a slave; its master is at {config.master_endpoint}"
        )
        self._clock = clock
        self._state_file = StateFile(store.config.directory, files or RealFileSystem())
        self._threads = StoreThreads()
        self._credentials = SecurityFiles(config.security)
        self._stored: SlaveStore | None = None
        self._masters_rows: Sequence[common_pb2.NodeStatus] = ()
        self._clean_at = 0.0
        self._cleaning: asyncio.Task[None] | None = None
        # an epoch table that lacks its last term would make equal logs look different
        self._distrust = bool(store.epochs.note)
        self._started_at = clock.monotonic()

    @property
    def ha_state(self) -> HaState | None:
        """What is durable of this node's part in the cluster; None before it was read."""
        return None if self._stored is None else self._stored.state

    async def run(self) -> None:
        """Follow the master until cancelled. Raises StateFileError for a store of another node."""
        try:
            state = await self._threads.write(lambda: self._state_file.load(self.config))
            self._stored = SlaveStore(
                self.store,
                state,
                self._state_file.save,
                new_incarnation,
                self.config,
                self._clock,
                unclean_epoch=self._unclean_epoch,
            )
            await self._threads.write(self.store.become_slave)
            config = self.config
            first_s, longest_s = config.reconnect_min_ms / 1000, config.reconnect_max_ms / 1000
            await follow_forever(self._follow, first_s, longest_s, self._fixed_pause)
        finally:
            if self._stored is not None:
                self._stored.stop()
            await self._threads.close()

    def members(self) -> list[common_pb2.NodeStatus]:
        """All nodes as the master reported them; the last row is this node's present state."""
        stored, state = self._stored, self.state
        own = own_status(
            self.store,
            self.config,
            epoch=state.epoch or (0 if stored is None else stored.state.accepted_epoch),
            incarnation=stored.state.incarnation if stored is not None else "",
            uptime_s=self._clock.monotonic() - self._started_at,
        )
        own.role = common_pb2.SLAVE
        rows = merged(self._masters_rows, own, state.fault)
        mine = rows[-1]
        mine.state = IN_SYNC if state.name == CATCHING_UP and mine.in_sync else state.name
        mine.detail = state.fault
        if self._lost_at is not None:
            mine.lag_seconds = max(mine.lag_seconds, self._clock.monotonic() - self._lost_at)
        return rows

    def _fixed_pause(self, error: BaseException | None) -> float | None:
        refused = isinstance(error, HandshakeRefusedError) and not error.retry
        return self.config.refused_retry_ms / 1000 if refused else None

    async def _follow(self) -> None:
        """One stream from its start to its end; returns where another one is due at once."""
        try:
            await self._one_stream()
        except DivergedError as diverged:
            logger.warning("%s", diverged)
            self._distrust = True
        except HandshakeRefusedError as refused:
            level = logging.WARNING if refused.retry else logging.ERROR
            self._say(level, f"this slave cannot follow: {refused.reason}")
            self._lost(refused.reason, CATCHING_UP if refused.retry else REFUSED)
            raise
        except StreamEndedError as ended:
            self._say(logging.WARNING, str(ended))
            self._lost(str(ended))
            raise
        except (HaError, StoreError, OSError) as error:
            self._say(logging.ERROR, f"following the master failed: {error}")
            if self.store.log.flushed.failure is not None and not self.state.read_only:
                self._say_failed(str(error))
            self._lost(str(error))
            raise

    async def _one_stream(self) -> None:
        config, stored = self.config, self._stored
        if stored is None:
            raise NotRunningError("this slave has not been started")
        await self._threads.wait()
        hello = Hello(
            config.cluster_id,
            config.node_id,
            stored.state.incarnation,
            endpoint=config.endpoint,
            http_endpoint=config.http_endpoint,
            store_host=config.store_host,
            rocketmq_endpoint=config.rocketmq_endpoint,
            rocketmq_grpc_endpoint=config.rocketmq_grpc_endpoint,
            build=OURS,
        )
        distrust = self._distrust
        hello, me = await self._threads.write(lambda: stored.greeting(hello, distrust=distrust))
        try:
            channel = open_channel(config.master_endpoint, self._credentials, _OPTIONS)
            metadata = self._credentials.current().metadata
        except SecurityFileError as error:
            raise StreamEndedError(f"no stream to the master: {error}") from None
        async with channel:
            call: Call = channel.stream_stream(PATH)(metadata=metadata)
            stream = SlaveStream(
                SlaveSession(hello, me, config, self._clock.monotonic()),
                stored,
                self._threads,
                config,
                self._clock,
                joined=self._say_joined,
                failed=self._say_failed,
                members_came=self._hear_members,
            )
            why = await stream.run(call)
        if why.refused:
            raise HandshakeRefusedError(why.reason, retry=why.retry)
        reason = await self._reason(why)
        if not stream.followed and not stream.resync:
            raise StreamEndedError(reason)
        self._say(logging.INFO, reason)
        self._lost(reason)

    async def _reason(self, why: Disconnect) -> str:
        """For people; what the network says is for the one who looks closer."""
        security, endpoint = self.config.security, self.config.master_endpoint
        if security.tls and may_be_handshake(why.reason):
            fault = await explain(endpoint, security)
            if fault is not None:
                return f"no stream from the master {endpoint}: {fault.text}"
        if not why.silent:
            return f"no stream from the master: {why.reason}"
        logger.debug("the stream to %s: %s", self.config.master_endpoint, why.reason)
        name = f"{self._master_id} ({endpoint})" if self._master_id else endpoint
        return f"the master {name} does not respond; trying again"

    def _say(self, level: int, text: str) -> None:
        """Once, until it is something else."""
        if text != self._said:
            self._said = text
            logger.log(level, "%s", text)

    def _lost(self, reason: str, name: str = NO_MASTER) -> None:
        if self._lost_at is None:
            self._lost_at = self._clock.monotonic()
        if not self.state.read_only:
            self.state = FollowState(name, fault=reason)
        self._on_lost(reason)

    def _say_joined(self, session: SlaveSession) -> None:
        self._distrust = False
        self._said, self._lost_at = "", None
        answer = session.answer
        if answer is not None:
            self._master_id = answer.master_id
            self.state = FollowState(CATCHING_UP, master_id=answer.master_id, epoch=answer.epoch)
            logger.info(
                "following %s at %s in epoch %d from %d",
                answer.master_id,
                self.config.master_endpoint,
                answer.epoch,
                answer.offset,
            )
            self._on_joined(answer.master_id)

    def _say_failed(self, reason: str) -> None:
        logger.error("this slave stops acknowledging: %s", reason)
        self.state = replace(self.state, name=READ_ONLY, fault=reason, read_only=True)

    def _hear_members(self, nodes: Sequence[common_pb2.NodeStatus]) -> None:
        self._masters_rows = nodes
        mine = row_of(nodes, self.config.node_id)
        now = self._clock.monotonic()
        if mine is None or not mine.in_sync or self.state.fault or now < self._clean_at:
            return
        # all that this cluster has confirmed is durable here, so nothing needs the logs set aside
        self._clean_at = now + CLEAN_INTERVAL_S
        self._cleaning = asyncio.create_task(self._threads.table(self._drop_set_aside))

    def _drop_set_aside(self) -> None:
        try:
            self.store.drop_set_aside()
        except (StoreError, OSError) as error:
            logger.warning("old logs that were set aside could not be listed: %s", error)
