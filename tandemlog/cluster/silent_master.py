"""Calls of a master that has gone silent are left as soon as another node leads.

    a call of the master ──no answer yet──▶ the master is asked who it is
                                            it answers  ─▶ the call waits for something, asked later
                                            it does not ─▶ all nodes are asked who leads
                                              another one ─▶ the call ends: NodeUnavailableError
                                              none yet    ─▶ asked again

A paused or partitioned master closes no connection, and a long poll without an answer is nothing
unusual: without this a call would end with its own timeout, many seconds after the election.

There is one look for all calls of a connection. A cluster where every call is answered within
SILENCE_S is never asked; one where callers wait for messages is asked one small question every
LOOK_S, by each client.
"""

import asyncio
from types import TracebackType
from typing import Final, Protocol, Self

from ..errors import NodeUnavailableError, TandemlogError
from .topology import NodeInfo, Topology

SILENCE_S: Final = 0.5
"""Without an answer that is due, before the other nodes are asked for the master."""
LOOK_S: Final = 2.0
"""Between two questions to a master that answers them, and not a call. The shortest lease of a
master is longer, so its silence is known before another node leads."""


class Asked(Protocol):
    """A node, as far as it counts here."""

    endpoint: str


class Cluster(Protocol):
    """What is asked of a connection."""

    async def responds(self, node: Asked, timeout_s: float) -> bool:
        """Whether `node` says anything at all in this time."""
        ...

    async def refresh(self) -> Topology:
        """Who leads, by all nodes."""
        ...


async def successor(cluster: Cluster, node: Asked, node_id: str) -> NodeUnavailableError | None:
    """Why calls of `node`, which is silent, are over: another node than `node_id` is the master by
    now. None as long as there is none. It is told by ids: a node may be known under several
    endpoints."""
    master: NodeInfo | None = (await cluster.refresh()).authority
    if master is None or master.node_id == node_id:
        return None
    return NodeUnavailableError(
        f"{node_id} ({node.endpoint}) is silent, and {master.node_id} ({master.endpoint}) is the "
        f"master of epoch {master.epoch} by now"
    )


class SilentMaster:
    """See the module. Of one connection, in one event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._calls: set[WatchedCall] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None

    def watched(self, node: Asked, node_id: str) -> "WatchedCall":
        """`async with` it around one call of `node`, the master `node_id`. Raises
        NodeUnavailableError if that is silent and another node leads."""
        return WatchedCall(self, node, node_id)

    def begin(self, call: "WatchedCall") -> None:
        """It has no answer from now on."""
        self._calls.add(call)
        if self._timer is None and self._look is None:
            self._arm(SILENCE_S)

    def end(self, call: "WatchedCall") -> None:
        """It is over."""
        self._calls.discard(call)

    async def close(self) -> None:
        """Looks no more."""
        if self._timer is not None:
            self._timer.cancel()
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    def _arm(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._due)

    def _due(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        silent = [each for each in self._calls if loop.time() - each.began >= SILENCE_S]
        if silent:
            self._look = loop.create_task(self._ask(silent), name="tandemlog-silent-master")
        elif self._calls:
            self._arm(SILENCE_S)

    async def _ask(self, calls: list["WatchedCall"]) -> None:
        masters = {(each.node.endpoint, each.node_id): each.node for each in calls}
        all_answer = True
        try:
            for (endpoint, node_id), node in masters.items():
                if await self._cluster.responds(node, SILENCE_S):
                    continue
                all_answer = False
                error = await successor(self._cluster, node, node_id)
                for call in [*self._calls] if error is not None else []:
                    if (call.node.endpoint, call.node_id) == (endpoint, node_id):
                        call.leave(error)
        except TandemlogError:
            all_answer = False  # nothing was found out
        finally:
            self._look = None
            if self._calls:
                self._arm(LOOK_S if all_answer else SILENCE_S)


class WatchedCall:
    """See SilentMaster.watched. `began`: the loop's time."""

    def __init__(self, watch: SilentMaster, node: Asked, node_id: str) -> None:
        self.node, self.node_id = node, node_id
        self.began = 0.0
        self._watch = watch
        self._guard = asyncio.timeout(None)
        self._error: NodeUnavailableError | None = None

    async def __aenter__(self) -> Self:
        self.began = asyncio.get_running_loop().time()
        await self._guard.__aenter__()
        self._watch.begin(self)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._watch.end(self)
        try:
            await self._guard.__aexit__(kind, value, trace)
        except TimeoutError:
            if self._error is None:
                raise
            raise self._error.copy() from None

    def leave(self, error: NodeUnavailableError | None) -> None:
        """The call ends with `error`."""
        if not self._guard.expired():
            self._error = error
            self._guard.reschedule(asyncio.get_running_loop().time())
