"""Percentiles, rates and outages, with a clock of the test's own."""

import pytest

from tandemlog.telemetry.measures import Latencies, Rate
from tandemlog.telemetry.outages import Outages
from tandemlog.telemetry.producer_statistics import ProducerCounters


def test_percentiles_are_within_five_percent() -> None:
    latencies = Latencies(0.0)
    for milliseconds in range(1, 1001):
        latencies.note(milliseconds / 1000, 1, 1.0)
    found = latencies.percentiles(1.0)
    assert found.count == 1000
    for measured, true in ((found.p50_ms, 500), (found.p99_ms, 990), (found.p999_ms, 999)):
        assert true <= measured * 1.0001 <= true * 1.06
    assert 1000 <= found.max_ms * 1.0001 <= 1060


def test_what_is_older_than_two_minutes_is_forgotten() -> None:
    latencies = Latencies(0.0)
    latencies.note(5.0, 1, 1.0)
    latencies.note(0.001, 1, 61.0)
    assert latencies.percentiles(62.0).count == 2
    assert latencies.percentiles(121.5).count == 1
    assert latencies.percentiles(500.0).count == 0


def test_a_rate_is_that_of_the_last_ten_seconds() -> None:
    rate = Rate(0.0)
    total = 0
    for second in range(1, 61):
        total += 100 if second <= 30 else 500
        rate.note(total, float(second))
    assert rate.per_second(total, 60.0) == pytest.approx(500)
    assert rate.per_second(total, 100.0) == 0


def test_a_producer_counts_requests_and_their_messages() -> None:
    now = 100.0
    counters = ProducerCounters(120.0, lambda: now)
    now = 100.01
    counters.acknowledged(50, 5_000, 220.0, duplicate=False)
    counters.acknowledged(1, 100, 220.005, duplicate=True)
    counters.failed(3, OSError())
    counters.streams = 2
    found = counters.statistics(waiting_bytes=7, waiting_requests=2, in_flight=1, last_error="x")
    assert (found.messages, found.bytes, found.requests) == (51, 5_100, 2)
    assert (found.duplicates, found.failed, found.reconnects) == (1, 3, 1)
    assert 10 <= found.latency.p50_ms <= 10.6
    assert found.messages_per_second == pytest.approx(5100)


def test_an_outage_is_told_once_at_each_end(caplog: pytest.LogCaptureFixture) -> None:
    told: list[object] = []
    now = 0.0

    def away(reason: str, since: float) -> None:
        told.append((reason, since))
        raise RuntimeError("the program's own")

    outages = Outages(away, told.append, lambda: 1_000.0 + now, lambda: now)
    outages.looked(master=False, reason="not there yet")
    assert not told
    outages.looked(master=True, reason="")
    now = 5.0
    outages.looked(master=False, reason="refused")
    now = 6.0
    outages.looked(master=False, reason="refused")
    assert told == [("refused", 1_005.0)]
    assert "a callback of the program failed" in caplog.text
    now = 7.5
    outages.looked(master=True, reason="")
    outages.looked(master=True, reason="")
    assert told == [("refused", 1_005.0), 2_500.0]
