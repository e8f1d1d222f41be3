"""What the view knows: the newest look at the cluster, and the rates of the last looks.

    Look ─▶ ┌ after() ┐ ─▶ Recent{look, rows, points}
    Recent ▶└─────────┘         a pure fold; POINTS per node at most, of the nodes that there are

A look in which no node has answered keeps the nodes of the one before, each as unreachable: the
view continues, and shows who is gone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tandemlog.cluster.elections import Coordination, History
from tandemlog.cluster.topic_info import TopicInfo
from tandemlog.cluster.topology import Topology

from ..cluster.traffic import TRAFFIC, Sample, rates, summed

PER_SECOND = tuple(f"{name}_per_second" for name in TRAFFIC)
POINTS = 120
"""Looks of which the rates are kept: two minutes at one a second."""
ALL = "all"
"""The name of the sum over the nodes."""

Point = Mapping[str, float] | None
"""What a node took and gave, by PER_SECOND; None where that is not known."""


@dataclass(frozen=True, slots=True)
class Details:
    """What changes rarely, or is asked of the coordinator. None: not known, or roles are
    configured. `faults`: what could not be asked, and why."""

    coordination: Coordination | None = None
    history: History | None = None
    topics: Sequence[TopicInfo] = ()
    faults: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """One observation. `topology` is None if no node answered; `fault` then says why. `now_ms` is
    the wall clock."""

    topology: Topology | None
    samples: Sequence[Sample]
    details: Details
    now_ms: int
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Recent:
    """`rows` are the rates of each topic of each node between the newest two looks, `points` the
    sums by node, the newest last; `count` is how many looks there were."""

    topology: Topology = field(default_factory=Topology)
    samples: Sequence[Sample] = ()
    details: Details = field(default_factory=Details)
    now_ms: int = 0
    fault: str = ""
    rows: Sequence[dict[str, Any]] = ()
    points: Mapping[str, tuple[Point, ...]] = field(default_factory=dict)
    count: int = 0

    def newest(self, name: str) -> Point:
        """What a node, or ALL, takes and gives now."""
        return self.points.get(name, (None,))[-1]


def after(recent: Recent, look: Look) -> Recent:
    """`recent` with one more look."""
    topology = look.topology or unreachable(recent.topology)
    rows = rates(recent.samples, look.samples)
    points = _newest_points(topology, recent.samples, look.samples, rows) if recent.count else {}
    return Recent(
        topology=topology,
        samples=look.samples,
        details=look.details,
        now_ms=look.now_ms,
        fault=look.fault,
        rows=rows,
        points={
            name: (*recent.points.get(name, ()), point)[-POINTS:] for name, point in points.items()
        },
        count=recent.count + 1,
    )


def unreachable(topology: Topology) -> Topology:
    """The cluster when no node answers."""
    nodes = tuple(replace(node, reachable=False) for node in topology.nodes)
    return replace(topology, nodes=nodes, master_id="")


def _newest_points(
    topology: Topology,
    before: Sequence[Sample],
    now: Sequence[Sample],
    rows: Sequence[Mapping[str, Any]],
) -> dict[str, Point]:
    """By node, and the sum of those that are known as ALL."""
    was_read, is_read = ({each.node_id for each in of if not each.fault} for of in (before, now))
    moved = {row["node"]: {name: row[name] for name in PER_SECOND} for row in summed(rows, "node")}
    nothing = dict.fromkeys(PER_SECOND, 0.0)  # of a node without topics
    known = {name: moved.get(name, nothing) for name in was_read & is_read}
    points: dict[str, Point] = {
        node.node_id: known.get(node.node_id) for node in topology.nodes if not node.is_broker
    }
    points[ALL] = (
        {name: sum(each[name] for each in known.values()) for name in PER_SECOND} if known else None
    )
    return points
