"""One seed of the world of services beside the scrub; its loops are closed behind it."""

from sim.scrubbed_services_world import ScrubbedServicesWorld
from sim.store_run import play
from sim.store_world import StoreWorld

STEPS = 200


def played(seed: int, steps: int = STEPS) -> StoreWorld:
    """Raises ViolationError as play."""
    worlds: list[ScrubbedServicesWorld] = []

    def make(number: int) -> StoreWorld:
        worlds.append(ScrubbedServicesWorld(number))
        return worlds[0]

    try:
        return play(seed, steps, make)
    finally:
        for world in worlds:
            world.abandon()
