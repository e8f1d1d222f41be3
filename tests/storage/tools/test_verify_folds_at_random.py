"""Whatever a store has been through, verify has nothing to say against its snapshots."""

from typing import Any

import pytest

from fakes.service_world import ServiceWorld
from tandemlog_server.storage.tools import verify_folds

STEPS = 120
SEEDS = range(24)
MOST_SEEDS = 40


def play(seed: int) -> set[str]:
    """Returns the folds that were compared."""
    world = ServiceWorld(seed)
    for number in range(STEPS):
        world.step()
        if number % 6 == 0:
            world.check()
    world.bench.settle()
    world.check()
    return world.compared


def play_many() -> None:
    for seed in range(MOST_SEEDS):
        play(seed)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_healthy_store_has_no_fault(seed: int) -> None:
    assert play(seed) == {"delays", "leases", "producers", "transactions"}


@pytest.mark.parametrize("fold", ["delay", "producer", "transaction"])
def test_without_regard_to_the_log_s_begin_it_would(
    fold: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"{fold}_differences"
    right = getattr(verify_folds, name)

    def from_the_beginning(fresh: Any, snapshot: Any, _log_start: int, **more: Any) -> Any:
        return right(fresh, snapshot, 0, **more)

    monkeypatch.setattr(verify_folds, name, from_the_beginning)
    with pytest.raises(AssertionError):
        play_many()
