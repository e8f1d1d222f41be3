"""What the nodes hold is compared with what clients were told: after each fault, and at the end.

    after a fault   reads of each node what is new since the time before; the load continues
    at the end      reads everything again, from every node, and who stored it in which epoch

What was acknowledged or read before the nodes are asked how far they are must be there.
"""

from collections.abc import Mapping

import grpc
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from chaos.checks import Bodies, Finding, Place, duplicated, lost, two_leaders, vanished
from chaos.cluster import HEAL_S, ChaosCluster
from chaos.load import StreamLoad
from chaos.watchers import Witness
from helpers.running import NodeProcess
from tandemlog import Admin
from tandemlog.errors import TandemlogError
from tandemlog.format.files.epochs import EpochTable, decode_epochs
from tandemlog.format.record.record import Record
from tandemlog_server.cli.local.drills import QUEUES, TOPIC


class Audit:
    """See the module. `findings` has each broken promise once."""

    def __init__(self, cluster: ChaosCluster, load: StreamLoad, witness: Witness) -> None:
        self.findings: list[Finding] = []
        self._cluster = cluster
        self._load = load
        self._witness = witness
        self._known: set[Finding] = set()
        self._held: dict[str, dict[Place, bytes]] = {
            node.node_id: {} for node in cluster.nodes.nodes
        }
        self._next: dict[tuple[str, int], int] = {}

    def after_fault(self) -> list[Finding]:
        """The findings that are new."""
        acknowledged, seen = self._load.places(), self._witness.bodies()
        self._cluster.wait_caught_up()
        for node in self._cluster.nodes.nodes:
            self._read_on(node)
        return self._compare(acknowledged, seen)

    @property
    def count(self) -> int:
        """How many messages the nodes hold, as far as they were read."""
        return max(len(bodies) for bodies in self._held.values())

    def at_the_end(self) -> list[Finding]:
        """As `after_fault`, of everything; the load has ended."""
        self._next.clear()
        for bodies in self._held.values():
            bodies.clear()
        self._cluster.wait_caught_up()
        tables = {node.node_id: _epochs(node) for node in self._cluster.nodes.nodes}
        hosts = {node.endpoint: node.node_id for node in self._cluster.nodes.nodes}
        for node in self._cluster.nodes.nodes:
            for record in self._read_on(node):
                term = tables[node.node_id].entry_at(record.physical_offset)
                self._witness.leads(hosts[record.store_host], term.epoch if term else 0)
        for epoch, leader in _history(self._cluster.nodes.endpoints).items():
            self._witness.leads(leader, epoch)
        found = self._compare(self._load.places(), self._witness.bodies())
        if len(set(tables.values())) > 1:
            found += self._add([Finding("leaders", f"the nodes' epochs differ: {tables}")])
        return found

    # ---- how

    def _read_on(self, node: NodeProcess) -> list[Record]:
        """What is new on it."""
        found = []
        for queue_id in range(QUEUES):
            start = self._next.get((node.node_id, queue_id), 0)
            for record in patient(node.read_queue)(TOPIC, queue_id, start):
                self._held[node.node_id][queue_id, record.queue_offset] = record.body
                self._next[node.node_id, queue_id] = record.queue_offset + 1
                found.append(record)
        return found

    def _compare(self, acknowledged: Mapping[int, Place], seen: Bodies) -> list[Finding]:
        return self._add(
            [
                *lost(acknowledged, self._held),
                *duplicated(self._held),
                *vanished(seen, self._held),
                *two_leaders(self._witness.leaders.copy()),
                *self._witness.findings,
            ]
        )

    def _add(self, found: list[Finding]) -> list[Finding]:
        new = sorted(set(found) - self._known)
        self._known.update(new)
        self.findings += new
        return new


def _epochs(node: NodeProcess) -> EpochTable:
    return decode_epochs((node.store / "epochFileCheckpoint").read_bytes())


# A busy node may take longer for an answer than a call waits.
patient = retry(
    retry=retry_if_exception_type((grpc.RpcError, TandemlogError)),
    wait=wait_fixed(1),
    stop=stop_after_delay(HEAL_S),
    reraise=True,
)


@patient
def _history(endpoints: list[str]) -> dict[int, str]:
    """Epoch -> leader, as the coordinator has it."""
    with Admin(endpoints) as admin:
        return {term.epoch: term.leader for term in admin.history().terms}
