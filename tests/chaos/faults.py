"""What happens to a cluster: each fault is there inside its `with`, and over after it.

    processes   killed (SIGKILL) and started again, or paused (SIGSTOP) and resumed
    network     packets dropped between some of the machines, both ways or one way
    coordinator its processes killed or paused, one or most of them
    disks       power is cut, flushes hang or fail; only where each machine has a disk of its own
    planned     a switchover, while everything works

A cut ends for all machines at once (`network.heal`), after the hold.
"""

import random
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from chaos.cluster import EMBEDDED, ETCD, ChaosCluster
from chaos.network import CLIENT
from helpers import needs
from helpers.coordinators import Process
from helpers.running import NodeProcess, ServerProcess
from helpers.simulated_disk.device import Flushes
from helpers.simulated_disk.disk import SimulatedDisk
from tandemlog import Admin
from tandemlog.cluster.elections import ClusterChange
from tandemlog.errors import TandemlogError
from tandemlog.v1 import common_pb2

SHORT_S = 2.0
"""Less than the lease of 6 s."""
LONG_S = 9.0
"""Beyond it: the other nodes elect within that time."""
LASTING_S = 25.0
"""Beyond every timeout of a client: it must find the next master while the fault lasts."""
SPREAD = 0.15
FLAPS, FLAP_S = 4, 0.6
SIEGE_KILLS = 3


class Scene:
    """The cluster as it is when a fault begins; `slaves` in random order."""

    def __init__(self, cluster: ChaosCluster, rng: random.Random) -> None:
        self.cluster = cluster
        self.network = cluster.network
        self.rng = rng
        self.master = cluster.nodes.wait_master()
        self.slaves = [node for node in cluster.nodes.nodes if node is not self.master]
        rng.shuffle(self.slaves)

    @property
    def slave(self) -> NodeProcess:
        return self.slaves[0]

    @property
    def all_nodes(self) -> list[NodeProcess]:
        return [self.master, *self.slaves]

    @property
    def coordinators(self) -> list[str]:
        return list(self.cluster.coordinators)

    @property
    def member(self) -> Process:
        """Any one of the coordinator's processes."""
        return self.rng.choice(self.cluster.members)

    @property
    def machines(self) -> list[NodeProcess | Process]:
        """Those with a disk of their own."""
        servers: list[NodeProcess | Process] = [*self.all_nodes, *self.cluster.members]
        return [server for server in servers if name_of(server) in self.cluster.disks]

    def disk(self, server: NodeProcess | Process) -> SimulatedDisk:
        return self.cluster.disks[name_of(server)]

    @property
    def two_members(self) -> list[Process]:
        return self.rng.sample(self.cluster.members, 2)

    @property
    def leader(self) -> str:
        return self.master.node_id

    @property
    def slave_ids(self) -> list[str]:
        return [node.node_id for node in self.slaves]

    def others(self, *names: str) -> list[str]:
        """All machines, the client included, but these; a cut leaves out what one sends itself."""
        return [name for name in self.cluster.everybody if name not in names]


def name_of(server: NodeProcess | Process) -> str:
    """Of its machine: there is one coordinator process with a disk, the embedded one."""
    return server.node_id if isinstance(server, NodeProcess) else "c0"


Inject = Callable[[Scene], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True)
class Fault:
    """`seconds` is how long it lasts, more or less; `kinds` of coordinators where it makes
    sense; `disks`: it is one of the machines' own disks."""

    name: str
    inject: Inject
    seconds: float
    kinds: tuple[str, ...] = (EMBEDDED, ETCD)
    disks: bool = False

    def hold_s(self, scene: Scene) -> float:
        return self.seconds * scene.rng.uniform(1 - SPREAD, 1 + SPREAD)


@contextmanager
def _killed(servers: Sequence[NodeProcess | Process]) -> Iterator[None]:
    for server in servers:
        server.kill()
    yield
    for server in servers:
        if not server.alive:  # two faults at once may have killed the same one
            _start(server)


def _start(server: NodeProcess | Process) -> None:
    """Without waiting until it answers."""
    if isinstance(server, NodeProcess):
        server.start(wait=False)
    else:
        server.start()


