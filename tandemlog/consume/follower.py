"""Reads several queues on and on: long polls for many at a time, and a buffer ahead of the caller.

    node ──Pull(positions), waits for the first message──▶ fetch task ──▶ buffer ──▶ caller
                                                             ▲  stops at prefetch_bytes
                                                             └─ a lane of queues, turned by one
                                                                each time: none starves another

A few lanes (parallel_pulls) share the queues, so that the node reads for one while the client takes
in the answer of another; more of them where a pull cannot name all queues of a lane.

What an answer says of a queue, and what follows:

    FOUND, NO_MATCHED_MESSAGE     continue at next_offset
    at its end, or empty          wait
    beyond its end                not yet: stay, and look elsewhere. Lost if the master says after
                                  patience_ms that no node has it: then its log was cut
    too small, being removed,     lost if all allowed nodes report it, including the master;
    unreadable, a hole            `on_lost` says whether to continue or to raise

Which answers count, and whose, is in doubts.py. A follower survives any outage: it looks for
another node as long as it is open. What is wrong with the request itself (no such topic, by the
master's word) ends it with that error.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Self

import numpy as np

from ..cluster.connection import Node
from ..cluster.paging import MAX_POSITIONS
from ..cluster.pull_answer import PullAnswer
from ..cluster.topology import ReadFrom
from ..errors import (
    BusyError,
    ClientClosedError,
    NodeUnavailableError,
    OffsetOutOfRangeError,
    ShuttingDownError,
    TandemlogError,
    UnknownQueueError,
    UnknownTopicError,
)
from ..format.record.tags import tag_hashes
from ..v1 import broker_pb2
from .doubts import Doubts, Kind, judge, who_must_say
from .follow_options import FollowOptions
from .positions import LATEST, Positions, Queue
from .reading import Reader
from .received import ReceivedBatch

logger = logging.getLogger(__name__)

_PASSING = (NodeUnavailableError, ShuttingDownError, BusyError)
"""What a follower waits for, however long it takes."""


class Follower:
    """The queues in `starts` from the given offsets on; up to `stops`, if given; and those that
    `all_queues` names later, from their beginning. One event loop. `next_batch` delivers; see
    positions.py for delivered and done."""

    def __init__(
        self,
        reader: Reader,
        positions: Positions,
        options: FollowOptions,
        *,
        starts: Mapping[Queue, int],
        stops: Mapping[Queue, int] | None = None,
        all_queues: Callable[[], Awaitable[Iterable[Queue]]] | None = None,
        tags: frozenset[str] | None = None,
        group: str | None = None,
    ) -> None:
        self._reader = reader
        self._positions = positions
        self._options = options
        self._stops = dict(stops) if stops is not None else None
        self._all_queues = all_queues
        self._tags = tags
        self._hashes = sorted(tag_hashes(tags) or ())
        self._group = group
        self._fetched = dict(starts)
        unfinished = [queue for queue in starts if not self._finished(queue)]
        lanes = max(1, min(options.parallel_pulls, len(unfinished)))
        lanes = max(lanes, -(-len(unfinished) // MAX_POSITIONS))
        self._lanes = [deque(unfinished[lane::lanes]) for lane in range(lanes)]
        self._delivered: dict[Queue, int] = {}
        self._done: dict[Queue, int] = {}
        self._committed: dict[Queue, int] = {}
        self._buffer: deque[ReceivedBatch] = deque()
        self._buffered = 0
        self._ready = asyncio.Event()
        self._room = asyncio.Event()
        self._doubts: Doubts[Queue] = Doubts()
        self._failure: TandemlogError | None = None
        self._closed = False
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._fetch(lane), name="tandemlog-fetch") for lane in self._lanes
        ]
        if group is not None and options.auto_commit_ms is not None:
            self._tasks.append(loop.create_task(self._commit_on_and_on(), name="tandemlog-commit"))
        if all_queues is not None:
            self._tasks.append(loop.create_task(self._look_for_queues(), name="tandemlog-queues"))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops reading; with automatic commits saves what is done."""
        if self._closed:
            return
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._ready.set()
        if self._group is not None and self._options.auto_commit_ms is not None:
            await self._save(self._done)

    @property
    def delivered(self) -> dict[Queue, int]:
        """By queue, the offset after the last message delivered."""
        return dict(self._delivered)

    async def commit(self) -> None:
        """Saves, for the group, everything delivered so far, the newest message included."""
        if self._group is None:
            raise ClientClosedError("there is nothing to commit without a group")
        await self._save(self._delivered)

    def handed_out(self, queue: Queue, next_offset: int) -> None:
        """The caller got everything before `next_offset`."""
        self._delivered[queue] = next_offset

    def handled(self, queue: Queue, next_offset: int) -> None:
        """The caller came back for more."""
        self._done[queue] = next_offset

    async def next_batch(self, timeout_ms: float | None = None) -> ReceivedBatch | None:
        """The next messages of some queue; None at the stops. Raises what ended the reading, and
        TimeoutError after `timeout_ms` without a message."""
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            while await self._wait_for_batches():
                batch = self._pop()
                if len(batch):
                    return batch
                self.skipped(batch)
        return None

    async def next_batches(
        self, taken: deque[ReceivedBatch], timeout_ms: float | None = None
    ) -> bool:
        """Moves all that is there to `taken`, empty batches too (see `skipped`), for a caller in
        another thread: one that is interrupted while it waits finds them there. False at the
        stops. Raises as next_batch."""
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            found = await self._wait_for_batches()
        while self._buffer:
            taken.append(self._pop())
        return found

    def skipped(self, batch: ReceivedBatch) -> None:
        """The tags left nothing of a batch: nothing to deliver, and done."""
        queue = (batch.topic, batch.queue_id)
        self.handed_out(queue, batch.next_offset)
        self.handled(queue, batch.next_offset)

    def _pop(self) -> ReceivedBatch:
        batch = self._buffer.popleft()
        self._buffered -= len(batch.records)
        self._room.set()
        return batch

    async def _wait_for_batches(self) -> bool:
        """Whether there is a batch; False at the stops."""
        while not self._buffer:
            if self._failure is not None:
                raise self._failure.copy()
            if self._closed:
                raise ClientClosedError("the follower is closed")
            if not any(self._lanes):
                return False
            self._ready.clear()
            await self._ready.wait()
        return True

    async def _fetch(self, lane: deque[Queue]) -> None:
        try:
            while lane:
                while self._buffered >= self._options.prefetch_bytes:
                    self._room.clear()
                    await self._room.wait()
                await self._fetch_once(lane)
        except TandemlogError as error:
            self._failure = error
        except Exception as error:
            logger.exception("a follower failed")
            self._failure = TandemlogError(f"the client failed: {error!r}")
        finally:
            self._ready.set()

    async def _fetch_once(self, lane: deque[Queue]) -> None:
        lane.rotate(-1)
        queues = tuple(islice(lane, MAX_POSITIONS))  # more where queues were added: they turn
        request = broker_pb2.PullRequest(
            positions=[
                broker_pb2.QueuePosition(
                    topic=topic, queue_id=queue_id, queue_offset=self._fetched[topic, queue_id]
                )
                for topic, queue_id in queues
            ],
            max_messages=self._options.max_messages,
            max_bytes=self._options.max_bytes,
            tag_hashes=self._hashes,
            wait_ms=self._options.wait_ms,
            group=self._group or "",
        )
        timeout = self._options.wait_ms + self._reader.connection.options.request_timeout_ms
        asked: list[Node] = []

        async def pull(node: Node) -> PullAnswer:
            asked.append(node)
            return await node.pull(request, timeout)

        try:
            answer = await self._reader.ask(pull)
        except _PASSING as error:
            logger.warning("follower waits for a node: %s", error)
            return
        except (UnknownTopicError, UnknownQueueError) as error:
            await self._unless_unknown_to_all(queues, error)
            await self._somewhere_else(asked[-1], str(error))
            return
        doubtful = [
            queue
            for part in answer.parts
            if not self._take(
                queue := queues[part.head.position_index],
                part.head,
                part.records,
                asked[-1].endpoint,
            )
        ]
        for queue in doubtful:
            await self._decide(queue)
        for queue in queues:
            if self._finished(queue):
                lane.remove(queue)
        self._ready.set()
        if doubtful:
            await self._somewhere_else(asked[-1], "it does not have the next messages")
        else:
            self._reader.hint(answer.suggest_slave)

    async def _unless_unknown_to_all(
        self, queues: Sequence[Queue], error: UnknownTopicError | UnknownQueueError
    ) -> None:
        """A slave may not have heard of a topic: raises `error` only if the master has not."""
        try:
            topics = await self._reader.connection.topics(sorted({topic for topic, _ in queues}))
        except _PASSING as away:
            logger.warning("follower waits for the master: %s, %s", error, away)
            return
        known = {topic.name: topic.read_queues for topic in topics}
        if any(queue_id >= known.get(topic, 0) for topic, queue_id in queues):
            raise error

    def _take(
        self,
        queue: Queue,
        part: broker_pb2.QueueRecords,
        records: bytes | memoryview,
        endpoint: str,
    ) -> bool:
        """One queue's part of an answer; False if the node does not have what is next."""
        offset = self._fetched[queue]
        batch = ReceivedBatch(
            topic=queue[0],
            queue_id=queue[1],
            status=broker_pb2.PullStatus.Name(part.status),
            next_offset=part.next_offset,
            min_offset=part.min_offset,
            max_offset=part.max_offset,
            records=records,
            sizes=np.frombuffer(part.sizes, "<u4"),
        )
        first = self._first_beyond(batch, offset)
        said = judge(
            part,
            offset,
            wanted=self._stops.get(queue) if self._stops is not None else None,
            filtered=self._tags is not None,
            first_offset=first,
        )
        if said.kind is not Kind.THERE:
            if said.kind is Kind.BEHIND and said.following > offset:
                self._doubts.settle(queue)
                self._put(queue, replace(batch, next_offset=said.following))
            now = asyncio.get_running_loop().time()
            self._doubts.note(queue, endpoint, said, now)
            return False
        self._doubts.settle(queue)
        if said.following > offset or part.count:
            self._put(queue, replace(batch, next_offset=said.following))
        return True

    def _first_beyond(self, batch: ReceivedBatch, offset: int) -> int | None:
        """The first record's offset where an answer without a filter leaves some out: what is in
        front of the hole is taken, and the next answer begins with it."""
        if self._tags is not None or not len(batch) or batch.next_offset - offset == len(batch):
            return None
        return int(batch.headers.queue_offset[0])

    def _put(self, queue: Queue, batch: ReceivedBatch) -> None:
        offset = self._fetched[queue]
        if self._tags is None and 0 < len(batch) != batch.next_offset - offset:
            offsets = batch.headers.queue_offset
            expected = np.arange(offset, offset + len(batch))
            holes = np.flatnonzero(offsets != expected)
            batch = batch.before(int(expected[holes[0]]) if len(holes) else offset + len(batch))
        stop = self._stops.get(queue) if self._stops is not None else None
        if stop is not None and batch.next_offset > stop and len(batch):
            batch = batch.before(stop)
        batch = batch.only_tags(self._tags)
        self._fetched[queue] = batch.next_offset
        self._buffer.append(batch)
        self._buffered += len(batch.records)

    def _finished(self, queue: Queue) -> bool:
        return self._stops is not None and self._fetched[queue] >= self._stops.get(queue, 0)

    async def _decide(self, queue: Queue) -> None:
        """Continues behind what is lost, if those who know say that it is; else leaves the queue
        where it stands. Raises OffsetOutOfRangeError as `on_lost` says."""
        now = asyncio.get_running_loop().time()
        topology = await self._reader.connection.current_topology()
        patient = self._doubts.seconds(queue, now) < self._options.patience_ms / 1e3
        must_say = who_must_say(topology, self._reader.read_from, patient=patient)
        gone = self._doubts.gone(queue, must_say)
        if gone is not None:
            self._lost(queue, gone.following, gone.min_offset, gone.max_offset)
            return
        if patient or not self._doubts.is_behind(queue):
            return
        held = await self._positions.held_by_master([queue[0]])
        self._doubts.again(queue, now)
        if held is None:
            logger.warning("%s/%d waits: no master can say whether messages are lost", *queue)
            return
        low, end = (held[queue].min_offset, held[queue].max_offset) if queue in held else (0, 0)
        if self._fetched[queue] > end:
            self._lost(queue, low, low, end)
        elif self._stops is not None and self._stops.get(queue, 0) > end:
            logger.warning("%s/%d ends at %d: what came behind it was cut", *queue, end)
            self._stops[queue] = end

    def _lost(self, queue: Queue, following: int, low: int, end: int) -> None:
        """Messages that were to be read are in no node: continues elsewhere in the queue."""
        offset = self._fetched[queue]
        text = f"{queue[0]}/{queue[1]}: offset {offset} is not there, the queue holds {low}..{end}"
        if self._options.on_lost == "error":
            raise OffsetOutOfRangeError(text, field="queue_offset", actual=offset)
        if self._options.on_lost == LATEST and not low <= offset < end:
            following = end
        logger.warning("messages are lost here, reading continues at %d: %s", following, text)
        self._doubts.settle(queue)
        self._fetched[queue] = following
        nothing = ReceivedBatch(
            *queue, "OFFSET_TOO_SMALL", following, low, end, b"", np.zeros(0, np.uint32)
        )
        self._buffer.append(nothing)

    async def _somewhere_else(self, node: Node, reason: str) -> None:
        """The node lacks something: another one may have it, else a short wait."""
        if self._reader.read_from is not ReadFrom.MASTER:
            self._reader.leave(node, reason)
        await asyncio.sleep(0.05)

    async def _look_for_queues(self) -> None:
        """A topic may get more queues; what was stored in them meanwhile is read too."""
        assert self._all_queues is not None
        while True:
            await asyncio.sleep(self._options.refresh_ms / 1000)
            try:
                queues = await self._all_queues()
                new = [queue for queue in queues if queue not in self._fetched]
                stands = await self._stands(new)
            except TandemlogError as error:
                logger.debug("queues not refreshed: %s", error)
                continue
            for queue in new:
                logger.info("follower reads a new queue: topic=%s queue_id=%d", *queue)
                self._fetched[queue] = stands.get(queue, 0)
                min(self._lanes, key=len).append(queue)

    async def _stands(self, queues: Sequence[Queue]) -> dict[Queue, int]:
        """Where the group stands in queues: one that is new to this follower may not be to it."""
        if self._group is None or not queues:
            return {}
        return await self._positions.committed(self._group, sorted({topic for topic, _ in queues}))

    async def _commit_on_and_on(self) -> None:
        assert self._options.auto_commit_ms is not None
        while True:
            await asyncio.sleep(self._options.auto_commit_ms / 1000)
            with contextlib.suppress(TandemlogError):
                await self._save(self._done)

    async def _save(self, offsets: Mapping[Queue, int]) -> None:
        changed = {
            queue: offset
            for queue, offset in dict(offsets).items()  # another thread may add to it
            if self._committed.get(queue) != offset
        }
        assert self._group is not None
        try:
            await self._positions.commit(self._group, changed)
        except TandemlogError as error:
            logger.warning("offsets not committed: group=%s %s", self._group, error)
            raise
        self._committed.update(changed)
