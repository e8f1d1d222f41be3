"""Real stores under a seeded world: what is acknowledged is there, once, at its place.

A failure names its seed and tells the world's history; `PYTHONPATH=tests python -m sim 123
--shortest` plays the shortest part of seed 123 that fails. More seeds:
TANDEMLOG_STORE_SEEDS=5000 pytest tests/sim/test_store_sim.py, or `python -m sim 5000`.
"""

import os

import pytest

from sim.store_run import play

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("TANDEMLOG_STORE_SEEDS", "1500"))
BLOCK = 25


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_real_stores_keep_what_was_promised(first: int) -> None:
    acknowledged = 0
    for seed in range(first, min(first + BLOCK, SEEDS)):
        acknowledged += play(seed).counters.get("acked", 0)
    assert acknowledged > 50, "a world in which nothing happens proves nothing"


def test_the_same_seed_gives_the_same_world() -> None:
    assert play(5).describe() == play(5).describe()
