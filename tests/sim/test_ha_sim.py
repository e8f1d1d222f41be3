"""The replication under a seeded world, and under the same world with a rule switched off.

Every failure names its seed; `run_seed(seed)` repeats it step by step. More seeds:
TANDEMLOG_SIM_SEEDS=2000 pytest tests/sim/test_ha_sim.py
"""

import contextlib
import importlib
import os
from unittest.mock import patch

import pytest

from sim.ha_mutations import MUTATIONS
from sim.ha_nodes import ViolationError
from sim.ha_scenes import (
    acknowledged_by_a_lost_disk,
    empty_master,
    joined_and_gone,
    lost_by_the_master,
)
from sim.ha_world import World, digest
from tandemlog_server.storage.config import FlushMode

pytestmark = pytest.mark.sim

STEPS = 2000
SEEDS = int(os.environ.get("TANDEMLOG_SIM_SEEDS", "60"))
SEARCH = 150
"""Seeds to try where the one below does not show the mutation any more."""

CAUGHT_AT = {
    "the master counts what it has not fsynced": 25,
    "a leaving member is not waited for any more": 50,
    "equal length is equal history": 5,
    "a log without epochs is trusted": 5,
    "no proof of bytes": 5,
    "a restart goes on in the same epoch": 10,
    "a slave that prepares is silent": 4,
    "a master that compares is silent": 7,
    "a lost disk keeps its name": 42,
}

BY_SCENE = {
    "acks count in any epoch and incarnation": acknowledged_by_a_lost_disk,
    "a joining member counts only when recorded": joined_and_gone,
    "a master on an empty disk is followed": empty_master,
    "confirmed bytes may be cut": lost_by_the_master,
    "a master without fsync trusts its log after a power cut": lost_by_the_master,
    "the set grows while acknowledged bytes are missing": lost_by_the_master,
}
"""What chance shows too seldom, and at other seeds after every change of the protocol."""


def run_seed(seed: int, steps: int = STEPS) -> World:
    """One world: its flush mode and what its stores begin with follow from the seed too."""
    world = World(seed, FlushMode.SYNC if seed % 2 else FlushMode.ASYNC)
    if seed % 4 >= 2:
        world.give_old_data()
    for node in world.nodes.values():
        world.start(node)
    for _ in range(steps):
        world.step()
    world.finish()
    return world


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("first", range(0, SEEDS, 10))
def test_nothing_acknowledged_is_lost(first: int) -> None:
    acknowledged = 0
    for seed in range(first, min(first + 10, SEEDS)):
        try:
            acknowledged += run_seed(seed).counters.get("acked", 0)
        except Exception as fault:
            raise AssertionError(f"seed {seed}: {fault}") from fault
    assert acknowledged > 50, "a world in which nothing happens proves nothing"


def test_the_same_seed_gives_the_same_run() -> None:
    assert digest(run_seed(5)) == digest(run_seed(5))


@pytest.mark.parametrize("seed", range(5))
def test_nobody_joins_a_master_that_lacks_what_another_slave_holds(seed: int) -> None:
    assert len(lost_by_the_master(seed).acked) >= 40


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_switched_off_is_noticed(name: str) -> None:
    play = BY_SCENE.get(name, run_seed)
    pinned = CAUGHT_AT.get(name, 0)
    play(pinned)
    with contextlib.ExitStack() as patches:
        for place, attribute, replacement in MUTATIONS[name]:
            patches.enter_context(patch.object(found(place), attribute, replacement))
        for seed in (pinned, *range(SEARCH)):
            try:
                play(seed)
            except ViolationError:
                return
            except Exception:
                continue  # it stumbles, which breaks no promise
    pytest.fail(f"{name}: no seed below {SEARCH} shows it; the simulation has lost its teeth")


def found(place: object) -> object:
    return importlib.import_module(place) if isinstance(place, str) else place
