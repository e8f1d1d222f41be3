"""Questions that only the master can answer for the cluster: where queues end, which there are.

    the master of the newest epoch      its word alone
    away for longer than MASTER_WAIT_MS the word of every other node that answers: they may be
                                        behind, so the furthest of them comes nearest

A slave's own end says what it has, not what there is: taken for the cluster's, it ends a read too
early, or begins one too early.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from ..errors import (
    NodeUnavailableError,
    NoNodeError,
    NotInSyncError,
    NotMasterError,
    TandemlogError,
)
from .connection import Connection
from .node import Node

logger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

MASTER_WAIT_MS: Final = 5_000
"""A restart of the master, about."""

NO_MASTER: Final = (NodeUnavailableError, NotMasterError, NotInSyncError)
"""What says that there is no master to ask now: none, a slave, one that may have been deposed."""


class MasterQuestions:
    """Asks the nodes of `connection`; one event loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def ask(
        self,
        call: Callable[[Node], Awaitable[ResultT]],
        doing: str,
        of_master: Callable[[Node], Awaitable[ResultT]] | None = None,
    ) -> tuple[list[ResultT], bool]:
        """The master's response and True, or without a master those of all nodes that respond, and
        False. `of_master` is what to ask the master, if that is another question. Raises the
        master's refusals, and NoNodeError if no node responds."""
        wait_ms = min(MASTER_WAIT_MS, self._connection.options.retry_timeout_ms)
        try:
            return [await self.ask_master(of_master or call, wait_ms)], True
        except NO_MASTER as error:
            answers = await self._ask_all(call)
            if not answers:
                raise NoNodeError(f"{doing}: no node answers; {error}") from error
            logger.warning("%s: slaves are asked, which may be behind: %s", doing, error)
            return answers, False

    async def ask_master(
        self, call: Callable[[Node], Awaitable[ResultT]], wait_ms: int = 0
    ) -> ResultT:
        """The answer of the master of the newest epoch; raises one of NO_MASTER if it gives none
        for `wait_ms`, and what it refuses."""
        look = False
        async for attempt in self._connection.retrying(wait_ms):
            with attempt:
                node = await self._master(look=look)
                look = True
                return await call(node)
        raise AssertionError("retries end with a result or an error")

    async def _master(self, *, look: bool) -> Node:
        connection = self._connection
        topology = await (connection.refresh() if look else connection.current_topology())
        if topology.authority is None and not look:
            topology = await connection.refresh()
        return connection.node(connection.authority().endpoint)

    async def _ask_all(self, call: Callable[[Node], Awaitable[ResultT]]) -> list[ResultT]:
        """The answers of all other nodes; one that fails, or does not know, gives none."""
        found_nodes = self._connection.topology.nodes
        nodes = [each for each in found_nodes if each.reachable and not each.contradiction]
        found = await asyncio.gather(
            *(call(self._connection.node(each.endpoint)) for each in nodes), return_exceptions=True
        )
        answers = []
        for each in found:
            if isinstance(each, TandemlogError):
                logger.debug("no answer without a master: %s", each)
            elif isinstance(each, BaseException):
                raise each
            else:
                answers.append(each)
        return answers
