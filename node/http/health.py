"""Is this node well, and for what: the decisions behind the HTTP endpoints, from one snapshot.

    /health             200 while the store can be written and read, and no alarm is on
    /liveness           200 while the process is worth keeping: a restart would not help otherwise
    /readiness?lag=     200 where the node serves; a slave: within `lag` of the master
    /master             200 on a master that could acknowledge a put now
    /slave?lag=         200 on a slave within `lag`
    /in-sync            200 on a member of the in-sync set

`lag` is bytes, with a unit if wanted: 10MB, 64KiB.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2

PATHS = ("/health", "/liveness", "/readiness", "/master", "/slave", "/in-sync")

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1_000,
    "mb": 1_000_000,
    "gb": 1_000_000_000,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
# a number of 18 digits and a unit is more than there are bytes anywhere
_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([a-zA-Z]{0,3})")


@dataclass(frozen=True, slots=True)
class Health:
    """What this node is and how it is, at one moment. The faults are empty if there is none."""

    status: common_pb2.NodeStatus
    store_fault: str
    alarms: Mapping[str, str]  # node id -> what this master may lack, and what to do
    put_fault: str  # why a put would not be acknowledged now
    read_fault: str  # why reads are not what they should be: starting, never connected, stopping


class BadQueryError(ValueError):
    """A query parameter that cannot be read."""


def parse_bytes(text: str) -> int:
    """`10MB`, `64KiB`, `1000` in bytes. Raises BadQueryError."""
    match = _SIZE.fullmatch(text.strip())
    unit = _UNITS.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise BadQueryError(
            f"not a size: {quoted(text)}; write bytes, or a number with KB, MB, GiB, …"
        )
    return int(float(match[1]) * unit)


def faults(path: str, health: Health, query: Mapping[str, str]) -> str:
    """Why `path` is not 200; empty if it is."""
    status = health.status
    is_master = status.role == common_pb2.MASTER
    if path == "/liveness":
        return ""
    if path == "/health":
        return health.store_fault or alarm_text(health.alarms)
    if path == "/master":
        return health.put_fault if is_master else "this node is a slave"
    if path == "/in-sync":
        return "" if status.in_sync else status.detail or "not in the in-sync set"
    if path == "/slave" and is_master:
        return "this node is the master"
    return health.store_fault or health.read_fault or _lag_fault(status, query.get("lag"))


def alarm_text(alarms: Mapping[str, str]) -> str:
    return "; ".join(f"alarm of {node_id}: {alarm}" for node_id, alarm in alarms.items())


def _lag_fault(status: common_pb2.NodeStatus, limit: str | None) -> str:
    if limit is None or status.role == common_pb2.MASTER:
        return ""
    most = parse_bytes(limit)
    if status.lag_bytes <= most:
        return ""
    return f"{status.lag_bytes} bytes behind the master, the limit is {most}"
