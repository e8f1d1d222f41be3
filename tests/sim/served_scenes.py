"""What chance brings too seldom to a world with clients. Each is played with random details.

deposed      a master that has lost only the coordinator, and whose successors are killed with puts
             that are stored and not answered
orphaned     nothing is away but the coordinator, for long
idle_at_the_end  a group that begins at the end, and has nothing to commit
first_commit  a leader dies as soon as it has acknowledged where a group begins, and the member too
lost_ahead   readers have got what the next master does not have, and it writes on
"""

from collections.abc import Callable
from functools import wraps

from sim.ha_nodes import ViolationError
from sim.served_clients import SESSION_S
from sim.served_run import in_world
from sim.served_world import ServedNode, ServedWorld, Siege
from tandemlog.consume.reading.positions import EARLIEST, LATEST
from tandemlog_server.ha.config import Replication
from tandemlog_server.storage.config import FlushMode

Play = Callable[["ServedScene"], None]
Scene = Callable[[int], ServedWorld]


class ServedScene(ServedWorld):
    """A world in which nothing happens by chance."""

    down: set[str]

    def __init__(self, seed: int, mode: Replication) -> None:
        super().__init__(seed, FlushMode.SYNC, mode)
        self.down = set()
        self.coordination.trouble = 0.0
        self.compare_s = self.prepare_s = 0.0
        self.besieged = self.orphaned = False
        self.busy = 0.3

    def calm(self) -> None:
        if self.rng.random() < self.busy:
            self.put()
        if self.rng.random() < 0.03:
            self.promises.ask()
        super().calm()
        self.look_how_all_are()

    def start(self, node: object) -> None:
        assert isinstance(node, ServedNode)
        if node.name not in self.down:
            super().start(node)

    def calm_for(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.calm()

    def leads(self) -> ServedNode:
        leader = self.leader()
        assert leader is not None
        return self.served(leader)

    def until_another_leads(self, than: tuple[str, ...]) -> ServedNode:
        for _ in range(1000):
            self.calm()
            leader = self.leader()
            if leader is not None and leader.name not in than:
                return self.served(leader)
        raise ViolationError(f"no other leader than {than}")

    def finish(self) -> None:
        self.busy = 0.0
        self.down.clear()
        super().finish()


def scene(mode: Replication, start: str = EARLIEST) -> Callable[[Play], Scene]:
    """A scene of that mode, which begins when all is well; `start` is where the group starts."""

    def decorate(play: Play) -> Scene:
        @wraps(play)
        def played(seed: int) -> ServedWorld:
            world = ServedScene(seed, mode)
            world.wanted = [(None, EARLIEST), ("g", start)]
            world.busy = 0.0 if start == LATEST else 0.3
            with in_world(world, seed):
                world.begin()
                world.found()
                world.calm_for(2.0)
                play(world)
                world.finish()
                assert world.counters["told stored"] > 10, "nothing happens"
            return world

        return played

    return decorate


@scene(Replication.SYNC_DEGRADE)
def deposed(world: ServedScene) -> None:
    old = world.leads()
    others = [each.name for each in world.elected if each is not old]
    cut = (old.name, *world.rng.sample(others, world.rng.randint(0, 1)))
    siege = Siege(world.now + 60.0, cut)
    world.keep_cut(siege)
    for _ in range(world.rng.randint(2, 3)):
        killed = world.until_another_leads(cut)
        world.calm_for(world.rng.uniform(0.0, 2.0))
        for _ in range(3):
            world.put()
        world.run_loops()
        for _ in range(world.rng.randint(0, 12)):
            world.pump(killed)
            world.move_a_frame()
            for node in world.elected:
                if node is not killed:
                    world.work(node, 5)
        world.stop(killed)
        world.down = {killed.name}
        world.calm_for(world.rng.uniform(0.5, 4.0))
        world.down.clear()


@scene(Replication.SYNC)
def orphaned(world: ServedScene) -> None:
    world.calm_for(SESSION_S)
    world.busy = 0.1
    world.keep_cut(Siege(world.now + 3 * SESSION_S, tuple(sorted(world.nodes))))
    world.calm_for(3 * SESSION_S)


@scene(Replication.ASYNC)
def lost_ahead(world: ServedScene) -> None:
    old = world.leads()
    for other in world.elected:
        if other is not old:
            world.cuts[frozenset((old.name, other.name))] = world.now + 1.5
    world.calm_for(world.rng.uniform(0.5, 1.2))
    world.stop(old)
    world.down = {old.name}
    world.until_another_leads((old.name,))
    world.calm_for(5.0)


@scene(Replication.SYNC, start=LATEST)
def idle_at_the_end(world: ServedScene) -> None:
    """A group begins at the end of queues that stay idle, its only member dies, and messages come
    before there is another one."""
    world.calm_for(SESSION_S + 5.0)
    (member,) = [each for each in world.readers if each.group == "g"]
    world.readers.remove(member)
    member.kill()
    world.promises.gone(member)
    world.busy = 0.3
    world.calm_for(3.0)
    world.start_reader("g", LATEST)


@scene(Replication.SYNC, start=LATEST)
def first_commit(world: ServedScene) -> None:
    world.start_reader("fresh", LATEST)
    for _ in range(1000):
        if any(group == "fresh" for group, _ in world.promises.places):
            break
        world.calm()
    else:
        raise ViolationError("a new group has no place")
    old, member = world.leads(), world.readers.pop()
    world.stop(old)
    member.kill()
    world.promises.gone(member)
    world.down = {old.name}
    world.until_another_leads((old.name,))
    world.busy = 0.3
    world.calm_for(3.0)
    world.start_reader("fresh", LATEST)
    world.calm_for(3.0)


SCENES: tuple[Scene, ...] = (deposed, orphaned, lost_ahead, idle_at_the_end, first_commit)
