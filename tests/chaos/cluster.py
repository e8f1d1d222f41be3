"""Three nodes and their coordinator, each on a machine of its own (network.py).

n0 n1 n2    sync replication, min_in_sync 2
c0          `tandemlog coordinator`, or
c0 c1 c2    three members of etcd

The nodes archive their log to one folder, and scrub what they hold. Where the machine can serve it,
each node and the embedded coordinator has a disk of its own, which loses power and fails
(helpers/simulated_disk).
"""

import contextlib
import time
from pathlib import Path
from typing import Self

from chaos.network import CLIENT, Network
from helpers import needs
from helpers.coordinators import EmbeddedProcess, EtcdProcesses, Process
from helpers.elected_nodes import ElectedNodes
from helpers.running import NodeProcess, wait_until
from helpers.simulated_disk.disk import SimulatedDisk
from tandemlog.v1 import common_pb2

EMBEDDED = "embedded"
ETCD = "etcd"
NODES = ("n0", "n1", "n2")
DISK_MEGABYTES = 2_048
"""Of a sparse file: what is written in the life of a cluster must fit."""
ARCHIVE_MS = 500
HEAL_S = 240.0
"""For what must come true after a fault; a loaded machine needs more than an idle one."""


class ChaosCluster:
    """`with` it: all nodes are in sync. `kind` is that of the coordinator."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.kind = kind
        self.coordinators = ("c0",) if kind == EMBEDDED else ("c0", "c1", "c2")
        self.network = Network([*NODES, *self.coordinators])
        self.members: list[Process] = []
        self.disks: dict[str, SimulatedDisk] = {}
        self.nodes: ElectedNodes
        self.archive = folder / "archive"
        self._folder = folder
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._open.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def everybody(self) -> tuple[str, ...]:
        return (CLIENT, *NODES, *self.coordinators)

    def wait_whole(self, timeout_s: float = HEAL_S) -> None:
        """Until every process runs and answers, and every node is in sync."""
        wait_until("the coordinator to answer", self._coordinator_answers, timeout_s)
        wait_until("every node to be in sync", self._nodes_in_sync, timeout_s)

    def wait_caught_up(self, timeout_s: float = HEAL_S) -> None:
        """Until every node serves what any of them holds at this moment."""
        end = max(status.wrote_offset for status in self._statuses())

        def settled() -> bool:
            states = [node.status() for node in self.nodes.nodes]
            return all(state is not None and state.reput_offset >= end for state in states)

        wait_until(f"every node to serve the log up to {end}", settled, timeout_s)

    def epoch(self) -> int:
        """The newest that a node knows."""
        return max(status.epoch for status in self._statuses())

    def tails(self) -> str:
        """The ends of all logs."""
        servers: list[tuple[str, NodeProcess | Process]] = [
            *((node.node_id, node) for node in self.nodes.nodes),
            *((member.name, member) for member in self.members),
        ]
        return "\n".join(f"---- {name}\n{server.tail()}" for name, server in servers)

    # ---- how

    def _statuses(self) -> list[common_pb2.NodeStatus]:
        """What all nodes say of themselves; a busy one may take its time."""
        found: list[common_pb2.NodeStatus] = []

        def all_answer() -> bool:
            found[:] = [status for node in self.nodes.nodes if (status := node.status())]
            return len(found) == len(self.nodes.nodes)

        wait_until("every node to answer", all_answer, HEAL_S)
        return found

    def _start(self) -> None:
        self._open.enter_context(self.network)
        if not needs.missing("fuse"):
            names = NODES if self.kind == ETCD else (*NODES, *self.coordinators)
            self.disks = {name: self._disk(name) for name in names}
        places = [self.network.place(name) for name in self.coordinators]
        if self.kind == EMBEDDED:
            disk = self.disks.get("c0")
            embedded = EmbeddedProcess(
                self._folder / "c0",
                place=places[0],
                data=None if disk is None else disk.mount / "data",
            )
            self._open.enter_context(embedded)
            self.members = [embedded]
        else:
            etcd = EtcdProcesses(self._folder / "etcd", len(places), places=places)
            self._open.enter_context(etcd)
            self.members = etcd.members
            for member in self.members:
                member.wait_ready()
        self.nodes = ElectedNodes(
            self._folder,
            [member.endpoint for member in self.members],
            places=[self.network.place(name) for name in NODES],
        )
        for node in self.nodes.nodes:
            node.settings["archive"] = {"url": str(self.archive), "interval_ms": ARCHIVE_MS}
            disk = self.disks.get(node.node_id)
            if disk is not None:
                node.settings["store"]["directory"] = disk.mount / "store"
                node.wrapper = (*node.wrapper, *disk.machine)
        self._open.enter_context(self.nodes)

    def _disk(self, name: str) -> SimulatedDisk:
        folder = self._folder / f"disk-of-{name}"
        folder.mkdir()
        disk = SimulatedDisk(folder, DISK_MEGABYTES)
        self._open.callback(disk.close)
        return disk

    def _coordinator_answers(self) -> bool:
        time.sleep(0.1)
        return all(member.answers() for member in self.members)

    def _nodes_in_sync(self) -> bool:
        time.sleep(0.2)
        for node in self.nodes.nodes:
            if not node.alive:
                raise AssertionError(f"{node.node_id} ended by itself:\n{node.tail()}")
        return self.nodes.all_in_sync()
