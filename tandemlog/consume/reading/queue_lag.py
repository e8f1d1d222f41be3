"""How far behind the end of its queues a reader is, in messages and in seconds.

queue    | . . . . . m m m m m m |
                     ^           ^ end, by the master's word
                     offset: the next one to read
messages   end - offset
seconds    the age of the message at offset, by its store time: how long it has waited;
           0 where nothing waits, so an idle topic has no lag
"""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from ...cluster.connection import Connection
from ...cluster.master_questions import MasterQuestions
from ...cluster.node import Node
from ...format.calls import MAX_POSITIONS
from .positions import Positions, Queue, QueueRange
from .pulls import Place, Pulled, pull

_SAMPLE_BYTES = 4 << 20
"""Of one response with the first message of each queue."""

NowMs = Callable[[], int]


def wall_clock_ms() -> int:
    """The time of this machine, ms."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class QueueLag:
    """What waits in a queue. `committed`: the offset of a group, or of a running stream, from which
    `messages` counts; None without one, then everything in the queue waits. `end`: one past the
    last message. `seconds`: how long the oldest of the waiting messages has been stored."""

    topic: str
    queue_id: int
    committed: int | None
    end: int
    messages: int
    seconds: float


class Lags:
    """Asks the master what waits behind offsets."""

    def __init__(
        self, connection: Connection, positions: Positions, now_ms: NowMs = wall_clock_ms
    ) -> None:
        self._positions = positions
        self._questions = MasterQuestions(connection)
        self._timeout_ms = connection.options.request_timeout_ms
        self._now_ms = now_ms

    async def of(self, offsets: Mapping[Queue, int | None]) -> dict[Queue, QueueLag]:
        """The lag of each queue from its offset on (None: from its beginning)."""
        if not offsets:
            return {}
        ranges, _ = await self._positions.ranges_in_cluster(sorted({topic for topic, _ in offsets}))
        waiting = {
            queue: begin
            for queue, offset in offsets.items()
            if (begin := begin_of(offset, ranges.get(queue))) < end_of(ranges.get(queue))
        }
        times = await self._store_times(waiting)
        now = self._now_ms()
        lags = {}
        for queue, offset in offsets.items():
            end = end_of(ranges.get(queue))
            messages = end - waiting[queue] if queue in waiting else 0
            stored = times.get(queue, now)
            if queue in waiting and queue not in times:
                stored = ranges[queue].min_timestamp
            seconds = max(0, now - stored) / 1000 if messages else 0.0
            lags[queue] = QueueLag(*queue, offset, end, messages, seconds)
        return lags

    async def _store_times(self, waiting: Mapping[Queue, int]) -> dict[Queue, int]:
        """By queue, the store time (ms) of the first message at its offset or behind."""
        times: dict[Queue, int] = {}
        unanswered = dict(waiting)
        while unanswered:
            asked = list(unanswered.items())[:MAX_POSITIONS]

            def ask(node: Node, asked: list[Place] = asked) -> Awaitable[Pulled]:
                return pull(node, asked, self._timeout_ms, max_messages=1, max_bytes=_SAMPLE_BYTES)

            answers, _ = await self._questions.ask(ask, "looking for the oldest message that waits")
            if not self._note(answers, unanswered, times):
                return times
        return times

    @staticmethod
    def _note(answers: list[Pulled], unanswered: dict[Queue, int], times: dict[Queue, int]) -> bool:
        """Moves queues whose store time is in the answers from `unanswered` to `times`; False if
        the answers say nothing new."""
        moved = False
        for _, batch in (part for answer in answers for part in answer.parts):
            queue = batch.queue
            if queue not in unanswered:
                continue
            if len(batch):
                times[queue] = batch.store_timestamp(0)
                del unanswered[queue]
                moved = True
            elif batch.next_offset > unanswered[queue]:
                unanswered[queue] = batch.next_offset
                moved = True
            if queue in unanswered and unanswered[queue] >= batch.max_offset:
                del unanswered[queue]
        return moved


def begin_of(offset: int | None, range_: QueueRange | None) -> int:
    """Where reading would begin: not before what the queue still holds."""
    low = range_.min_offset if range_ is not None else 0
    return low if offset is None else max(offset, low)


def end_of(range_: QueueRange | None) -> int:
    """One past the last message; a queue that holds none has its end at 0."""
    return range_.max_offset if range_ is not None else 0
