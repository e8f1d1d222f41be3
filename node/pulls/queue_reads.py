"""Reads of any number of queues, and the wait for the first message of a long poll.

    Wanted ─▶ round in a reader thread ─▶ Reading ─▶ encode, in that thread ─▶ the door's answer
                 ▲            │ every queue ends where it was asked for
                 '── a queue has more ◀── wait

Every door that clients pull by has its own requests and answers, and this one reader. A few
messages of one queue that are in memory are read in the loop (`read_now`): a turn in a thread costs
more than they do. How many one turn of the loop reads for all callers is bounded (loop_share.py);
a thread reads the others. A long poll of one queue may wait without a task, too (`park`).

One round reads the positions in the order of the request until the response is full. Without a wait
that is one get of each queue, with RocketMQ's status and next offset. A long poll whose filter
found nothing moves on and reads again, so that a rare tag does not cost a round trip for every 800
entries. It answers PASSED_WAIT_S after it has moved on: its reader has passed what the filter
skipped, and a group whose filter skips everything has no lag.

    some position FOUND, or in a state on which the client has to act   ─▶ answer
    every position at its end                                          ─▶ wait, then another round

The loop sees in memory whether a position is at its end, without a thread and without a read:
before the first round of a long poll, and before and after each wait. The ends that a round saw
count until one of them moves. A damaged queue has no end, and is read at once.

The states on which a client acts are those in which it asked for an offset that is not there (too
small, beyond the end, removed). The end of a queue, or the start of an empty one, is a reason to
wait. A client that asks beyond the end may know of a message by its producer's acknowledgement, so
the queue is read again when all that is confirmed is dispatched. A slave returns an offset beyond
its end unchanged: it may be behind the node that the client read before, and must not send the
client back (RocketMQ's rule for slaves). With `behind_wait_s` it waits so long until it has come
there: a slave in sync is milliseconds behind.

A round has a bound that does not depend on the request: it examines SCAN_UNITS entries and then
returns what it has, with the position in each queue. Records that a filter looks at count as so
many entries as they cost (storage/reads/filtering.py). So a filter that never matches, over as many
queues as a request may name, occupies a reader thread for about ten milliseconds at a time; a very
heavy one during one get. Between two gets a thread checks whether its caller is gone.

What a filter has skipped counts only in the log in which it was: when the node's log has begun
another term since the round before, it may have been cut, and other messages may have the offsets
that were skipped. So the pull begins again where its request does.

What the files do not have any more may be in an archive (node/archive/cold_reader.py). A round that
meets such an offset begins again in a thread that may wait for it, and ends there after COLD_S.
Queues that the archive does not give now are left out, if another one has messages.

The hint to read from a slave follows RocketMQ's rule too: if the messages lie further behind the
end of the log than FAR_BEHIND_MEMORY_SHARE of the memory, they come from the disk.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Generic

from tandemlog.archive.errors import ArchiveError
from tandemlog.format.filter.expression import Condition
from tandemlog.lazy import lazy
from tandemlog_server.storage.errors import StoreBusyError
from tandemlog_server.storage.reads.results import GetResult, GetStatus
from tandemlog_server.storage.reads.store_reader import StoreReader
from tandemlog_server.storage.stats import LatencyHistogram

from ..access.caller import Caller
from .group_activity import GroupActivity
from .long_polling import UNKNOWN_QUEUE, LongPolling
from .loop_share import LoopShare
from .parked_reads import Answered, ParkedRead, ParkedReads
from .read_turns import SMALL_BYTES, ReadTurns
from .reading import (
    Cold,
    Encode,
    Gets,
    Made,
    Place,
    Position,
    PullLimits,
    QueueRead,
    Reading,
    Wanted,
)
from .waiting_places import WaitingPlaces

if TYPE_CHECKING:
    from tandemlog.format.filter import parser
else:
    parser = lazy("tandemlog.format.filter.parser")  # the first filter loads lark

QUICK_POSITIONS = 512
"""Up to so many are looked at in the loop, before any round."""
# Gets of one queue in a filtered round before it returns its position.
MAX_FILTER_ROUNDS = 64
# Entries of all queues that a round looks at; a get of none counts as a few.
SCAN_UNITS = 1 << 19
_LEAST_SCANNED = 64

PASSED_WAIT_S = 1.0
COLD_S = 1.0

FAR_BEHIND_MEMORY_SHARE = 0.4

_WAITABLE = frozenset(
    {
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.NO_MATCHED_MESSAGE,
    }
)
_READ = frozenset({GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING})
_BEYOND_END = frozenset(
    {
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.OFFSET_OVERFLOW_BADLY,
    }
)


@dataclass(slots=True)
class _Pull(Generic[Made]):
    """A request in progress; `gone` tells the thread that its caller no longer waits. `waited_s`
    is what it spent waiting for a message, `messages` are those of its last round. `log_term`: of
    the log in which `positions` have moved. `dispatched`: see Reading."""

    wanted: Wanted
    encode: Encode[Made]
    room: int
    positions: list[Position] = field(default_factory=list)
    gone: bool = False
    waited_s: float = 0.0
    messages: int = 0
    record_bytes: int = 0
    log_term: tuple[int, int] | None = None
    dispatched: bool = True


@dataclass(frozen=True, slots=True)
class _Round(Generic[Made]):
    """An encoded answer (none: as if there had been a round), its bytes, and whether to give it
    now; `ends` are those of its queues that it saw. `beyond`: a queue ended before its position.
    `is_cold`: it ended at messages that only the archive may have."""

    answer: Made | None
    size: int
    done: bool
    ends: Sequence[int]
    beyond: bool = False
    is_cold: bool = False


class QueueReads:
    """See the module. `check(topic, queue_id)` raises where there is no such queue to read;
    `dense(topic, queue_id)` is the queue's number in reput's notices, -1 before its first message;
    `ends(numbers)` is where these queues end, no offset for one that cannot be read; `end(number)`
    is the same of one, and raises if it cannot be read; `log_term()` names the log
    (LogHistory.newest); `dispatched` waits a moment until what is confirmed now is in the
    queues, and says whether it is."""

    def __init__(
        self,
        store: StoreReader,
        long_polling: LongPolling,
        turns: ReadTurns,
        *,
        check: Callable[[str, int], None],
        dense: Callable[[str, int], int],
        ends: Callable[[Sequence[int]], Sequence[int]],
        end: Callable[[int], int] | None = None,
        dispatched: Callable[[], Awaitable[bool]],
        on_slave: Callable[[], bool],
        limits: PullLimits,
        groups: GroupActivity | None = None,
        log_term: Callable[[], tuple[int, int]] = lambda: (0, 0),
        cold: Cold | None = None,
    ) -> None:
        self._store = store
        self._groups = groups
        # from a pull's arrival to its answer, without the wait for a message
        self.latency = LatencyHistogram()
        self._long_polling = long_polling
        self._turns = turns
        self._check = check
        self._dense = dense
        self._ends = ends
        self._end = end or (lambda queue: ends((queue,))[0])
        self._dispatched = dispatched
        self._on_slave = on_slave
        self.limits = limits
        self._log_term = log_term
        self.cold = cold
        self._places = WaitingPlaces(limits.long_polls)
        self._parked = ParkedReads(self, long_polling, self._places)
        self.loop_share = LoopShare()
        self.interrupts = 0
        """How often all waits were ended."""
        self.closed = False

    @property
    def waiting(self) -> int:
        """How many pulls wait for a message."""
        return self._long_polling.waiters

    def close(self) -> None:
        """End every wait with what there is; later pulls wait for nothing."""
        self.closed = True
        self.end_waits()

    def end_waits(self) -> None:
        """Answer every pull that waits now."""
        self.interrupts += 1
        self._long_polling.wake_all()

    def read_now(
        self, wanted: Wanted, caller: Caller, encode: Encode[Made], *, wait: bool = True
    ) -> Made | None:
        """The same as `read`, if that is a few messages of one queue which are in memory: then a
        thread would cost more than the reading. Without `wait` it is the end of the queue, too.
        None if `read` has to be asked. Belongs to the loop. Raises as `read`."""
        if len(wanted.places) != 1 or wanted.narrow or not wanted.max_messages:
            return None
        if not self.loop_share.has_room():
            return None
        room = min(wanted.max_bytes or self.limits.max_bytes, self.limits.max_bytes)
        if not self._turns.may_read_now(caller, room):
            return None
        began = asyncio.get_running_loop().time()
        log_term = self._log_term()  # before the read, as in `_round`
        place = wanted.places[0]
        self._check(place.topic, place.queue_id)
        result = self._store.get_in_memory(
            place.topic, place.queue_id, place.queue_offset, wanted.max_messages, room
        )
        if result is None and not wait:
            result = self._store.get_nothing(place.topic, place.queue_id, place.queue_offset)
        if result is None:
            return None
        self.loop_share.take(len(result.sizes))
        reading = Reading(*log_term, filtered=False, on_slave=self._on_slave())
        reading.queues.append(QueueRead(0, result, result.next_offset, beyond=False))
        reading.far_behind = result.behind > self.limits.far_behind_bytes
        answer, size = encode(reading)
        self._turns.release(caller)
        self._turns.hold(caller, size)
        self.latency.record(max(0.0, asyncio.get_running_loop().time() - began))
        if self._groups is not None:
            messages, record_bytes = len(result.sizes), len(result.records)
            self._groups.pulled(wanted.group, caller.peer, messages, record_bytes)
        return answer

    def park(
        self, wanted: Wanted, caller: Caller, encode: Encode[Made], answered: Answered[Made]
    ) -> ParkedRead[Made] | None:
        """See ParkedReads. None for what `read` has to do."""
        if len(wanted.places) != 1 or wanted.filter:
            return None
        wait_ms = min(wanted.wait_ms, self.limits.max_wait_ms)
        return self._parked.park(wanted, wait_ms, caller, encode, answered)

    def end_parked(self, parked: ParkedRead[Made]) -> None:
        """See ParkedReads.end."""
        self._parked.end(parked)

    def number(self, place: Place) -> int:
        """See Reads of parked_reads.py."""
        self._check(place.topic, place.queue_id)
        queue = self._dense(place.topic, place.queue_id)
        return queue if queue >= 0 else UNKNOWN_QUEUE

    def at_end(self, place: Place, queue: int) -> bool:
        """See Reads of parked_reads.py."""
        return self._end(queue) == place.queue_offset

    async def read(self, wanted: Wanted, caller: Caller, encode: Encode[Made]) -> Made:
        """What `encode` makes of the reading that answers `wanted`. Raises RequestRefusedError for
        what cannot be asked, and for what the node has no room for now, FilterError for a filter
        that cannot be understood."""
        answer = self.read_now(wanted, caller, encode)
        if answer is not None:
            return answer
        room = min(wanted.max_bytes or self.limits.max_bytes, self.limits.max_bytes)
        pull = _Pull(wanted, encode, room)
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            answer = await self._answer(pull, caller)
        finally:
            pull.gone = True
        self.latency.record(max(0.0, loop.time() - began - pull.waited_s))
        if self._groups is not None:
            self._groups.pulled(wanted.group, caller.peer, pull.messages, pull.record_bytes)
        return answer

    async def _answer(self, pull: _Pull[Made], caller: Caller) -> Made:
        loop = asyncio.get_running_loop()
        wait_ms = min(pull.wanted.wait_ms, self.limits.max_wait_ms)
        if wait_ms <= 0:
            return _answer_of(await self._read_round(pull, caller))
        deadline = loop.time() + wait_ms / 1000
        interrupts = self.interrupts
        if len(pull.wanted.places) <= QUICK_POSITIONS:
            pull.positions = self._positions(pull.wanted)
            # as if a round had found every queue to end where the request begins
            last_round: _Round[Made] = _none_yet([each.queue_offset for each in pull.positions])
        else:
            last_round = await self._read_round(pull, caller)
            deadline = _deadline(pull, last_round, deadline)
        while (
            not last_round.done
            and not self.closed
            and interrupts == self.interrupts
            and loop.time() < deadline
        ):
            queues = [self._dense(each.topic, each.queue_id) for each in pull.positions]
            if self._ends(queues) != last_round.ends:
                last_round = await self._read_round(pull, caller)
                deadline = _deadline(pull, last_round, deadline)
                if not last_round.done and last_round.size > SMALL_BYTES:
                    # not kept while nothing happens
                    self._turns.release(caller)
                    last_round = _none_yet(last_round.ends)
            else:
                await self._wait(pull, caller, queues, last_round.ends, deadline)
        if last_round.answer is None:
            last_round = await self._read_round(pull, caller)
        return _answer_of(last_round)

    async def _wait(
        self,
        pull: _Pull[Made],
        caller: Caller,
        queues: Sequence[int],
        ends: Sequence[int],
        deadline: float,
    ) -> None:
        """Until something comes into one of `queues`, which ended at `ends`, or `deadline`."""
        watched = {queue if queue >= 0 else UNKNOWN_QUEUE for queue in queues}
        with (
            self._waits(caller.holder, len(watched)),
            caller.long_poll(),
            self._long_polling.waiting(watched, deadline) as touched,
        ):
            # this pull got no notice of messages that came before this moment
            if self._ends(queues) == ends:
                began = asyncio.get_running_loop().time()
                await touched.wait()
                pull.waited_s += asyncio.get_running_loop().time() - began

    async def _read_round(self, pull: _Pull[Made], caller: Caller) -> _Round[Made]:
        round_ = await self._read_once(pull, caller)
        if round_.beyond:
            pull.dispatched = await self._dispatched()
            round_ = await self._read_once(pull, caller)
        return round_

    async def _read_once(self, pull: _Pull[Made], caller: Caller) -> _Round[Made]:
        self._turns.release(caller)
        round_ = await self._turns.run(
            caller,
            partial(self._round, pull, self._store),
            room=pull.room,
            size_of=lambda answer: answer.size,
        )
        if round_.is_cold:
            assert self.cold is not None
            work = partial(self._round, pull, self.cold.reader)
            round_ = await self.cold.run(caller, work)
            self._turns.hold(caller, round_.size)
        return round_

    @contextmanager
    def _waits(self, holder: str, queues: int) -> Iterator[None]:
        """While a pull of `holder` waits for so many queues."""
        self._places.take(holder, queues)
        try:
            yield
        finally:
            self._places.give_back(holder, queues)

    def _positions(self, wanted: Wanted) -> list[Position]:
        positions = []
        for index, each in enumerate(wanted.places):
            self._check(each.topic, each.queue_id)
            positions.append(Position(index, each.topic, each.queue_id, each.queue_offset))
        return positions

    def _round(self, pull: _Pull[Made], store: Gets) -> _Round[Made]:
        """Read the queues of `store` once. Runs in a reader thread."""
        wanted = pull.wanted
        is_warm = store is self._store
        failed: Exception | None = None
        cold_ends_at = time.monotonic() + COLD_S
        # before the reads: what a slave's log is cut behind has left its queues by then
        log_term = self._log_term()
        if not pull.positions or pull.log_term not in (None, log_term):
            pull.positions = self._positions(wanted)
        pull.log_term = log_term
        condition = parser.parse(wanted.filter) if wanted.filter else None
        reading = Reading(*log_term, condition is not None, self._on_slave())
        reading.dispatched = pull.dispatched
        ends = []
        room, scan = pull.room, SCAN_UNITS
        messages = 0
        done = any_beyond = False
        for position in pull.positions:
            if pull.gone:
                break
            floor = self.cold.reader.floor() if self.cold else 0
            try:
                result, moved, scanned = self._read(pull, store, position, room, condition, scan)
            except (ArchiveError, StoreBusyError) as error:
                if is_warm:
                    raise
                failed = failed or error
                if time.monotonic() < cold_ends_at:
                    continue
                break
            if is_warm and self.cold and self.cold.reader.may_have_missed(result, floor):
                return _Round(None, 0, False, (), is_cold=True)
            beyond = result.status in _BEYOND_END and position.queue_offset > 0
            any_beyond = any_beyond or beyond
            waits = reading.on_slave and wanted.behind_wait_s > 0
            done = done or moved or (beyond and not waits)
            done = done or not (beyond or result.status in _WAITABLE)
            following = position.queue_offset if beyond and reading.on_slave else result.next_offset
            reading.queues.append(QueueRead(position.index, result, following, beyond))
            ends.append(result.max_offset)
            reading.far_behind |= result.behind > self.limits.far_behind_bytes
            messages += len(result.sizes)
            room -= len(result.records)
            scan -= scanned
            if room <= 0 or scan <= 0 or not (is_warm or time.monotonic() < cold_ends_at):
                break
        if failed is not None:
            if not messages:
                raise failed
            done = True
        pull.messages, pull.record_bytes = messages, pull.room - room
        answer, size = pull.encode(reading)
        return _Round(answer, size, done, ends, any_beyond)

    def _read(
        self,
        pull: _Pull[Made],
        store: Gets,
        position: Position,
        room: int,
        condition: Condition | None,
        scan: int,
    ) -> tuple[GetResult, bool, int]:
        """Read on until there is a message: the result, True if the filter has skipped as much as
        it may, and how many entries were examined."""
        wanted = pull.wanted
        scanned = 0
        gets = MAX_FILTER_ROUNDS if wanted.wait_ms > 0 else 1
        for _ in range(gets):
            before = position.queue_offset
            result = store.get(
                position.topic,
                position.queue_id,
                before,
                wanted.max_messages,
                room,
                wanted.tag_hashes,
                condition,
            )
            looked_at = result.next_offset - before if result.status in _READ else 0
            scanned += max(looked_at + result.cost, _LEAST_SCANNED)
            if result.status is not GetStatus.NO_MATCHED_MESSAGE:
                return result, False, scanned
            position.queue_offset = result.next_offset
            if scanned >= scan or pull.gone:
                break
        return result, True, scanned


def _answer_of(round_: _Round[Made]) -> Made:
    assert round_.answer is not None, "a round that was read has an answer"
    return round_.answer


def _none_yet(ends: Sequence[int]) -> _Round[Made]:
    return _Round(None, 0, False, ends)


def _deadline(pull: _Pull[Made], round_: _Round[Made], deadline: float) -> float:
    """Sooner than `deadline` if a filter has skipped something since the request came, or if a
    queue has not come to the position of its reader yet."""
    now = asyncio.get_running_loop().time()
    if round_.beyond:
        deadline = min(deadline, now + pull.wanted.behind_wait_s)
    places = pull.wanted.places
    if pull.wanted.narrow and any(
        each.queue_offset != places[each.index].queue_offset for each in pull.positions
    ):
        return min(deadline, now + PASSED_WAIT_S)
    return deadline
