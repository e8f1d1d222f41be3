"""Disks that are put back, wiped, given up, and nodes that are removed while they start.

Each is played with random details and raises ViolationError; see election_scenes.py.
"""

from collections.abc import Callable
from functools import partial

from fakes.fake_coordinator import Fault
from sim.election_nodes import KEYS, ElectedNode, drive
from sim.election_scenes import Scene
from sim.election_world import ElectionWorld
from sim.ha_nodes import NODES, ViolationError
from tandemlog_server.ha.config import Replication
from tandemlog_server.ha.election.key_values import FORCED, SWITCHOVER, RequestValue, RosterValue
from tandemlog_server.ha.master.term import IDLE_S
from tandemlog_server.storage.config import FlushMode

TOLD_S = 1.5
"""Longer than a leader takes to tell how far the log is confirmed."""


def leader_put_back(seed: int) -> ElectionWorld:
    """A leader is put back to an image of this run and is up again before its lease has ended, so
    the others still follow it."""
    world = Scene(seed)
    leader = world.calm_until_healed()
    world.acknowledged(world.rng.randint(1, 5))
    world.back_up(leader)
    world.acknowledged(world.rng.randint(1, 5))
    world.calm_for(TOLD_S)
    put_back(world, leader)
    world.finish()
    return world


def slave_put_back(seed: int) -> ElectionWorld:
    """All are stopped; a slave that was put back meanwhile is the first one up again."""
    world = Scene(seed)
    leader = world.calm_until_healed()
    slave, other = world.others(leader)
    world.acknowledged(3)
    world.back_up(slave)
    world.acknowledged(world.rng.randint(1, 8))
    world.calm_for(TOLD_S)
    world.take_down(leader, other)
    put_back(world, slave)
    world.calm_for(10.0)
    world.down.clear()
    world.finish()
    return world


def put_back_to_another_history(seed: int) -> ElectionWorld:
    """The image ends behind what is confirmed, but with bytes that its term gave up."""
    world = Scene(seed)
    old = world.calm_until_healed()
    world.acknowledged(3)
    for other in world.others(old):
        world.part(old, other, 8.0)
    for _ in range(12):
        world.put()
        world.flush_node(old)
    world.back_up(old)
    world.freeze(old, 8.0)
    world.calm_until_led_by_another(old)
    world.calm_for(8.0)
    world.wake(old)
    leader = world.calm_until_healed()
    world.acknowledged(2)
    world.calm_for(TOLD_S)
    world.take_down(*[each for each in world.elected if each is not old])
    if leader is not old:
        put_back(world, old)
    world.calm_for(10.0)
    world.down.clear()
    world.finish()
    return world


def wiped(seed: int) -> ElectionWorld:
    """A disk is lost, and its node is up again at once, or as the only one."""
    world = Scene(seed)
    leader = world.calm_until_healed()
    world.acknowledged(5)
    node, other = world.others(leader)
    if seed % 2:
        world.wipe(leader)
    else:
        world.wipe(node)
        world.take_down(leader, other)
        world.calm_for(10.0)
        world.down.clear()
    world.finish()
    return world


def forced(seed: int) -> ElectionWorld:
    """Two nodes are lost for a while, and the one that lagged has to lead."""
    world = Scene(seed)
    leader = world.calm_until_healed()
    lagging, _ = world.others(leader)
    world.acknowledged(3)
    world.take_down(lagging)
    world.acknowledged(world.rng.randint(1, 6))
    world.calm_for(0.5)  # what is confirmed is on the disks
    world.down.clear()
    world.take_down(*[each for each in world.elected if each is not lagging])
    world.calm_for(1.0)
    world.force(lagging)
    for _ in range(2000):
        world.calm()
        world.follow_up()
        if world.forcing is None:
            break
    world.down.clear()
    if not world.counters.get("forced"):
        raise ViolationError(f"{lagging.name} was not forced to lead: {world.describe()}")
    if seed % 2 == 0:
        world.stop(lagging)  # before it has told anything of its term
    world.acknowledged(2)
    world.finish()
    if not world.counters.get("losses reported"):
        raise ViolationError(f"a loss was not reported: {world.describe()}")
    return world


