"""Keeps long-polling several queues, many in one request, into a buffer ahead of the caller.

    node ──Pull(positions), waits for the first message──▶ fetch task ──▶ buffer ──▶ follower
                                                             ▲  stops at prefetch_bytes
                                                             └─ a lane of queues, those read last
                                                                at its end: none starves another

A few lanes (parallel_pulls) share the queues while much comes: lanes.py.

What an answer says of a queue, and what follows:

    FOUND, NO_MATCHED_MESSAGE     continue at next_offset
    at its end, or empty          wait
    another than was asked for    ask another node, until each has answered so
    beyond its end                not yet: stay there, and ask another node. Lost if the master says
                                  after patience_ms that no node has it: then its log was cut
    too small, being removed,     lost if all allowed nodes report it, including the master;
    unreadable, a hole            `on_data_loss` says whether to continue or to raise

Queues come and go while it reads. A pull that waits is cancelled when its lane gets a queue, or one
that continues elsewhere. If a queue was moved while a pull was under way, its part of the answer
does not count.

Which answers count, and of which nodes, is in lost_messages.py. A fetcher survives any outage: it
looks for another node as long as it is open. An error of the request itself (no such topic, by the
master's word) ends it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Final

from ...cluster.master_questions import NO_MASTER
from ...cluster.node import Node
from ...cluster.topology import ReadFrom
from ...errors import (
    BusyError,
    OffsetOutOfRangeError,
    ShuttingDownError,
    TandemlogError,
    UnknownQueueError,
    UnknownTopicError,
    UnreadableError,
)
from ...format.calls import MAX_POSITIONS
from ..follow_options import FollowOptions
from ..reading.cut_watch import CutWatch, TurnOffsets
from ..reading.lost_messages import Kind, Verdicts, accept
from ..reading.positions import LATEST, Positions, Queue
from ..reading.pulls import Place, Pulled, pull
from ..reading.reader import Reader
from ..reading.selector import EVERYTHING, Selector
from ..received.received_batch import ReceivedBatch, sizes_of
from ..statistics import ConsumerCounters
from .lanes import Lane, Lanes

logger = logging.getLogger(__name__)

_BATCH_BYTES: Final = 512
"""Of memory for a batch without messages: what a filter leaves out comes as such batches, and a
caller that takes none must not get any number of them."""

FetchedBatch = tuple[ReceivedBatch, int]
"""A batch, and the turn of its queue in which it was read."""

_PASSING = (*NO_MASTER, ShuttingDownError, BusyError)
"""Errors that pass: a follower waits, however long it takes."""


class Fetcher:
    """Reads what `read_from` names into `buffer`, batches with the turn in which each was read (see
    progress.py). `stops`: where each queue ends; None: nowhere. One event loop. `changed` is set
    when there is something for the reader: batches, an end, a failure."""

    def __init__(
        self,
        reader: Reader,
        positions: Positions,
        options: FollowOptions,
        *,
        stops: Mapping[Queue, int] | None = None,
        selector: Selector = EVERYTHING,
        group: str | None = None,
        lose_topics: bool = False,
    ) -> None:
        self._reader = reader
        self._positions = positions
        self._options = options
        self.stops = dict(stops) if stops is not None else None
        self._selector = selector
        self._group = group
        self._lose_topics = lose_topics
        self._lanes = Lanes(options.parallel_pulls)
        self.log = CutWatch(positions, self._positions_now, self._cut)
        # positions of queues that are not read now, and what to do with a cut queue: see Cuts
        self.unread: Callable[[], TurnOffsets] = dict
        self.on_cut: Callable[[Queue, int], None] | None = None
        self._fetched: dict[Queue, int] = {}
        self._turns: dict[Queue, int] = {}
        self.deleted: set[Queue] = set()
        """Those that are not read because the master does not know them, as long as that is so."""
        self.buffer: deque[FetchedBatch] = deque()
        self._buffered = 0
        self.changed = asyncio.Event()
        self.counters = ConsumerCounters()
        self._room = asyncio.Event()
        self._verdicts: Verdicts[Queue] = Verdicts()
        # nodes whose answers could not be read since the last one that could
        self._unreadable: set[str] = set()
        self.failure: TandemlogError | None = None
        self._tasks: list[asyncio.Task[None]] = []
        # A node waits for a message that is wanted: what ends must not wait for one.
        self._wait_ms = 0 if stops is not None and selector.is_narrow else options.wait_ms

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.changed.set()

    def check_loop(self) -> None:
        """Raises EventLoopError in another event loop than the client's."""
        self._reader.connection.check_loop()

    @property
    def reads(self) -> bool:
        """Whether there is a queue that has not reached its end."""
        return self._lanes.busy

    def read_from(self, starts: Mapping[Queue, int], turn: Callable[[Queue], int]) -> None:
        """Read these queues from these offsets on, also those that are read elsewhere now."""
        self.drop(starts)
        for queue, offset in starts.items():
            self._fetched[queue] = offset
            self._turns[queue] = turn(queue)
        unfinished = [queue for queue in starts if not self._finished(queue)]
        for lane in self._lanes.add(unfinished, len(self._fetched)):
            task = asyncio.get_running_loop().create_task(self._fetch(lane), name="tandemlog-fetch")
            self._tasks.append(task)
        self.changed.set()

    def drop(self, queues: Collection[Queue]) -> None:
        """Stop reading these; what was read of them is forgotten."""
        self.deleted.difference_update(queues)
        dropped = self._fetched.keys() & set(queues)
        if not dropped:
            return
        self._lanes.remove(dropped)
        for queue in dropped:
            del self._fetched[queue], self._turns[queue]
            self._verdicts.clear(queue)
        remaining = [each for each in self.buffer if each[0].queue not in dropped]
        self.buffer = deque(remaining)
        self._buffered = sum(_size(batch) for batch, _ in remaining)
        self._room.set()
        self.changed.set()

    def pop(self) -> FetchedBatch:
        """The oldest batch of the buffer."""
        fetched = self.buffer.popleft()
        self._buffered -= _size(fetched[0])
        self._room.set()
        return fetched

    async def _fetch(self, lane: Lane) -> None:
        try:
            while True:
                while not lane.queues:
                    lane.filled.clear()
                    await lane.filled.wait()
                while self._buffered >= self._options.prefetch_bytes:
                    self._room.clear()
                    await self._room.wait()
                if lane.queues:
                    await self._fetch_once(lane)
        except TandemlogError as error:
            self.failure = error
        except Exception as error:
            logger.exception("a follower failed")
            self.failure = TandemlogError(f"the client failed: {error!r}")
        finally:
            self.changed.set()

    async def _fetch_once(self, lane: Lane) -> None:
        queues = tuple(islice(lane.queues, MAX_POSITIONS))  # more of them turn
        offsets = [self._fetched[queue] for queue in queues]
        turns = [self._turns[queue] for queue in queues]
        asked: list[Node] = []
        asked_at = self.counters.now()
        try:
            pulled = await self._pull(lane, list(zip(queues, offsets, strict=True)), asked)
        except _PASSING as error:
            self.counters.retries += max(1, len(asked))
            logger.warning("follower waits for a node: %s", error)
            return
        except UnreadableError as error:
            # the retries of a pull end with its time, which one node may have spent on a long poll
            others = {node.endpoint for node in asked} - self._unreadable
            if not others:
                raise
            self._unreadable |= others
            self.counters.retries += len(asked)
            logger.warning("follower asks another node: %s", error)
            return
        except (UnknownTopicError, UnknownQueueError) as error:
            await self._check_that_they_exist(queues, error)
            await self._try_another_node(asked[-1], str(error))
            return
        if pulled is None:
            return
        self._unreadable.clear()
        try:
            ends = await self.log.ends_of(pulled, filtered=self._selector.is_narrow)
        except TandemlogError as error:
            if not error.retryable:
                raise
            logger.warning("follower waits for the master, to compare its positions: %s", error)
            await asyncio.sleep(0.05)
            return
        if ends is None:
            await self._try_another_node(pulled.node, "its log is not the one that the master has")
            return
        self.counters.pulled(
            asked_at,
            [node.endpoint for node in asked],
            messages=any(len(batch) for _, batch in pulled.parts),
        )
        doubtful, read = [], [queues[0]]
        for index, batch in pulled.parts:
            queue, offset = queues[index], offsets[index]
            if self._fetched.get(queue) != offset or self._turns.get(queue) != turns[index]:
                continue
            if not self._accept(queue, batch, pulled.node.endpoint, ends):
                doubtful.append(queue)
            if self._fetched[queue] != offset:
                read.append(queue)
        lane.turn(read)
        self._lanes.remove(self._ended(lane))
        if doubtful:
            lane.small = 0
        else:
            self._lanes.answered(lane, pulled.size)
        for queue in doubtful:
            if queue in self._fetched:
                await self._decide(queue)
        self._lanes.remove(self._ended(lane))
        self.changed.set()
        if doubtful:
            await self._try_another_node(pulled.node, "it does not have the next messages")
        else:
            self._reader.hint(pulled.suggest_slave)

    async def _pull(self, lane: Lane, places: Sequence[Place], asked: list[Node]) -> Pulled | None:
        """The answer of the last node in `asked`; None if the lane changed meanwhile."""

        def ask(node: Node) -> Awaitable[Pulled]:
            asked.append(node)
            return pull(
                node,
                places,
                self._reader.connection.options.request_timeout_ms,
                max_messages=self._options.max_messages,
                max_bytes=self._options.max_bytes,
                selector=self._selector,
                wait_ms=self._wait_ms,
                group=self._group or "",
            )

        return await lane.pull.result(self._reader.ask(ask))

    async def _check_that_they_exist(
        self, queues: Sequence[Queue], error: UnknownTopicError | UnknownQueueError
    ) -> None:
        """A slave may not have heard of a topic: raises `error` only if the master has not."""
        # asked for by name, a topic that is gone is an error, whatever became of the others
        names = () if self._lose_topics else sorted({topic for topic, _ in queues})
        try:
            topics = await self._reader.connection.topics(names)
        except _PASSING as away:
            logger.warning("follower waits for the master: %s, %s", error, away)
            return
        counts = {topic.name: topic.read_queues for topic in topics}
        unknown = [queue for queue in queues if queue[1] >= counts.get(queue[0], 0)]
        if unknown and not self._lose_topics:
            raise error
        if unknown:
            logger.warning("topics were deleted, or lost queues: %s", unknown)
            known = [queue for queue in unknown if queue in self._fetched]
            self.drop(known)
            self.deleted.update(known)

    def _accept(
        self, queue: Queue, batch: ReceivedBatch, endpoint: str, ends: Mapping[Queue, int]
    ) -> bool:
        """Takes in one queue's part of an answer, up to its end in `ends` if it has one there;
        False if the node does not have the next message."""
        self.counters.note_end(queue, batch.max_offset)
        accepted, verdict = accept(
            batch,
            self._fetched[queue],
            end=self.stops.get(queue) if self.stops is not None else None,
            of_log=ends.get(queue),
            filtered=self._selector.is_narrow,
        )
        if verdict.kind is Kind.THERE or accepted is not None:
            self._verdicts.clear(queue)
        if accepted is not None:
            self._put(queue, accepted.only_tags(self._selector.tags))
        if verdict.kind is not Kind.THERE:
            self._verdicts.note(queue, endpoint, verdict, asyncio.get_running_loop().time())
        return verdict.kind is Kind.THERE

    def _put(self, queue: Queue, batch: ReceivedBatch) -> None:
        self._fetched[queue] = batch.next_offset
        self._append(queue, batch)

    def _append(self, queue: Queue, batch: ReceivedBatch) -> None:
        self.buffer.append((batch, self._turns[queue]))
        self._buffered += _size(batch)

    def _positions_now(self) -> TurnOffsets:
        read = {queue: (self._turns[queue], offset) for queue, offset in self._fetched.items()}
        return {**self.unread(), **read}

    def _cut(self, queue: Queue, first: int) -> None:
        """The messages from `first` on are not in the log any more."""
        if self.on_cut is not None:
            self.on_cut(queue, first)
        elif queue in self._fetched:
            self.read_from({queue: first}, lambda each: self._turns[each] + 1)

    def _ended(self, lane: Lane) -> set[Queue]:
        if self.stops is None:
            return set()
        return {queue for queue in lane.queues if self._finished(queue)}

    def _finished(self, queue: Queue) -> bool:
        return self.stops is not None and self._fetched[queue] >= self.stops.get(queue, 0)

    async def _decide(self, queue: Queue) -> None:
        """Continues behind messages that are lost by the word of those who know; else leaves the
        queue where it is. Raises OffsetOutOfRangeError as `on_data_loss` says."""
        now = asyncio.get_running_loop().time()
        turn = self._turns[queue]
        topology = await self._reader.connection.current_topology()
        patient = self._verdicts.seconds(queue, now) < self._options.patience_ms / 1e3
        deciders = self._reader.order.deciders(topology, patient=patient)
        if self._turns.get(queue) != turn:
            return
        lost = self._verdicts.lost(queue, deciders)
        if lost is not None:
            self._lost(queue, lost.next_offset, lost.min_offset, lost.max_offset)
            return
        if patient or not self._verdicts.is_behind(queue):
            return
        try:
            ranges = await self._positions.ranges_at_master([queue[0]])
        except _PASSING:
            ranges = None
        except (UnknownTopicError, UnknownQueueError) as error:
            await self._check_that_they_exist([queue], error)
            return
        if self._turns.get(queue) != turn:
            return
        self._verdicts.start_over(queue, now)
        if ranges is None:
            logger.warning("%s/%d waits: no master can say whether messages are lost", *queue)
            return
        held = ranges.get(queue)
        low, end = (held.min_offset, held.max_offset) if held is not None else (0, 0)
        if self._fetched[queue] > end:
            self._lost(queue, low, low, end)
        elif self.stops is not None and self.stops.get(queue, 0) > end:
            logger.warning("%s/%d ends at %d: what came behind it was cut", *queue, end)
            self.stops[queue] = end

    def _lost(self, queue: Queue, next_offset: int, low: int, end: int) -> None:
        """No node has the next messages: continues elsewhere in the queue."""
        offset = self._fetched[queue]
        text = f"{queue[0]}/{queue[1]}: offset {offset} is not there, the queue holds {low}..{end}"
        if self._options.on_data_loss == "error":
            raise OffsetOutOfRangeError(text, field="queue_offset", actual=offset)
        if self._options.on_data_loss == LATEST and not low <= offset < end:
            next_offset = end
        logger.warning("messages are lost here, reading continues at %d: %s", next_offset, text)
        self.counters.lost_messages += max(0, next_offset - offset)
        self._verdicts.clear(queue)
        self._fetched[queue] = next_offset
        status = "OFFSET_TOO_SMALL"
        empty = ReceivedBatch(*queue, status, next_offset, low, end, b"", sizes_of(b""))
        self._append(queue, empty)

    async def _try_another_node(self, node: Node, reason: str) -> None:
        """The node lacks something that another one may have; where there is no choice, wait."""
        if self._reader.order.read_from is not ReadFrom.MASTER:
            self._reader.leave(node, reason)
        await asyncio.sleep(0.05)


def _size(batch: ReceivedBatch) -> int:
    """Bytes of memory."""
    return len(batch.records) + _BATCH_BYTES
