"""The one table that shows the truth about a cluster: nodes, roles, offsets, lag."""

from typing import Any

from tandemlog.cluster.topology import NodeInfo, Topology

COLUMNS = (
    "node",
    "role",
    "endpoint",
    "state",
    "epoch",
    "in_sync",
    "min_offset",
    "wrote_offset",
    "flushed_offset",
    "confirm_offset",
    "reput_offset",
    "lag_bytes",
    "lag_seconds",
    "detail",
)

FEW_COLUMNS = ("node", "role", "endpoint", "state", "in_sync", "lag_bytes", "detail")
"""For a narrow terminal."""

TITLES = {
    "min_offset": "min",
    "wrote_offset": "wrote",
    "flushed_offset": "flushed",
    "confirm_offset": "confirm",
    "reput_offset": "reput",
    "lag_bytes": "lag B",
    "lag_seconds": "lag s",
}


def node_row(node: NodeInfo, topology: Topology) -> dict[str, Any]:
    """One node as a row; what an unreachable node last said is kept, its state is not."""
    return {
        "cluster": topology.cluster_id,
        "node": node.node_id,
        "role": node.role,
        "endpoint": node.endpoint,
        "http_endpoint": node.http_endpoint,
        "state": node.state if node.reachable else "unreachable",
        "epoch": node.epoch,
        "in_sync": node.in_sync,
        "min_offset": node.min_offset,
        "wrote_offset": node.wrote_offset,
        "flushed_offset": node.flushed_offset,
        "confirm_offset": node.confirm_offset,
        "reput_offset": node.reput_offset,
        "lag_bytes": node.lag_bytes,
        "lag_seconds": node.lag_seconds,
        "detail": "see the alarm" if node.alarm else " ".join(node.detail.split()),
        "store_host": node.store_host,
        "commit_log_file_size": node.commit_log_file_size,
        "uptime_seconds": node.uptime_seconds,
        "alarm": " ".join(node.alarm.split()),
    }


def node_rows(topology: Topology) -> list[dict[str, Any]]:
    """A row a node, the master first."""
    nodes = sorted(topology.nodes, key=lambda node: (not node.is_master, node.node_id))
    return [node_row(node, topology) for node in nodes]


def alarm_lines(topology: Topology) -> list[str]:
    """One line for each alarm, which no table cuts off."""
    return [
        f"ALARM {node_id}: {' '.join(alarm.split())}" for node_id, alarm in topology.alarms.items()
    ]


def summary(topology: Topology) -> str:
    """The cluster's settings in one line."""
    parts = {
        "cluster": topology.cluster_id,
        "flush": topology.flush,
        "replication": topology.replication,
        "min_in_sync": topology.min_in_sync,
    }
    return "  ".join(f"{name} {value}" for name, value in parts.items())
