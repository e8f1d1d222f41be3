"""One stream: what is fetched, what the caller has of that, and what is committed.

    Membership ─▶ queues ─▶ Fetcher ─▶ buffer ─▶ caller ─▶ Progress ─▶ commits
                   hand, pattern ─┘                 ▲
                                        calls: on_assigned, on_revoked, on_lost, on_commit_error

Callbacks run in the caller's thread or task, when it comes for messages. `interrupted` says that
something waits for the caller; the `passage` of a loop over messages is stopped then, after the
message that the caller has.
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ...errors import (
    ClientClosedError,
    FencedMemberError,
    InvalidArgumentError,
    TandemlogError,
)
from ...hooks import Hooks
from ...telemetry.outages import call_back
from ...v1 import broker_pb2
from ..follow_options import FollowOptions
from ..group.commits import Commit, Commits
from ..progress import Progress
from ..reading.positions import COMMITTED, EARLIEST, Positions, Queue, Start
from ..reading.queue_lag import Lags, QueueLag
from ..received.received_batch import ReceivedBatch
from ..statistics import ConsumerStatistics
from .after_cut import Cuts
from .fetcher import FetchedBatch, Fetcher

if TYPE_CHECKING:
    from ..group.membership import Membership
    from ..passage import Passage

logger = logging.getLogger(__name__)

OnQueues = Callable[[Any, list[Queue]], Any]
"""A callback with the stream and queues; it may be a coroutine function for asyncio."""
OnCommitError = Callable[[TandemlogError, dict[Queue, int]], Any]


@dataclass(frozen=True, slots=True)
class Callbacks:
    """The caller's; see AsyncConsumer.follow."""

    on_assigned: OnQueues | None = None
    on_revoked: OnQueues | None = None
    on_lost: OnQueues | None = None
    on_commit_error: OnCommitError | None = None


@dataclass(slots=True)
class Call:
    """A callback that waits for the caller; `ran` is set when it has returned. One that `revokes`
    is `overtaken` if the queues are lost before it is called."""

    run: Callable[[Any], Any]
    revokes: bool = False
    overtaken: bool = False
    ran: asyncio.Event = field(default_factory=asyncio.Event)