def forced_while_another_leads_alone(seed: int) -> ElectionWorld:
    """The operator could not stop the old leader, which acknowledges by itself and is cut off."""
    world = Scene(seed, Replication.SYNC_DEGRADE)
    old = world.calm_until_healed()
    target, other = world.others(old)
    world.take_down(target, other)
    world.calm_for(5.0)
    world.acknowledged(2)
    for each in (target, other):
        world.part(old, each, 30.0)
    world.down.clear()
    world.calm_for(1.0)
    world.coordination.cut[old.name] = world.now + 30.0
    world.set_key(KEYS.request, RequestValue(FORCED, target.name, "1"))
    for _ in range(1200):
        if world.rng.random() < 0.1:
            world.put_at(old)
        world.calm()
    world.finish()
    if not world.counters.get("losses reported"):
        raise ViolationError(f"a loss was not reported: {world.describe()}")
    return world


def lost_in_async(seed: int) -> ElectionWorld:
    """An asynchronous leader acknowledges what no slave gets, and is cut off from the coordinator
    too: until its lease ends it may."""
    world = Scene(seed, Replication.ASYNC)
    old = world.calm_until_healed()
    world.acknowledged(3)
    for each in world.others(old):
        world.part(old, each, 20.0)
    world.acknowledged(3)
    world.coordination.cut[old.name] = world.now + 20.0
    for _ in range(600):
        world.put_at(old)
        world.calm()
    world.finish()
    if not world.counters.get("given up") or not world.counters.get("losses reported"):
        raise ViolationError(f"a loss was not reported: {world.describe()}")
    return world


def removed_at_start(seed: int) -> ElectionWorld:
    """An operator removes a node in the moment in which it counts its start."""
    world = Scene(seed)
    leader = world.calm_until_healed()
    node, _ = world.others(leader)
    world.take_down(node)
    world.down.clear()
    world.start(node)
    process = node.process
    assert process is not None
    late = world.rng.choice((Fault.DELAYED, None))
    process.client.faults.extend((None, late))
    starts = world.coordination.snapshot().roster[node.name].starts
    counting = process.agent.registration.step()
    for _ in range(3):  # the keys are read, and the entry is about to be sent
        counting.send(None)
    if late is None:
        world.set_key(KEYS.in_roster(node.name), RosterValue(starts, removed=True))
        drive(counting)
    else:
        drive(counting)
        world.set_key(KEYS.in_roster(node.name), RosterValue(starts, removed=True))
        world.coordination.world.deliver()
    if not world.coordination.snapshot().removed(node.name):
        raise ViolationError(f"{node.name} was removed, and is not any more")
    world.set_key(KEYS.in_roster(node.name), RosterValue(starts))
    world.finish()
    return world


def rack_loses_power(seed: int) -> ElectionWorld:
    """All machines at once, after any history of roles and a rest: nothing that was acknowledged is
    missing anywhere, so one of them leads. In every third world one master is left, alone."""
    mode = (Replication.SYNC, Replication.SYNC_DEGRADE, Replication.SYNC_DEGRADE)[seed % 3]
    if seed % 7 == 6:
        mode = Replication.ASYNC
    world = Scene(seed, mode, FlushMode.SYNC if seed % 5 == 4 else FlushMode.ASYNC)
    leader = world.calm_until_healed()
    for round_ in range(world.rng.randint(1, 4)):
        world.acknowledged(world.rng.randint(1, 4))
        leader = change_of_roles(world, leader, round_)
    world.acknowledged(2)
    if mode is Replication.SYNC_DEGRADE and seed % 3 == 2:
        world.take_down(*world.others(leader))
        world.calm_for(5.0)
        world.acknowledged(2)
    world.calm_for(2 * IDLE_S)
    world.cut_rack()
    world.calm_until_led()
    world.down.clear()
    world.finish()
    return world


