"""Delayed messages, work queues and transactions on disks that turn bits, beside the scrub.

As test_store_sim: a failure names its seed and tells the world's history. More seeds:
TANDEMLOG_SCRUBBED_SERVICES_SEEDS=500.
"""

import os
from collections import Counter

import pytest

from sim.scrubbed_services_mutations import MUTATIONS
from sim.scrubbed_services_world import ScrubbedServicesWorld
from sim.services_run import played
from sim.store_world import StoreWorld
from sim.test_store_sim import is_caught

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("TANDEMLOG_SCRUBBED_SERVICES_SEEDS", "12"))
BLOCK = 12
SEARCH = 30


def played_here(seed: int) -> StoreWorld:
    return played(seed, make_world=ScrubbedServicesWorld)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_what_is_mended_is_neither_skipped_nor_done_twice(first: int) -> None:
    counters = Counter[str]()
    for seed in range(first, min(first + BLOCK, SEEDS)):
        counters.update(played_here(seed).counters)
    for what in ("mended", "folds rebuilt", "synced", "came"):
        assert counters[what] > 0, f"worlds in which nothing is {what} prove nothing"
    # not in every dozen of worlds
    assert counters["queues rebuilt"] > 0 or first > 0


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_switched_off_is_noticed(name: str) -> None:
    first, mutation = MUTATIONS[name]
    for seed in range(first, first + SEARCH):
        if is_caught(mutation, played_here, seed):
            played_here(seed)  # with the rule it keeps every promise
            return
    pytest.fail(f"{name}: no seed below {first + SEARCH} shows it")
