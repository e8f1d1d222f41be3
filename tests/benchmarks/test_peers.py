"""The arithmetic of the table beside Kafka; the programs themselves run by `make bench-peers`."""

from collections import Counter

import pytest

from benchmarks.peers.measures import (
    BODY_BYTES,
    QUEUES,
    TICKS_PER_SECOND,
    TOPICS,
    Comparison,
    Measured,
    paced,
    percentile,
    percentiles,
    places,
    stamped,
    waited_ms,
)


@pytest.mark.parametrize(
    ("percent", "expected"), [(0.1, 1), (1, 1), (50, 50), (50.5, 51), (99, 99), (100, 100)]
)
def test_a_percentile_is_a_value_that_was_measured(percent: float, expected: int) -> None:
    assert percentile(range(100, 0, -1), percent) == expected


def test_percentiles_stand_for_all_values() -> None:
    assert percentiles(range(200, 0, -1), 4) == [50, 100, 150, 200]
    assert percentiles([2.0, 1.0], 4) == [1.0, 1.0, 2.0, 2.0]


def test_no_values_have_no_percentile() -> None:
    assert percentile([3.0], 99) == 3.0
    with pytest.raises(ValueError, match="no percentile"):
        percentile([], 99)


def test_a_comparison_takes_the_median_of_the_ratios_of_its_rounds() -> None:
    compared = Comparison("send", "messages/s", [100, 300, 50], [100, 200, 100])
    assert (compared.our_median, compared.their_median) == (100, 100)
    assert compared.ratio == 1.0, "1, 1.5, 0.5"
    with pytest.raises(ValueError, match="zip"):
        _ = Comparison("send", "messages/s", [1, 2], [1]).ratio


def test_what_a_client_tells_is_what_is_heard() -> None:
    measured = Measured(1000, 0.5, 0.002, ack_ms=[1.5], hand_ms=[2.5, 3.0])
    assert Measured.from_json(measured.to_json()) == measured
    assert (measured.rate, measured.cpu_us) == (2000, 2.0)


def test_places_are_random_over_all_queues_and_the_same_each_time() -> None:
    found = places(64_000)
    assert found == places(64_000) != places(64_000, seed=2)
    counted = Counter(found)
    assert len(counted) == TOPICS * QUEUES
    assert 150 < min(counted.values()) < max(counted.values()) < 350


def test_a_paced_sender_keeps_its_times_and_shows_when_it_is_late() -> None:
    now = 100.0
    sent: list[tuple[float, bytes, bool]] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    def send(body: bytes, sampled: bool) -> None:
        nonlocal now
        if len(sent) == 40:
            now += 0.010  # held up once, for ten ticks
        sent.append((now, body, sampled))

    assert paced(20 * TICKS_PER_SECOND, 0.05, send, clock=lambda: now, sleep=sleep) == 1000
    assert len(sent) == 1000
    waits = [waited_ms(body, when) for when, body, _ in sent]
    assert max(waits[:40]) < 0.01
    assert waits[40] == pytest.approx(10, abs=0.01), "counted from when it was due"
    assert max(waits[-20:]) < 0.01, "the time is made up"
    assert sum(sampled for _, _, sampled in sent) == 50


def test_a_body_says_when_it_was_due() -> None:
    body = stamped(12.25)
    assert len(body) == BODY_BYTES
    assert waited_ms(body, 12.5) == 250
