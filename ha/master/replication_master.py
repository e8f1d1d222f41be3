"""The master: passes gRPC frames, the log's positions and time to the group, and executes its
decisions.

    log.committed, log.flushed ─┐                       ┌─▶ session loop of each slave: read, send
    slave's frames ─────────────┼─▶ group (event loop) ─┼─▶ store.advance_confirmed
    every 100 ms ───────────────┘                       └─▶ worker thread: state file, tables

The group runs in the event loop; work that may block runs in two threads, one for short work and
one for work that reads much of the log.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tandemlog.v1 import common_pb2
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.disk.real_file_system import RealFileSystem

from ..config import HaConfig
from ..errors import NotRunningError, TooManyError
from ..frame_limits import sentence
from ..protocol.frames import Hello, MemberList, Refusal, encode_master_frame
from ..protocol.replication_service import Context, ReplicationService
from ..replication_file import StateFile
from ..store_port import PROMISED_TABLES, StorePort, tables_of
from .master_group import MasterGroup, Return
from .metadata_sync import MetadataSource
from .node_status import READ_ONLY, RUNNING, own_status, slave_rows
from .record_keeper import DeposedError, LocalKeeper, RecordKeeper
from .stream import MasterStream
from .term import Idleness, Term, WonTerm, begin_term, own_position
from .waiters import Waiters

if TYPE_CHECKING:
    from ..state import HaState, InSyncRecord, Member

logger = logging.getLogger(__name__)

TICK_S = 0.1
FAILED_TICK_S = 1.0
CLOSE_TIMEOUT_S = 1.0
SEND_TABLES_S = 1.0
"""How long a planned change of the master waits until the slaves have the newest tables."""
MAX_READING = 8
"""Hellos whose logs are compared, or wait for that."""

T = TypeVar("T")


def _ignore(reason: str) -> None:
    return


class ReplicationMaster:
    """See the module. Lives in one event loop from `start` to `close`.

    `won` and `keeper` come from an election; without them the roles are configured. `on_deposed` is
    told when another node was found to lead a later term, `on_return` when an earlier leader has
    come back. `own` gives the position that counts for this node itself, if the store's flush mode
    does not decide it.
    """

    def __init__(
        self,
        store: StorePort,
        config: HaConfig,
        clock: Clock,
        *,
        files: FileSystem | None = None,
        won: WonTerm | None = None,
        keeper: RecordKeeper | None = None,
        on_deposed: Callable[[str], None] = _ignore,
        on_return: Callable[[Return], None] = lambda _: None,
        own: Callable[[], int] | None = None,
    ) -> None:
        self.store = store
        self.config = config
        self._won = won
        self._keeper = keeper if keeper is not None else LocalKeeper()
        self._on_deposed = on_deposed
        self._on_return = on_return
        self._own = own
        self.servicer = ReplicationService(self._replicate)
        self.clock = clock
        # rows of slaves that follow by another protocol and do not count
        self.foreign_rows: Callable[[], list[common_pb2.NodeStatus]] = list
        self.files = files or RealFileSystem()
        self._state_file = StateFile(store.config.directory, self.files)
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="replication")
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="replication-read")
        self.tables = MetadataSource(tables_of(store), clock)
        self._streams: set[MasterStream] = set()
        self._term: Term | None = None
        self._group: MasterGroup | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._unlisten: list[Callable[[], None]] = []
        self._moved_pending = False
        self._tables_promised = Waiters[tuple[str, int]](self._table_held)
        self._parting = Waiters[tuple[str, int]](lambda each: self.group.tables_followed(*each))
        self._rounds = Waiters[int](lambda number: self.group.led_in_round(number))
        self._refreshing: asyncio.Task[None] | None = None
        self._members_frame = b""
        self._members_version = 0
        self._members_at = 0.0
        self._tables_at = 0.0
        self._record: InSyncRecord | None = None
        self._started_at = 0.0
        self._closing = False
        self._idleness = Idleness()
        self._reading = 0
        self._idle = asyncio.Event()

    @property
    def group(self) -> MasterGroup:
        """Raises NotRunningError before `start`."""
        if self._group is None:
            raise NotRunningError("the replication of this master has not been started")
        return self._group

    @property
    def epoch(self) -> int:
        """The epoch of this term; it changes only with a new start."""
        return self.group.view.epoch

    @property
    def confirm(self) -> int:
        """Log offset below which every in-sync member holds the bytes; async: this master does."""
        return self.group.tracker.value

    @property
    def ha_state(self) -> "HaState | None":
        """What is durable of this node's part in the cluster; None before `start`."""
        return None if self._term is None else self._term.state

    def durable_on(self, member: "Member") -> int | None:
        """What this slave has acknowledged in this term; None if it is not connected, or with
        another disk."""
        group = self.group
        return group.tracker.durable(member) if member.node_id in group.sessions else None

    def keep_out(self, node_id: str) -> None:
        """This slave is about to set its log aside: it leaves the in-sync set, and does not join;
        empty: no slave is."""
        self.group.set.kept_out = node_id

    def acts_alone(self) -> bool:
        """Whether an acknowledgement needs no other node."""
        return self.group.acts_alone()

    def may_confirm(self) -> bool:
        """Whether a put could be acknowledged if every member follows. Any thread may ask."""
        return self.group.may_confirm()

    def stood_still(self) -> bool:
        """Whether the event loop has not come to the group for so long that another node may lead.
        Any thread may ask."""
        return self.group.stood_still(self.clock.monotonic())

    async def led_after_now(self, timeout_s: float) -> bool:
        """Whether every member of the in-sync sets in force has said, after this call, that it
        still follows this term: see rounds.py. False if one did not in time, or cannot."""
        number = self._ask_round()
        return number > 0 and await self._rounds.wait(number, timeout_s)

    def heard_by_all(self) -> bool:
        """Whether every member of the in-sync sets in force follows this term."""
        return self.group.heard_by_all(self.clock.monotonic())

    def _ask_round(self) -> int:
        number = 0 if self._closing else self.group.ask_round(self.clock.monotonic())
        self._wake_all()
        return number

    async def start(self) -> None:
        """Begin a term in a new epoch. Raises StateFileError and what the store raises."""
        loop = self._loop = asyncio.get_running_loop()
        self._started_at = self.clock.monotonic()
        state = await loop.run_in_executor(self._worker, self._state_file.load, self.config)
        term = self._term = await loop.run_in_executor(
            self._worker,
            begin_term,
            self.store,
            state,
            self._state_file.save,
            self.config,
            self._won,
        )
        self._group = MasterGroup(
            self.config,
            term.me,
            term.view,
            term.record,
            self._own_position(),
            self.clock.monotonic(),
        )
        logger.info(
            "master: cluster=%s node=%s epoch=%d log=%d..%d in_sync=%s",
            self.config.cluster_id,
            self.config.node_id,
            term.view.epoch,
            term.view.min_offset,
            term.view.end_offset,
            sorted(member.node_id for member in term.record.members),
        )
        log = self.store.log
        self._unlisten = [log.committed.listen(self._notify), log.flushed.listen(self._notify)]
        await loop.run_in_executor(self._worker, self.tables.refresh)
        versions = self.tables.versions()
        self.group.needed_tables = {
            kind: versions[kind] for kind in PROMISED_TABLES if kind in versions
        }
        self._list_members()
        self._moved()
        self._ticker = asyncio.create_task(self._tick_for_ever(), name="replication-tick")

    async def close(self) -> None:
        """End all streams. The caller closes the gRPC server."""
        self._closing = True
        for stop in self._unlisten:
            stop()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        if self._refreshing is not None:
            await asyncio.gather(self._refreshing, return_exceptions=True)
        for stream in list(self._streams):
            stream.refuse("the master is stopping")
        if self._streams:
            self._idle.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._idle.wait(), CLOSE_TIMEOUT_S)
        # a thread's present work may take as long as the disk does; the loop must not wait for it
        await asyncio.to_thread(self._worker.shutdown, wait=True)
        await asyncio.to_thread(self._reader.shutdown, wait=True, cancel_futures=True)

    def admission(self) -> str | None:
        """Why a put that waits for slaves cannot be accepted now; None if it can."""
        return self.group.admission(self.clock.monotonic())

    async def table_replicated(
        self, kind: str, timeout_s: float, version: int | None = None
    ) -> bool:
        """Wait until every in-sync member has that version of the table `kind` (one of
        PROMISED_TABLES), the present one by default; False if the time ran out first. In the
        loop."""
        if version is None:
            version = tables_of(self.store)[kind].version
        self._read_tables_next()
        return await self._tables_promised.wait((kind, version), timeout_s)

    def _table_held(self, table: tuple[str, int]) -> bool:
        """From the moment in which all members have it, no node joins without it."""
        kind, version = table
        replicated = self.group.tables_held(kind, version)
        if replicated and self.config.mode.waits:
            needed = self.group.needed_tables
            needed[kind] = max(needed.get(kind, version), version)
        return replicated

    async def send_tables(self, timeout_s: float = SEND_TABLES_S) -> bool:
        """Give the newest tables to the slaves that follow, before one of them leads in place of
        this node; whether they have them. In the loop."""
        if self._group is None or self._closing:
            return False
        versions = {kind: table.version for kind, table in tables_of(self.store).items()}
        waits = [
            self._parting.wait((kind, version), timeout_s)
            for kind, version in versions.items()
            if kind not in self.tables.faults
        ]
        sent = asyncio.gather(*waits)
        self._read_tables_next()
        return all(await sent)

    def members(self) -> list[common_pb2.NodeStatus]:
        """All nodes, this one first."""
        group, now = self.group, self.clock.monotonic()
        own = own_status(
            self.store,
            self.config,
            epoch=group.view.epoch,
            incarnation=group.me.incarnation,
            uptime_s=now - self._started_at,
        )
        failure = self.store.log.flushed.failure
        own.role = common_pb2.MASTER
        own.in_sync = True
        own.state = RUNNING if failure is None else READ_ONLY
        own.detail = sentence(str(failure or group.admission(now) or ""))
        return [own, *slave_rows(group, now), *self.foreign_rows()]

    def metadata_changed(self) -> None:
        """A table has changed: send it at once, not at the next check. From any thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._read_tables_next)

    # --- the log moves

    def _own_position(self) -> int:
        return own_position(self.store) if self._own is None else self._own()

    def _notify(self) -> None:
        # In the thread that moved the position; one wake-up for all that moves meanwhile.
        if not self._moved_pending and self._loop is not None:
            self._moved_pending = True
            self._loop.call_soon_threadsafe(self._moved)

    def _moved(self) -> None:
        self._moved_pending = False
        log = self.store.log
        confirm = self.group.positions(
            own=self._own_position(),
            end=log.committed.value,
            minimum=log.min_offset,
            now=self.clock.monotonic(),
        )
        self._publish(confirm)

    def _publish(self, confirm: int) -> None:
        if self._closing:
            return  # the store may have another role by now
        if confirm > self.store.confirmed.value:
            self.store.advance_confirmed(confirm)
        self._wake_all()

    def _wake_all(self) -> None:
        for stream in self._streams:
            stream.wake.set()

    # --- time

    async def _tick_for_ever(self) -> None:
        while True:
            try:
                await self._tick()
            except Exception:
                # The in-sync set must be kept up to date, whatever the error is.
                logger.exception("a periodic replication task failed and will be retried")
                await asyncio.sleep(FAILED_TICK_S)
            await asyncio.sleep(TICK_S)

    async def _tick(self) -> None:
        now = self.clock.monotonic()
        group = self.group
        group.view.min_offset = self.store.log.min_offset
        if self._own is not None:
            self._moved()  # what counts for this node may change without a move of the log
        self._record = group.tick(now) or self._record
        while group.returns:
            self._on_return(group.returns.pop())
        await self._remember()
        if self._own is None and self.config.mode.waits:
            await self._note_rest(now)
        self._check_waiters()
        wanted = self._wanted()
        if wanted or (now - self._tables_at) * 1000 >= self.config.metadata_interval_ms:
            self._tables_at = now
            await self._blocking(lambda: self.tables.refresh(wanted))
        if self._streams and (now - self._members_at) * 1000 >= self.config.members_interval_ms:
            self._members_at = now
            self._list_members()
        self._wake_all()

    def _wanted(self) -> frozenset[str]:
        return frozenset(kind for kind, _ in self._tables_promised.keys + self._parting.keys)

    def _check_waiters(self) -> None:
        self._tables_promised.check()
        self._parting.check()
        self._rounds.check()

    async def _note_rest(self, now: float) -> None:
        """A machine that stops while its master takes nothing leaves no doubt. A relay does not
        rest: its log grows by other ways than puts."""
        if self._idleness.is_due(self.store.log, now) and await self._blocking(
            self.store.count_flushed
        ):
            self._idleness.noted()

    def _list_members(self) -> None:
        self._members_frame = encode_master_frame(MemberList(tuple(self.members())))
        self._members_version += 1

    async def _remember(self) -> None:
        """Make a proposed set durable, and an epoch that was seen elsewhere."""
        term, group, record = self._term, self.group, self._record
        if term is None:
            return
        if self._won is not None and group.seen_epoch > group.view.epoch:
            # only the record ends a term; a slave's word is a reason to look at it
            self._on_deposed(f"a slave has seen epoch {group.seen_epoch}")
            group.seen_epoch = group.view.epoch
        if record is not None and not await self._recorded(record):
            return
        seen = max(term.state.accepted_epoch, group.seen_epoch)
        if record is None and seen == term.state.accepted_epoch:
            return
        state = replace(term.state, accepted_epoch=seen, record=record or term.state.record)
        await self._blocking(lambda: self._state_file.save(state))
        self._term = replace(term, state=state)
        if record is not None:
            self._record = None
            confirm = group.persisted(record)
            logger.info("in-sync set: %s", sorted(member.node_id for member in record.members))
            self._publish(confirm)

    async def _recorded(self, record: "InSyncRecord") -> bool:
        try:
            return await self._keeper.record(record)
        except DeposedError as error:
            self._on_deposed(str(error))
            return False

    def _read_tables_next(self) -> None:
        self._tables_at = 0.0
        if self._refreshing is None and not self._closing:
            self._refreshing = asyncio.create_task(self._refresh_tables())

    async def _refresh_tables(self) -> None:
        try:
            wanted = self._wanted()
            await self._blocking(lambda: self.tables.refresh(wanted))
        finally:
            self._refreshing = None
        self._wake_all()

    # --- the slaves' streams

    def confirm_changed(self) -> None:
        """See StreamHost in stream.py, as for the next methods."""
        self._publish(self.group.tracker.value)
        self._check_waiters()

    def members_frame(self) -> tuple[int, bytes]:
        return self._members_version, self._members_frame

    def let_in(self, hello: Hello) -> None:
        others = [
            stream
            for stream in self._streams
            if stream.session.hello is None or not self.group.known(stream.name)
        ]
        if len(others) > self.config.max_streams and not self.group.known(hello.node_id):
            raise TooManyError(f"{len(others)} streams are open, the limit is max_streams")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        if self._reading >= MAX_READING:
            raise TooManyError(f"{MAX_READING} comparisons with slaves' logs are running already")
        self._reading += 1
        try:
            yield
        finally:
            self._reading -= 1

    async def short_read(self, call: Callable[[], T]) -> T:
        return await self._blocking(call)

    async def long_read(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._reader, call)

    async def _replicate(self, requests: AsyncIterator[bytes], context: Context) -> None:
        if self._group is None or self._closing:
            refusal = Refusal("the master is starting or stopping", retry=True)
            await context.write(encode_master_frame(refusal))
            return
        if len(self._streams) >= 2 * self.config.max_streams:
            # half of them are reserved for known nodes, and only the hello names the node
            refusal = Refusal(
                f"{len(self._streams)} replication streams are open, no more are accepted",
                retry=True,
            )
            await context.write(encode_master_frame(refusal))
            return
        stream = MasterStream(self)
        self._streams.add(stream)
        try:
            await stream.serve(requests, context)
        finally:
            self._streams.discard(stream)
            if not self._streams:
                self._idle.set()

    async def _blocking(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, call)
