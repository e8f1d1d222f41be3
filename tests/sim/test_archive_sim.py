"""The archive under a seeded world: always a prefix of a confirmed log, and never a shorter one.

More seeds: TANDEMLOG_ARCHIVE_SEEDS=1000 pytest tests/sim/test_archive_sim.py, or
`PYTHONPATH=tests python -m sim --archives 1000`.
"""

import contextlib
import os
from collections import Counter
from unittest.mock import patch

import pytest

from sim.archive_mutations import MUTATIONS, Patch
from sim.archive_world import play
from sim.ha_nodes import ViolationError

pytestmark = pytest.mark.sim

SEEDS = int(os.environ.get("TANDEMLOG_ARCHIVE_SEEDS", "40"))
BLOCK = 20
SEARCH = 60
"""Seeds to try where the one below does not show the mutation any more."""
CAUGHT_AT = {
    "a put without an answer counts as done": 5,
    "a log that was cut continues at the archive's end": 31,
    "a cut is not noticed before the manifest": 46,
    "a manifest has the epoch of its last byte": 46,
}


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_an_archive_is_a_prefix_of_a_confirmed_log(first: int) -> None:
    counters: Counter[str] = Counter()
    for seed in range(first, min(first + BLOCK, SEEDS)):
        counters.update(play(seed).counters)
    for what in ("published", "cuts", "archivers that died", "archives that are whole"):
        assert counters[what] > 10, f"a world without {what} proves little"


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_rule_that_is_switched_off_is_noticed(name: str) -> None:
    for seed in (CAUGHT_AT.get(name, 0), *range(SEARCH)):
        if is_caught(MUTATIONS[name], seed):
            play(seed)  # with the rule it keeps every promise
            return
    pytest.fail(f"{name}: no seed below {SEARCH} shows it; the simulation has lost its teeth")


def is_caught(mutation: list[Patch], seed: int) -> bool:
    with contextlib.ExitStack() as patches:
        for place, attribute, replacement in mutation:
            patches.enter_context(patch.object(place, attribute, replacement))
        try:
            play(seed)
        except ViolationError:
            return True
        except Exception:
            return False  # it stumbles, which breaks no promise
    return False
