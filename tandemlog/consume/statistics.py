"""The counters of a consumer: updated for each response and each batch, never for each message.

    pull ──▶ response ──▶ prefetched ──▶ in hand ──▶ delivered
      └ failed: asked again               └ counted by the message: the batch knows how far
                                            its reader has come

Lag costs no request: each response says where its queue ends.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields

from ..telemetry.measures import Latencies, Percentiles, Rate
from .reading.positions import Queue
from .reading.queue_lag import QueueLag, wall_clock_ms
from .received.received_batch import ReceivedBatch


@dataclass(frozen=True, slots=True)
class ConsumerStatistics:
    """Of one stream, or of all streams that a consumer has had; since its start, unless stated
    otherwise.

    `messages`, `bytes` and `batches` were handed to the caller; the rates are those of the last ten
    seconds. `pulls` are responses, `pull_latency` the time to each of them that brought messages,
    the wait for the first message included. `retries` are pulls that failed and were repeated,
    `reconnects` those that another node answered than the one before. `commits` and
    `failed_commits`: of offsets, automatic ones too. `lost_messages` were deleted before they were
    read, or were read and are no longer in the log, see on_data_loss.

    At this moment: `prefetched_batches` with `prefetched_bytes` wait for the caller; `lag` has an
    entry for each of the `queues` that is read and has been in a response. Its messages are counted
    up to the end of the queue in the newest response; its seconds are the age of the last message
    delivered, 0 where nothing waits. `Stream.lag()` asks the master instead.
    """

    messages: int = 0
    bytes: int = 0
    batches: int = 0
    pulls: int = 0
    retries: int = 0
    reconnects: int = 0
    commits: int = 0
    failed_commits: int = 0
    lost_messages: int = 0
    messages_per_second: float = 0.0
    bytes_per_second: float = 0.0
    prefetched_batches: int = 0
    prefetched_bytes: int = 0
    queues: int = 0
    pull_latency: Percentiles = field(default_factory=Percentiles)
    lag: Mapping[Queue, QueueLag] = field(default_factory=dict)


_TOTALS = (
    "messages", "bytes", "batches", "pulls", "retries", "reconnects", "commits", "failed_commits",
    "lost_messages",
)  # fmt: skip


class ConsumerCounters:
    """Of one stream. The caller's thread counts batches, the loop's the rest; any may read."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = wall_clock_ms,
    ) -> None:
        self._clock, self._now_ms = clock, now_ms
        now = clock()
        self.latencies = Latencies(now)
        self._rate, self._byte_rate = Rate(now), Rate(now)
        self.messages = self.bytes = self.batches = 0
        self.pulls = self.retries = self.reconnects = 0
        self.commits = self.failed_commits = self.lost_messages = 0
        self._endpoint: str | None = None
        self._ends: dict[Queue, int] = {}
        self._stored: dict[Queue, int] = {}
        self.in_hand: Callable[[], tuple[ReceivedBatch | None, int]] = lambda: (None, 0)

    # the loop's thread

    def now(self) -> float:
        """By its clock: when a pull is sent."""
        return self._clock()

    def pulled(self, asked_at: float, endpoints: Sequence[str], *, messages: bool) -> None:
        """The last of `endpoints` answered, the others failed."""
        now = self._clock()
        self.pulls += 1
        self.retries += len(endpoints) - 1
        self.reconnects += self._endpoint not in (None, endpoints[-1])
        self._endpoint = endpoints[-1]
        if messages:
            self.latencies.note(now - asked_at, 1, now)

    def note_end(self, queue: Queue, max_offset: int) -> None:
        """A response said where `queue` ends."""
        self._ends[queue] = max_offset

    # the caller's thread

    def handed_out(self, batch: ReceivedBatch, count: int) -> None:
        """The caller has had the first `count` messages of `batch`, and leaves it."""
        if not count:
            return
        now = self._clock()
        self._stored[batch.queue] = batch.store_timestamp(count - 1)
        self.batches += 1
        self.messages += count
        self.bytes += _size(batch, count)
        self._rate.note(self.messages, now)
        self._byte_rate.note(self.bytes, now)

    # any thread

    def statistics(
        self, positions: Mapping[Queue, int], prefetched: Sequence[ReceivedBatch]
    ) -> ConsumerStatistics:
        """`positions`: of the queues that are read now, the offset of the next message."""
        now = self._clock()
        totals = {name: getattr(self, name) for name in _TOTALS}
        stored = dict(self._stored)
        batch, count = self.in_hand()
        if batch is not None and count:
            totals["messages"] += count
            totals["bytes"] += _size(batch, count)
            totals["batches"] += 1
            stored[batch.queue] = batch.store_timestamp(count - 1)
        return ConsumerStatistics(
            **totals,
            messages_per_second=self._rate.per_second(totals["messages"], now),
            bytes_per_second=self._byte_rate.per_second(totals["bytes"], now),
            prefetched_batches=len(prefetched),
            prefetched_bytes=sum(len(each.records) for each in prefetched),
            queues=len(positions),
            pull_latency=self.latencies.percentiles(now),
            lag=self._lag(positions, stored),
        )

    def _lag(
        self, positions: Mapping[Queue, int], stored: Mapping[Queue, int]
    ) -> dict[Queue, QueueLag]:
        now_ms = self._now_ms()
        lags = {}
        for queue, position in positions.items():
            end = self._ends.get(queue)
            if end is None:
                continue
            waiting = max(0, end - position)
            age_ms = max(0, now_ms - stored.get(queue, now_ms)) if waiting else 0
            lags[queue] = QueueLag(*queue, position, end, waiting, age_ms / 1000)
        return lags


def totals_of(statistics: ConsumerStatistics) -> ConsumerStatistics:
    """What a closed stream leaves: its totals."""
    return ConsumerStatistics(**{name: getattr(statistics, name) for name in _TOTALS})


def together(parts: Sequence[ConsumerStatistics], pull_latency: Percentiles) -> ConsumerStatistics:
    """Of all streams of one consumer."""
    summed = {
        each.name: sum(getattr(part, each.name) for part in parts)
        for each in fields(ConsumerStatistics)
        if each.name not in ("pull_latency", "lag")
    }
    lag = {queue: waits for part in parts for queue, waits in part.lag.items()}
    return ConsumerStatistics(**summed, pull_latency=pull_latency, lag=lag)


def _size(batch: ReceivedBatch, count: int) -> int:
    return len(batch.records) if count >= len(batch) else int(batch.positions[count])
