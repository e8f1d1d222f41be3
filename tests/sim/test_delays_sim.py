"""Messages that come later, under faults, and what the checker must notice.

`DELAYS_SEEDS=1000-1400` plays other runs than the fixed ones.
"""

import os
from unittest.mock import patch

import pytest

from sim.delays_mutations import MUTATIONS
from sim.delays_world import BrokenPromiseError, play

pytestmark = pytest.mark.sim

FIXED = range(30)
ENOUGH = 60
"""Runs in which a mutation must show itself."""


def seeds() -> range:
    first, dash, last = os.environ.get("DELAYS_SEEDS", "").partition("-")
    return range(int(first), int(last)) if dash else FIXED


def test_every_promise_holds() -> None:
    seen = sum((play(seed) for seed in seeds()), start=play(99))
    for what in (
        "came", "recalls confirmed", "recalls in doubt", "came before its recall", "not ready",
        "crashes", "failovers", "cuts", "deliveries",
    ):  # fmt: skip
        assert seen[what] > 20, f"{what} is hardly simulated: {seen}"


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
