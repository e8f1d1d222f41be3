"""What a producer counts, once for each request, never for each message.

taken ──▶ written ──▶ acknowledged        a message's latency: from when its request was
             │  ▲                          opened, which is at its first message, to the answer
             │  └── written again: retried
             └────▶ failed
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from .measures import Latencies, Percentiles, Rate


@dataclass(frozen=True, slots=True)
class ProducerStatistics:
    """Since the producer was opened, if nothing else is said.

    `messages`, `bytes` and `requests` are acknowledged ones, `duplicates` those that a retry found
    stored, `failed` messages that ended in an error; `retries` are requests that were written
    again, `reconnects` streams after the first one. The rates are those of the last ten
    seconds; `latency` is from the first message of a request to its acknowledgement. At this
    moment: `waiting_bytes` have no acknowledgement (`max_in_flight_bytes` is the limit),
    `in_flight_requests` of `waiting_requests` are on the stream. `last_error` is why the newest
    attempt failed, empty if none has since the last acknowledgement.
    """

    messages: int
    bytes: int
    requests: int
    duplicates: int
    failed: int
    retries: int
    reconnects: int
    messages_per_second: float
    bytes_per_second: float
    latency: Percentiles
    waiting_bytes: int
    waiting_requests: int
    in_flight_requests: int
    last_error: str


class RequestHooks(Protocol):
    """Who wants to hear of each request; see ClientHook."""

    def acknowledged(
        self, queues: Sequence[tuple[str, int]], count: int, latency_ms: float
    ) -> None: ...

    def failed(self, count: int, error: Exception) -> None: ...


class ProducerCounters:
    """Counts in the event loop, and tells `hooks`; read from any thread."""

    def __init__(
        self,
        delivery_seconds: float = math.inf,
        clock: Callable[[], float] = time.monotonic,
        hooks: RequestHooks | None = None,
    ) -> None:
        self._hooks = hooks
        self._delivery = delivery_seconds
        self._clock = clock
        now = clock()
        self._latencies = Latencies(now)
        self._rate, self._byte_rate = Rate(now), Rate(now)
        self.messages = self.bytes = self.requests = self.duplicates = 0
        self.failures = self.retries = self.streams = 0

    def acknowledged(
        self,
        count: int,
        size: int,
        deadline: float,
        *,
        duplicate: bool,
        queues: Callable[[], Sequence[tuple[str, int]]] = tuple,
    ) -> None:
        """A request of `count` messages in `size` bytes, whose time ends at `deadline`; `queues`
        makes the list of those that it is for."""
        now = self._clock()
        self.messages += count
        self.bytes += size
        self.requests += 1
        self.duplicates += count if duplicate else 0
        self._rate.note(self.messages, now)
        self._byte_rate.note(self.bytes, now)
        seconds = 0.0
        if max(deadline, self._delivery) < math.inf:
            seconds = now - (deadline - self._delivery)
            self._latencies.note(seconds, count, now)
        if self._hooks is not None:
            self._hooks.acknowledged(queues(), count, seconds * 1000)

    def failed(self, count: int, error: Exception) -> None:
        """`count` messages of a request ended in `error`."""
        self.failures += count
        if self._hooks is not None:
            self._hooks.failed(count, error)

    def statistics(
        self, *, waiting_bytes: int, waiting_requests: int, in_flight: int, last_error: str
    ) -> ProducerStatistics:
        """With what the caller knows of this moment."""
        now = self._clock()
        return ProducerStatistics(
            messages=self.messages,
            bytes=self.bytes,
            requests=self.requests,
            duplicates=self.duplicates,
            failed=self.failures,
            retries=self.retries,
            reconnects=max(0, self.streams - 1),
            messages_per_second=self._rate.per_second(self.messages, now),
            bytes_per_second=self._byte_rate.per_second(self.bytes, now),
            latency=self._latencies.percentiles(now),
            waiting_bytes=waiting_bytes,
            waiting_requests=waiting_requests,
            in_flight_requests=in_flight,
            last_error=last_error,
        )
