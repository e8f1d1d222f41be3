"""How many messages a consumer asks for: what its callers settle in a quarter of a second."""

from tandemlog.consume.work.prefetch import MOST, Prefetch


def test_a_consumer_begins_with_what_its_callers_wait_for() -> None:
    ahead = Prefetch(None, now=0.0)
    assert ahead.count(waiting=0, idle=0) == 0
    assert ahead.count(waiting=0, idle=4) == 4
    assert ahead.count(waiting=3, idle=4) == 0


def test_the_rate_rises_at_once_and_falls_slowly() -> None:
    ahead = Prefetch(None, now=0.0)
    ahead.note(100, now=0.1)
    assert ahead.count(waiting=0, idle=1) == 250
    assert ahead.count(waiting=125, idle=0) == 125
    assert ahead.count(waiting=126, idle=0) == 0
    ahead.note(100, now=1.1)
    assert ahead.count(waiting=0, idle=1) == 200
    ahead.slow()
    assert ahead.count(waiting=0, idle=1) == 1


def test_a_moment_is_too_short_for_a_rate() -> None:
    ahead = Prefetch(None, now=0.0)
    ahead.note(10, now=0.001)
    assert ahead.count(waiting=0, idle=1) == 1
    ahead.note(11, now=0.011)
    assert ahead.count(waiting=0, idle=1) == 250


def test_no_rate_asks_for_more_than_a_request_may() -> None:
    ahead = Prefetch(None, now=0.0)
    ahead.note(1_000_000, now=1.0)
    assert ahead.count(waiting=0, idle=1) == 1_000
    assert ahead.count(waiting=MOST // 2, idle=1) == 1_000
    assert ahead.count(waiting=MOST // 2 + 1, idle=1) == 0


def test_a_number_of_the_program_counts() -> None:
    ahead = Prefetch(10, now=0.0)
    assert ahead.count(waiting=0, idle=0) == 10
    assert ahead.count(waiting=6, idle=0) == 0
    assert ahead.count(waiting=5, idle=0) == 5
    none = Prefetch(0, now=0.0)
    none.note(1_000, now=0.1)
    assert none.count(waiting=0, idle=0) == 0
    assert none.count(waiting=0, idle=2) == 2
