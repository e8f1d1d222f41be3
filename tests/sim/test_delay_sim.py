"""Messages that come later under a seeded world: each comes once, and not before its time.

As test_store_sim: a failure names its seed and tells the world's history.
"""

import os
from functools import partial

import pytest

from sim.delay_mutations import MUTATIONS
from sim.delay_world import DelayWorld
from sim.store_run import STEPS, play
from sim.test_store_sim import is_caught

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("TANDEMLOG_DELAY_SEEDS", "60"))
BLOCK = 15
SEARCH = 150

played = partial(play, steps=STEPS, make=DelayWorld)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_each_comes_once_and_not_before_its_time(first: int) -> None:
    came = recalled = 0
    for seed in range(first, min(first + BLOCK, SEEDS)):
        counters = played(seed).counters
        came += counters.get("came", 0)
        recalled += counters.get("recalled", 0)
    assert came > 20, "a world in which nothing comes proves nothing"
    assert recalled, "nor one in which nothing is called back"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_switched_off_is_noticed(name: str) -> None:
    for seed in range(SEARCH):
        if is_caught(MUTATIONS[name], played, seed):
            played(seed)  # with the rule it keeps every promise
            return
    pytest.fail(f"{name}: no seed below {SEARCH} shows it; the simulation has lost its teeth")
