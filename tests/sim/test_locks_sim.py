"""Locks of ordered consumption under faults, and what the checker must notice.

`LOCKS_SEEDS=1000-1400` plays other runs than the fixed ones.
"""

import os
from collections import Counter
from unittest.mock import patch

import pytest

from sim.locks_mutations import MUTATIONS
from sim.locks_world import BrokenPromiseError, play

pytestmark = pytest.mark.sim

FIXED = range(6)
ENOUGH = 40
"""Runs in which a mutation must show itself."""


def seeds() -> range:
    first, dash, last = os.environ.get("LOCKS_SEEDS", "").partition("-")
    return range(int(first), int(last)) if dash else FIXED


def test_two_clients_never_trust_a_lock_of_one_queue() -> None:
    seen = sum((play(seed).seen for seed in seeds()), start=Counter[str]())
    assert seen["granted"] > 200
    for fault in ("elected", "pause", "cut", "lost", "too late", "not granted", "refused"):
        assert seen[fault] > 10, f"{fault} is hardly simulated: {seen}"


def test_a_run_repeats() -> None:
    assert play(3).log == play(3).log


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
