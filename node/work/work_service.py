"""Work queues as the wire asks for them: receive, acknowledge, try again, extend, give up.

    receive   queues with work ─▶ one reader thread reads them all ─▶ leases ─▶ messages, handles
              none ─▶ wait for work in any queue of any topic, up to wait_ms
    others    handles ─▶ rows of the engine, or first: which message lies there (a thread)

The engine belongs to the event loop, and each call of it takes microseconds for many messages; only
reading and writing are done by threads. On a node that is not the master every call is refused with
the name of the master. A receive whose caller is gone gives its messages back.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Final
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import byte_array
from tandemlog.format.lease.handle import decode_handles
from tandemlog.format.lease.policy import AckResult, GroupPolicy, Ordering, short_error
from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.ha.store_port import GROUPS
from tandemlog_server.storage.errors import StoreError, UnreadableError
from tandemlog_server.storage.leases.handle_operations import Kind, Operation
from tandemlog_server.storage.leases.lease_values import Counters, Leased, Now, Reading
from tandemlog_server.storage.leases.read_batch import ReadBatch
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.lease_desk import LeaseDesk

from ..access.caller import Caller
from ..error_status import RequestRefusedError
from ..pulls.group_kind import GroupKinds, MemberKind
from ..pulls.known_queues import KnownQueues
from ..pulls.read_turns import ReadTurns
from ..roles.role import CurrentRole, NodeRole
from ..settings.sections import WorkSection
from .dispatch_notices import DispatchNotices
from .receive_waits import ReceiveWaits
from .waiting_receives import Waiter
from .work_numbers import WorkNumbers, group_work, has_leased, letters_left, work_numbers
from .work_requests import (
    GroupWork,
    LeasedMessages,
    ReceiveRequest,
    ReceiveResult,
    check_delay,
    check_group,
    check_lease,
    check_receive,
    checked_handles,
)
from .work_term import WorkTerm

logger = logging.getLogger(__name__)

MOST_READINGS: Final = 64
"""Queues that one step of a receive reads."""
BUSY_MS: Final = 1_000
"""Until a queue that could not be read is tried again."""
UNREADABLE_MS: Final = 60_000
"""Until a message that the disk could not read is."""
SAID_MS: Final = 1_000
"""Between two lines of the log about such messages."""
NOT_YET_MS: Final = 20
SLACK_S: Final = 1.0
"""How long a receive may look for messages after its wait is over."""

Read = list[tuple[Reading, ReadBatch | StoreError | None]]


class WorkService:
    """See the module. `long_polls`: how many receives may wait, of all callers."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        turns: ReadTurns,
        known: KnownQueues,
        settings: WorkSection,
        *,
        long_polls: int,
        sync_timeout_s: float,
    ) -> None:
        self.kinds = GroupKinds()
        self.kinds.count_by(MemberKind.WORK, self._count)
        self.settings = settings
        self.term: WorkTerm | None = None
        self._store = store
        self._current = current
        self._turns = turns
        self._known = known
        self._sync_timeout_s = sync_timeout_s
        self._closing = False
        self._said_ms = -SAID_MS
        self._counters = Counters()
        self._desk = LeaseDesk(store)
        self.waits = ReceiveWaits(long_polls)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="work")
        # what consumers ask for must not hold up what is written
        self._looking = ThreadPoolExecutor(1, thread_name_prefix="work-handles")
        self._notices = DispatchNotices(store, asyncio.get_running_loop(), self._grew)

    # ---- terms

    def begin(self, role: NodeRole) -> None:
        """The node is the master, in this role."""
        number = crc32(f"{role.epoch()}/{self._store.clock.now_ms()}".encode())
        self.term = WorkTerm(
            self._store, self._desk, role, self._known, self.settings, number, self._thread,
            self._counters,
        )  # fmt: skip

    async def end(self) -> None:
        term, self.term = self.term, None
        if term is not None:
            await term.end()

    def close(self) -> None:
        """No term will begin any more."""
        self._notices.close()
        self._thread.shutdown(wait=True)
        self._looking.shutdown(wait=True, cancel_futures=True)

    @property
    def closing(self) -> bool:
        """Whether the node stops."""
        return self._closing

    def cancel_waiting(self) -> None:
        """The node stops: receives that wait end."""
        self._closing = True
        if self.term is not None:
            self.term.waiting.wake_all()

    def _grew(self, queues: Sequence[int]) -> None:
        if self.term is not None:
            self.term.grew(queues)

    async def ready(self) -> WorkTerm:
        """Raises RequestRefusedError on a node that is not the master, or does not know yet what
        the last one was told."""
        term = self.term
        if term is None:
            self._current.role.require_master("receive from")
            raise self._current.role.no_master("receive from")
        await term.ready()
        return term

    # ---- receive

    async def receive(self, request: ReceiveRequest, caller: Caller) -> ReceiveResult:
        """Raises RequestRefusedError, MetadataError. Who cannot send the answer any more gives the
        messages back by `release`."""
        check_receive(request)
        term = await self.ready()
        self.kinds.require(MemberKind.WORK, request.group)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + request.wait_ms / 1000
        waiter = Waiter([(request.group, each) for each in request.topics])
        while True:
            # each time: the group may have got another order, or have been deleted
            await term.open(
                request.group,
                request.topics,
                create=True,
                holder=caller.holder,
                start_at=request.start_at,
            )
            leased, throttled = await self._fill(term, request, caller, deadline + SLACK_S)
            if not leased:
                # what woke this one may be for another
                term.waiting.pass_on(waiter)
            if leased or self._closing or loop.time() >= deadline:
                return _result(leased, request.lease_ms, throttled, term)
            await self.waits.wait(term, waiter, caller, deadline)

    async def _fill(
        self, term: WorkTerm, request: ReceiveRequest, caller: Caller, until: float
    ) -> tuple[list[Leased], bool]:
        """What there is now, and whether more is held back."""
        leased: list[Leased] = []
        loop = asyncio.get_running_loop()
        room, room_bytes = request.max_messages, request.max_bytes
        throttled = False
        while room > 0 and room_bytes > 0:
            readings, full = self._choose(term, request, caller, room)
            throttled |= full
            if not readings:
                break
            read = await self._read(term, readings, request, caller, room_bytes, leased)
            now = term.now()
            for reading, batch in read:
                each = self._lease(term, reading, batch, request.lease_ms, now)
                if each is not None:
                    leased.append(each)
                    room -= len(each.batch.offsets)
                    room_bytes -= len(each.batch.records)
            term.after()
            if leased or loop.time() >= until:
                # the next call gets the rest; an answer is not held up by more reading
                break
        return leased, throttled

    def _choose(
        self, term: WorkTerm, request: ReceiveRequest, caller: Caller, room: int
    ) -> tuple[list[Reading], bool]:
        readings: list[Reading] = []
        throttled, now = False, term.now()
        term.engine.tick(now)
        while room > 0 and len(readings) < MOST_READINGS:
            reading, full = term.engine.begin(
                request.group, request.topics, room, caller.holder, now, request.queues
            )
            throttled |= full
            if reading is None:
                break
            readings.append(reading)
            room -= reading.count
        return readings, throttled

    async def _read(
        self,
        term: WorkTerm,
        readings: Sequence[Reading],
        request: ReceiveRequest,
        caller: Caller,
        room_bytes: int,
        leased: Sequence[Leased],
    ) -> Read:
        try:
            read = await self._turns.run(
                caller,
                partial(self._read_all, readings, request, room_bytes),
                room=room_bytes,
                size_of=_bytes_of,
            )
            term.check()
            return read
        except BaseException:
            if not term.ended:
                for reading in readings:
                    term.engine.abandon(reading, term.now())
                self._give_back(term, request.group, leased)
                term.after()
            raise

    def _read_all(
        self, readings: Sequence[Reading], request: ReceiveRequest, room_bytes: int
    ) -> Read:
        """In a reader thread. None in the place of what had no room, or is not there yet."""
        read: Read = []
        for reading in readings:
            batch: ReadBatch | StoreError | None = None
            if room_bytes > 0:
                try:
                    batch = self._desk.read(reading, room_bytes, request.filter)
                except StoreError as error:
                    batch = error
            if isinstance(batch, ReadBatch):
                room_bytes -= int(batch.sizes.sum())
            read.append((reading, batch))
        return read

    def _lease(
        self,
        term: WorkTerm,
        reading: Reading,
        batch: ReadBatch | StoreError | None,
        lease_ms: int,
        now: Now,
    ) -> Leased | None:
        if isinstance(batch, ReadBatch):
            return term.engine.finish(reading, batch, lease_ms, now)
        if isinstance(batch, UnreadableError):
            self._say_unreadable(reading, batch, now)
            term.engine.set_aside(reading, now, UNREADABLE_MS)
            return None
        if isinstance(batch, StoreError):
            logger.warning("a queue of group %s waits: %s", reading.queue.group, batch)
        pause_ms = NOT_YET_MS if batch is None else BUSY_MS
        term.engine.abandon(reading, now, pause_ms)
        return None

    def _say_unreadable(self, reading: Reading, fault: UnreadableError, now: Now) -> None:
        if now.ms - self._said_ms < SAID_MS:
            return
        self._said_ms = now.ms
        queue = reading.queue
        ordered = queue.policy.ordering is not Ordering.NONE
        logger.error(
            "message %d of %s/%d cannot be delivered to group %s: %s; it is tried again in %d s, "
            "and after a change of the master; %s",
            reading.first, queue.topic, queue.queue_id, queue.group, fault, UNREADABLE_MS // 1000,
            "those behind it wait, to keep their order" if ordered else "others are delivered",
        )  # fmt: skip

    def _give_back(self, term: WorkTerm, group: str, leased: Sequence[Leased]) -> None:
        if group not in term.engine.groups:
            return
        for each in leased:
            term.engine.operate(
                group, decode_handles(each.handles), Operation(Kind.RELEASE), term.now()
            )

    # ---- handles

    async def ack(
        self, group: str, handles: bytes, *, sync: bool = False, holder: str = ""
    ) -> NDArray[np.uint8]:
        """u1[n] AckResult: these messages are done. With `sync` once that is confirmed. Queues that
        the handles open count for `holder`, as for those below. Raises RequestRefusedError,
        FormatError."""
        results = await self._operate(group, handles, Operation(Kind.ACK), holder)
        if sync:
            await self.sync(group)
        return results

    async def nack(
        self,
        group: str,
        handles: bytes,
        *,
        delay_ms: int | None = None,
        error: str = "",
        holder: str = "",
    ) -> NDArray[np.uint8]:
        """They failed, and come again after `delay_ms`, None for the policy's pause."""
        check_delay(delay_ms)
        failed = Operation(Kind.RETRY, delay_ms, short_error(error))
        return await self._operate(group, handles, failed, holder)

    async def release(self, group: str, handles: bytes, *, holder: str = "") -> NDArray[np.uint8]:
        """They were not tried, and come again at once."""
        return await self._operate(group, handles, Operation(Kind.RELEASE), holder)

    async def extend(
        self, group: str, handles: bytes, lease_ms: int, *, holder: str = ""
    ) -> NDArray[np.uint8]:
        """They stay leased for `lease_ms` from now, with the same handles."""
        check_lease(lease_ms)
        return await self._operate(group, handles, Operation(Kind.EXTEND, lease_ms), holder)

    async def handles_again(
        self, place: tuple[str, str, int], offsets: Sequence[int], delivery: int, mask: int
    ) -> list[bytes]:
        """Of messages in a queue, `place`: group, topic and queue id, which a consumer knows by the
        number of their delivery alone (storage/leases/row_handles.py). Empty for what this master
        has not delivered so."""
        check_group(place[0])
        term = await self.ready()
        return term.engine.handles_again(place, offsets, delivery, mask)

    async def reject(
        self, group: str, handles: bytes, *, error: str = "", holder: str = ""
    ) -> NDArray[np.uint8]:
        """They become dead letters."""
        rejected = Operation(Kind.REJECT, None, short_error(error))
        return await self._operate(group, handles, rejected, holder)

    async def _operate(
        self, group: str, handles: bytes, operation: Operation, holder: str
    ) -> NDArray[np.uint8]:
        check_group(group)
        columns = checked_handles(handles)
        term = await self.ready()
        topics = await term.topics_of(dict.fromkeys(columns["topic"].tolist()))
        await term.open(group, topics, holder=holder)
        if term.engine.groups.policy(group) is None:
            return np.full(len(columns), AckResult.UNKNOWN_QUEUE, np.uint8)
        results, unread = term.engine.operate(group, columns, operation, term.now())
        for part in unread:
            found = await asyncio.get_running_loop().run_in_executor(
                self._looking, self._desk.found, part
            )
            term.check()
            results[part.rows] = term.engine.operate_read(part, found, operation, term.now())
        if operation.kind is Kind.ACK:
            term.writer.acknowledged(len(columns))
        term.after()
        return results

    async def sync(self, group: str) -> None:
        """Return when all acknowledgements so far are confirmed. Raises RequestRefusedError
        (OUTCOME_UNKNOWN)."""
        term = await self.ready()
        if not await term.writer.synced(self._sync_timeout_s):
            raise RequestRefusedError(
                common_pb2.OUTCOME_UNKNOWN,
                f"the acknowledgements of group {group} are not known to be confirmed: the "
                "messages may be delivered again; acknowledge them again",
            )

    # ---- groups

    async def describe(self, group: str) -> GroupWork:
        """Raises RequestRefusedError (UNKNOWN_GROUP)."""
        check_group(group)
        term = await self.ready()
        said = await asyncio.to_thread(self._desk.said, group)
        await term.open(group, [each for each in said if self._store.topics.get(each) is not None])
        policy = self._store.groups.policy(group)
        letters = letters_left(term.engine, group, term.letters.end(group))
        return group_work(term.engine, group, policy, letters)

    def _count(self, group: str) -> int:
        """Who works for the group now: receives that wait, else 1 if messages are leased."""
        if self.term is None:
            return 0
        waiting = self.term.waiting.of_group(group)
        return waiting or int(has_leased(self.term.engine, group))

    def numbers(self) -> WorkNumbers:
        """For metrics; on a slave there are only the counters."""
        if self.term is None:
            return WorkNumbers(self._counters)
        now_ms = self._store.clock.now_ms()
        return work_numbers(self.term.engine, self.term.waiting.count, now_ms)

    async def policy(self, group: str) -> GroupPolicy | None:
        """None for a group that is not there."""
        return self._store.groups.policy(group) if group in self._store.groups.table else None

    async def set_policy(self, group: str, policy: GroupPolicy) -> None:
        """Every node that may lead next has it on return. Raises RequestRefusedError
        (OUTCOME_UNKNOWN), MetadataError."""
        check_group(group)
        term = await self.ready()
        now_ms = self._store.clock.now_ms()
        await asyncio.to_thread(self._store.groups.ensure, group, now_ms)
        await asyncio.to_thread(self._store.groups.set_policy, group, policy, now_ms)
        await term.role.confirm_table(GROUPS)

    async def begin_at(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """The group's committed offsets in these queues were set: it begins there, with what it had
        leased or done behind them too. Raises RequestRefusedError (OUTCOME_UNKNOWN)."""
        term = await self.ready()
        if not await term.begin_at(group, topic, offsets):
            raise RequestRefusedError(
                common_pb2.OUTCOME_UNKNOWN,
                f"the offsets of group {quoted(group)} in topic {quoted(topic)} are set, but it "
                "may continue where it was: set them again",
            )

    @asynccontextmanager
    async def setting(
        self, group: str, topic: str, offsets: Mapping[int, int]
    ) -> AsyncIterator[None]:
        """Around a commit of these offsets by hand: the group begins there. Raises as
        `begin_at`."""
        yield
        await self.begin_at(group, topic, offsets)

    async def group_deleted(self, group: str) -> None:
        """The group was taken out of the table: return when the log has forgotten what it has done.
        Raises RequestRefusedError (OUTCOME_UNKNOWN)."""
        term = self.term
        if term is None or await term.forget_deleted(group):
            return
        raise RequestRefusedError(
            common_pb2.OUTCOME_UNKNOWN,
            f"group {quoted(group)} is deleted, but what it has done of its work queues may not be "
            "forgotten yet: look whether the group is there, and delete it again if it is",
        )


def _bytes_of(read: Read) -> int:
    return sum(len(batch.records) for _, batch in read if isinstance(batch, ReadBatch))


def _result(
    leased: Sequence[Leased], lease_ms: int, throttled: bool, term: WorkTerm
) -> ReceiveResult:
    messages = tuple(
        LeasedMessages(
            each.queue.topic,
            each.queue.queue_id,
            byte_array(each.batch.records).data,
            each.batch.sizes,
            each.batch.offsets,
            each.attempts,
            each.first_ms,
            each.handles,
            each.errors,
            max(each.queue.end - each.queue.next, 0),
        )
        for each in leased
    )
    return ReceiveResult(messages, term.now().wall_ms + lease_ms, lease_ms, throttled)
