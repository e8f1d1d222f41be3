"""What works behind a consumer of a work queue: it receives ahead, renews leases, and settles.

    master ──Receive, long poll──▶ intake ──▶ lanes ──take──▶ callers, handlers
       ▲                                        │               │ ack, retry, reject
       │◀── Extend, at a third of the lease ── leases            ▼
       │◀── Acknowledge, Nack, Reject, Release ───────────── settler

Callers take rows of lanes in any task or thread (leased_batch.py); all the rest is in one event
loop. A lease is renewed while its message waits here or is with a caller, so neither a long handler
nor a full buffer makes a message come twice. A message whose lease ended while it waited is dropped
here: another consumer has it. One whose caller is at work is settled late, and that is told.

An outage is survived, as in Fetcher: handles and leases are sent to the next master. An error of
the request itself (no such topic, by the master's word) ends it: `failure`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any

from ...errors import DeliverySettledError, TandemlogError
from ...format.lease.policy import AckResult, Ordering
from ...v1 import work_pb2
from ..interruptible import Interruptible
from ..reading.selector import Selector
from .leased_batch import (
    ACKED,
    DROPPED,
    LOST,
    REJECTED,
    RELEASED,
    RETRIED,
    STATE_NAMES,
    TAKEN,
    WAITING,
    Lane,
    LeasedBatch,
    Taken,
    lost_error,
)
from .open_leases import OpenLeases
from .prefetch import Prefetch
from .settler import Settled, Settler
from .work_calls import WorkCalls, may_pass, receive_request
from .work_options import WantedPolicy, WorkOptions
from .work_statistics import WorkCounters, WorkStatistics

logger = logging.getLogger(__name__)

NOT_SETTLED = "the consumer was closed before this message was settled"
PAUSE_S = 0.05
"""Before the next request, where one came back too soon."""
SLOW_S = 2.0
"""A caller that takes longer for a message gets none ahead, unless it asks for that."""
IN_FLIGHT_S = 0.1
"""How long a stop waits for an answer that may be under way."""
_TURNS = 32
"""Messages between two turns of the event loop, where callers never wait."""


class WorkCore:
    """See the module. `failure`: what ended it. Made anywhere; used in one event loop from `start`
    on, but for `take`, `settle` and `statistics`."""

    def __init__(
        self,
        calls: WorkCalls,
        topics: Sequence[str],
        *,
        selector: Selector,
        wanted: WantedPolicy,
        lease_ms: int,
        prefetch: int | None,
        options: WorkOptions,
    ) -> None:
        self.calls = calls
        self.options = options
        self.counters = WorkCounters()
        self.failure: TandemlogError | None = None
        self.stopping = False
        self.loop: asyncio.AbstractEventLoop | None = None
        self._topics = tuple(topics)
        self._selector = selector
        self._wanted = wanted
        self._lease_ms = lease_ms
        self._prefetch = prefetch
        self._leases = OpenLeases(calls, self.counters, lease_ms, self._lease_ended)
        self._lanes: deque[Lane] = deque()
        self._taken = self._settled = 0
        self._idle = 0
        self._parked = False
        self._receive: Interruptible[work_pb2.ReceiveResponse] = Interruptible()
        self._settler: Settler | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[None] | None = None

    # ---- begin and end

    def start(self) -> None:
        """In the client's loop; once."""
        if self.loop is not None:
            return
        self.calls.check_loop()
        self.loop = loop = asyncio.get_running_loop()
        self.stopped = asyncio.Event()
        self._arrived, self._room = asyncio.Event(), asyncio.Event()
        self._ahead = Prefetch(self._prefetch, loop.time())
        if self.stopping:
            self.stopped.set()
        linger_s = self.options.linger_ms / 1e3
        self._settler = Settler(self.calls, self.counters, linger_s, self._fail, self._leases.done)
        self._tasks = [
            loop.create_task(self._guard(self._intake()), name="tandemlog-work"),
            loop.create_task(self._guard(self._renewal()), name="tandemlog-leases"),
        ]

    def stop(self) -> None:
        """In the loop: no message is delivered from now on; those that wait are given back."""
        if self.stopping:
            return
        self.stopping = True
        if self.loop is None:
            return
        self.stopped.set()
        # an answer that is under way has leases, which would last until their end
        self.loop.call_later(IN_FLIGHT_S, self._receive.interrupt)
        self._release_waiting()
        self._arrived.set()
        self._room.set()

    async def close(self, error: str = NOT_SETTLED) -> None:
        """Stops; what callers have and did not settle comes again by the policy, with `error`.
        Returns when the node has confirmed what was settled, or stop_timeout_ms is over."""
        self.stop()
        if self.loop is None:
            return
        if self._closing is None:
            self._closing = self.loop.create_task(self._close(error), name="tandemlog-work-close")
        await asyncio.shield(self._closing)

    async def _close(self, error: str) -> None:
        assert self._settler is not None
        for batch in self._leases.batches:
            for row in batch.rows_in(TAKEN):
                batch.states[row] = RETRIED
                self._settler.add((batch, row, RETRIED, None, error, None))
        intake, renewal = self._tasks
        await asyncio.wait([intake], timeout=2 * IN_FLIGHT_S)
        try:
            await self._settler.close(self.options.stop_timeout_ms / 1e3)
        finally:
            for task in (intake, renewal):
                task.cancel()
            await asyncio.gather(intake, renewal, return_exceptions=True)

    async def _guard(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except TandemlogError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("a consumer of work failed")
            self._fail(TandemlogError(f"the client failed: {error!r}"))

    def _fail(self, error: TandemlogError) -> None:
        if self.failure is None:
            self.failure = error
        self.stop()

    # ---- callers

    def take(self) -> Taken | None:
        """The next message, if one is there. Any thread."""
        lanes = self._lanes
        while lanes:
            try:
                lane = lanes[0]
            except IndexError:
                return None
            batch = lane.batch
            if batch.lane_of:
                # first: the thread that has removed it takes the next message, no other one does
                if not self._remove(lane):
                    continue
                row = next((each for each in lane.rows if batch.states[each] == WAITING), -1)
            else:
                row = next(lane.rows, -1)
            if row < 0:
                self._remove(lane)
                self._wants_more()
                continue
            if batch.states[row] != WAITING:
                continue
            batch.states[row] = TAKEN
            self._taken += 1
            if row == batch.middle:
                self._wants_more()
            return batch, row
        return None

    def _remove(self, lane: Lane) -> bool:
        """False if another thread has removed it."""
        try:
            self._lanes.remove(lane)
        except ValueError:
            return False
        return True

    def _wants_more(self) -> None:
        assert self.loop is not None
        try:
            here = asyncio.get_running_loop() is self.loop
        except RuntimeError:
            here = False
        if here:
            self._room.set()
        elif not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self._room.set)

    async def next(self, timeout_s: float | None = None) -> Taken | None:
        """The next message; None once stopped. Raises TimeoutError, and what ended the reading."""
        if self._taken % _TURNS == 0:
            await asyncio.sleep(0)
        while (taken := self.take()) is None:
            if not await self.ready(timeout_s):
                return None
        return taken

    async def ready(self, timeout_s: float | None = None) -> bool:
        """Wait until there may be a message to take; False once stopped. Raises as `next`."""
        self.start()
        self._parked = False
        async with asyncio.timeout(timeout_s):
            while not self._lanes:
                if self.failure is not None:
                    raise self.failure.copy()
                if self.stopping:
                    return False
                self._arrived.clear()
                self._idle += 1
                self._room.set()
                try:
                    await self._arrived.wait()
                finally:
                    self._idle -= 1
        return True

    def settle(
        self,
        taken: Taken,
        state: int,
        *,
        delay_ms: int | None = None,
        error: str = "",
        confirmed: "asyncio.Future[None] | None" = None,
        here: bool = True,
    ) -> bool:
        """The outcome of a message that was taken; False if it had this one before. `here`: this
        is the loop's thread. Raises LeaseLostError, and DeliverySettledError if it had another."""
        assert self.loop is not None
        assert self._settler is not None
        batch, row = taken
        before = batch.states[row]
        if before == LOST:
            raise lost_error(batch, row, AckResult.INVALID_RECEIPT_HANDLE)
        if before == state and confirmed is None:
            return False
        if before != TAKEN:
            raise DeliverySettledError(
                f"{batch.place(row)}: this message is {STATE_NAMES.get(before, 'not delivered')} "
                f"already, and cannot be {STATE_NAMES[state]}"
            )
        batch.states[row] = state
        self._settled += 1
        settled: Settled = (batch, row, state, delay_ms, error, confirmed)
        if here:
            self._settler.add(settled)
            if batch.lane_of:
                self._lane_is_free(batch, row, state)
        else:
            self._settler.add_threadsafe(settled)
            if batch.lane_of:
                self.loop.call_soon_threadsafe(self._lane_is_free, batch, row, state)
        return True

    def _lane_is_free(self, batch: LeasedBatch, row: int, state: int) -> None:
        """The next message of an order, or, where this one is not done, none: they are given back
        and come behind it."""
        assert self._settler is not None
        lane = batch.lane_of[row]
        if state in (ACKED, REJECTED) and not self.stopping:
            self._lanes.appendleft(lane)
            self._arrived.set()
            return
        for later in lane.rows:
            if batch.states[later] == WAITING:
                batch.states[later] = RELEASED
                self._settler.add((batch, later, RELEASED, None, "", None))

    def _lease_ended(self, batch: LeasedBatch, row: int) -> None:
        if batch.lane_of:
            self._lane_is_free(batch, row, LOST)

    def forgotten(self, batch: LeasedBatch, row: int) -> None:
        """The program has lost the delivery without an outcome. Any thread, also the collector."""
        if batch.states[row] != TAKEN or self.stopping:
            return
        batch.states[row] = DROPPED
        self.counters.dropped += 1
        if self.counters.dropped == 1:
            logger.warning(
                "group %s: %s was neither acknowledged nor given back by its consumer; it comes "
                "again when its lease ends. `statistics().dropped` counts further ones",
                self.calls.group,
                batch.place(row),
            )

    async def extend(self, taken: Taken, lease_ms: int) -> None:
        """A lease that lasts `lease_ms` from now on. Raises LeaseLostError."""
        await self._leases.extend(taken, lease_ms)

    async def room_to_settle(self) -> None:
        """Wait while too many outcomes are not sent."""
        if self._settler is not None and self._settler.full:
            await self._settler.room()

    def flush(self) -> None:
        """Send what was settled at once."""
        if self._settler is not None:
            self._settler.flush()

    @property
    def crowded(self) -> bool:
        """Whether `room_to_settle` would wait."""
        return self._settler is not None and self._settler.full

    def statistics(self) -> WorkStatistics:
        return self.counters.statistics(
            waiting=self._leases.count(WAITING),
            in_progress=self._leases.count(TAKEN),
            unconfirmed=0 if self._settler is None else self._settler.unconfirmed,
        )

    # ---- receive

    async def _intake(self) -> None:
        await self.calls.want_policy(self._wanted)
        while not self.stopping:
            count = self._count()
            if not count:
                self._room.clear()
                await self._room.wait()
                continue
            began = self._now()
            self._leases.asked()
            try:
                response = await self._receive.result(self._ask(count))
            except TandemlogError as error:
                if not may_pass(error):
                    raise
                logger.warning("group %s waits for a master: %s", self.calls.group, error)
                await asyncio.sleep(PAUSE_S)
                continue
            if response is None:
                continue
            self._arrive(response, began)
            if response.throttled or not response.queues:
                self.flush()
                if self._now() - began < PAUSE_S:
                    await asyncio.sleep(PAUSE_S)

    def _count(self) -> int:
        if self._parked:
            return 0
        self._leases.forget_finished()
        self._ahead.note(self._settled, self._now())
        waiting = sum(each.batch.waiting for each in self._lanes if not each.batch.lane_of)
        waiting += sum(
            each.states.count(WAITING) for each in self._leases.batches if each.lane_of
        )  # those behind a message that is under way
        return self._ahead.count(waiting, self._idle)

    async def _ask(self, count: int) -> work_pb2.ReceiveResponse:
        return await self.calls.receive(
            receive_request(
                self.calls.group,
                self._topics,
                count,
                lease_ms=self._lease_ms,
                wait_ms=self.options.wait_ms,
                max_bytes=self.options.max_bytes,
                tags=sorted(self._selector.tags or ()),
                where=self._selector.where,
            )
        )

    def _arrive(self, response: work_pb2.ReceiveResponse, asked_at: float) -> None:
        assert self._settler is not None
        lease_s = (response.lease_ms or self._lease_ms) / 1e3
        leased_at = asked_at + response.waited_ms / 1e3  # or a moment later
        for leased in response.queues:
            batch = LeasedBatch(
                self, leased, Ordering(response.ordering), leased_at, lease_s, response.master_epoch
            )
            self.counters.received += len(batch)
            self.counters.redelivered += sum(each > 1 for each in batch.attempts)
            self._leases.add(batch)
            self._lanes.extend(batch.lanes)
        if self.stopping:
            self._release_waiting()
        elif response.queues:
            self._arrived.set()

    def _release_waiting(self) -> None:
        assert self._settler is not None
        for batch in self._leases.batches:
            for row in batch.release_waiting():
                self._settler.add((batch, row, RELEASED, None, "", None))
        self._lanes.clear()

    # ---- leases

    async def _renewal(self) -> None:
        """Looks at all leases several times before one ends, and at the caller: it may be stuck."""
        step_s = min(self._lease_ms / 12e3, 0.5)
        seen, since = self._taken, self._now()
        while True:
            await asyncio.sleep(step_s)
            now = self._now()
            if self._idle or self._taken != seen:
                seen, since = self._taken, now
            elif now - since >= self.options.max_poll_interval_ms / 1e3 and not self._parked:
                self._park()
            elif now - since >= SLOW_S and self._ahead.fixed is None:
                self._ahead.slow()
                self._release_waiting()
            await self._leases.look()

    def _park(self) -> None:
        self._parked = True
        waiting = self._leases.count(WAITING)
        if waiting:
            logger.warning(
                "group %s: the caller did not ask for more in %g s (max_poll_interval_ms): %d "
                "messages that waited for it are given back",
                self.calls.group,
                self.options.max_poll_interval_ms / 1e3,
                waiting,
            )
            self._release_waiting()

    def _now(self) -> float:
        assert self.loop is not None
        return self.loop.time()
