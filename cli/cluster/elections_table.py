"""What operators see of a cluster that elects its master: rows and sentences."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from tandemlog.cluster.elections import Coordination, History, RosterNode
from tandemlog.cluster.topology import CoordinatorInfo, NodeInfo, Topology

from .nodes_table import TITLES

TOPOLOGY_COLUMNS = (
    "node", "role", "state", "epoch", "in_sync", "log_end", "lag_bytes", "lag_seconds",
)  # fmt: skip
HISTORY_COLUMNS = ("epoch", "leader", "began", "lasted", "unclean", "reason")
LOSSES_COLUMNS = ("epoch", "leader", "began", "lasted", "unclean", "lost", "reason")
MEMBER_COLUMNS = ("node", "state", "in_sync", "priority", "starts", "endpoint")
TOPOLOGY_TITLES = {**TITLES, "log_end": "log end"}

WAITING = ("sync", "sync-degrade")
"""The replication modes in which an acknowledgement waits for the in-sync set."""

SINGLE = "the coordinator is a single process: no failover of the coordinator itself"
PAUSED = "failover is paused: no node takes over by itself until `tandemlog resume`"


def _coordinator_text(coordinator: CoordinatorInfo) -> str:
    product = f" ({coordinator.product})" if coordinator.product else ""
    return f"coordinator {', '.join(coordinator.endpoints)}{product}"


def coordinator_notes(topology: Topology) -> list[str]:
    """What a list of nodes says of the coordinator."""
    coordinator = topology.coordinator
    if coordinator is None:
        return []
    notes = [_coordinator_text(coordinator)]
    if coordinator.is_embedded:
        notes[0] += f": {SINGLE.removeprefix('the coordinator is ')}"
    return [*notes, PAUSED] if coordinator.paused else notes


def source(revision: int, answered_by: str) -> str:
    """At the end of every answer."""
    return f"(revision {revision}, answered by {answered_by})"


def topology_rows(state: Coordination, topology: Topology) -> list[dict[str, Any]]:
    """A row a node, the master first; `why` says what keeps it out of the in-sync set."""
    seen = {node.node_id: node for node in topology.nodes if node.reachable}
    rows = [_topology_row(state, each, seen.get(each.node_id)) for each in state.roster]
    rows.sort(key=lambda row: (row["role"] != "master", row["node"]))
    return rows


def _topology_row(state: Coordination, node: RosterNode, seen: NodeInfo | None) -> dict[str, Any]:
    led = state.leader_id == node.node_id and state.leader_present
    row: dict[str, Any] = {
        "node": node.node_id,
        "role": "master" if led else "",
        "state": state_of(node),
        "epoch": node.last_epoch or None,
        "in_sync": node.in_sync,
        "log_end": node.end_offset if node.up else None,
        "lag_bytes": None,
        "lag_seconds": None,
        "why": node.why_not_in_sync,
        "endpoint": node.endpoint,
        "incarnation": node.incarnation,
        "obstacle": node.obstacle,
        "answered_by": state.answered_by,
        "revision": state.coordinator.revision,
    }
    if seen is None:
        if node.up:
            row["state"] = "unreachable"
        return row
    row.update(
        role=seen.role if seen.role == "slave" or led else "",
        state=seen.state if not node.removed else "removed",
        epoch=seen.epoch,
        log_end=seen.wrote_offset,
        lag_bytes=seen.lag_bytes,
        lag_seconds=round(seen.lag_seconds, 3),
    )
    if seen.contradiction:
        row.update(
            state="second master" if seen.is_master else row["state"], why=seen.contradiction
        )
    elif seen.detail and not node.removed and seen.detail not in node.why_not_in_sync:
        row["why"] = "; ".join(each for each in (node.why_not_in_sync, seen.detail) if each)
    return row


def state_of(node: RosterNode) -> str:
    """As the coordinator shows it."""
    if node.removed:
        return "removed"
    return "up" if node.up else "down"


def topology_lines(state: Coordination, rows: Iterable[dict[str, Any]]) -> list[str]:
    """What no table has room for, the term first."""
    lines = []
    if not state.epoch:
        lines.append("no master was elected yet")
    else:
        lead = "leads" if state.leader_present else "led last, its lease has ended: no master now;"
        lines.append(f"{state.leader_id} {lead} epoch {state.epoch}: {state.reason}")
    lines += [f"{row['node']}: {row['why']}" for row in rows if row["why"]]
    if state.coordinator.paused:
        lines.append(PAUSED)
    if (request := state.request) is not None:
        to = "of" if request.kind == "reinit" else "to"
        what = f"{request.kind} {to} {request.target or 'the best node'}"
        lines.append(
            f"{what} was refused: {request.outcome}" if request.outcome else f"{what} is under way"
        )
    if state.unclean_epoch:
        lines.append(f"epoch {state.unclean_epoch} was unclean: {missing_text(state)}")
    revision = state.coordinator.revision
    text = f"{_coordinator_text(state.coordinator)}, revision {revision}"
    lines.append(f"{text}, answered by {state.answered_by}")
    if state.coordinator.is_embedded:
        lines.append(SINGLE)
    return lines


def missing_text(state: Coordination) -> str:
    """What the newest unclean epoch has cost."""
    if state.lost_bytes is None:
        return (
            "acknowledged messages may be missing since; how many is known once the master before "
            "is back with its disk"
        )
    if not state.lost_bytes:
        return "no acknowledged message is missing"
    return f"at most {state.lost_bytes:,} bytes of acknowledged messages are missing since"


def cluster_row(state: Coordination) -> dict[str, Any]:
    """What is one per cluster, for programs."""
    coordinator, request = state.coordinator, state.request
    return {
        "coordinator": list(coordinator.endpoints),
        "product": coordinator.product,
        "revision": coordinator.revision,
        "age_seconds": round(coordinator.age_seconds, 3),
        "paused": coordinator.paused,
        "answered_by": state.answered_by,
        "cluster_uuid": state.cluster_uuid,
        "epoch": state.epoch,
        "leader": state.leader_id,
        "leader_present": state.leader_present,
        "reason": state.reason,
        "unclean_epoch": state.unclean_epoch,
        "lost_bytes": state.lost_bytes,
        "members_in_sync": [node_id for node_id, _ in state.in_sync],
        "request": None if request is None else asdict(request),
    }


def history_rows(history: History, now_ms: int) -> list[dict[str, Any]]:
    """A row an epoch, the newest last. The clocks are those of the leaders."""
    ends: Sequence[int | None] = [*(term.began_ms for term in history.terms[1:]), None]
    return [
        {
            "epoch": term.epoch,
            "leader": term.leader,
            "began": date(term.began_ms),
            "unclean": term.unclean,
            "reason": term.reason,
            "began_ms": term.began_ms,
            "ended_ms": end_ms,
            "duration_seconds": max(0, (end_ms or now_ms) - term.began_ms) / 1000,
            "lost_bytes": term.lost_bytes,
            "end_offset": term.end_offset,
            "answered_by": history.answered_by,
            "revision": history.revision,
        }
        for term, end_ms in zip(history.terms, ends, strict=True)
    ]


def history_texts(row: dict[str, Any]) -> dict[str, Any]:
    """A row of history_rows for people."""
    so_far = " so far" if row["ended_ms"] is None else ""
    return {
        **row,
        "lasted": f"{duration(row['duration_seconds'])}{so_far}",
        "unclean": "UNCLEAN" if row["unclean"] else "",
        "lost": lost_text(row["lost_bytes"]) if row["unclean"] else "",
    }


def history_columns(history: History) -> Sequence[str]:
    """With what was lost, if a term may have lost something."""
    return LOSSES_COLUMNS if any(term.unclean for term in history.terms) else HISTORY_COLUMNS


def loss_lines(history: History) -> list[str]:
    """The same, where the table has no room for it."""
    return [
        f"epoch {term.epoch} lost: {lost_text(term.lost_bytes)}"
        for term in history.terms
        if term.unclean
    ]


def lost_text(lost_bytes: int | None) -> str:
    """Of acknowledged messages; None is not known."""
    if lost_bytes is None:
        return "unknown"
    return f"at most {lost_bytes:,} B" if lost_bytes else "nothing"


def member_rows(state: Coordination) -> list[dict[str, Any]]:
    """A row for each node that belongs to the cluster or did."""
    return [
        {
            "node": each.node_id,
            "state": state_of(each),
            "in_sync": each.in_sync,
            "priority": each.priority if each.up else None,
            "starts": each.starts,
            "endpoint": each.endpoint,
            "why": each.why_not_in_sync,
            "answered_by": state.answered_by,
            "revision": state.coordinator.revision,
        }
        for each in state.roster
    ]


def date(ms: int) -> str:
    """Local time with its zone."""
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(sep=" ", timespec="seconds")


def duration(seconds: float) -> str:
    """Two units, as people say it."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def switchover_text(state: Coordination, target: str) -> str:
    """What a planned switch will do."""
    return (
        f"{target} will be the master in place of {state.leader_id}, in epoch {state.epoch + 1}. "
        f"Nothing is lost: puts wait until {target} holds the whole log, 3 s at most."
    )