@contextmanager
def _paused(servers: Sequence[ServerProcess]) -> Iterator[None]:
    for server in servers:
        server.pause()
    yield
    for server in servers:
        server.resume()


@contextmanager
def _without_power(scene: Scene, servers: Sequence[NodeProcess | Process]) -> Iterator[None]:
    """All at once; each disk keeps another part of what was not flushed."""
    disks = [scene.disk(server) for server in servers]
    for disk in disks:
        disk.cut_power(scene.rng.randrange(1 << 31))
    for server in servers:
        server.kill()
    yield
    for server in servers:
        server.kill()  # the end of another fault may have started it, without a disk
    for disk in disks:
        disk.restore_power()
    for server in servers:
        _start(server)


@contextmanager
def _hanging_disk(scene: Scene, node: NodeProcess) -> Iterator[None]:
    with scene.disk(node).flushes(Flushes.HELD):
        yield


@contextmanager
def _failing_disk(scene: Scene, node: NodeProcess) -> Iterator[None]:
    """Its file system is read-only from the first flush on, until the machine starts again."""
    scene.disk(node).set_flushes(Flushes.FAILED)
    yield
    with _without_power(scene, [node]):
        pass


@contextmanager
def _separated(scene: Scene, ones: Sequence[str], others: Sequence[str]) -> Iterator[None]:
    scene.network.separate(ones, others)
    yield
    scene.network.heal()


@contextmanager
def _unheard(scene: Scene, senders: Sequence[str], receivers: Sequence[str]) -> Iterator[None]:
    scene.network.cut(senders, receivers)
    yield
    scene.network.heal()


@contextmanager
def _switchover(scene: Scene) -> Iterator[None]:
    """A refusal, or an answer that was lost, is a fault as good as any other."""
    with Admin(scene.cluster.nodes.endpoints) as admin:
        try:
            admin.change_cluster(
                ClusterChange.SWITCHOVER, scene.slave.node_id, request_id=secrets.token_hex(8)
            )
        except TandemlogError as error:
            print(f"    the switchover: {error}", flush=True)
    yield


@contextmanager
def _flapping(scene: Scene) -> Iterator[None]:
    """A loose cable: the master comes and goes faster than its lease ends."""
    for _ in range(FLAPS):
        scene.network.separate([scene.leader], scene.others(CLIENT))
        time.sleep(FLAP_S)
        scene.network.heal()
        time.sleep(FLAP_S)
    yield


@contextmanager
def _two_at_once(scene: Scene) -> Iterator[None]:
    """Two of the others together, as no list of single faults has them."""
    fitting = [fault for fault in faults_for(scene.cluster.kind) if fault.name != TWO]
    with ExitStack() as both:
        for fault in scene.rng.sample(fitting, 2):
            print(f"    {fault.name}", flush=True)
            both.enter_context(fault.inject(scene))
        yield


@contextmanager
def _besieged(scene: Scene, cut: Sequence[NodeProcess]) -> Iterator[None]:
    """`cut`, the master among them, have lost the coordinator alone: they hear everybody else, and
    the master does not know that it is deposed. Whoever is elected meanwhile is killed, with puts
    that are stored and not answered."""
    scene.network.separate([node.node_id for node in cut], scene.coordinators)
    others = [node for node in scene.all_nodes if node not in cut]
    killed: list[NodeProcess] = []
    for _ in range(SIEGE_KILLS):
        leader = _elected(others)
        if leader is None:
            break
        time.sleep(scene.rng.uniform(0.0, SHORT_S))
        leader.kill()
        killed.append(leader)
        time.sleep(scene.rng.uniform(0.5, SHORT_S))
        _start(leader)
    yield
    scene.network.heal()
    for node in killed:
        if not node.alive:
            _start(node)


def _elected(nodes: Sequence[NodeProcess]) -> NodeProcess | None:
    """The first of these that leads; None if none does in time."""
    deadline = time.monotonic() + LASTING_S
    while time.monotonic() < deadline:
        for node in nodes:
            status = node.status() if node.alive else None
            if status is not None and status.role == common_pb2.MASTER:
                return node
        time.sleep(0.1)
    return None


