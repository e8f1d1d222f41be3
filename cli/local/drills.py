"""Faults on a local cluster under load, and what a client noticed of each: `tandemlog drill`.

    load     one producer, a numbered message at a time, each waits for its acknowledgement
    round    wait until all nodes are in sync ▸ fault ▸ the next acknowledged put ▸ mend
    account  at the end each acknowledged message is read back once, from the place it was given

A round's time is from the last acknowledgement before the fault to the first one after it, as the
client sees it with default options.
"""

import itertools
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tandemlog import Admin, Consumer
from tandemlog.cluster.elections import ClusterChange
from tandemlog.errors import NodeUnavailableError, TandemlogError
from tandemlog.message import Message, SendResult
from tandemlog.sync.sync_producer import Producer
from tandemlog.transport.security import Security

from .local_cluster import ClusterError, LocalCluster, NodeProcess

TOPIC = "drill"
QUEUES = 4
DEADLINE_S = 60.0
POLL_S = 0.05
PAUSE_S = 12.0
"""How long a paused master sleeps: longer than a lease."""


@dataclass(frozen=True, slots=True)
class Round:
    """`seconds` without an acknowledgement; who led before and after, in which epoch."""

    fault: str
    seconds: float
    before: str
    after: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Account:
    """What came of all messages of a drill."""

    acknowledged: int
    failed: int
    lost: int
    duplicated: int


class Load:
    """See the module. `with` it while rounds are played. `rest_s` is between an acknowledgement and
    the next put."""

    def __init__(
        self, endpoints: list[str], security: Security | None = None, *, rest_s: float = 0.0
    ) -> None:
        self.acknowledged: dict[int, SendResult] = {}
        self.times: list[float] = []
        self.failed: list[str] = []
        self._endpoints = endpoints
        self._security = security
        self._rest_s = rest_s
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._send, name="drill", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send no more; the last put gets its answer."""
        self._end.set()
        self._thread.join(DEADLINE_S)

    def longest_gap_since(self, moment: float) -> float:
        """Of all pauses that ended after `moment`."""
        times = list(self.times)
        gaps = (b - a for a, b in itertools.pairwise(times) if b > moment)
        return max(gaps, default=0.0)

    def _send(self) -> None:
        number = 0
        with Producer(self._endpoints, security=self._security) as producer:
            while not self._end.wait(self._rest_s):
                try:
                    sent = producer.send(Message(TOPIC, str(number).encode()))
                    self.acknowledged[number] = sent.result(DEADLINE_S)
                except (TandemlogError, TimeoutError) as error:
                    self.failed.append(str(error))
                else:
                    self.times.append(time.monotonic())
                number += 1


class Drill:
    """Plays rounds on a cluster that runs. Nodes end with the thread that starts them: call it in
    the one that started the cluster."""

    def __init__(self, cluster: LocalCluster, load: Load, admin: Admin) -> None:
        self._cluster = cluster
        self._load = load
        self._admin = admin
        self.faults: Mapping[str, Callable[[NodeProcess], None]] = {
            "kill-master": self._kill_master,
            "pause-master": self._pause_master,
            "kill-slave": self._kill_slave,
            "switchover": self._switch,
        }

    def play(self, fault: str) -> Round:
        """Raises ClusterError if the cluster does not come back within DEADLINE_S."""
        self.wait_in_sync()
        master = self._master()
        time.sleep(1.0)
        began = time.monotonic()
        self.faults[fault](master)
        self._wait(
            "a put to be acknowledged again",
            lambda: sum(at > began + 0.5 for at in list(self._load.times)) > 3,
        )
        seconds = self._load.longest_gap_since(began)
        self._wait("a master", lambda: self._admin.cluster().master is not None)
        topology = self._admin.cluster()
        epoch = topology.master.epoch if topology.master is not None else 0
        return Round(fault, seconds, master.node_id, topology.master_id, epoch)

    def wait_in_sync(self) -> None:
        self._wait("all nodes to be in sync", self._all_in_sync)

    def account(self) -> Account:
        """Read everything back; after the load has ended."""
        self.wait_in_sync()
        bodies: dict[tuple[int, int], bytes] = {}
        endpoints, security = self._cluster.endpoints.split(","), self._cluster.client
        with Consumer(endpoints, security=security) as consumer:
            for message in consumer.follow(TOPIC, until_end=True):
                bodies[message.queue_id, message.queue_offset] = message.body
        acknowledged = self._load.acknowledged
        lost = sum(
            bodies.get((place.queue_id, place.queue_offset)) != str(number).encode()
            for number, place in acknowledged.items()
        )
        twice = len(bodies) - len(set(bodies.values()))
        return Account(len(acknowledged), len(self._load.failed), lost, twice)

    # ---- faults

    def _kill_master(self, master: NodeProcess) -> None:
        self._kill(master)
        self._wait(
            "another master", lambda: self._admin.cluster().master_id not in ("", master.node_id)
        )
        self._cluster.start_node(master)

    def _pause_master(self, master: NodeProcess) -> None:
        if master.process is None:
            return
        master.process.send_signal(signal.SIGSTOP)
        time.sleep(PAUSE_S)
        master.process.send_signal(signal.SIGCONT)

    def _kill_slave(self, master: NodeProcess) -> None:
        slave = next(node for node in self._cluster.nodes if node is not master)
        self._kill(slave)
        time.sleep(5.0)
        self._cluster.start_node(slave)

    def _switch(self, master: NodeProcess) -> None:
        self._admin.change_cluster(ClusterChange.SWITCHOVER, request_id=secrets.token_hex(8))
        self._wait(
            "the switch", lambda: self._admin.cluster().master_id not in ("", master.node_id)
        )

    @staticmethod
    def _kill(node: NodeProcess) -> None:
        if node.process is not None:
            node.process.kill()
            node.process.wait()

    # ---- waiting

    def _master(self) -> NodeProcess:
        name = self._admin.cluster().master_id
        for node in self._cluster.nodes:
            if node.node_id == name:
                return node
        raise ClusterError("no node is the master")

    def _all_in_sync(self) -> bool:
        topology = self._admin.cluster()
        up = [node for node in topology.nodes if node.reachable and node.in_sync]
        return topology.master is not None and len(up) == len(self._cluster.nodes)

    def _wait(self, what: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            with suppress(NodeUnavailableError):  # none responds yet, or for a moment
                if true():
                    return
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {DEADLINE_S:.0f} s for {what}")
            time.sleep(POLL_S)
