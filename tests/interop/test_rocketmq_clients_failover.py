"""RocketMQ's own clients, with default settings, while masters are killed under load."""

from pathlib import Path

import pytest

from interop.classic_failover import Drill

pytestmark = [pytest.mark.interop, pytest.mark.lane("elections")]

LONGEST_GAP_MS = 15_000
"""Without what nodes do for these clients it is 20 to 30 s: the time until they ask for a route."""


@pytest.mark.parametrize("version", ["5.5.0", "4.9.7"])
def test_nothing_is_lost_or_stored_twice_when_masters_are_killed(
    tmp_path: Path, version: str
) -> None:
    with Drill(tmp_path) as drill, drill.clients(version) as clients:
        rounds = list(drill.kill_masters(clients, 2))
        outcome = drill.end(clients)
    print(version, *rounds, outcome.last)
    assert not outcome.lost
    assert not outcome.doubled
    assert not outcome.last["failed"]
    assert max(each.acknowledgement_gap_ms for each in rounds) < LONGEST_GAP_MS
    assert max(each.delivery_gap_ms for each in rounds) < LONGEST_GAP_MS
