"""Scenes that chance plays too seldom, played on purpose.

Everything else in them is the world's: the network's order, what a power cut keeps, the checks.
"""

from collections.abc import Callable, Iterable
from random import Random

from sim.ha_nodes import ViolationError
from sim.ha_world import World
from storage.config import FlushMode

LONG = 3_000
"""Rounds of a hundredth of a second."""


class Nothing(Random):
    """Of what is not fsynced, nothing stays."""

    def randint(self, a: int, b: int) -> int:
        return a


def lost_by_the_master(seed: int) -> World:
    """A master without fsync loses acknowledged bytes with its machine. Slave c has them, slave b
    was away and follows the master before and after c raises the alarm."""
    world = World(seed, FlushMode.ASYNC)
    world.prepare_s = 0.0
    master = world.nodes["a"]
    together = until(world, "abc", lambda: in_sync(world) == {"a", "b", "c"})
    acknowledged(world, 20, "abc")
    if master.store is not None:
        master.store.flush()
    world.stop(world.nodes["b"])
    together = until(world, "ac", lambda: in_sync(world) == {"a", "c"}) and together
    acknowledged(world, 40, "ac")
    world.stop(master)
    world.power_cut(master, Nothing())
    lost = master.disk.end < max(put.end for put in world.acked.values())
    follows = until(world, "ab", lambda: world.nodes["b"].disk.durable == master.disk.end)
    for _ in range(LONG):
        world.calm("ab")
        grown(world)
    alarmed = until(world, "abc", lambda: bool(master.master and master.master.group.alarms))
    for _ in range(LONG):
        world.calm("abc")
        grown(world)
    if not (together and lost and follows and alarmed):
        raise AssertionError(f"the scene is not played: {world.describe()}")
    world.finish()
    return world


def acknowledged(world: World, count: int, names: str) -> None:
    """Until that many puts have been acknowledged in all."""
    for _ in range(LONG):
        if world.counters.get("acked", 0) >= count:
            return
        world.put()
        world.calm(names)


def grown(world: World) -> None:
    """An election must not find b in the record: it lacks what is acknowledged."""
    if "b" in in_sync(world):
        raise ViolationError("a slave that lacks acknowledged bytes is in the set")


def in_sync(world: World) -> set[str]:
    master = world.nodes["a"].master
    return {member.node_id for member in master.group.set.members} if master else set()


def until(world: World, names: Iterable[str], holds: Callable[[], bool]) -> bool:
    """Whether `holds` comes to be true while the nodes of `names` do what they should."""
    for _ in range(LONG):
        if holds():
            return True
        world.calm(names)
    return False
