"""Which node a task pulls from, and which one next.

    slave    (default) a slave, another one for each partition; the master where no slave answers
    master   the master alone
    any      all nodes alike, another one for each partition

A task stays with a node that answers. All nodes hold the same log, so the next one continues where
the last one stopped.
"""

from tandemlog.cluster.connection import Connection
from tandemlog.cluster.node import Node
from tandemlog.cluster.topology import NodeInfo, ReadFrom, Topology
from tandemlog.errors import NoNodeError


def candidates(topology: Topology, read_from: ReadFrom, number: int) -> list[NodeInfo]:
    """Whom partition `number` asks, in this order."""
    master = [topology.master] if topology.master is not None else []
    if read_from is ReadFrom.MASTER:
        return master
    slaves = topology.candidates(ReadFrom.SLAVE)
    if read_from is ReadFrom.ANY:
        return _turned(master + [each for each in slaves if each.reachable], number)
    reachable = [each for each in slaves if each.reachable]
    return _turned(reachable, number) + master


def _turned(nodes: list[NodeInfo], number: int) -> list[NodeInfo]:
    at = number % len(nodes) if nodes else 0
    return nodes[at:] + nodes[:at]


class NodeChoice:
    """The node to ask now; in one event loop."""

    def __init__(self, connection: Connection, read_from: ReadFrom, number: int) -> None:
        self._connection = connection
        self._read_from = read_from
        self._number = number
        self._left: set[str] = set()
        self._current: Node | None = None

    async def current(self) -> Node:
        """Raises NoNodeError if none is left to ask."""
        if self._current is None:
            self._current = await self._next()
        return self._current

    async def _next(self) -> Node:
        topology = await self._connection.current_topology()
        found = self._untried(topology)
        if not found:
            # Everyone was tried: who is there now may be others, or the same in a better state.
            self._left.clear()
            topology = await self._connection.refresh()
            found = self._untried(topology)
        if not found:
            wanted = "master" if self._read_from is ReadFrom.MASTER else "node"
            raise NoNodeError(f"no {wanted} can be reached: {topology.asked_text()}")
        return self._connection.node(found[0].endpoint)

    def _untried(self, topology: Topology) -> list[NodeInfo]:
        return [
            each
            for each in candidates(topology, self._read_from, self._number)
            if each.endpoint not in self._left
        ]

    async def who_knows(self) -> tuple[frozenset[str] | None, str | None]:
        """The endpoints of all nodes that may have what another one lacks, and of the master among
        them, which speaks for the cluster; None without such a master."""
        topology = await self._connection.current_topology()
        if topology.authority is None:
            return None, None
        found = candidates(topology, self._read_from, self._number)
        return frozenset(each.endpoint for each in found), topology.authority.endpoint

    def leave(self, node: Node) -> None:
        """`node` failed or is behind: the next one's turn."""
        self._left.add(node.endpoint)
        if self._current is node:
            self._current = None
