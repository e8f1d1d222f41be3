"""Is this cluster well, and could it lose its master now: one line, as monitoring wants it.

    CRITICAL  no master answers; an alarm is on; the master does not acknowledge puts
    WARNING   a node is missing or not in sync; no slave could take over now; failover is paused;
              the master does not reach the coordinator
    OK        otherwise

The codes are those of the plugins of Nagios and its successors.
"""

from dataclasses import dataclass
from enum import IntEnum

from tandemlog.cluster.topology import Topology
from tandemlog.format.words import counted

from .elections_table import PAUSED, SINGLE

SILENT_S = 5.0
"""Nodes read the coordinator every second, with some attempts of two seconds."""


class Level(IntEnum):
    """The exit code of `check`."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """How the cluster is, and everything that makes it so, the worst first."""

    level: Level
    reasons: tuple[str, ...]

    @property
    def line(self) -> str:
        return f"{self.level.name}: {'; '.join(self.reasons)}"


def judge(topology: Topology) -> Verdict:
    """The verdict on one picture of a cluster."""
    if not any(node.reachable for node in topology.nodes):
        return Verdict(Level.UNKNOWN, (f"no node can be reached: {topology.asked_text()}",))
    critical, warnings = _critical(topology), _warnings(topology)
    if critical:
        return Verdict(Level.CRITICAL, (*critical, *warnings))
    if warnings:
        return Verdict(Level.WARNING, tuple(warnings))
    master = topology.master
    name = master.node_id if master is not None else ""
    slaves = sum(node.in_sync and not node.is_broker for node in topology.nodes) - 1
    said = f"{name} is the master, {counted(slaves, 'slave')} in sync, any of them could take over"
    embedded = topology.coordinator is not None and topology.coordinator.is_embedded
    return Verdict(Level.OK, (said, SINGLE) if embedded else (said,))


def _critical(topology: Topology) -> list[str]:
    found = [f"alarm of {node_id}: {alarm}" for node_id, alarm in topology.alarms.items()]
    master = topology.master
    if master is None:
        return [*found, "no reachable node is the master"]
    if master.state != "running":
        found.append(f"the master {master.node_id} is {master.state}: {master.detail}")
    elif master.detail and not found:
        # it says why it refuses puts; members of the in-sync set that are dead stay in it
        found.append(f"the master {master.node_id} acknowledges no puts: {master.detail}")
    return found


def _warnings(topology: Topology) -> list[str]:
    found = []
    for node in topology.nodes:
        if node.node_id == topology.master_id or node.alarm:
            continue
        if node.is_broker and node.state == "following":
            continue  # it does not count
        if not (node.reachable or node.is_broker):
            found.append(f"{node.node_id} cannot be reached")
        elif node.state == "no-master":
            found.append(f"{node.node_id} has no stream from a master")
        elif not node.in_sync:
            found.append(f"{node.node_id} is {node.state}, {node.lag_bytes:,} bytes behind")
    ready = [
        node
        for node in topology.nodes
        if node.in_sync and node.reachable and node.node_id != topology.master_id
    ]
    if not ready:
        found.append("no slave could take over now")
    return found + _coordinator_warnings(topology)


def _coordinator_warnings(topology: Topology) -> list[str]:
    coordinator, master = topology.coordinator, topology.master
    if coordinator is None:
        return []
    found = [PAUSED] if coordinator.paused else []
    name = master.node_id if master is not None else "a node"
    endpoints = ", ".join(coordinator.endpoints)
    if coordinator.age_seconds < 0:
        found.append(f"{name} has not reached the coordinator ({endpoints}) since its start")
    elif coordinator.age_seconds > SILENT_S:
        found.append(
            f"{name} has not heard from the coordinator ({endpoints}) for "
            f"{coordinator.age_seconds:.0f} s: puts continue, but there is no failover"
        )
    return found
