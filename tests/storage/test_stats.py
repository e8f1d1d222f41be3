import sys
import threading

import pytest

from tandemlog_server.storage.stats import LatencyHistogram, StoreStats


def test_percentiles_lie_within_a_bucket_of_the_truth() -> None:
    histogram = LatencyHistogram()
    for each in range(1, 1001):
        histogram.record(each / 1000)
    assert histogram.count == 1000
    assert histogram.sum == pytest.approx(500.5)
    assert histogram.percentile(50) == pytest.approx(0.5, rel=0.09)
    assert histogram.percentile(99) == pytest.approx(0.99, rel=0.09)
    assert histogram.percentile(100) == 1.0


def test_weights_count_messages() -> None:
    histogram = LatencyHistogram()
    histogram.record(0.001, 99)
    histogram.record(1.0, 1)
    assert histogram.percentile(98) == pytest.approx(0.001, rel=0.09)
    assert histogram.percentile(100) == 1.0


def test_extremes_stay_in_the_outer_buckets() -> None:
    histogram = LatencyHistogram()
    histogram.record(0.0)
    histogram.record(1e6)
    bounds = list(histogram.cumulative())
    assert bounds[0] == (1e-6, 1)
    assert bounds[-1][1] == 2
    assert histogram.maximum == 1e6


def test_an_empty_histogram_has_no_latency() -> None:
    assert LatencyHistogram().percentile(99) == 0.0


def test_values_are_plain_numbers() -> None:
    stats = StoreStats(100.0)
    stats.count_put(3, 900, 0.002, again=False)
    stats.count_put(2, 600, 0.001, again=True)
    values = stats.values(107.5)
    assert values["uptime_seconds"] == 7.5
    assert (values["puts_total"], values["put_bytes_total"]) == (3, 900)
    assert (values["put_batches_total"], values["put_duplicates_total"]) == (1, 2)
    assert values["append_seconds_count"] == 5
    assert values["append_seconds_p99"] == pytest.approx(0.002, rel=0.09)


class Counter(int):
    """An int whose sum takes a call, so that another thread may run in the middle of `+=`."""

    def __add__(self, other: int) -> "Counter":
        return Counter(int(self) + other)


def test_threads_that_read_at_once_lose_no_count() -> None:
    threads, turns = 4, 2_000
    stats = StoreStats(0.0)
    stats.gets = stats.get_messages = stats.get_bytes = stats.get_misses = Counter(0)
    stats.queries = Counter(0)

    def read() -> None:
        for _ in range(turns):
            stats.count_get()
            stats.count_found(0, 3, 100)
            stats.count_miss()
            stats.count_query()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        readers = [threading.Thread(target=read) for _ in range(threads)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    finally:
        sys.setswitchinterval(interval)
    count = threads * turns
    values = stats.values(1.0)
    assert (values["gets_total"], values["get_misses_total"]) == (count, count)
    assert (values["get_messages_total"], values["get_bytes_total"]) == (3 * count, 100 * count)
    assert values["queries_total"] == count
