"""Pulls over any number of queues, and the waiting for the first message of a long poll.

One round reads the positions in the order of the request until the answer is full. Without a wait
that is one get of each queue, with RocketMQ's status and next offset. A long poll whose filter
found nothing moves on and reads again, so that a rare tag does not cost a round trip for every 800
entries.

    some position FOUND, or in a state on which the client has to act   ─▶ answer
    every position at its end                                          ─▶ wait, then another round

The states on which a client acts are those in which it asked for an offset that is not there (too
small, beyond the end, removed). The end of a queue, or the start of an empty one, is a reason to
wait. A slave gives back an offset beyond its end as it is: it may be behind the node that the
client read before, and must not send the client back (RocketMQ's rule for slaves).

The hint to read from a slave is RocketMQ's as well: what was read lies further behind the end of
the log than FAR_BEHIND_MEMORY_SHARE of the memory, so it comes from the disk.
"""

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Protocol

from storage.reads import GetResult, GetStatus
from tandemlog.v1 import broker_pb2, common_pb2

from .error_status import RequestRefusedError
from .long_polling import UNKNOWN_QUEUE, LongPolling
from .raw_messages import pull_response

MAX_POSITIONS = 65_536
# Entries of one queue that a filtered round looks at before it answers with where it stands.
MAX_FILTER_ROUNDS = 64

FAR_BEHIND_MEMORY_SHARE = 0.4

_WAITABLE = frozenset(
    {
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.OFFSET_OVERFLOW_ONE,
        GetStatus.NO_MATCHED_MESSAGE,
    }
)
_BEYOND_END = frozenset(
    {
        GetStatus.NO_MATCHED_LOGIC_QUEUE,
        GetStatus.NO_MESSAGE_IN_QUEUE,
        GetStatus.OFFSET_OVERFLOW_BADLY,
    }
)


class PullStore(Protocol):
    def get(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        max_messages: int,
        max_bytes: int,
        tag_hashes: Collection[int] = (),
    ) -> GetResult: ...


@dataclass(frozen=True, slots=True)
class PullLimits:
    """Bytes of one answer; milliseconds of the longest wait; bytes behind the end of the log from
    which on a slave is suggested."""

    max_bytes: int = 32 << 20
    max_wait_ms: int = 60_000
    far_behind_bytes: int = 1 << 62


@dataclass(slots=True)
class _Position:
    """Where one queue of a request is read next."""

    index: int
    topic: str
    queue_id: int
    queue_offset: int


class PullService:
    """See the module. `check(topic, queue_id)` raises where there is no such queue to read;
    `dense(topic, queue_id)` is the queue's number in reput's notices."""

    def __init__(
        self,
        store: PullStore,
        long_polling: LongPolling,
        executor: Executor,
        *,
        check: Callable[[str, int], None],
        dense: Callable[[str, int], int],
        on_slave: Callable[[], bool],
        limits: PullLimits,
    ) -> None:
        self._store = store
        self._long_polling = long_polling
        self._executor = executor
        self._check = check
        self._dense = dense
        self._on_slave = on_slave
        self._limits = limits
        self._closed = False

    def close(self) -> None:
        """End every wait with what there is; later pulls wait for nothing."""
        self._closed = True
        self._long_polling.wake_all()

    async def pull(self, request: broker_pb2.PullRequest) -> bytes:
        """The encoded PullResponse; raises RequestRefusedError for what cannot be asked."""
        loop = asyncio.get_running_loop()
        positions = self._positions(request)
        response, done = await loop.run_in_executor(self._executor, self._round, request, positions)
        wait_ms = min(request.wait_ms, self._limits.max_wait_ms)
        if done or wait_ms <= 0:
            return response
        deadline = loop.time() + wait_ms / 1000
        while not done and not self._closed and loop.time() < deadline:
            queues = {self._dense(each.topic, each.queue_id) for each in positions}
            queues = {queue if queue >= 0 else UNKNOWN_QUEUE for queue in queues}
            with self._long_polling.waiting(queues) as touched:
                response, done = await loop.run_in_executor(
                    self._executor, self._round, request, positions
                )
                if not done:
                    try:
                        async with asyncio.timeout_at(deadline):
                            await touched.wait()
                    except TimeoutError:
                        break
        return response

    def _positions(self, request: broker_pb2.PullRequest) -> list[_Position]:
        if not 0 < len(request.positions) <= MAX_POSITIONS:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"positions must name 1..{MAX_POSITIONS} queues",
                field="positions",
                limit=MAX_POSITIONS,
                actual=len(request.positions),
            )
        if request.max_messages < 0 or request.max_bytes < 0:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                "max_messages and max_bytes must not be negative",
                field="max_messages" if request.max_messages < 0 else "max_bytes",
            )
        positions = []
        for index, each in enumerate(request.positions):
            self._check(each.topic, each.queue_id)
            positions.append(_Position(index, each.topic, each.queue_id, each.queue_offset))
        return positions

    def _round(
        self, request: broker_pb2.PullRequest, positions: list[_Position]
    ) -> tuple[bytes, bool]:
        """One encoded answer, and whether to give it now. Runs in a reader thread."""
        head = broker_pb2.PullResponse()
        queues = []
        room = min(request.max_bytes or self._limits.max_bytes, self._limits.max_bytes)
        hashes = frozenset(request.tag_hashes)
        on_slave = self._on_slave()
        gets = MAX_FILTER_ROUNDS if request.wait_ms > 0 else 1
        done = False
        for position in positions:
            result, moved = self._read(position, request.max_messages, room, hashes, gets)
            beyond = result.status in _BEYOND_END and position.queue_offset > 0
            done = done or moved or beyond or result.status not in _WAITABLE
            small = broker_pb2.QueueRecords(
                position_index=position.index,
                status=broker_pb2.PullStatus.Value(result.status.name),
                next_offset=position.queue_offset if beyond and on_slave else result.next_offset,
                min_offset=result.min_offset,
                max_offset=result.max_offset,
                count=len(result.sizes),
                sizes=result.sizes.astype("<u4", copy=False).tobytes(),
            )
            queues.append((small, result.records))
            head.suggest_slave |= result.behind > self._limits.far_behind_bytes
            room -= len(result.records)
            if room <= 0:
                break
        return pull_response(head, queues), done

    def _read(
        self,
        position: _Position,
        max_messages: int,
        room: int,
        hashes: Collection[int],
        gets: int,
    ) -> tuple[GetResult, bool]:
        """Read on until something is found; True where a filter has skipped as much as it may."""
        for _ in range(gets):
            result = self._store.get(
                position.topic, position.queue_id, position.queue_offset, max_messages, room, hashes
            )
            if result.status is not GetStatus.NO_MATCHED_MESSAGE:
                return result, False
            position.queue_offset = result.next_offset
        return result, True
