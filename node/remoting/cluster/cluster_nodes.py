"""The nodes of the cluster as RocketMQ's clients should see them, from what the roles know.

    rows of NodeStatus ─▶ numbers, addresses, who leads ─▶ routes (rocketmq/clients/routes.py)
                       ─▶ the master's door              ─▶ forwarding.py

Just after an election a slave knows no more of its master than the endpoint of its gRPC services,
and a master has no stream of its slaves yet. Where the doors of those nodes are, both have heard
before, and it is kept here. A slave that was there a moment before the election is taken to be
there: a client that asks in that moment keeps the route for 30 s. The master before is not: it is
why there was an election.

Rows are built by each look, so one look serves all requests of a moment.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.node_status import UNREACHABLE
from tandemlog_server.rocketmq.clients.routes import (
    BrokerNames,
    Placement,
    RouteNode,
    numbers_of,
    placement,
)

from ...roles.role import CurrentRole

LOOK_S: Final = 0.05
AWAY_S: Final = 3.0
"""So long a slave that was there is in routes without being seen."""
MOST_KEPT: Final = 1_024
"""Endpoints whose doors are remembered."""


DoorOf = Callable[[common_pb2.NodeStatus], str]
"""Where clients of one kind reach a node; empty if nowhere."""


def classic_door(row: common_pb2.NodeStatus) -> str:
    """The port of clients that speak remoting."""
    return row.rocketmq_endpoint


class ClusterNodes:
    """See the module. `members` gives the rows; `founders` are ids of nodes that belong to the
    cluster whether they have been seen or not; `address` is this node's, as clients are told.
    `door_of` says which door. Belongs to the loop, whose clock is `now`."""

    def __init__(
        self,
        names: BrokerNames,
        current: CurrentRole,
        members: Callable[[], Sequence[common_pb2.NodeStatus]],
        *,
        node_id: str,
        address: str,
        founders: Iterable[str] = (),
        now: Callable[[], float],
        door_of: DoorOf = classic_door,
    ) -> None:
        self.names = names
        self.address = address
        self._current = current
        self._members = members
        self._node_id = node_id
        self._founders = frozenset(founders)
        self._now = now
        self._door_of = door_of
        self._doors: dict[str, str] = {}
        self._seen: dict[str, tuple[float, str]] = {}  # by name: up as a slave when, and the door
        self._looked_at = float("-inf")
        self._looked_in: object = None
        self._rows: Sequence[common_pb2.NodeStatus] = ()

    def leads(self) -> bool:
        """Whether this node is the master."""
        return self._current.role.epoch() is not None

    def master_address(self) -> str:
        """host:port of the door of another node that leads; empty if none is known."""
        for row in self._look():
            if row.role == common_pb2.MASTER and row.node_id != self._node_id:
                return self._door_of(row) or self._doors.get(row.endpoint, "")
        return ""

    def placement(self) -> Placement:
        """Where clients find the nodes now."""
        return placement(self.names, self.nodes(), self.address)

    def number(self) -> int:
        """This node's broker id while it is a slave."""
        return next(each.number for each in self.nodes() if each.address == self.address)

    def nodes(self) -> Sequence[RouteNode]:
        """All that are known, and this one, by their ids."""
        leads = self.leads()
        # a master of which only the endpoint is known has that for an id
        rows = {row.node_id: row for row in self._look() if row.node_id != row.endpoint}
        numbers = numbers_of({*rows, *self._founders, self._node_id})
        nodes = []
        for name, number in numbers.items():
            if name == self._node_id:
                nodes.append(RouteNode(number, self.address, leads=leads))
                continue
            row = rows.get(name)
            seen_at, door = self._seen.get(name, (float("-inf"), ""))
            if row is not None:
                door = self._door_of(row) or self._doors.get(row.endpoint, "") or door
            nodes.append(
                RouteNode(
                    number,
                    door,
                    leads=row is not None and row.role == common_pb2.MASTER and not leads,
                    up=(row is not None and row.state != UNREACHABLE)
                    or self._now() - seen_at < AWAY_S,
                )
            )
        return nodes

    def _look(self) -> Sequence[common_pb2.NodeStatus]:
        now, role = self._now(), self._current.role
        if role is not self._looked_in or now - self._looked_at >= LOOK_S:
            self._rows = self._members()
            self._looked_at, self._looked_in = now, role
            for row in self._rows:
                if row.endpoint and self._door_of(row):
                    self._doors[row.endpoint] = self._door_of(row)
                self._see(row, now)
            while len(self._doors) > MOST_KEPT:
                del self._doors[next(iter(self._doors))]
            while len(self._seen) > MOST_KEPT:
                del self._seen[next(iter(self._seen))]
        return self._rows

    def _see(self, row: common_pb2.NodeStatus, now: float) -> None:
        seen_at, door = self._seen.get(row.node_id, (float("-inf"), ""))
        door = self._door_of(row) or self._doors.get(row.endpoint, "") or door
        if row.role == common_pb2.MASTER:
            seen_at = float("-inf")
        elif row.state != UNREACHABLE:
            seen_at = now
        self._seen[row.node_id] = (seen_at, door)
