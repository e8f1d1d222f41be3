"""Which messages `pull` reads: from where, how many, until when.

    --offset ──▶ m m m m m m m m m ──▶ the end that was there at first; with --follow, forever
                         --last 3 ┤                    --until TIME ┤   --exit-on-idle MS ┤

A queue holds its messages by store time, so it is finished at the first one that was stored after
--until. The last messages of a topic are those that lie last in the log.
"""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.follow_options import FollowOptions
from tandemlog.consume.reading.positions import Queue, QueueRange, Start
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.consume.received.received_message import ReceivedMessage
from tandemlog.errors import UnknownQueueError

from ..shared.online import all_ranges

ONLY_WHAT_IS_THERE = FollowOptions(auto_commit_ms=None, wait_ms=200)
WIDEN = 8
"""How many times as far back it is looked where the tags left too few."""

Offsets = Mapping[Queue, int]


class EveryQueue(Mapping[Queue, int]):
    """A queue offset that is the same for whatever queue is asked for."""

    def __init__(self, queue_offset: int) -> None:
        self.queue_offset = queue_offset

    def __getitem__(self, queue: Queue) -> int:
        return self.queue_offset

    def __contains__(self, queue: object) -> bool:
        return True

    def __iter__(self) -> Iterator[Queue]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass(frozen=True)
class Wanted:
    """What of a topic is read. Times and spans in ms; `last` instead of `start`."""

    topic: str
    queue: int | None = None
    start: Start | Offsets | None = None
    tags: str | None = None
    last: int | None = None
    until_ms: int | None = None
    follow: bool = False
    idle_ms: int | None = None
    where: str | None = None


class Ending:
    """When a stream of batches is over: at --until in every queue, or after a silence."""

    def __init__(self, wanted: Wanted, stops: Offsets | None, now_ms: Callable[[], int]) -> None:
        self._until_ms = wanted.until_ms
        self._idle_ms = wanted.idle_ms
        self._follow = wanted.follow
        self._open = None if stops is None else {queue for queue, stop in stops.items() if stop}
        self._stops = stops or {}
        self._now_ms = now_ms

    @property
    def reached(self) -> bool:
        """Whether each queue has given all that was stored until then."""
        return self._open is not None and not self._open

    def wait_ms(self) -> float | None:
        """How long to wait for a message; None: until one comes."""
        waits = [] if self._idle_ms is None else [float(self._idle_ms)]
        if self._until_ms is not None and self._follow:
            waits.append(max(0.0, self._until_ms - self._now_ms()))
        return min(waits, default=None)

    def cut(self, batch: ReceivedBatch) -> ReceivedBatch:
        """The batch without what was stored later."""
        if self._until_ms is None:
            return batch
        queue = (batch.topic, batch.queue_id)
        later = np.flatnonzero(batch.headers.store_timestamp > self._until_ms)
        if self._open is not None and (
            len(later) or batch.next_offset >= self._stops.get(queue, 0)
        ):
            self._open.discard(queue)
        return batch.before(batch[int(later[0])].queue_offset) if len(later) else batch


async def queue_ranges(admin: AsyncAdmin, wanted: Wanted) -> dict[Queue, QueueRange]:
    """What the wanted queues hold, empty ones too. Raises UnknownTopicError, UnknownQueueError."""
    topic = await admin.topic(wanted.topic)
    ranges = await all_ranges(admin, wanted.topic, topic.read_queues)
    if wanted.queue is not None:
        if wanted.queue >= len(ranges):
            raise UnknownQueueError(
                f"topic {wanted.topic!r} has no queue {wanted.queue}: it has {len(ranges)}",
                field="queue_id",
                limit=len(ranges),
            )
        ranges = [ranges[wanted.queue]]
    return {(wanted.topic, each.queue_id): each for each in ranges}


async def stops_at(admin: AsyncAdmin, wanted: Wanted) -> dict[Queue, int]:
    """By queue the offset of the first message that was stored after --until; 0 if there is
    nothing to read in it."""
    assert wanted.until_ms is not None
    ranges = await queue_ranges(admin, wanted)
    later = await admin.search_offset(wanted.topic, wanted.until_ms + 1)
    stops = {queue: min(later.get(queue, 0), each.max_offset) for queue, each in ranges.items()}
    return {queue: stop if stop > ranges[queue].min_offset else 0 for queue, stop in stops.items()}


async def last_messages(
    consumer: AsyncConsumer, wanted: Wanted, ends: dict[Queue, int], least: Offsets
) -> list[ReceivedMessage]:
    """The `wanted.last` messages that lie last in the log before `ends`, oldest first. `least`: by
    queue, the oldest offset that there is."""
    count = wanted.last or 0
    messages: dict[Queue, deque[ReceivedMessage]] = {}
    back = count
    wider = [queue for queue, end in ends.items() if end > least[queue]]
    while wider:
        begins = {queue: max(least[queue], ends[queue] - back) for queue in wider}
        messages |= {queue: deque(maxlen=count) for queue in wider}
        async for message in _between(consumer, wanted, begins, ends):
            messages[message.topic, message.queue_id].append(message)
        wider = [
            queue
            for queue, begin in begins.items()
            if len(messages[queue]) < count and begin > least[queue]
        ]
        back *= WIDEN
    everything = [message for each in messages.values() for message in each]
    return sorted(everything, key=lambda message: message.physical_offset)[-count:]


async def _between(
    consumer: AsyncConsumer, wanted: Wanted, begins: Offsets, ends: Offsets
) -> AsyncIterator[ReceivedMessage]:
    stream = await consumer.follow(
        wanted.topic,
        queues=[queue_id for _, queue_id in begins],
        start=begins,
        tags=wanted.tags,
        where=wanted.where,
        until_end=True,
        options=ONLY_WHAT_IS_THERE,
    )
    missing = set(begins)
    async with stream:
        async for batch in stream.batches():
            queue = (batch.topic, batch.queue_id)
            for message in batch.before(ends[queue]):
                yield message
            if batch.next_offset >= ends[queue]:
                missing.discard(queue)
                if not missing:
                    return
