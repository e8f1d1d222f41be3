"""Work queues played at random: failovers that cut the log, late handles, lost records.

Each rule that keeps messages from being lost is switched off in turn, and a fault must be found.
"""

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from fakes.lease_world import LeaseWorld
from tandemlog.format.lease.policy import Backoff, GroupPolicy, Ordering
from tandemlog_server.storage.leases import handle_operations
from tandemlog_server.storage.leases.handle_operations import Found
from tandemlog_server.storage.leases.lease_engine import LeaseEngine

STEPS = 400


def played(world: LeaseWorld, steps: int = STEPS) -> list[str]:
    for _ in range(steps):
        world.step()
    world.drain()
    return world.faults


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_and_nothing_comes_after_its_end(seed: int) -> None:
    chosen = random.Random(seed)
    world = LeaseWorld(
        chosen,
        GroupPolicy(
            chosen.choice((2, 5, 1_000)),
            Backoff((5, 50)),
            chosen.choice(list(Ordering)),
        ),
        grace_ms=chosen.choice((0, 150)),
        filtered=chosen.choice((lambda message: True, lambda message: message.name % 3 > 0)),
    )
    assert not played(world)


class AnyMessage(LeaseEngine):
    """A handle is for whatever lies at its place."""

    def same_message(self, found: Found, handles: NDArray[np.void]) -> NDArray[np.bool_]:
        return found.log_offsets >= 0


def faults_of(
    monkeypatch: pytest.MonkeyPatch, *, unconfirmed: bool, any_message: bool, worlds: int
) -> int:
    """How many worlds have a fault."""
    if any_message:
        monkeypatch.setattr(
            handle_operations,
            "is_same_message",
            lambda log_offsets, fingerprints, handles: np.ones(len(log_offsets), np.bool_),
        )
    count = 0
    for seed in range(worlds):
        world = LeaseWorld(
            random.Random(1_000 + seed),
            engine_type=AnyMessage if any_message else LeaseEngine,
            deliver_unconfirmed=unconfirmed,
            confirming=0.04,
            failing=0.035,
        )
        count += bool(played(world))
    return count


def test_one_of_the_two_rules_is_enough_against_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults_of(monkeypatch, unconfirmed=True, any_message=False, worlds=20) == 0
    assert faults_of(monkeypatch, unconfirmed=False, any_message=True, worlds=20) == 0


def test_without_both_rules_messages_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert faults_of(monkeypatch, unconfirmed=True, any_message=True, worlds=40) > 3
