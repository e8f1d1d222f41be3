"""Asking the cluster: a look after each interval, which nothing that is slow holds up.

    nodes, then their counters   at most LIMIT_S each; they are the look
    coordinator, history, topics beside them; the look takes what was there last

A node that hangs keeps its details from coming, not the others from being shown.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from tandemlog.cluster.elections import Coordination, History
from tandemlog.cluster.topic_info import TopicInfo
from tandemlog.cluster.topology import Topology
from tandemlog.errors import TandemlogError
from tandemlog.transport.security import Security

from ..cluster.traffic import Sample, read_samples
from ..shared.options import now_ms
from .recent import Details, Look

LIMIT_S = 2.0
"""For one question of a look."""
PATIENCE_S = 0.3
"""How long a look waits for details that are still being asked for."""
RARELY_S = 10.0
"""Between two looks at what changes rarely; a new epoch is looked at once."""

Answer = TypeVar("Answer")


class Asked(Protocol):
    """What a look asks of tandemlog.AsyncAdmin."""

    async def cluster(self) -> Topology: ...
    async def coordination(self) -> Coordination: ...
    async def history(self) -> History: ...
    async def topics(self) -> list[TopicInfo]: ...


class Looks:
    """Looks at the cluster of `admin`. Raises, in the first look only, what `AsyncAdmin.cluster`
    raises: an endpoint or a token may be wrong."""

    def __init__(self, admin: Asked, security: Security, timeout_s: float) -> None:
        self._admin = admin
        self._security = security
        self._timeout_s = timeout_s
        self._limit_s = min(LIMIT_S, timeout_s)
        self._details = Details()
        self._asking: asyncio.Task[Details] | None = None
        self._asked_at = float("-inf")
        self._epoch = -1

    async def first(self) -> Look:
        topology = await self._admin.cluster()
        return await self._of(topology, self._timeout_s)

    async def next(self) -> Look:
        try:
            async with asyncio.timeout(self._limit_s):
                topology = await self._admin.cluster()
        except (TandemlogError, OSError) as error:
            fault = str(error) or f"no node has answered within {self._limit_s:g} s"
            # who leads is not known now
            details = replace(self._details, coordination=None, faults=())
            return Look(None, (), details, now_ms(), fault)
        return await self._of(topology, PATIENCE_S)

    def close(self) -> None:
        """Ends what is being asked."""
        if self._asking is not None:
            self._asking.cancel()

    async def _of(self, topology: Topology, patience_s: float) -> Look:
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask_details(topology))
        samples, _ = await asyncio.gather(
            self._samples(topology), asyncio.wait([self._asking], timeout=patience_s)
        )
        if self._asking.done():
            self._details = await self._asking
            self._asking = None
        return Look(topology, samples, self._details, now_ms())

    async def _samples(self, topology: Topology) -> Sequence[Sample]:
        nodes = [node for node in topology.nodes if node.reachable and not node.is_broker]
        try:
            return await read_samples(nodes, self._security, self._limit_s)
        except (TandemlogError, OSError) as error:  # a file of its certificates
            return [Sample(each.node_id, time.monotonic(), {}, {}, str(error)) for each in nodes]

    async def _ask_details(self, topology: Topology) -> Details:
        faults: list[str] = []

        async def asked(what: str, question: Awaitable[Answer], else_: Answer) -> Answer:
            try:
                async with asyncio.timeout(self._limit_s):
                    return await question
            except (TandemlogError, OSError) as error:
                faults.append(f"{what} cannot be read: {error or 'no answer in time'}")
                return else_

        before, elects = self._details, topology.coordinator is not None
        is_due = time.monotonic() - self._asked_at >= RARELY_S
        if not (is_due or before.faults or topology.newest_epoch != self._epoch):
            if not elects:
                return before
            state = await asked("the coordinator", self._admin.coordination(), None)
            return replace(before, coordination=state, faults=tuple(faults))
        self._asked_at, self._epoch = time.monotonic(), topology.newest_epoch
        topics, state, history = await asyncio.gather(
            asked("the topics", self._admin.topics(), before.topics),
            asked("the coordinator", self._admin.coordination(), None) if elects else _none(),
            asked("the history", self._admin.history(), before.history) if elects else _none(),
        )
        return Details(state, history, topics, tuple(faults))


async def _none() -> None:
    """Roles are configured."""