def failover_lines(state: Coordination, topology: Topology, target: str) -> list[str]:
    """What a forced failover will do, and what it may cost."""
    lines = [f"{target} will be the master by force, in epoch {state.epoch + 1}."]
    if state.leader_present:
        lines.append(
            f"The lease of {state.leader_id} still holds; the failover waits until it has ended."
        )
    lines.append(loss_text(state, topology, target))
    if topology.min_in_sync > 1:
        lines.append(
            f"Puts are refused until {topology.min_in_sync - 1} more of the nodes follow {target} "
            f"(min_in_sync is {topology.min_in_sync})."
        )
    return lines


def loss_text(state: Coordination, topology: Topology, target: str) -> str:
    """Of acknowledged messages, as far as the nodes that answer know. That a node is in sync says
    that it holds all of them only where acknowledgements wait for the in-sync set."""
    node = state.node(target)
    in_sync = node is not None and node.in_sync
    if in_sync and topology.replication in WAITING:
        text = f"{target} is in sync: it holds every acknowledged message, nothing is lost."
        if len(state.in_sync) == 1:
            text += " It alone is in sync: no other disk has what was acknowledged last."
        return text
    seen = {each.node_id: each for each in topology.nodes if each.reachable}
    ends = node.end_offset if node is not None else 0
    if target in seen:
        ends = seen[target].wrote_offset
    confirmed = max((each.confirm_offset for each in seen.values()), default=0)
    lost = max(0, confirmed - ends)
    if in_sync:
        mode = topology.replication or "not known, as no node answers"
        text = (
            f"{target} is in sync, but replication is {mode}: an acknowledgement does not wait for "
            f"{target}, so it may lack messages."
        )
    else:
        text = f"{target} is not in sync."
    text += (
        f" Up to {lost:,} bytes of acknowledged messages are lost: confirmed up to {confirmed:,}, "
        f"the log of {target} ends at {ends:,}."
    )
    if state.leader_id not in seen and state.leader_id != target:
        text += f" {state.leader_id} does not answer and may have confirmed more: what it alone "
        text += "has is lost too."
    return text


def reinit_lines(state: Coordination, topology: Topology, target: str) -> list[str]:
    """What a resync of one node will do, and what it may cost."""
    node = state.node(target)
    seen = next((each for each in topology.nodes if each.node_id == target), None)
    size = 0 if seen is None else seen.wrote_offset - seen.min_offset
    lines = [
        f"{target} sets its log aside ({size:,} bytes) and is sent all of it again by "
        f"{state.leader_id}. Reads from {target} find nothing until then."
    ]
    others = [each.node_id for each in state.roster if each.in_sync and each.node_id != target]
    if node is not None and node.in_sync:
        lines.append(
            f"Meanwhile {target} is not in sync; {', '.join(others) or 'no other node'} "
            f"{'is' if len(others) < 2 else 'are'} (min_in_sync is {topology.min_in_sync})."
        )
    if alarm := topology.alarms.get(target):
        lines.append(
            f"{target} is refused by the master: {alarm}. What it alone holds leaves the cluster "
            "with the log that is set aside."
        )
    return lines
