"""Scenes of several stores that chance plays too seldom: who joins, who is promoted.

As in store_scenes.py: a scene breaks a promise where its rule is switched off.
"""

from sim.store_checks import check_promotion
from sim.store_nodes import StoreNode
from sim.store_stage import Stage, staged

MAGIC_AT, PHYSICAL_OFFSET_AT = 4, 28
"""Of a record: bytes that everybody judges who looks at one."""


@staged
def a_fresh_disk_after_expiry(seed: int) -> Stage:
    """All records of a queue and of a producer have expired when a slave begins with an empty
    disk: its log tells of neither, and it is promoted."""
    world = Stage(seed, 2)
    master, slave = world.nodes["a"], world.nodes["b"]
    first, second = world.producers
    world.stored(first, "T1", 1, requests=10)
    end = world.last_of("T1", 1)
    world.fill(second, "T0", 0, 3)
    for node in (master, slave):
        world.checkpoint_on(node)
    world.wait_out()
    for node in (master, slave):
        world.retain(node)
    world.give_fresh_disk(slave)
    world.heal()
    world.until(lambda: slave in world.in_sync())
    expired = min(master.log_begin, slave.log_begin) >= end
    check_promotion(world, slave, world.rng)
    return world.played(expired)


@staged
def bytes_that_are_no_records(seed: int) -> Stage:
    """The master's disk gives other bits for a moment, when a chunk is read for the slave: its
    CRC is right, and it holds no records."""
    world = Stage(seed, 2)
    master = world.nodes["a"]
    first, _ = world.producers
    world.stored(first, "T0", 0, count=3)
    world.heal()
    start = master.store.log.wrote.value
    request = world.messages(first, "T0", 0, 4, 100)
    with world.on(master):
        world.send(first, request)
        world.positions(master)
    size = int(request.batch.sizes[0])
    at = start + size * world.rng.choice((0, 1)) + world.rng.choice((MAGIC_AT, PHYSICAL_OFFSET_AT))
    base = at - at % master.store.log.file_size
    path = world.paths.commit_log / f"{base:020d}"
    mask = 1 << world.rng.randrange(8)
    master.files.flip(path, at - base, mask)
    sessions = [session for session, _ in master.master.streams if session.streaming]
    for _ in range(20):
        world.clock.advance(0.001)
        with world.on(master):
            world.pump(master)
    sent = [session.sent > at for session in sessions]
    master.files.flip(path, at - base, mask)
    world.nodes["b"].may_hear_damage = True
    world.answered()
    return world.played(sent == [True], request.acknowledged)


@staged
def a_slave_without_the_tables(seed: int) -> Stage:
    """A topic is made while slave c is away. When it is back it has the log soon, the tables come
    late, and whoever is in sync is asked to lead."""
    world = Stage(seed, 3)
    slave = world.nodes["c"]
    first, _ = world.producers
    world.stored(first, "T0", 0, count=3)
    world.stop(slave)
    world.until(lambda: len(world.master.master.group.set.members) == 2)
    with world.on(world.master):
        world.create_topic("late")
    world.until(lambda: "late" in world.ledger.topics)
    world.tables_wait = True
    world.up(slave)
    world.stored(first, "T0", 0, requests=3)
    world.until(lambda: reached(slave) == world.master.store.log.wrote.value)
    for _ in range(30):
        world.calm()
    without = slave.store.topics.get("late") is None
    for node in world.in_sync():
        check_promotion(world, node, world.rng)
    world.tables_wait = False
    world.until(lambda: slave in world.in_sync())
    return world.played(without)


@staged
def a_topic_of_the_master_alone(seed: int) -> Stage:
    """A topic is made, and the tables come late; whoever is in sync is asked to lead."""
    world = Stage(seed, 2)
    slave = world.nodes["b"]
    first, _ = world.producers
    world.stored(first, "T0", 0, count=3)
    world.tables_wait = True
    with world.on(world.master):
        world.create_topic("late")
    for _ in range(20):
        world.calm()
    without = slave.store.topics.get("late") is None and slave in world.in_sync()
    for node in world.in_sync():
        check_promotion(world, node, world.rng)
    world.tables_wait = False
    world.until(lambda: "late" in world.ledger.topics)
    return world.played(without)


@staged
def a_master_that_slept_through_a_term(seed: int) -> Stage:
    """b leaves the set of c's term, and then a leads again, with the set that it recorded before
    c's: whoever is in sync is asked to lead."""
    world = Stage(seed, 3)
    first, _ = world.producers
    world.stored(first, "T0", 0, count=3)
    world.heal()
    named(world, "c", up="ac")
    world.until(lambda: len(world.master.master.group.set.members) == 2)
    world.stored(first, "T0", 0, requests=3)
    named(world, "a", up="abc")
    world.read_record()
    begins_with = {each.node_id for each in world.master.master.group.set.members}
    candidates = world.in_sync()
    for node in candidates:
        check_promotion(world, node, world.rng)
    world.until(lambda: world.nodes["b"] in world.in_sync())
    return world.played(begins_with == set("abc"), world.nodes["c"] in candidates)


def named(world: Stage, master: str, up: str) -> None:
    """The operator stops all nodes, makes one the master, and starts those of `up`."""
    world.read_record()
    for node in world.nodes.values():
        world.close(node)
    world.master_name = master
    for name in up:
        world.up(world.nodes[name])


@staged
def damage_before_acknowledged_records(seed: int) -> Stage:
    """A slave's disk has damaged a record that is fsynced and not dispatched, and others behind it;
    it is promoted."""
    world, slave, tail = with_a_tail(seed)
    check_promotion(world, slave, world.rng, rots=True, record=tail[seed % (len(tail) - 1)])
    return world.played(len(tail) > 3)


@staged
def damage_of_the_last_record(seed: int) -> Stage:
    """As before, but the damaged record is the log's last one, and its client is gone: nobody sends
    it again, and its number is taken."""
    world, slave, tail = with_a_tail(seed)
    world.producers[1].done.clear()
    check_promotion(world, slave, world.rng, rots=True, record=tail[-1])
    return world.played(len(tail) > 3)


def with_a_tail(seed: int) -> tuple[Stage, StoreNode, list[int]]:
    """A slave that has noted as fsynced what it has not dispatched, nor heard to be confirmed:
    those records, all of them acknowledged."""
    world = Stage(seed, 2)
    master, slave = world.nodes["a"], world.nodes["b"]
    first, second = world.producers
    world.stored(first, "T0", 0, count=3)
    world.heal()
    requests = [world.messages(first, "T0", 0, 2) for _ in range(3)]
    requests.append(world.messages(second, "T1", 1, 1))
    with world.on(master):
        for request in requests:
            world.send(first if request.producer == first.name else second, request)
        master.store.flush()
        world.positions(master)
    end = master.store.log.wrote.value
    world.until(lambda: reached(slave) == end, lambda: world.exchange(slave, 1))

    def answer() -> None:
        for stream in world.streams:
            world.master_hears(stream)
        world.answer_all()

    world.until(world.all_answered, answer)
    point, facts = world.checkpoint_on(slave), world.ledger.facts
    return (
        world,
        slave,
        [at for at in sorted(facts) if at >= point.confirmed and facts[at].end <= point.flushed],
    )


def reached(node: StoreNode) -> int:
    return node.store.log.flushed.value if node.store is not None else -1
