"""A node that follows a broker: ask who it is, compare, follow, and reconnect, forever.

    find ▸ ask facts ▸ first step ──begin, cut, set aside──▶ the relay's term ends, the log is
             ▲             │                                  changed, a new term begins ──┐
             │             └──ask──▶ compare ▸ follow ──the connection ends──┐             │
             └──────────── pause ◀───────────────────────────────────────────┴─────────────┘

Beside the stream of log bytes runs a round of requests: the broker's end, and its tables.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from tandemlog_server.ha.errors import HaError
from tandemlog_server.ha.intake import StoreThreads, follow_forever
from tandemlog_server.ha.store_port import StorePort
from tandemlog_server.storage.clock import Clock
from tandemlog_server.storage.disk.file_system import FileSystem
from tandemlog_server.storage.errors import StoreError

from ..wire.client import RemotingClient
from ..wire.errors import BrokerError, LogsDifferError, NoBrokerError, WrongBrokerError
from .address import BrokerAddress
from .broker_facts import BrokerFacts, LogSpan, ask_facts, ask_span, find_broker
from .broker_tables import TableKeeper, fetch_tables
from .comparison import (
    Ask,
    BeginAt,
    CutAt,
    SetAside,
    Step,
    after_difference,
    check_identity,
    first_step,
)
from .following_file import Following, FollowingFile
from .session import FollowSession
from .store import FollowStore
from .stream import FollowStream
from .takeover import Look, Presence

logger = logging.getLogger(__name__)

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 5.0
WRONG_PAUSE_S = 10.0
PUT_TIMEOUT_S = 5.0
"""How long a put of a broker waits for slaves: RocketMQ's default of syncFlushTimeout."""
REST_PER_WORK = 20.0
"""After a round comes a pause of so many times its duration: a broker with large tables is asked
less often."""
FAR_BYTES = 16 << 20
"""How far behind its broker a follower stores log before it dispatches; see LogFirst."""
LOG_FIRST_S = 10.0


class RelayHost(Protocol):
    """What begins and ends the relay's term."""

    async def lead(self) -> None:
        """Begin a term unless one runs: the last attempt may have failed on a full disk. Raises
        what the store does."""
        ...

    async def rebuild(self, change: Callable[[], None]) -> None:
        """End the term, run `change` in a thread, and begin the next term, whether it raises or
        not. Raises what `change` does."""
        ...


@dataclass(frozen=True, slots=True)
class FollowerState:
    """How it is going. `fault` is empty while the node follows; `facts` and `broker_end` are what
    the broker said last; `compared_boot_ms` names its process with whose log this one was found to
    be equal, -1: none since the start."""

    following: bool = False
    fault: str = "no connection to the broker yet"
    facts: BrokerFacts | None = None
    broker_end: int | None = None
    seen_at: float = 0.0
    gone_since: float | None = None
    compared_boot_ms: int = -1

    @property
    def compared(self) -> bool:
        """Whether the log here equals that of the broker's process that was seen last."""
        return self.facts is not None and self.facts.boot_ms == self.compared_boot_ms


class LogFirst:
    """Far behind its broker, a follower stores log and does not dispatch it.

    Dispatching would take the processor from the bytes that make this node a safe copy. What is
    not confirmed is not dispatched, so the confirmed position does not move meanwhile, for at most
    LOG_FIRST_S: readers see the log grow. One owner calls; `now` is monotonic seconds.
    """

    def __init__(self) -> None:
        self._held = 0
        self._since: float | None = None

    def position(self, durable: int, broker_end: int, now: float) -> int:
        """What may be confirmed of a log that is durable up to `durable`."""
        far = broker_end - durable > FAR_BYTES
        if far and self._since is None:
            self._since = now
        if not far or self._since is None or now - self._since >= LOG_FIRST_S:
            self._held, self._since = durable, None
        return min(self._held, durable)