TWO = "two-at-once"
FAULTS: tuple[Fault, ...] = (
    Fault("kill-master", lambda s: _killed([s.master]), LONG_S),
    Fault("kill-slave", lambda s: _killed([s.slave]), SHORT_S),
    Fault("kill-both-slaves", lambda s: _killed(s.slaves), SHORT_S),
    Fault("kill-all-nodes", lambda s: _killed(s.all_nodes), SHORT_S),
    Fault("pause-master-short", lambda s: _paused([s.master]), SHORT_S),
    Fault("pause-master-long", lambda s: _paused([s.master]), LONG_S),
    Fault("pause-slave", lambda s: _paused([s.slave]), LONG_S),
    # cut off from all machines, the client too: it is told nothing, it must find the next master
    Fault("isolate-master", lambda s: _separated(s, [s.leader], s.others()), LONG_S),
    Fault("isolate-slave", lambda s: _separated(s, [s.slave.node_id], s.others()), LONG_S),
    # the client still reaches both sides
    Fault("master-alone", lambda s: _separated(s, [s.leader], s.others(CLIENT)), LONG_S),
    Fault("master-alone-lasting", lambda s: _separated(s, [s.leader], s.others(CLIENT)), LASTING_S),
    Fault(
        "halves-coordinator-with-one-slave",
        lambda s: _separated(
            s,
            [s.leader, s.slaves[0].node_id],
            [s.slaves[1].node_id, *s.coordinators],
        ),
        LONG_S,
    ),
    Fault(
        "halves-coordinator-with-master",
        lambda s: _separated(s, s.slave_ids, [s.leader, *s.coordinators]),
        LONG_S,
    ),
    Fault("deaf-master", lambda s: _unheard(s, s.others(CLIENT), [s.leader]), LONG_S),
    Fault("mute-master", lambda s: _unheard(s, [s.leader], s.others(CLIENT)), LONG_S),
    Fault(
        "master-without-coordinator", lambda s: _separated(s, [s.leader], s.coordinators), LONG_S
    ),
    Fault("master-without-slaves", lambda s: _separated(s, [s.leader], s.slave_ids), LONG_S),
    Fault("slave-without-master", lambda s: _separated(s, [s.leader], [s.slave.node_id]), LONG_S),
    Fault("besieged-master", lambda s: _besieged(s, [s.master]), SHORT_S),
    Fault("besieged-master-and-slave", lambda s: _besieged(s, [s.master, s.slave]), SHORT_S),
    Fault("flapping-master", _flapping, SHORT_S),
    Fault("coordinator-killed", lambda s: _killed([s.member]), LONG_S),
    Fault("coordinator-paused", lambda s: _paused([s.member]), LONG_S),
    Fault("etcd-without-quorum", lambda s: _killed(s.two_members), LONG_S, (ETCD,)),
    Fault("etcd-paused-quorum", lambda s: _paused(s.two_members), LONG_S, (ETCD,)),
    Fault("power-master", lambda s: _without_power(s, [s.master]), LONG_S, disks=True),
    Fault("power-slave", lambda s: _without_power(s, [s.slave]), SHORT_S, disks=True),
    Fault("power-all", lambda s: _without_power(s, s.machines), SHORT_S, disks=True),
    Fault("hanging-disk-of-master", lambda s: _hanging_disk(s, s.master), LONG_S, disks=True),
    Fault("hanging-disk-of-slave", lambda s: _hanging_disk(s, s.slave), LONG_S, disks=True),
    Fault("failing-disk-of-master", lambda s: _failing_disk(s, s.master), LONG_S, disks=True),
    Fault("failing-disk-of-slave", lambda s: _failing_disk(s, s.slave), LONG_S, disks=True),
    Fault("switchover", _switchover, SHORT_S),
    Fault(TWO, _two_at_once, LONG_S),
)


def faults_for(kind: str) -> list[Fault]:
    """Those that make sense with this kind of coordinator, and that this machine can play."""
    disks = not needs.missing("fuse")
    return [fault for fault in FAULTS if kind in fault.kinds and (disks or not fault.disks)]
