"""Which node a reader asks, and which one next.

    MASTER   the master
    SLAVE    slaves only, the least behind first
    ANY      the master, or a slave while the last response said that the reader is far behind;
             any node that is left when one goes away

A reader stays with a node as long as it answers. All nodes hold the same log at the same
positions, so a reader continues elsewhere where it stopped.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ..cluster.connection import Connection
from ..cluster.node import Node
from ..cluster.topology import ReadFrom
from ..errors import InvalidArgumentError, NoNodeError, TandemlogError

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")


class Reader:
    """Reads from the nodes of `connection`; one event loop."""

    def __init__(self, connection: Connection, read_from: ReadFrom | str) -> None:
        self.connection = connection
        self.read_from = ReadFrom(read_from)
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
        async for attempt in self.connection.retrying(timeout_ms):
            with attempt:
                node = await self.node()
                try:
                    result = await call(node)
                except TandemlogError as error:
                    if error.elsewhere:
                        self.leave(node, str(error))
                    raise
                self._failed.discard(node.endpoint)
                return result
        raise AssertionError("retries end with a result or an error")

    async def node(self) -> Node:
        """The node to read from now; raises NoNodeError."""
        if self._current is not None:
            self._current = self.connection.node(self._current.endpoint)
            return self._current
        topology = await self.connection.current_topology()
        candidates = topology.candidates(self.read_from, prefer_slave=self._prefer_slave)
        if not candidates:
            topology = await self.connection.refresh()
            candidates = topology.candidates(self.read_from, prefer_slave=self._prefer_slave)
        if not candidates:
            wanted = "node" if self.read_from is ReadFrom.ANY else self.read_from.value
            raise NoNodeError(f"no {wanted} can be reached: {topology.asked_text()}")
        untried = [each for each in candidates if each.endpoint not in self._failed]
        if not untried:
            self._failed.clear()
            await self.connection.refresh()
            untried = candidates
        self._current = self.connection.node(untried[0].endpoint)
        logger.debug("reading from %s (%s)", untried[0].node_id, untried[0].role)
        return self._current

    async def node_named(self, node_id: str) -> Node:
        """The node with that id, or the one that is read from for an empty one. Raises
        InvalidArgumentError if the cluster has no such node, NoNodeError."""
        if not node_id:
            return await self.node()
        known = {each.node_id: each for each in (await self.connection.refresh()).nodes}
        if node_id not in known or not known[node_id].endpoint:
            raise InvalidArgumentError(
                f"there is no node {node_id!r} that can be asked; there are: "
                f"{', '.join(sorted(known))}",
                field="node_id",
            )
        return self.connection.node(known[node_id].endpoint)

    def leave(self, node: Node, reason: str) -> None:
        """`node` failed or is behind: the next read goes to another one."""
        logger.info("reader leaves node: endpoint=%s reason=%s", node.endpoint, reason)
        self._failed.add(node.endpoint)
        if self._current is node:
            self._current = None

    def hint(self, suggest_slave: bool) -> None:
        """What the last answer suggested; counts for ANY only."""
        if self.read_from is ReadFrom.ANY and suggest_slave != self._prefer_slave:
            self._prefer_slave = suggest_slave
            self._current = None