def rest_is_over(seed: int) -> ElectionWorld:
    """A lone master takes puts again after a rest, and its machine stops before they are fsynced:
    it may not lead without them."""
    world = Scene(seed, Replication.SYNC_DEGRADE, FlushMode.ASYNC)
    leader = world.calm_until_healed()
    world.take_down(*world.others(leader))
    world.calm_for(5.0)
    world.acknowledged(2)
    world.calm_for(2 * IDLE_S)
    goal = len(world.acked) + world.rng.randint(1, 3)
    for _ in range(1000):
        if len(world.acked) >= goal:
            break
        world.put()
        world.clock.advance(0.02)
        world.pump(leader)
    if len(world.acked) < goal:
        raise ViolationError(f"nothing is acknowledged: {world.describe()}")
    world.stop(leader)
    world.lose_unsynced(leader)
    world.calm_for(10.0)
    led = world.leader()
    if led is not None:
        world.check_leader(led)
    return world


def change_of_roles(world: Scene, leader: ElectedNode, number: int) -> ElectedNode:
    """Another node leads, or the same one again; all are in sync then."""
    node, _ = world.others(leader)
    how = world.rng.choice(("switch", "kill", "power", "pause"))
    world.note(f"{how} {leader.name}")
    if how == "switch":
        request = RequestValue(SWITCHOVER, node.name, f"change {number}")
        world.set_key(KEYS.request, request)
    elif how == "pause":
        world.freeze(leader, 8.0)
    else:
        world.stop(leader)
        if how == "power":
            world.power_cut(leader)
    world.calm_for(1.0)
    return world.calm_until_healed()


def two_at_once(seed: int) -> ElectionWorld:
    """Two misfortunes in one moment; of the disks one fails at most."""
    world = Scene(seed, world_mode(seed))
    leader = world.calm_until_healed()
    world.acknowledged(2)
    for node in world.elected:
        world.back_up(node)
    world.acknowledged(3)
    world.calm_for(TOLD_S)
    faults = misfortunes(world, leader)
    names = sorted(faults)
    for name in world.rng.sample(names, 2):
        world.note(f"now {name}")
        world.count(name)
        faults[name]()
    for _ in range(world.rng.randint(20, 200)):
        world.put()
        world.calm()
    world.coordination.cut.clear()
    world.finish()
    return world


def world_mode(seed: int) -> Replication:
    return list(Replication)[seed % 3]


def misfortunes(world: Scene, leader: ElectedNode) -> dict[str, Callable[[], None]]:
    node, other = world.others(leader)
    away = world.now + 8.0
    request = RequestValue(SWITCHOVER, node.name, "pair")
    return {
        "kill the leader": partial(world.stop, leader),
        "kill a slave": partial(world.stop, other),
        "cut the leader's power": partial(lose_power, world, leader),
        "stop the leader's process": partial(world.freeze, leader, 8.0),
        "stop a slave's process": partial(world.freeze, node, 8.0),
        "part leader and slave": partial(world.part, leader, node, 8.0),
        "part the slaves": partial(world.part, other, node, 8.0),
        "cut the leader off": lambda: world.coordination.cut.update({leader.name: away}),
        "cut all off": lambda: world.coordination.cut.update(dict.fromkeys(NODES, away)),
        "restart the coordinator": world.coordination.world.restart,
        "switch": lambda: world.set_key(KEYS.request, request),
        "put the leader back": partial(world.put_back, leader),
        "put a slave back": partial(world.put_back, node),
        "wipe the leader": partial(world.wipe, leader),
        "wipe a slave": partial(world.wipe, node),
        "expire": partial(world.expire, leader),
    }


def lose_power(world: Scene, node: ElectedNode) -> None:
    world.stop(node)
    world.power_cut(node)


def put_back(world: Scene, node: ElectedNode) -> None:
    world.put_back(node)
    if not world.counters.get("put back, lacking"):
        raise ViolationError(f"{node.name} was not put back: {world.describe()}")
