"""Scenes that chance plays too seldom, played on purpose.

Everything else in them is the world's: the network's order, what a power cut keeps, the checks.
"""

from collections.abc import Callable, Iterable
from random import Random

from sim.ha_nodes import ViolationError
from sim.ha_world import World
from tandemlog_server.ha.protocol.frames import Ack, decode_slave_frame
from tandemlog_server.storage.config import FlushMode

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


def acknowledged_by_a_lost_disk(seed: int) -> World:
    """Slave b comes back on an empty disk, and an acknowledgement of the old one arrives on its new
    stream before it has stored a byte."""
    world = World(seed, FlushMode.ASYNC)
    world.prepare_s = 0.0
    slave = world.nodes["b"]
    together = until(world, "abc", lambda: in_sync(world) == {"a", "b", "c"})
    acknowledged(world, 40, "abc")
    end = world.nodes["a"].disk.end
    held = until(world, "abc", lambda: min(reached(world, "b"), reached(world, "c")) >= end)
    old = [data for name, data in world.stale_acks if name == "b" and acks(data, end)]
    world.stop(slave)
    world.lose_disk(slave)
    greeted = until(world, "abc", lambda: let_in(world, "b"))
    lacks = slave.disk.durable < end and "b" in in_sync(world)
    replayed = bool(old) and heard_first(world, "b", old[-1])
    for _ in range(100):
        world.calm("ac")
    if not (together and held and greeted and lacks and replayed):
        raise AssertionError(f"the scene is not played: {world.describe()}")
    world.finish()
    return world


def joined_and_gone(seed: int) -> World:
    """Slave c stops when the set with it is on the disk, which the master does not know yet: an
    election may find c in the record, so nothing is acknowledged without it."""
    world = World(seed, FlushMode.ASYNC)
    world.prepare_s = 0.0
    slave = world.nodes["c"]
    together = until(world, "ab", lambda: in_sync(world) == {"a", "b"})
    acknowledged(world, 20, "ab")
    world.record_s = (1.5, 1.5, 1.5, 1.5)
    recorded = until(world, "abc", lambda: "c" in in_writing(world))
    world.stop(slave)
    before = world.serial
    for _ in range(100):
        world.put()
        world.calm("ab")
    unknown = "c" in in_writing(world) and "c" not in in_sync(world)
    if not (together and recorded and unknown and world.serial > before):
        raise AssertionError(f"the scene is not played: {world.describe()}")
    world.finish()
    return world


def empty_master(seed: int) -> World:
    """The master loses its disk when slave b alone holds what is acknowledged, and b has not heard
    that it is confirmed. The master's first epoch is the one that b has followed."""
    world = World(seed, FlushMode.ASYNC)
    world.prepare_s = 0.0
    master, slave = world.nodes["a"], world.nodes["b"]
    together = until(world, "ab", lambda: in_sync(world) == {"a", "b"})
    acknowledged(world, 1, "ab")
    held = bool(world.acked) and all(put.end <= slave.disk.durable for put in world.acked.values())
    world.stop(slave)
    world.stop(master)
    world.lose_disk(master)
    unheard = slave.disk.confirmed == 0
    world.start(master)
    again = master.master is not None and (
        master.master.group.view.epoch == world.state(slave).accepted_epoch
    )
    if not (together and held and unheard and again):
        raise AssertionError(f"the scene is not played: {world.describe()}")
    world.finish()
    return world


def acks(data: bytes, end: int) -> bool:
    """Whether this frame of a slave says that all below `end` is durable there."""
    frame = decode_slave_frame(data)
    return isinstance(frame, Ack) and not frame.state and frame.durable >= end


def reached(world: World, name: str) -> int:
    """Up to where the master knows that slave to be durable."""
    master = world.nodes["a"].master
    match = master.group.tracker.matches.get(name) if master else None
    return match.durable or 0 if match else 0


def let_in(world: World, name: str) -> bool:
    """Whether the master has let the present disk of that slave in."""
    master = world.nodes["a"].master
    session = master.group.sessions.get(name) if master else None
    incarnation = world.state(world.nodes[name]).incarnation
    return (
        session is not None
        and session.hello is not None
        and session.hello.incarnation == incarnation
        and session.streaming
    )


def heard_first(world: World, name: str, data: bytes) -> bool:
    """Let the master take that frame in before all else that is under way to it from that slave."""
    node = world.nodes["a"]
    for session, stream in node.master.streams if node.master else []:
        if session.streaming and session.hello is not None and session.hello.node_id == name:
            stream.to_master.appendleft(data)
            world.deliver(node, session, stream)
            return True
    return False


def in_writing(world: World) -> set[str]:
    """The set that is on the disk and not known to be."""
    master = world.nodes["a"].master
    written = master.written if master else None
    return {member.node_id for member in written.members} if written else set()


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
