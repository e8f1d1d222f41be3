"""Reads several queues on and on: long polls for many at a time, and a buffer ahead of the caller.

    node ──Pull(positions), waits for the first message──▶ fetch task ──▶ buffer ──▶ caller
                                                             ▲  stops at prefetch_bytes
                                                             └─ a lane of queues, turned by one
                                                                each time: none starves another

A few lanes (parallel_pulls) share the queues, so that the node reads for one while the client takes
in the answer of another; more of them where a pull cannot name all queues of a lane.

What an answer says of a queue, and what follows:

    FOUND, NO_MATCHED_MESSAGE     go on at next_offset
    at its end, or empty          wait
    beyond its end                a slave that is behind, or a node that still recovers: stay, and
                                  look elsewhere; on the master for good only after patience_ms
    too small                     deleted by age: `on_lost` says whether to go on or to raise
    unreadable, being removed     go on at next_offset, as RocketMQ's client does

A follower survives any outage: it looks for another node for as long as it is open. What is wrong
with the request itself (no such topic) ends it with that error.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Self

import numpy as np

from .connection import Node
from .errors import (
    BusyError,
    ClientClosedError,
    NodeUnavailableError,
    OffsetOutOfRangeError,
    TandemlogError,
)
from .format.tags import tag_hashes
from .paging import MAX_POSITIONS
from .positions import EARLIEST, LATEST, Positions, Queue
from .pull_answer import PullAnswer
from .reading import Reader
from .received import ReceivedBatch
from .topology import ReadFrom
from .v1 import broker_pb2

logger = logging.getLogger(__name__)

_STAY = frozenset(
    {
        broker_pb2.NO_MATCHED_LOGIC_QUEUE,
        broker_pb2.NO_MESSAGE_IN_QUEUE,
        broker_pb2.OFFSET_OVERFLOW_ONE,
    }
)


@dataclass(frozen=True, slots=True)
class FollowOptions:
    """Sizes in bytes, times in ms. `max_bytes` of one answer, `prefetch_bytes` ahead of the
    caller, `wait_ms` of one long poll, `auto_commit_ms` between commits (None: by hand),
    `on_lost` what to do where messages were deleted before they were read: EARLIEST (what is
    left), LATEST or "error", `patience_ms` how long an offset beyond the end of the master's
    queue may last before it counts as lost, `refresh_ms` between looks for new queues,
    `parallel_pulls` requests at a time, each for some of the queues."""

    max_bytes: int = 8 << 20
    max_messages: int = 0
    prefetch_bytes: int = 32 << 20
    wait_ms: int = 15_000
    auto_commit_ms: int | None = 5_000
    on_lost: str = EARLIEST
    patience_ms: int = 10_000
    refresh_ms: int = 30_000
    parallel_pulls: int = 2

    def __post_init__(self) -> None:
        if self.on_lost not in (EARLIEST, LATEST, "error"):
            raise ValueError(f"on_lost must be earliest, latest or error: {self.on_lost!r}")
        if self.max_bytes <= 0 or self.prefetch_bytes <= 0 or self.wait_ms < 0:
            raise ValueError("max_bytes and prefetch_bytes must be positive, wait_ms not negative")
        if self.parallel_pulls < 1:
            raise ValueError(f"parallel_pulls must be at least 1: {self.parallel_pulls}")
        if self.auto_commit_ms is not None and self.auto_commit_ms <= 0:
            raise ValueError(f"auto_commit_ms must be positive or None: {self.auto_commit_ms}")


class Follower:
    """The queues in `starts` from the given offsets on; up to `stops`, where given; and those that
    `all_queues` names later, from their beginning. One event loop. `next_batch` hands out; see
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
        self._stops = stops
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
        self._beyond: dict[Queue, float] = {}
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
        """By queue, the offset after the last message handed out."""
        return dict(self._delivered)

    async def commit(self) -> None:
        """Saves, for the group, everything handed out so far, the newest message included."""
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

    async def next_batches(self, timeout_ms: float | None = None) -> list[ReceivedBatch]:
        """All that is there, empty batches too (see `skipped`), for a caller in another thread;
        nothing at the stops. Raises as next_batch."""
        async with asyncio.timeout(None if timeout_ms is None else timeout_ms / 1000):
            await self._wait_for_batches()
        return [self._pop() for _ in range(len(self._buffer))]

    def skipped(self, batch: ReceivedBatch) -> None:
        """The tags left nothing of a batch: nothing to hand out, and done."""
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
        except (NodeUnavailableError, BusyError) as error:
            logger.warning("follower waits for a node: %s", error)
            return
        beyond = False
        for part in answer.parts:
            queue = queues[part.head.position_index]
            beyond = self._take(queue, part.head, part.records) or beyond
        for queue in queues:
            if self._finished(queue):
                lane.remove(queue)
        self._ready.set()
        if beyond:
            await self._somewhere_else(asked[-1])
        else:
            self._reader.hint(answer.suggest_slave)

    def _take(
        self, queue: Queue, part: broker_pb2.QueueRecords, records: bytes | memoryview
    ) -> bool:
        """One queue's part of an answer; whether the node does not have the offset yet."""
        offset = self._fetched[queue]
        if part.status == broker_pb2.OFFSET_OVERFLOW_BADLY or (
            part.status in _STAY and offset > part.max_offset
        ):
            return self._beyond_end(queue, offset, part)
        self._beyond.pop(queue, None)
        next_offset = part.next_offset
        if part.status == broker_pb2.OFFSET_TOO_SMALL:
            next_offset = self._lost(queue, offset, part)
        elif part.status in _STAY:
            next_offset = max(offset, next_offset)
        if next_offset == offset and not part.count:
            return False
        batch = ReceivedBatch(
            topic=queue[0],
            queue_id=queue[1],
            status=broker_pb2.PullStatus.Name(part.status),
            next_offset=next_offset,
            min_offset=part.min_offset,
            max_offset=part.max_offset,
            records=records,
            sizes=np.frombuffer(part.sizes, "<u4"),
        )
        self._put(queue, batch)
        return False

    def _put(self, queue: Queue, batch: ReceivedBatch) -> None:
        stop = self._stops.get(queue) if self._stops is not None else None
        if stop is not None and batch.next_offset > stop and len(batch):
            batch = batch.before(stop)
        batch = batch.only_tags(self._tags)
        self._fetched[queue] = batch.next_offset
        self._buffer.append(batch)
        self._buffered += len(batch.records)

    def _finished(self, queue: Queue) -> bool:
        return self._stops is not None and self._fetched[queue] >= self._stops.get(queue, 0)

    def _lost(self, queue: Queue, offset: int, part: broker_pb2.QueueRecords) -> int:
        """Messages were deleted before they were read: where to go on."""
        text = (
            f"{queue[0]}/{queue[1]}: offset {offset} is not there, the queue holds "
            f"{part.min_offset}..{part.max_offset}"
        )
        if self._options.on_lost == "error":
            raise OffsetOutOfRangeError(text, field="queue_offset", actual=offset)
        logger.warning("messages lost to this follower: %s", text)
        return part.min_offset if self._options.on_lost == EARLIEST else part.max_offset

    def _beyond_end(self, queue: Queue, offset: int, part: broker_pb2.QueueRecords) -> bool:
        """Whether to wait for the node to get there. Not for ever on the master: then its log was
        cut, and what this follower read is no longer part of it."""
        now = asyncio.get_running_loop().time()
        since = self._beyond.setdefault(queue, now)
        if (
            self._reader.read_from is ReadFrom.SLAVE
            or now - since < self._options.patience_ms / 1e3
        ):
            return True
        del self._beyond[queue]
        self._fetched[queue] = self._lost(queue, offset, part)
        return False

    async def _somewhere_else(self, node: Node) -> None:
        """The node has not got so far: another one may have, else a short wait."""
        if self._reader.read_from is not ReadFrom.MASTER:
            self._reader.leave(node, "it is behind what was read elsewhere")
        await asyncio.sleep(0.05)

    async def _look_for_queues(self) -> None:
        """A topic may get more queues; what was stored in them meanwhile is read too."""
        assert self._all_queues is not None
        while True:
            await asyncio.sleep(self._options.refresh_ms / 1000)
            try:
                queues = await self._all_queues()
            except TandemlogError as error:
                logger.debug("queues not refreshed: %s", error)
                continue
            for queue in queues:
                if queue not in self._fetched:
                    logger.info("follower reads a new queue: topic=%s queue_id=%d", *queue)
                    self._fetched[queue] = 0
                    min(self._lanes, key=len).append(queue)

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
