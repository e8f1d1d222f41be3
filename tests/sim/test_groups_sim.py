"""Members of a group under faults, and what the checker must notice.

`GROUPS_SEEDS=1000-1400` plays other runs than the fixed ones.
"""

import os
from unittest.mock import patch

import pytest

from sim.groups_mutations import MUTATIONS
from sim.groups_world import BrokenPromiseError, play

pytestmark = pytest.mark.sim

FIXED = range(25)
ENOUGH = 60
"""Runs in which a mutation must show itself."""


def seeds() -> range:
    first, dash, last = os.environ.get("GROUPS_SEEDS", "").partition("-")
    return range(int(first), int(last)) if dash else FIXED


def test_every_promise_holds() -> None:
    seen = sum((play(seed).seen for seed in seeds()), start=play(99).seen)
    assert seen["commits"] > 1_000
    for fault in ("failover", "pause", "kill", "static", "lost", "twice", "late", "given up"):
        assert seen[fault] > 20, f"{fault} is hardly simulated: {seen}"
    assert seen["commits refused"] > 20


def test_a_run_repeats() -> None:
    assert play(7).log == play(7).log


@pytest.mark.parametrize("rule", MUTATIONS)
def test_a_rule_that_is_off_is_noticed(rule: str) -> None:
    mutation = MUTATIONS[rule]
    with patch.object(mutation.target, mutation.name, mutation.instead):
        for seed in range(ENOUGH):
            try:
                play(seed)
            except BrokenPromiseError:
                return
    pytest.fail(f"{ENOUGH} runs did not notice: {rule}")
