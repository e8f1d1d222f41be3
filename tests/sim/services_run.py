"""One seed of the world of work queues and transactions; its loops are closed behind it."""

from sim.services_world import ServicesWorld
from sim.store_run import play
from sim.store_world import StoreWorld

STEPS = 200


def played(seed: int, steps: int = STEPS) -> StoreWorld:
    """Raises ViolationError as play."""
    worlds: list[ServicesWorld] = []

    def make(number: int) -> StoreWorld:
        worlds.append(ServicesWorld(number))
        return worlds[0]

    try:
        return play(seed, steps, make)
    finally:
        for world in worlds:
            world.abandon()
