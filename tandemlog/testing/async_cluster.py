"""The cluster of a test for asyncio: the same names.

    async with AsyncCluster(topics={"orders": 4}) as cluster:
        async with AsyncProducer(cluster.endpoint) as producer: ...

The nodes run in a thread of their own, as with Cluster, so the test's event loop is free.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Self

from ..consume.received.received_message import ReceivedMessage
from .cluster import Cluster
from .memory_files import MemoryFiles
from .node_clock import NodeClock


class AsyncCluster:
    """See the module, and Cluster."""

    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        *,
        nodes: int = 1,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._cluster = Cluster(topics, nodes=nodes, settings=settings)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """See Cluster.start."""
        await asyncio.to_thread(self._cluster.start)

    async def stop(self) -> None:
        """See Cluster.stop."""
        await asyncio.to_thread(self._cluster.stop)

    async def clear(self) -> None:
        """See Cluster.clear."""
        await asyncio.to_thread(self._cluster.clear)

    @property
    def clock(self) -> NodeClock:
        """The date of the nodes."""
        return self._cluster.clock

    @property
    def endpoint(self) -> str:
        """See Cluster.endpoint."""
        return self._cluster.endpoint

    @property
    def endpoints(self) -> list[str]:
        """See Cluster.endpoints."""
        return self._cluster.endpoints

    @property
    def nodes(self) -> list[str]:
        """See Cluster.nodes."""
        return self._cluster.nodes

    async def create_topic(self, name: str, queues: int = 4) -> None:
        """See Cluster.create_topic."""
        await asyncio.to_thread(self._cluster.create_topic, name, queues)

    async def delete_topic(self, name: str) -> None:
        """See Cluster.delete_topic."""
        await asyncio.to_thread(self._cluster.delete_topic, name)

    async def messages(self, topic: str, *, queue_id: int | None = None) -> list[ReceivedMessage]:
        """See Cluster.messages."""
        return await asyncio.to_thread(self._cluster.messages, topic, queue_id=queue_id)

    async def master(self) -> str:
        """See Cluster.master."""
        return await asyncio.to_thread(self._cluster.master)

    async def stop_node(self, name: str) -> None:
        """See Cluster.stop_node."""
        await asyncio.to_thread(self._cluster.stop_node, name)

    async def stop_master(self) -> str:
        """See Cluster.stop_master."""
        return await asyncio.to_thread(self._cluster.stop_master)

    async def restart(self, name: str | None = None) -> None:
        """See Cluster.restart."""
        await asyncio.to_thread(self._cluster.restart, name)

    async def disk(self, name: str | None = None) -> MemoryFiles:
        """See Cluster.disk."""
        return await asyncio.to_thread(self._cluster.disk, name)

    async def fill_disk(self, name: str | None = None) -> None:
        """See Cluster.fill_disk."""
        await asyncio.to_thread(self._cluster.fill_disk, name)

    async def free_disk(self, name: str | None = None) -> None:
        """See Cluster.free_disk."""
        await asyncio.to_thread(self._cluster.free_disk, name)
