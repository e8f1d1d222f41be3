"""Which nodes `up` restarts, and after which pause."""

import signal

import pytest

from tandemlog_server.cli.commands.up import FIRST_S, LONG_RUN_S, LONGEST_S, Restarts
from tandemlog_server.cli.shared.exit_codes import ADDRESS, FAULT, OK, STORE, USAGE


def test_a_killed_node_is_restarted_after_a_short_pause() -> None:
    restarts = Restarts(started_at=0.0)
    assert not restarts.is_due(500.0)
    assert restarts.ended(-signal.SIGKILL, 100.0)
    assert not restarts.is_due(100.0)
    assert restarts.ended(-signal.SIGKILL, 100.4), "the second look changes nothing"
    assert restarts.is_due(100.0 + FIRST_S)


def test_one_that_ends_again_and_again_waits_longer_and_longer() -> None:
    restarts, now, pauses = Restarts(started_at=0.0), 0.0, []
    for _ in range(9):
        restarts.ended(FAULT, now)
        assert restarts.due_at is not None
        pauses.append(restarts.due_at - now)
        now = restarts.due_at
        restarts.restarted(now)
        now += 1.0
    assert pauses[:4] == pytest.approx([FIRST_S, 2 * FIRST_S, 4 * FIRST_S, 8 * FIRST_S])
    assert pauses[-1] == pytest.approx(LONGEST_S)


def test_a_long_run_makes_the_pause_short_again() -> None:
    restarts = Restarts(started_at=0.0, pause_s=LONGEST_S)
    restarts.ended(-signal.SIGKILL, LONG_RUN_S)
    assert restarts.is_due(LONG_RUN_S + FIRST_S)


@pytest.mark.parametrize("code", [OK, USAGE, STORE, ADDRESS])
def test_one_that_was_stopped_or_cannot_start_is_left_alone(code: int) -> None:
    restarts = Restarts(started_at=0.0)
    assert not restarts.ended(code, 100.0)
    assert not restarts.is_due(1000.0)
