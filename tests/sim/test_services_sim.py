"""Work queues and transactions under a seeded world: what clients were promised is kept.

As test_store_sim: a failure names its seed and tells the world's history. More seeds:
TANDEMLOG_SERVICES_SEEDS=5000, or `PYTHONPATH=tests python -m sim --services 5000`.
"""

import os
from collections import Counter

import pytest

from sim.services_mutations import MUTATIONS
from sim.services_run import played
from sim.test_store_sim import is_caught

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("TANDEMLOG_SERVICES_SEEDS", "30"))
BLOCK = 10
SEARCH = 60


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_clients_get_what_they_were_promised(first: int) -> None:
    counters = Counter[str]()
    for seed in range(first, min(first + BLOCK, SEEDS)):
        counters.update(played(seed).counters)
    for what in ("delivered", "synced", "committed", "rolled back"):
        assert counters[what] > 5, f"a world in which nothing is {what} proves nothing"


def test_the_same_seed_gives_the_same_world() -> None:
    assert played(3).describe() == played(3).describe()


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_switched_off_is_noticed(name: str) -> None:
    for seed in range(SEARCH):
        if is_caught(MUTATIONS[name], played, seed):
            played(seed)  # with the rule it keeps every promise
            return
    pytest.fail(f"{name}: no seed below {SEARCH} shows it; the simulation has lost its teeth")
