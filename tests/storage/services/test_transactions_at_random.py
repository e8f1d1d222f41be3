"""Transactions under random faults: one outcome each, every message once, offsets never back."""

import pytest

from fakes.transaction_world import RULES, BrokenError, TransactionWorld, without

STEPS = 250
SEEDS = range(24)
MOST_SEEDS = 300


def play(seed: int) -> None:
    world = TransactionWorld(seed)
    for _ in range(STEPS):
        world.step()
    world.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_told_holds(seed: int) -> None:
    play(seed)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_is_missed(rule: str) -> None:
    with without(rule):
        for seed in range(MOST_SEEDS):
            try:
                play(seed)
            except BrokenError:
                return
    pytest.fail(f"without the rule {rule!r} nothing breaks")
