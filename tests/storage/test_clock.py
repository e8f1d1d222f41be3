"""A clock that jumps does not reach the store."""

import pytest

from fakes.clock import FakeClock
from tandemlog_server.storage.clock import ACCEPT_JUMP_S, JUMP_MS, SteadyClock, duration

DAY_S = 86_400
YEARS_S = 10 * 365 * DAY_S


@pytest.fixture
def raw() -> FakeClock:
    return FakeClock()


@pytest.fixture
def clock(raw: FakeClock) -> SteadyClock:
    return SteadyClock(raw)


@pytest.mark.parametrize("seconds", [-55, -1, 0, 1, 55])
def test_a_correction_of_seconds_is_followed(
    raw: FakeClock, clock: SteadyClock, seconds: float
) -> None:
    for _ in range(10):
        raw.advance(60)
        raw.jump(seconds)
        assert clock.now_ms() == raw.now_ms()
    assert clock.jump is None


@pytest.mark.parametrize("seconds", [-YEARS_S, -4 * DAY_S, -120, 120, 4 * DAY_S, YEARS_S])
def test_a_jump_is_held_out_until_the_clock_comes_back(
    raw: FakeClock, clock: SteadyClock, seconds: float
) -> None:
    before = clock.now_ms()
    raw.advance(1)
    raw.jump(seconds)
    assert clock.now_ms() == before + 1000
    raw.advance(ACCEPT_JUMP_S / 2)
    assert clock.now_ms() == before + 1000 + ACCEPT_JUMP_S / 2 * 1000
    assert clock.jump is not None
    assert clock.jump.apart_ms == seconds * 1000
    raw.jump(-seconds)
    assert clock.now_ms() == raw.now_ms()
    assert clock.jump is None
    assert clock.accepted_at is None


@pytest.mark.parametrize("seconds", [-YEARS_S, -120, 120, YEARS_S])
def test_a_clock_that_stays_where_it_jumped_to_is_right(
    raw: FakeClock, clock: SteadyClock, seconds: float
) -> None:
    raw.jump(seconds)
    clock.now_ms()
    raw.advance(ACCEPT_JUMP_S)
    assert clock.now_ms() == raw.now_ms()
    assert clock.jump is None
    assert clock.accepted_at == raw.monotonic()


def test_a_clock_that_jumps_about_is_not_right(raw: FakeClock, clock: SteadyClock) -> None:
    before = clock.now_ms()
    for number in range(10):
        raw.jump((number + 1) * 3600)
        assert clock.now_ms() == before
        raw.advance(ACCEPT_JUMP_S / 2)
        before += round(ACCEPT_JUMP_S / 2 * 1000)
    assert clock.jump is not None


def test_a_clock_that_nobody_asks_for_days_has_not_jumped(
    raw: FakeClock, clock: SteadyClock
) -> None:
    raw.advance(30 * DAY_S)
    assert clock.now_ms() == raw.now_ms()
    assert clock.jump is None


def test_a_jump_is_told_once_with_its_way_out(
    raw: FakeClock, clock: SteadyClock, caplog: pytest.LogCaptureFixture
) -> None:
    raw.jump(4 * DAY_S)
    for _ in range(5):
        clock.now_ms()
    (record,) = caplog.records
    assert "jumped ahead by 4 days" in record.getMessage()
    assert "set the clock if it is wrong" in record.getMessage()


def test_durations_are_in_the_unit_that_people_use() -> None:
    assert duration(JUMP_MS) == "60 seconds"
    assert duration(-5 * 60_000) == "5 minutes"
    assert duration(4 * DAY_S * 1000) == "4 days"
    assert duration(-YEARS_S * 1000) == "9.99 years"
