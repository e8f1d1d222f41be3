"""One seed of a world with work queues and transactions; its loops are closed behind it."""

from collections.abc import Callable

from sim.services_world import ServicesWorld
from sim.store_run import play
from sim.store_world import StoreWorld

STEPS = 200


def played(
    seed: int, steps: int = STEPS, make_world: Callable[[int], ServicesWorld] = ServicesWorld
) -> StoreWorld:
    """Raises ViolationError as play."""
    worlds: list[ServicesWorld] = []

    def make(number: int) -> StoreWorld:
        worlds.append(make_world(number))
        return worlds[0]

    try:
        return play(seed, steps, make)
    finally:
        for world in worlds:
            world.abandon()
