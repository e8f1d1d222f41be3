"""Sends and pulls of RocketMQ's clients while masters are lost, and what the checker must notice.

`PARKING_SEEDS=1000-1400` plays other runs than the fixed ones.
"""

import os
from collections import Counter
from unittest.mock import patch

import pytest

from sim.parking_mutations import MUTATIONS
from sim.parking_world import BrokenPromiseError, play

pytestmark = pytest.mark.sim

FIXED = range(6)


def seeds() -> range:
    first, dash, last = os.environ.get("PARKING_SEEDS", "").partition("-")
    return range(int(first), int(last)) if dash else FIXED


def test_sends_are_stored_once_and_what_waits_is_answered() -> None:
    seen = sum((play(seed).seen for seed in seeds()), start=Counter[str]())
    assert seen["acknowledged"] > 300
    assert seen["elected"] > 20
    assert seen["handed on"] > 100
    assert seen["repeated"] > 0
    assert seen["parked requests"] > 0


def test_a_run_repeats() -> None:
    assert play(3).log == play(3).log


@pytest.mark.parametrize("rule", MUTATIONS)
def test_a_rule_that_is_off_is_noticed(rule: str) -> None:
    mutation = MUTATIONS[rule]
    with patch.object(mutation.target, mutation.name, mutation.instead):
        for seed in mutation.seeds:
            try:
                play(seed)
            except BrokenPromiseError:
                return
    pytest.fail(f"{len(mutation.seeds)} runs did not notice: {rule}")
