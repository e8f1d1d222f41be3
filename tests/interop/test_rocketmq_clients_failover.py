"""RocketMQ's own clients, with default settings, while masters are killed under load."""

import shutil
from collections import Counter
from pathlib import Path

import pytest

from interop.failover_clients import POP
from interop.failover_drill import Drill

pytestmark = [pytest.mark.interop, pytest.mark.lane("elections")]

LONGEST_GAP_MS = 60_000
"""A busy machine adds to it. Clients ask for another route within 30 s."""
FEW_FAILED = 2
"""Sends whose 3 s have gone by while such a machine elected a master. On an idle one none fails."""


GO = pytest.param("go", marks=pytest.mark.skipif(shutil.which("go") is None, reason="needs Go"))
NODE = pytest.param(
    "node", marks=pytest.mark.skipif(shutil.which("npm") is None, reason="needs Node.js")
)


@pytest.mark.parametrize("client", ["5.5.0", "4.9.7", POP, GO, "python", NODE])
def test_nothing_is_lost_or_stored_twice_when_masters_are_killed(
    tmp_path: Path, client: str
) -> None:
    with Drill(tmp_path) as drill, drill.clients(client) as clients:
        rounds = list(drill.rounds(clients, 2))
        outcome = drill.end(clients)
    failed = outcome.last.failed
    print(client, *rounds, failed, f"tried again {outcome.tried_again}")
    if client == "go":  # tries three queues of its list in turn, which may all be the dead node's
        failed = Counter({what: failed[what] for what in failed if "refused" not in what})
    assert not outcome.lost
    assert not outcome.doubled
    # Go's client sends a message again whose 3 s are over
    assert len(outcome.tried_again) <= (FEW_FAILED if client == "go" else 0)
    assert failed.total() <= FEW_FAILED
    assert max(each.acknowledgement_gap_ms for each in rounds) < LONGEST_GAP_MS
    assert max(each.delivery_gap_ms for each in rounds) < LONGEST_GAP_MS
