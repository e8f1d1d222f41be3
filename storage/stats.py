"""Plain numbers about one store: what was put and read, how long it took, how far reput lags.

The append thread counts puts, all reader threads count reads, housekeeping counts the rest, so one
lock guards all counters. It is taken once or twice for a batch, never for each message. The latency
of puts, `put_latency`, belongs to the one thread that responds to them.

Latencies go into a histogram of logarithmic buckets, eight to a doubling, from 1 us to 67 s:

    bucket b holds durations below 1 us * 2 ** (b / 8)          error of a percentile < 9 %
"""

import math
import threading
from collections.abc import Iterator

from .traffic import QueueTraffic

FIRST_BUCKET_S = 1e-6
BUCKETS_PER_DOUBLING = 8
BUCKETS = 26 * BUCKETS_PER_DOUBLING + 1


COUNTERS = (
    "puts", "put_batches", "put_bytes", "put_duplicates", "put_refused", "put_busy", "raw_chunks",
    "raw_bytes", "gets", "get_misses", "get_messages", "get_bytes", "queries", "checkpoints",
    "files_deleted",
)  # fmt: skip


class LatencyHistogram:
    """Durations in seconds, weighted by how many messages each of them was the latency of."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.maximum = 0.0
        self._buckets = [0] * BUCKETS

    def record(self, seconds: float, weight: int = 1) -> None:
        self.count += weight
        self.sum += seconds * weight
        self.maximum = max(self.maximum, seconds)
        if seconds <= FIRST_BUCKET_S:
            bucket = 0
        else:
            bucket = math.ceil(BUCKETS_PER_DOUBLING * math.log2(seconds / FIRST_BUCKET_S))
        self._buckets[min(bucket, BUCKETS - 1)] += weight

    def percentile(self, percent: float) -> float:
        """Seconds below which `percent` of the recorded durations lie; 0 if there are none."""
        wanted = self.count * percent / 100
        seen = 0
        for bucket, count_there in enumerate(self._buckets):
            seen += count_there
            if count_there and seen >= wanted:
                return min(upper_bound(bucket), self.maximum)
        return 0.0

    def cumulative(self) -> Iterator[tuple[float, int]]:
        """(upper bound in seconds, how many lie at or below it), one bucket a doubling."""
        seen = 0
        for bucket, held in enumerate(self._buckets):
            seen += held
            if bucket % BUCKETS_PER_DOUBLING == 0:
                yield upper_bound(bucket), seen


def upper_bound(bucket: int) -> float:
    """The longest duration in seconds that `bucket` holds."""
    return float(FIRST_BUCKET_S * 2 ** (bucket / BUCKETS_PER_DOUBLING))


class StoreStats:
    """Counters since the store was opened; `values` is all of it as plain numbers."""

    def __init__(self, opened_at_s: float) -> None:
        self.opened_at_s = opened_at_s
        self._lock = threading.Lock()
        self.puts = 0
        self.put_batches = 0
        self.put_bytes = 0
        self.put_duplicates = 0
        self.put_refused = 0
        self.put_busy = 0
        self.raw_chunks = 0
        self.raw_bytes = 0
        self.gets = 0
        self.get_misses = 0
        self.get_messages = 0
        self.get_bytes = 0
        self.queries = 0
        self.checkpoints = 0
        self.files_deleted = 0
        # from a put's arrival to its response; recorded by the code that responds
        self.put_latency = LatencyHistogram()
        self.append_latency = LatencyHistogram()
        # of each fdatasync of the log; recorded by the thread that flushes
        self.flush_latency = LatencyHistogram()
        self.traffic = QueueTraffic()

    def count_put(self, records: int, size: int, seconds: float, *, again: bool) -> None:
        """One batch that was stored, or (`again`) known from before; `size` in bytes."""
        with self._lock:
            self.append_latency.record(seconds, records)
            if again:
                self.put_duplicates += records
                return
            self.puts += records
            self.put_batches += 1
            self.put_bytes += size

    def count_refused(self) -> None:
        """A batch that could not be stored, for what is in it."""
        with self._lock:
            self.put_refused += 1

    def count_busy(self) -> None:
        """A batch for which the disk is not fast enough."""
        with self._lock:
            self.put_busy += 1

    def count_raw(self, size: int) -> None:
        """A chunk of a master's log, in bytes."""
        with self._lock:
            self.raw_chunks += 1
            self.raw_bytes += size

    def count_get(self) -> None:
        """A read of a queue; `count_found` or `count_miss` follows if it returns."""
        with self._lock:
            self.gets += 1

    def count_found(self, dense: int, records: int, size: int) -> None:
        """A read of queue `dense` that has found messages; `size` in bytes."""
        with self._lock:
            self.traffic.read.add(dense, records, size)
            self.get_messages += records
            self.get_bytes += size

    def count_miss(self) -> None:
        """A read that has found none."""
        with self._lock:
            self.get_misses += 1

    def count_query(self) -> None:
        """A look-up by key."""
        with self._lock:
            self.queries += 1

    def count_checkpoint(self) -> None:
        with self._lock:
            self.checkpoints += 1

    def count_deleted(self, files: int) -> None:
        """Log files that have expired."""
        with self._lock:
            self.files_deleted += files

    def values(self, now_s: float) -> dict[str, float]:
        """`now_s` is the monotonic clock that `opened_at_s` came from."""
        with self._lock:
            return {
                **{f"{name}_total": getattr(self, name) for name in COUNTERS},
                "uptime_seconds": now_s - self.opened_at_s,
                **_summary("put", self.put_latency),
                **_summary("append", self.append_latency),
            }


def _summary(name: str, histogram: LatencyHistogram) -> dict[str, float]:
    return {
        f"{name}_seconds_count": histogram.count,
        f"{name}_seconds_sum": histogram.sum,
        f"{name}_seconds_max": histogram.maximum,
        f"{name}_seconds_p50": histogram.percentile(50),
        f"{name}_seconds_p99": histogram.percentile(99),
    }
