"""Which node a reader asks, and which one next: this node, another one, or later.

    MASTER   the master
    SLAVE    slaves only, the least behind first
    ANY      the master, or a slave while the last response said that the reader is far behind;
             any other node when one goes away

    Many readers at once, the tasks of a job, each begin with another node:

    SLAVE    the slaves in turn; the master where no slave answers
    ANY      all nodes in turn

A reader stays with a node as long as it answers. All nodes hold the same log at the same
positions, so a reader continues elsewhere where it stopped.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from ...cluster.connection import Connection
from ...cluster.node import Node
from ...cluster.topology import NodeInfo, ReadFrom, Topology
from ...errors import InvalidArgumentError, NoNodeError

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """See the module. Pure. `turn`: the number of a reader among many; None for a single one."""

    read_from: ReadFrom
    turn: int | None = None

    @property
    def role(self) -> str:
        """The role of the nodes that may be asked, for errors."""
        alone = self.read_from is ReadFrom.SLAVE and self.turn is None
        return self.read_from.value if alone or self.read_from is ReadFrom.MASTER else "node"

    def nodes(self, topology: Topology, *, prefer_slave: bool = False) -> list[NodeInfo]:
        """The nodes to ask, best first."""
        if self.turn is None or self.read_from is ReadFrom.MASTER:
            return topology.candidates(self.read_from, prefer_slave=prefer_slave)
        masters = topology.candidates(ReadFrom.MASTER)
        slaves = [each for each in topology.candidates(ReadFrom.SLAVE) if each.reachable]
        if self.read_from is ReadFrom.ANY:
            return _turned(masters + slaves, self.turn)
        return _turned(slaves, self.turn) + masters

    def deciders(self, topology: Topology, *, patient: bool = True) -> frozenset[str] | None:
        """The endpoints of the nodes that together decide whether messages are lost: all that can
        be read now, the master among them unless only slaves are read. None while that master is
        not there. If not `patient`, the master alone decides: some node may never respond."""
        if self.read_from is not ReadFrom.SLAVE or self.turn is not None:
            if topology.authority is None:
                return None
            if not patient:
                return frozenset({topology.authority.endpoint})
        return frozenset(each.endpoint for each in self.nodes(topology) if each.reachable) or None


def _turned(nodes: list[NodeInfo], turn: int) -> list[NodeInfo]:
    at = turn % len(nodes) if nodes else 0
    return nodes[at:] + nodes[:at]


class Reader:
    """Reads from the nodes of `connection`; one event loop."""

    def __init__(
        self, connection: Connection, read_from: ReadFrom | str, turn: int | None = None
    ) -> None:
        self.connection = connection
        self.order = NodeOrder(ReadFrom(read_from), turn)
        self._current: Node | None = None
        self._prefer_slave = False
        self._failed: set[str] = set()

    @property
    def endpoint(self) -> str | None:
        """Of the node that is read from now."""
        return self._current.endpoint if self._current is not None else None

    async def ask(
        self, call: Callable[[Node], Awaitable[ResultT]], timeout_ms: int | None = None
    ) -> ResultT:
        """`call` of a node, of the next one where it fails, until `timeout_ms` (default: the
        connection's retry_timeout_ms) is over; then the last error."""

        async def answered(node: Node) -> ResultT:
            result = await call(node)
            self._failed.discard(node.endpoint)
            return result

        return await self.connection.ask_nodes(self.node, self.leave, answered, timeout_ms)

    async def node(self) -> Node:
        """The node to read from now; raises NoNodeError."""
        if self._current is not None:
            self._current = self.connection.node(self._current.endpoint)
            return self._current
        topology = await self.connection.current_topology()
        untried = self._untried(topology)
        if not untried:
            # All were tried: by now there may be others, or the same in a better state.
            self._failed.clear()
            topology = await self.connection.refresh()
            untried = self._untried(topology)
        if not untried:
            raise NoNodeError(f"no {self.order.role} can be reached: {topology.asked_text()}")
        self._current = self.connection.node(untried[0].endpoint)
        logger.debug("reading from %s (%s)", untried[0].node_id, untried[0].role)
        return self._current

    def _untried(self, topology: Topology) -> list[NodeInfo]:
        nodes = self.order.nodes(topology, prefer_slave=self._prefer_slave)
        return [each for each in nodes if each.endpoint not in self._failed]

    async def node_named(self, node_id: str) -> Node:
        """The node with that id; without an id, the one that is read from. Raises
        InvalidArgumentError if the cluster has no such node, NoNodeError."""
        if not node_id:
            return await self.node()
        nodes = {each.node_id: each for each in (await self.connection.refresh()).nodes}
        if node_id not in nodes or not nodes[node_id].endpoint:
            raise InvalidArgumentError(
                f"there is no node {node_id!r} that can be asked; there are: "
                f"{', '.join(sorted(nodes))}",
                field="node_id",
            )
        return self.connection.node(nodes[node_id].endpoint)

    def leave(self, node: Node, reason: str) -> None:
        """`node` failed or is behind: the next read goes to another one."""
        logger.info("reader leaves node: endpoint=%s reason=%s", node.endpoint, reason)
        self._failed.add(node.endpoint)
        if self._current is node:
            self._current = None

    def hint(self, suggest_slave: bool) -> None:
        """Follow the suggestion of the last answer, for ANY."""
        if self.order.read_from is ReadFrom.ANY and suggest_slave != self._prefer_slave:
            self._prefer_slave = suggest_slave
            self._current = None
