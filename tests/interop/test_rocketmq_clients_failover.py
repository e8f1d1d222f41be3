"""RocketMQ's own clients, with default settings, while masters are killed under load."""

from pathlib import Path

import pytest

from interop.classic_failover import POP, Drill

pytestmark = [pytest.mark.interop, pytest.mark.lane("elections")]

LONGEST_GAP_MS = 60_000
"""A busy machine adds to it. Clients ask for another route within 30 s."""
FEW_FAILED = 2
"""Sends whose 3 s have gone by while such a machine elected a master. On an idle one none fails."""


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7", POP])
def test_nothing_is_lost_or_stored_twice_when_masters_are_killed(
    tmp_path: Path, version: str
) -> None:
    with Drill(tmp_path) as drill, drill.clients(version) as clients:
        rounds = list(drill.rounds(clients, 2))
        outcome = drill.end(clients)
    print(version, *rounds, outcome.last, f"tried again {outcome.tried_again}")
    assert not outcome.lost
    assert not outcome.doubled
    assert not outcome.tried_again
    assert sum(outcome.last["failed"].values()) <= FEW_FAILED
    assert max(each.acknowledgement_gap_ms for each in rounds) < LONGEST_GAP_MS
    assert max(each.delivery_gap_ms for each in rounds) < LONGEST_GAP_MS
