"""Is this cluster well, and could it lose its master now: one line, as monitoring wants it.

    CRITICAL  no master answers; an alarm is on; the master does not acknowledge puts; a second
              master, or a node in an epoch that the coordinator never gave
    WARNING   a node is missing or not in sync; its clock has jumped, or a file cannot be read;
              no slave could take over now; failover is paused; a node does not reach the
              coordinator, or it accepts no change of it
    OK        otherwise

The codes are those of the plugins of Nagios and its successors.
"""

from dataclasses import dataclass
from enum import IntEnum

from tandemlog.cluster.topology import CoordinatorInfo, NodeInfo, Topology
from tandemlog.format.words import counted

from .elections_table import PAUSED, SINGLE

SILENT_S = 5.0
"""Nodes read the coordinator every second, with some attempts of two seconds."""
ACCEPTED_S = 10.0
"""Each node has a change accepted every three seconds, a master every second."""
FOLLOWING = "following"
"""The state of a node that follows a RocketMQ broker, and of a broker that follows a master."""


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
    embedded = topology.coordinator is not None and topology.coordinator.is_embedded
    text = _ok_text(topology)
    return Verdict(Level.OK, (text, SINGLE) if embedded else (text,))


def _ok_text(topology: Topology) -> str:
    master = topology.master
    assert master is not None, "without one it is not"
    slaves = [
        node
        for node in topology.nodes
        if node.in_sync and not node.is_broker and node.node_id != master.node_id
    ]
    if master.state == FOLLOWING:
        return (
            f"{master.node_id} {master.detail}, {master.lag_bytes:,} bytes behind, and has "
            f"{counted(len(slaves), 'slave')} in sync"
        )
    if _is_single(topology):
        return f"{master.node_id} is the master and the only node: its disk has the only copy"
    text = f"{master.node_id} is the master, {counted(len(slaves), 'slave')} in sync"
    if topology.coordinator is None:
        return f"{text}; roles are configured, so no node takes over by itself"
    if all(_could_be_elected(node) for node in slaves):
        return f"{text}, any of them could take over"
    return text


def _could_be_elected(node: NodeInfo) -> bool:
    """Whether the coordinator has accepted a change of it just now."""
    age_s = None if node.coordinator is None else node.coordinator.accepted_age_s
    return age_s is not None and 0 <= age_s <= ACCEPTED_S


def _is_single(topology: Topology) -> bool:
    """No node knows of another one, so none is missing."""
    return len([node for node in topology.nodes if not node.is_broker]) == 1


def _critical(topology: Topology) -> list[str]:
    reasons = [f"alarm of {node_id}: {alarm}" for node_id, alarm in topology.alarms.items()]
    reasons += [f"{node_id}: {text}" for node_id, text in topology.contradictions.items()]
    master = topology.master
    if master is None:
        why = [
            f"{node.node_id}: {node.detail}"
            for node in topology.nodes
            if node.reachable and node.detail and not node.contradiction
        ]
        return [*reasons, "no reachable node is the master", *why]
    if master.state == FOLLOWING:
        return reasons
    if master.state != "running":
        reasons.append(f"the master {master.node_id} is {master.state}: {master.detail}")
    elif master.detail and not reasons:
        # it says why it refuses puts; members of the in-sync set that are dead stay in it
        reasons.append(f"the master {master.node_id} acknowledges no puts: {master.detail}")
    return reasons


def _warnings(topology: Topology) -> list[str]:
    reasons = [f"{node.node_id}: {fault}" for node in topology.nodes for fault in node.faults]
    for node in topology.nodes:
        if node.node_id == topology.master_id or node.alarm or node.contradiction:
            continue
        if node.is_broker and node.state == FOLLOWING:
            continue  # it does not count
        if not (node.reachable or node.is_broker):
            reasons.append(f"{node.node_id} cannot be reached")
        elif node.state == "no-master":
            reasons.append(f"{node.node_id} has no stream from a master")
        elif not node.in_sync:
            reasons.append(f"{node.node_id} is {node.state}, {node.lag_bytes:,} bytes behind")
    ready = [
        node
        for node in topology.nodes
        if node.in_sync and node.reachable and node.node_id != topology.master_id
    ]
    master = topology.master
    follows = master is not None and master.state == FOLLOWING
    if not (ready or follows or _is_single(topology)):
        reasons.append("no slave could take over now")
    return reasons + _coordinator_warnings(topology)


def _coordinator_warnings(topology: Topology) -> list[str]:
    coordinator, master = topology.coordinator, topology.master
    if coordinator is None:
        return []
    reasons = [PAUSED] if coordinator.paused else []
    name = master.node_id if master is not None else "a node"
    if silent := _silence(name, coordinator):
        return [*reasons, silent]
    return reasons + [
        refused
        for node in topology.nodes
        if node.coordinator is not None and not node.contradiction
        if (refused := _refusal(node.node_id, node.coordinator))
    ]


def _silence(name: str, coordinator: CoordinatorInfo) -> str:
    endpoints = ", ".join(coordinator.endpoints)
    if coordinator.age_seconds < 0:
        return f"{name} has not reached the coordinator ({endpoints}) since its start"
    if coordinator.age_seconds > SILENT_S:
        return (
            f"{name} has not heard from the coordinator ({endpoints}) for "
            f"{coordinator.age_seconds:.0f} s: puts continue, but there is no failover"
        )
    return ""


def _refusal(name: str, coordinator: CoordinatorInfo) -> str:
    """A coordinator that answers reads may elect no node: only a change that it accepted shows that
    it could."""
    age_s, why = coordinator.accepted_age_s, coordinator.refusal
    if age_s is None or 0 <= age_s <= ACCEPTED_S:
        return ""
    since = "since its start" if age_s < 0 else f"for {age_s:.0f} s"
    return (
        f"the coordinator ({', '.join(coordinator.endpoints)}) answers {name} and has accepted no "
        f"change of it {since}, so {name} cannot be elected{f': {why}' if why else ''}"
    )