class Follower:
    """See the module. One event loop; what any thread may call is marked."""

    def __init__(
        self,
        fetcher: Fetcher,
        positions: Positions,
        lags: Lags,
        options: FollowOptions,
        *,
        group: str | None = None,
        start: Start = EARLIEST,
        callbacks: Callbacks | None = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._fetcher = fetcher
        self._positions = positions
        self._lags = lags
        self._options = options
        self._group = group
        self._start = start
        self._callbacks = callbacks or Callbacks()
        self.on_receive = Hooks(options.hooks).on_receive
        self.counters = fetcher.counters
        self._handed_over: deque[FetchedBatch] = deque()
        self.progress = Progress(lambda: positions.master_epoch)
        self.membership: Membership | None = None
        self.log = fetcher.log
        self.cuts = Cuts(
            self.progress,
            fetcher,
            options.on_data_loss,
            failed=self.failed,
            interrupt=self.interrupt,
        )
        self.commits = Commits(positions, self.progress, group, self)
        self.calls: deque[Call] = deque()
        self.interrupted = False
        self.passage: Passage | None = None
        self.steps = 0
        self._waiting = 0
        self._returned = asyncio.Event()
        self._closed = False
        self._grows = False
        self._tasks: list[asyncio.Task[None]] = []
        if group is not None and options.auto_commit_ms is not None:
            self.run(self._commit_regularly(options.auto_commit_ms), "tandemlog-commit")
        if options.on_statistics is not None:
            self.run(self._report(), "tandemlog-statistics")

    def run(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Until the stream is closed."""
        self._tasks.append(asyncio.get_running_loop().create_task(work, name=name))

    async def close(self) -> None:
        """Stops reading, saves what is done with automatic commits, leaves the group."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, *self.commits.under_way, return_exceptions=True)
        await self._fetcher.close()
        try:
            if self._group is not None and self._options.auto_commit_ms is not None:
                with contextlib.suppress(FencedMemberError):  # said by a warning
                    await self.commits.save(self.progress.done)
                await self.commits.save_lost()
        finally:
            if self.membership is not None:
                await self.membership.leave()

    @property
    def closed(self) -> bool:
        return self._closed

    # delivering

    @property
    def must_stop(self) -> bool:
        """Any thread: whether the caller must come back before the next message."""
        return self.interrupted or self._out_of_time

    @property
    def _out_of_time(self) -> bool:
        deadline = self.membership.deadline if self.membership is not None else None
        return deadline is not None and time.monotonic() >= deadline

    def caller_returned(self) -> None:
        """The caller was here, with nothing in hand."""
        self._returned.set()
        if self.membership is not None:
            if self._out_of_time:
                self.membership.check()
            had_left = self.membership.caller_is_here()
            if not had_left or self._options.auto_commit_ms is None:
                self.commits.forget_lost()

    def resume_delivery(self) -> None:
        """The caller has seen that it was interrupted, and has no callback to run."""
        self.interrupted = False
        self.caller_returned()

    async def wait(self, timeout_ms: float | None = None) -> bool:
        """Waits for a batch, or until the caller is wanted (`must_stop`); False at the stops.
        Raises what ended the reading, and TimeoutError after `timeout_ms`."""
        if timeout_ms is None:
            return await self._wait_for_batches()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await self._wait_for_batches()
        except TimeoutError as error:
            raise TimeoutError(f"no message came within {timeout_ms:g} ms") from error

    def pop(self) -> FetchedBatch | None:
        """The next batch of some queue, if one is there."""
        return self._fetcher.pop() if self._fetcher.buffer else None

    async def next_fetched(
        self, taken: deque[FetchedBatch], timeout_ms: float | None = None
    ) -> bool:
        """Moves all batches to `taken`, empty ones too (see `mark_skipped`), for a caller in
        another thread: one that is interrupted while it waits finds them there. False at the
        stops. Raises as `wait`."""
        self._handed_over = taken
        more = await self.wait(timeout_ms)
        while self._fetcher.buffer:
            taken.append(self._fetcher.pop())
        return more

    async def _wait_for_batches(self) -> bool:
        """Whether there is a batch, or something else for the caller; False at the stops."""
        self._fetcher.check_loop()
        fetcher = self._fetcher
        self._waiting += 1
        try:
            while not fetcher.buffer:
                if self.must_stop:
                    return True
                if fetcher.failure is not None:
                    raise fetcher.failure.copy()
                if self._closed:
                    raise ClientClosedError("the stream is closed")
                if self.at_end:
                    return False
                fetcher.changed.clear()
                await fetcher.changed.wait()
        finally:
            self._waiting -= 1
            self.steps += 1
        return True

    @property
    def at_end(self) -> bool:
        """Whether every queue has reached its stop, and no other queue will come."""
        if self._fetcher.reads or self.progress.paused:
            return False
        if self.membership is not None:
            return self._fetcher.stops is not None and self.membership.settled
        return self._fetcher.stops is not None or not self._grows

    def mark_skipped(self, batch: ReceivedBatch, turn: int) -> None:
        """Any thread. The tags left nothing of a batch to deliver, so it is done."""
        progress = self.progress.progress_of(batch.queue, turn)
        progress.delivered = progress.done = batch.next_offset

    # queues

    def read_from(self, starts: Mapping[Queue, int]) -> None:
        """Read these from these offsets on."""
        for queue, offset in starts.items():
            self.progress.restart(queue, offset)
        self._fetcher.read_from(starts, self.progress.turn)

    def stop_at(self, stops: Mapping[Queue, int]) -> None:
        """Before reading begins: where each queue ends."""
        self._fetcher.stops = dict(stops)

    @property
    def assignment(self) -> frozenset[Queue]:
        return self.progress.queues - self.progress.leaving

    def pause(self, queues: Collection[Queue]) -> None:
        """Deliver nothing of these until `resume`."""
        self._check_assigned(queues)
        self.progress.pause(queues)
        self._fetcher.drop(queues)
        self.interrupt()

    def resume(self, queues: Collection[Queue]) -> None:
        """Continue with the message after the last one delivered."""
        self._check_assigned(queues)
        self._fetcher.read_from(self.progress.resume(queues), self.progress.turn)

    async def seek(self, queue: Queue, to: Start) -> None:
        """Continue there; a number is an offset."""
        self._check_assigned([queue])
        if isinstance(to, int):
            if to < 0:
                raise InvalidArgumentError(
                    f"{queue[0]}/{queue[1]}: there is no offset {to}", field="queue_offset"
                )
            offset = to
        else:
            await self.log.try_catch_up()
            offset = (await self._positions.start([queue], to, self._group))[queue]
            self._check_assigned([queue])
        self.progress.restart(queue, offset)
        if queue in self.progress.paused:
            self._fetcher.drop([queue])
        else:
            self._fetcher.read_from({queue: offset}, self.progress.turn)
        self.interrupt()

    def _check_assigned(self, queues: Collection[Queue]) -> None:
        for queue in queues:
            if queue not in self.assignment:
                raise InvalidArgumentError(
                    f"{queue[0]}/{queue[1]} is not read by this stream now; it reads "
                    f"{sorted(self.assignment)}",
                    field="queue_id",
                )

    async def lag(self) -> dict[Queue, QueueLag]:
        """What waits behind the last message delivered."""
        return await self._lags.of(
            {queue: self.progress.position(queue) for queue in self.assignment}
        )

    def statistics(self) -> ConsumerStatistics:
        """Any thread. A closed stream keeps its totals."""
        positions = {queue: self.progress.position(queue) for queue in self.assignment}
        ahead = () if self._closed else (*tuple(self._handed_over), *tuple(self._fetcher.buffer))
        return self.counters.statistics(positions, [batch for batch, _ in ahead])

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(self._options.statistics_interval_ms / 1000)
            call_back(self._options.on_statistics, self.statistics())

    def interrupt(self) -> None:
        self.interrupted = True
        passage = self.passage
        if passage is not None:
            passage.stop()
        self._fetcher.changed.set()

    # as a member of a group: see membership.Reading

    async def fix_start(self, queues: Collection[Queue]) -> None:
        """`start` is for the present `queues`, and means their present offsets. A queue that comes
        later is read from its beginning, and so is a new one of a topic that the group knows
        already: it came while no member was there."""
        assert self._group is not None
        if self._start in (EARLIEST, COMMITTED) or not queues:
            return
        topics = sorted({topic for topic, _ in queues})
        old_topics = {topic for topic, _ in await self._positions.committed(self._group, topics)}
        new = sorted(queue for queue in queues if queue[0] not in old_topics)
        await self.log.try_catch_up()
        self.cuts.begins = await self._positions.start(new, self._start, None) if new else {}

    async def starts(self, queues: Collection[Queue]) -> Mapping[Queue, int]:
        """The committed offsets. For a queue without one, the offset at which the group begins is
        committed at once: the next reader of the queue, even after a crash, continues there. Queues
        that were deleted a moment ago begin at 0."""
        assert self._group is not None
        await self.log.catch_up()
        self.cuts.former.clear()
        wanted = sorted(queues)
        topics = sorted({topic for topic, _ in wanted})
        epoch = self.progress.epoch
        committed = await self._positions.committed(self._group, topics)
        fresh = [queue for queue in wanted if queue not in committed]
        if fresh:
            first = await self._positions.start(fresh, EARLIEST, None)
            begins = {queue: self.cuts.begins.get(queue, first.get(queue, 0)) for queue in fresh}
            await self.commits.commit_starts(begins)
            # the log may have been cut meanwhile
            cut = self.cuts.begins
            begins = {queue: min(at, cut.get(queue, at)) for queue, at in begins.items()}
            committed = {**committed, **begins}
        starts = {queue: committed[queue] for queue in wanted}
        self.progress.note_committed(starts, epoch)
        return starts

    def assigned(self, starts: Mapping[Queue, int]) -> None:
        logger.info("assigned: group=%s queues=%s", self._group, sorted(starts))
        self._add_call(self._callbacks.on_assigned, starts)
        self.commits.forget_lost(starts)
        self.read_from(starts)

    def parts(self, queues: frozenset[Queue]) -> list[frozenset[Queue]]:
        """With on_revoked, all of them wait for the caller."""
        in_hand = queues & {self.progress.in_hand} if self._callbacks.on_revoked is None else set()
        return [frozenset(part) for part in (queues - in_hand, in_hand) if part]

    async def give_up(self, queues: Collection[Queue]) -> None:
        logger.info("giving up: group=%s queues=%s", self._group, sorted(queues))
        self.progress.leave(queues)
        self._fetcher.drop(queues)
        self.interrupt()
        call = self._add_call(self._callbacks.on_revoked, queues)
        if call is not None:
            call.revokes = True
            await call.ran.wait()
        while self.progress.in_hand in queues:
            self._returned.clear()
            if self.progress.in_hand in queues:
                await self._returned.wait()
        if self._options.auto_commit_ms is not None:
            with contextlib.suppress(TandemlogError):  # said by a warning and on_commit_error
                await self.commits.save_done(
                    {q: o for q, o in self.progress.done.items() if q in queues}
                )
        self.progress.forget(queues)

    def lost(self, queues: Collection[Queue], reason: str, former: tuple[str, int]) -> None:
        logger.warning("lost: group=%s queues=%s: %s", self._group, sorted(queues), reason)
        self.cuts.former.update((queue, self.progress.position(queue)) for queue in queues)
        committed = dict(self.progress.committed)
        self.commits.lost(self.progress.forget(queues), committed, former)
        self._fetcher.drop(queues)
        for call in list(self.calls):
            call.overtaken = call.overtaken or call.revokes
        self._add_call(self._callbacks.on_lost, queues)
        self.interrupt()

    async def before_join(self) -> None:
        if self._options.auto_commit_ms is not None:
            await self.commits.save_lost()

    def failed(self, error: TandemlogError) -> None:
        self._fetcher.failure = error
        self.interrupt()

    def assignment_changed(self) -> None:
        self._fetcher.changed.set()

    def caller_step(self) -> object | None:
        return None if self._waiting else (self.steps, self.progress.moved)

    def _add_call(self, callback: OnQueues | None, queues: Collection[Queue]) -> Call | None:
        if callback is None:
            return None
        named = sorted(queues)
        call = Call(lambda stream: callback(stream, named))
        self.calls.append(call)
        self.interrupt()
        return call

    def leaving_call(self) -> Call | None:
        """on_revoked for all that is owned, before the stream is closed."""
        queues = sorted(self.assignment)
        callback = self._callbacks.on_revoked
        if callback is None or self.membership is None or not queues or self._closed:
            return None
        return Call(lambda stream: callback(stream, queues))

    def commit_failed(self, error: TandemlogError, offsets: dict[Queue, int]) -> None:
        """Tell the caller, who did not wait for this commit."""
        callback = self._callbacks.on_commit_error
        if callback is not None:
            self.calls.append(Call(lambda _: callback(error, offsets)))
            self.interrupt()

    async def _commit_regularly(self, every_ms: int) -> None:
        while True:
            await asyncio.sleep(every_ms / 1000)
            with contextlib.suppress(TandemlogError):
                await self.commits.save_done(self.progress.done)

    def transaction_offsets(self, what: Commit | None) -> broker_pb2.CommitOffsetsRequest:
        """Any thread. See AsyncStream.transaction_offsets."""
        if self._options.auto_commit_ms is not None:
            raise InvalidArgumentError(
                "offsets that a transaction commits must not be committed by the stream too: "
                "follow with FollowOptions(auto_commit_ms=None)",
                field="offsets",
            )
        return self.commits.for_transaction(what)

    # queues that no group assigns

    def watch_queues(self, all_queues: Callable[[], Awaitable[Collection[Queue]]]) -> None:
        """A topic may get more queues, and a pattern more topics; they are read from the group's
        offsets, or else from their beginnings."""
        self._grows = True
        self.run(self._watch_queues(all_queues), "tandemlog-queues")

    def watch_topics(self, topics: Callable[[], Awaitable[Collection[str]]]) -> None:
        """A pattern of a member may match other topics later."""
        self.run(self._watch_topics(topics), "tandemlog-topics")

    async def _watch_topics(self, topics: Callable[[], Awaitable[Collection[str]]]) -> None:
        while True:
            await asyncio.sleep(self._options.refresh_ms / 1000)
            try:
                names = await topics()
            except TandemlogError as error:
                logger.debug("topics not refreshed: %s", error)
                continue
            if self.membership is not None:
                self.membership.set_topics(names)
            self._read_again({each for each in self._fetcher.deleted if each[0] in names})

    def _read_again(self, queues: Collection[Queue]) -> None:
        """Queues that were deleted, and are there again: they continue where they were."""
        if queues:
            logger.info("topics were created again: %s", sorted(queues))
            self._fetcher.read_from(self.progress.again(queues), self.progress.turn)

    async def _watch_queues(self, all_queues: Callable[[], Awaitable[Collection[Queue]]]) -> None:
        while True:
            await asyncio.sleep(self._options.refresh_ms / 1000)
            try:
                queues = await all_queues()
                new = [queue for queue in queues if queue not in self.progress.queues]
                committed = {}
                if self._group is not None and new:
                    topics = sorted({topic for topic, _ in new})
                    committed = await self._positions.committed(self._group, topics)
            except TandemlogError as error:
                logger.debug("queues not refreshed: %s", error)
                continue
            for queue in new:
                logger.info("follower reads a new queue: topic=%s queue_id=%d", *queue)
            self.read_from({queue: committed.get(queue, 0) for queue in new})
            self._read_again(self._fetcher.deleted.intersection(queues))
