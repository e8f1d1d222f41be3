"""Disks that turn bits under a seeded world of stores, and the scrub that mends them meanwhile.

As test_store_sim: a failure names its seed and tells the world's history.
"""

import os
from functools import partial

import pytest

from sim.scrub_world import ScrubWorld
from sim.store_run import STEPS, play

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("TANDEMLOG_SCRUB_SEEDS", "60"))
BLOCK = 20

played = partial(play, steps=STEPS, make=ScrubWorld)


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_what_turns_is_mended_and_nothing_is_lost(first: int) -> None:
    mended = deaths = 0
    for seed in range(first, min(first + BLOCK, SEEDS)):
        counters = played(seed).counters
        mended += counters.get("mended", 0)
        deaths += counters.get("deaths", 0)
    assert mended > 3, "a world in which nothing is mended proves nothing"
    assert deaths > 3, "nor one in which nobody dies"