class BrokerFollower:
    """See the module. `run` until it is cancelled. Lives in one event loop."""

    def __init__(
        self,
        address: BrokerAddress,
        store: StorePort,
        files: FileSystem,
        clock: Clock,
        host: RelayHost,
        *,
        offsets_interval_s: float,
        tables_interval_s: float,
    ) -> None:
        self.address = address
        self.state = FollowerState()
        self.tables = TableKeeper(store, files)
        self._store = store
        self._clock = clock
        self._host = host
        self._offsets_interval_s = offsets_interval_s
        self._tables_interval_s = tables_interval_s
        self._file = FollowingFile(store.config.directory, files)
        self._note: Following | None = None
        self._threads = StoreThreads()
        self._stored = FollowStore(store, self._keep_note)
        self._log_first = LogFirst()
        self._window = 0
        self._logged = ""
        self._end, self._moved_at = -1, 0.0
        self._place: tuple[str, int] | None = None
        # the broker's process that was seen last: when it began, its end and the time then
        self._first_seen = (-1, 0, 0.0)
        self._asked_at = float("-inf")
        self._wrong_boot_ms = -1
        self._comparing: BrokerFacts | None = None

    @property
    def title(self) -> str:
        """The broker, for people."""
        facts = self.state.facts
        return facts.title if facts is not None else f"the broker at {self.address}"

    def counted(self) -> int:
        """The log offset below which this node confirms: what is fsynced, whatever the store's
        flush mode is, because the broker relies on it; less while the log comes first."""
        return self._log_first.position(
            self._store.log.flushed.value, self.state.broker_end or 0, self._clock.monotonic()
        )

    async def run(self) -> None:
        """Follow until cancelled. Raises StateFileError if the note cannot be read."""
        try:
            self._note = await self._threads.write(self._file.load)
            await self._threads.write(self.tables.load)
            await follow_forever(
                self._follow,
                FIRST_PAUSE_S,
                LONGEST_PAUSE_S,
                lambda error: WRONG_PAUSE_S if isinstance(error, WrongBrokerError) else None,
            )
        finally:
            await self._threads.close()

    async def observe(self) -> Look:
        """The broker and this node now, for a takeover: asks the broker, and if it refuses writes
        fetches its tables once more."""
        presence, takes_writes, detail = Presence.SILENT, True, ""
        try:
            host, port = await self._find()
            async with RemotingClient(host, port) as client:
                asked_at = self._clock.monotonic()
                facts = await ask_facts(client, host, port)
                check_identity(self._note, facts)
                self._note_broker(facts, facts.end_offset, asked_at)
                if not facts.takes_writes and self._follows_this_process:
                    await self._copy_tables(client, all_of_them=True)
            presence, takes_writes = Presence.ANSWERS, facts.takes_writes
        except NoBrokerError:
            presence = Presence.NO_PROCESS
            self._note_absence()
        except WrongBrokerError as error:
            presence, detail = Presence.ANOTHER, str(error)
        except BrokerError as error:
            detail = str(error)
        now, state, log = self._clock.monotonic(), self.state, self._store.log
        self._note_growth(now)
        answers = presence is Presence.ANSWERS
        return Look(
            broker=self.title if self._note is None else self._note.title,
            presence=presence,
            takes_writes=takes_writes,
            broker_end=state.broker_end,
            seen_s=now - state.seen_at,
            gone_s=0.0 if state.gone_since is None else now - state.gone_since,
            known=self._note is not None,
            compared=self._follows_this_process if answers else state.compared,
            durable=log.flushed.value,
            reputed=self._store.reputed.value,
            quiet_s=now - self._moved_at,
            detail=detail,
        )

    @property
    def _follows_this_process(self) -> bool:
        return self.state.following and self.state.compared

    # --- one connection

    async def _follow(self) -> None:
        """One connection from its begin to its end; returns if the next one is due at once."""
        try:
            if self._store.log.flushed.failure is not None:
                raise self._store.log.flushed.failure.with_traceback(None)
            await self._host.lead()
            facts = await self._once_puts_ended(await self._ask())
            step = await self._threads.write(lambda: self._step(facts))
            if not isinstance(step, Ask):
                await self._change(step)
                return
            try:
                await self._stream(step, facts)
            except LogsDifferError as difference:
                self._note_loss(logging.INFO, str(difference))
                await self._handle_difference(difference, facts)
        except WrongBrokerError as wrong:
            self._note_loss(logging.ERROR, f"this node cannot follow: {wrong}")
            raise
        except BrokerError as error:
            if isinstance(error, NoBrokerError):
                self._note_absence()
            self._note_loss(logging.WARNING, str(error))
            raise
        except (HaError, StoreError, OSError) as error:
            self._note_loss(logging.ERROR, f"following {self.title} failed: {error}")
            raise

    async def _find(self) -> tuple[str, int]:
        """Where the broker is: where it was, if no name server knows it now."""
        try:
            self._place = await find_broker(self.address)
        except BrokerError:
            if self._place is None:
                raise
        return self._place

    async def _ask(self) -> BrokerFacts:
        host, port = await self._find()
        async with RemotingClient(host, port) as client:
            asked_at = self._clock.monotonic()
            facts = await ask_facts(client, host, port)
        check_identity(self._note, facts)
        self._note_broker(facts, facts.end_offset, asked_at)
        if facts.boot_ms == self._wrong_boot_ms:
            raise WrongBrokerError(
                f"{facts.title} gives {facts.ha_address} as its HA port, where log came that this "
                "broker does not have: is that the port of another broker?"
            )
        return facts

    async def _once_puts_ended(self, facts: BrokerFacts) -> BrokerFacts:
        """The first number that is sent counts as an acknowledgement, before anything is compared.
        So a broker whose puts wait for its slaves, and whose process is new, gets time for those
        that wait below what is asked for."""
        while facts.waits_for_slaves and not self._compared_before(facts):
            rest = self._first_seen[2] + PUT_TIMEOUT_S - self._clock.monotonic()
            if rest <= 0:
                break
            await asyncio.sleep(rest)
            facts = await self._ask()
        return facts

    def _compared_before(self, facts: BrokerFacts) -> bool:
        return self._note is not None and self._note.boot_ms == facts.boot_ms

    def _step(self, facts: BrokerFacts) -> Step:
        # The number that asks counts as an acknowledgement, and the last connection may have ended
        # in the middle of its work.
        self._stored.flush()
        log = self._store.log
        own = self._stored.own_log()
        most = own.end if self._compared_before(facts) else self._first_seen[1]
        step = first_step(own, facts, self._note, self._window, log.next_record, most)
        self._comparing = facts
        if own.empty and self._note is None:
            self._keep_note()
        return step

    async def _stream(self, ask: Ask, facts: BrokerFacts) -> None:
        """One connection and the rounds of requests beside it; on return, and when it raises, both
        are over, in the threads as well. Raises LogsDifferError."""
        own = self._stored.own_log()
        stream = FollowStream(
            FollowSession(ask, own.end, own.file_size, self._clock.monotonic()),
            self._stored,
            self._threads,
            self._clock,
            compared=lambda: self._joined(facts, ask),
        )
        asking = asyncio.create_task(self._ask_repeatedly(facts, stream), name="broker-tables")
        try:
            reason = await stream.run(facts.host, facts.ha_port)
        except NoBrokerError as error:
            raise BrokerError(
                f"{error}, which {facts.title} gives as its HA port: is a firewall or a wrong "
                "brokerIP2 in between?"
            ) from error
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            await self._threads.wait()
        self._note_loss(logging.WARNING, f"{facts.title}: {reason}")
        if not stream.followed:
            raise BrokerError(f"{facts.title}, HA port {facts.ha_port}: {reason}")

    async def _handle_difference(self, difference: LogsDifferError, facts: BrokerFacts) -> None:
        own = self._stored.own_log()
        step = await self._threads.write(
            lambda: after_difference(own, facts, self._note, difference, self._stored.read)
        )
        if step is None:
            self._window += 1
            logger.info("%s: comparing more of the log", difference)
        else:
            await self._change(step)

    async def _change(self, step: BeginAt | CutAt | SetAside) -> None:
        self._window = 0
        await self._host.rebuild(lambda: self._stored.change(step))
        self.tables.start_over()

    def _keep_note(self) -> None:
        """In the thread that writes: whose log this is, before a byte of it is stored."""
        facts, note = self._comparing, self._note
        if facts is None or (note is not None and note.boot_ms == facts.boot_ms):
            return
        note = Following(facts.cluster, facts.name, boot_ms=facts.boot_ms)
        self._file.save(note)
        self._note = note

    # --- the round of requests

    async def _ask_repeatedly(self, facts: BrokerFacts, stream: FollowStream) -> None:
        rare_at = -self._tables_interval_s
        logged = ""
        while True:
            began = self._clock.monotonic()
            try:
                async with RemotingClient(facts.host, facts.port) as client:
                    rare_at = await self._rounds(client, facts, stream, rare_at)
            except (HaError, StoreError, OSError) as error:
                if str(error) != logged:
                    logged = str(error)
                    logger.warning("the broker's tables are not fetched: %s", error)
            except Exception:
                # the broker has to be asked for its end again, whatever the error is
                logger.exception("a round of requests to the broker failed and will be repeated")
            await asyncio.sleep(max(FIRST_PAUSE_S, self._offsets_interval_s - self._since(began)))

    async def _rounds(
        self, client: RemotingClient, facts: BrokerFacts, stream: FollowStream, rare_at: float
    ) -> float:
        while True:
            began, own_end = self._clock.monotonic(), self._store.log.wrote.value
            span = await ask_span(client)
            present = replace(self.state.facts or facts, boot_ms=span.boot_ms)
            self._note_broker(present, span.end_offset, began)
            reason = self._misfit(facts, span, stream, own_end)
            if reason:
                stream.end(reason)
                return rare_at
            if self.state.following:
                rare = began - rare_at >= self._tables_interval_s
                rare_at = began if rare else rare_at
                await self._copy_tables(client, all_of_them=rare)
            took = self._since(began)
            await asyncio.sleep(max(self._offsets_interval_s - took, took * REST_PER_WORK))

    def _misfit(self, facts: BrokerFacts, span: LogSpan, stream: FollowStream, own_end: int) -> str:
        """Why the connection must end by what the broker says now; empty if it may continue. Asked
        for bytes that it does not have, a broker sends heartbeats forever."""
        session = stream.session
        if span.boot_ms != facts.boot_ms:
            return "the broker was restarted"
        if span.begin_offset > session.received:
            return (
                f"the broker has deleted its log below {span.begin_offset}, and this node has it "
                f"up to {session.received}"
            )
        if not stream.followed:
            return (
                f"the broker's log ends at {span.end_offset} now"
                if span.end_offset < session.ask.end
                else ""
            )
        if own_end > span.end_offset:
            self._wrong_boot_ms = facts.boot_ms
            return f"log up to {own_end} came, but the broker's log ends at {span.end_offset}"
        return ""

    async def _copy_tables(self, client: RemotingClient, *, all_of_them: bool) -> None:
        tables = await fetch_tables(client, all_of_them=all_of_them)
        now_ms = self._clock.now_ms()
        await self._threads.table(lambda: self.tables.replace(tables, now_ms))

    # --- state and log

    def _since(self, began: float) -> float:
        return self._clock.monotonic() - began

    def _note_broker(self, facts: BrokerFacts, end_offset: int, asked_at: float) -> None:
        """Take what the broker says over its connection of the time `asked_at`. A takeover asks
        while the rounds do: of two answers, the one that was asked for first may be heard last."""
        now = self._clock.monotonic()
        self._note_growth(now)
        if facts.boot_ms != self._first_seen[0]:
            if asked_at < self._asked_at:
                return  # by a process that has ended since: the other one answers already
            self._first_seen = facts.boot_ms, end_offset, now
        elif facts.boot_ms:
            end_offset = max(end_offset, self.state.broker_end or 0)
        self._asked_at = max(self._asked_at, asked_at)
        self.state = replace(
            self.state, facts=facts, broker_end=end_offset, seen_at=now, gone_since=None
        )

    def _note_absence(self) -> None:
        if self.state.gone_since is None:
            self.state = replace(self.state, gone_since=self._clock.monotonic())

    def _note_growth(self, now: float) -> None:
        end = self._store.log.wrote.value
        if end != self._end:
            self._end, self._moved_at = end, now

    def _joined(self, facts: BrokerFacts, ask: Ask) -> None:
        self._window, self._logged = 0, ""
        self.state = replace(self.state, following=True, fault="", compared_boot_ms=facts.boot_ms)
        logger.info(
            "following %s (RocketMQ %s, HA %s) from %d, compared from %d on",
            facts.title, facts.version, facts.ha_address, self._store.log.wrote.value, ask.start,
        )  # fmt: skip

    def _note_loss(self, level: int, reason: str) -> None:
        self.state = replace(self.state, following=False, fault=reason)
        if reason != self._logged:
            self._logged = reason
            logger.log(level, "%s", reason)
