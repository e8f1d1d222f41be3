"""One seed of a served world, from its first step to its last check."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from unittest.mock import patch

from sim.ha_nodes import ViolationError
from sim.served_calls import ClientNode
from sim.served_world import ServedWorld
from sim.world_loop import world_time
from tandemlog.cluster.connection import Connection
from tandemlog_server.ha.config import Replication
from tandemlog_server.storage.config import FlushMode

STEPS = 2500


@contextmanager
def in_world(world: ServedWorld, seed: int) -> Iterator[None]:
    """Clients reach the nodes of this world, by its time; nothing comes from chance."""
    names = count(1)
    with (
        world_time(world.clock, seed),
        patch.object(
            Connection,
            "_new_node",
            lambda each, endpoint: ClientNode(endpoint, world.find, each.epochs),
        ),
        patch("tandemlog.consume.group.membership._new_id", lambda: f"m{next(names):04}"),
    ):
        try:
            yield
        except ViolationError as broken:
            raise ViolationError(f"{broken}\n{world.describe()}") from broken
        finally:
            world.close()


def mode_of(seed: int) -> Replication:
    return list(Replication)[seed % 3]


def flush_of(seed: int) -> FlushMode:
    return FlushMode.SYNC if seed // 3 % 2 else FlushMode.ASYNC


def play(seed: int, steps: int = STEPS) -> ServedWorld:
    """Everything follows from the seed. Raises ViolationError."""
    world = ServedWorld(seed, flush_of(seed), mode_of(seed))
    with in_world(world, seed):
        world.begin()
        if seed % 4:
            world.found()
        for _ in range(steps):
            world.step()
        world.finish()
    return world
