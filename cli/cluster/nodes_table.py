"""The table of a cluster's nodes: roles, offsets, lag.

On a terminal the table has the columns for which there is room. Details of single nodes and alarms
have lines of their own below it, never cut off: they matter most when something is broken.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.text import Text

from tandemlog.cluster.topology import NodeInfo, Topology

from ..output.tables import fits, table_of

COLUMNS = (
    "node", "role", "endpoint", "state", "epoch", "in_sync", "min_offset", "wrote_offset",
    "flushed_offset", "confirm_offset", "reput_offset", "lag_bytes", "lag_seconds", "version",
    "detail",
)  # fmt: skip

ON_A_TERMINAL = (
    tuple(name for name in COLUMNS if name != "detail"),
    (
        "node", "role", "endpoint", "state", "epoch", "in_sync",
        "wrote_offset", "confirm_offset", "lag_bytes", "lag_seconds",
    ),
    ("node", "role", "endpoint", "state", "in_sync", "wrote_offset", "lag_bytes"),
    ("node", "role", "state", "in_sync", "lag_bytes"),
)  # fmt: skip
"""The columns of a table, the widest first."""

TITLES = {
    "min_offset": "min",
    "wrote_offset": "wrote",
    "flushed_offset": "flushed",
    "confirm_offset": "confirm",
    "reput_offset": "reput",
    "lag_bytes": "lag B",
    "lag_seconds": "lag s",
}


def _state(node: NodeInfo) -> str:
    if node.contradiction:
        return "second master" if node.is_master else "not of this cluster"
    return node.state if node.reachable or node.is_broker else "unreachable"


def node_rows(topology: Topology) -> list[dict[str, Any]]:
    """A row a node, the master first. What an unreachable node last said is kept, its state is
    not."""
    return [
        {
            "cluster": topology.cluster_id,
            "node": node.node_id,
            "role": node.role,
            "endpoint": node.endpoint,
            "http_endpoint": node.http_endpoint,
            "rocketmq": node.rocketmq_endpoint,
            "rocketmq_grpc": node.rocketmq_grpc_endpoint,
            "state": _state(node),
            "epoch": node.epoch,
            "in_sync": node.in_sync,
            "min_offset": node.min_offset,
            "wrote_offset": node.wrote_offset,
            "flushed_offset": node.flushed_offset,
            "confirm_offset": node.confirm_offset,
            "reput_offset": node.reput_offset,
            "lag_bytes": node.lag_bytes,
            "lag_seconds": node.lag_seconds,
            "version": node.version,
            "detail": (
                "see the alarm"
                if node.alarm or node.contradiction
                else " ".join(node.detail.split())
            ),
            "store_host": node.store_host,
            "commit_log_file_size": node.commit_log_file_size,
            "uptime_seconds": node.uptime_seconds,
            "alarm": " ".join((node.alarm or node.contradiction).split()),
        }
        for node in sorted(topology.nodes, key=lambda node: (not node.is_master, node.node_id))
    ]


def alarm_lines(topology: Topology) -> list[str]:
    """One line for each alarm, which no table cuts off."""
    return [
        f"ALARM {node_id}: {' '.join(alarm.split())}"
        for node_id, alarm in {**topology.contradictions, **topology.alarms}.items()
    ]


def picture(rows: Sequence[Mapping[str, Any]], alarms: Iterable[str], console: Console) -> Group:
    """The widest table for which `console` has room, then what single nodes say, then alarms."""
    tables = [table_of(rows, columns, TITLES) for columns in ON_A_TERMINAL]
    details = [f"{row['node']}: {row['detail']}" for row in rows if row.get("detail")]
    return Group(
        next((table for table in tables if fits(table, console)), tables[-1]),
        *(Text(line, style="dim") for line in details),
        *(Text(line, style="bold red") for line in alarms),
    )


def summary(topology: Topology) -> str:
    """The cluster's settings in one line."""
    return (
        f"cluster {topology.cluster_id}  flush {topology.flush}  replication "
        f"{topology.replication}  min_in_sync {topology.min_in_sync}"
    )
