"""Real clients in worlds that elect, and the rules between them and the nodes switched off.

Every failure names its seed: `served_run.play(seed)` repeats it. More of them:
PYTHONPATH=tests python -m sim --served 2000
"""

import contextlib
import os
from collections import Counter
from unittest.mock import patch

import pytest

from sim.ha_nodes import ViolationError
from sim.served_mutations import MUTATIONS
from sim.served_run import play
from sim.served_scenes import SCENES, Scene

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("TANDEMLOG_SIM_SEEDS", "50")) // 10
SEARCH = 20
"""Seeds to try where the one that is noted does not show the mutation any more."""


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL")


@pytest.mark.parametrize("first", range(0, SEEDS, 5))
def test_clients_have_what_they_were_promised(first: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(first, min(first + 5, SEEDS)):
        try:
            seen.update(play(seed).counters)
        except Exception as fault:
            raise AssertionError(f"seed {seed}: {fault}") from fault
    assert seen["told stored"] > 50, "a world in which nothing happens proves nothing"
    assert seen["delivered"] > 100
    assert seen["commits"] > 5


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_scenes(scene: Scene) -> None:
    scene(0)


def test_the_same_seed_gives_the_same_run() -> None:
    first, second = play(7, 300), play(7, 300)
    assert first.counters == second.counters
    assert [bytes(node.disk.data) for node in first.elected] == [
        bytes(node.disk.data) for node in second.elected
    ]


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_switched_off_is_noticed(name: str) -> None:
    scene, known, patches = MUTATIONS[name]
    with contextlib.ExitStack() as switched_off:
        for place, attribute, replacement in patches:
            switched_off.enter_context(patch.object(place, attribute, replacement))
        for seed in (known, *range(SEARCH)):
            with contextlib.suppress(Exception):  # it stumbles, which breaks no promise
                try:
                    scene(seed)
                except ViolationError:
                    return
    pytest.fail(f"{name}: no seed below {SEARCH} shows it; the simulation has lost its teeth")
