"""A node's archive, if it has one: who archives, asked once a second in the node's own loop."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack

from tandemlog.v1 import common_pb2

from ...storage.message_store import MessageStore
from ..process.tasks import cancelled
from ..settings.node_config import NodeConfig
from .archive_service import ArchiveService
from .cold_reads import ColdReads, cold_statistics

CHOOSE_S = 1.0

Rows = Callable[[], Sequence[common_pb2.NodeStatus]]


class NodeArchive:
    """See the module. Without `archive.url` it does nothing."""

    def __init__(self) -> None:
        self.service: ArchiveService | None = None
        self.cold: ColdReads | None = None
        self._choosing: asyncio.Task[None] | None = None

    async def open(self, store: MessageStore, config: NodeConfig, undo: AsyncExitStack) -> None:
        """Before the first read is served: what is asked for may be there. Raises ConfigError."""
        if not config.archive.url:
            return
        self.service = service = await asyncio.to_thread(
            ArchiveService, store, config.archive, config.node_id
        )
        if service.cold is not None:
            self.cold = ColdReads(service.cold)
            undo.push_async_callback(asyncio.to_thread, self.cold.close)

    def start(self, rows: Rows, node_id: str, undo: AsyncExitStack) -> None:
        """`rows`: the nodes of the cluster as this one knows them."""
        if (service := self.service) is None:
            return
        undo.push_async_callback(asyncio.to_thread, self._close, service)
        service.start()
        task = asyncio.create_task(_choose(service, rows, node_id), name="archive")
        self._choosing = task
        undo.push_async_callback(self.keep_choice)

    async def keep_choice(self) -> None:
        """At a stop: a node that archives continues to the end, though it has no role any more."""
        if self._choosing is not None:
            await cancelled(self._choosing)

    def faults(self) -> list[str]:
        """What `tandemlog check` warns of."""
        return [] if self.service is None else self.service.faults()

    def statistics(self) -> Mapping[str, float]:
        """By the names of metrics."""
        if self.service is None:
            return {}
        return {**self.service.statistics(), **cold_statistics(self.cold)}

    def _close(self, service: ArchiveService) -> None:
        if self.cold is not None:
            self.cold.close()
        service.close()


async def _choose(service: ArchiveService, rows: Rows, node_id: str) -> None:
    while True:
        service.is_chosen = archiver_of(rows()) == node_id
        await asyncio.sleep(CHOOSE_S)


def archiver_of(rows: Sequence[common_pb2.NodeStatus]) -> str:
    """The node that is to archive: the first slave in sync by its name, else the master; empty if
    neither is known. A RocketMQ broker that counts as in sync has no endpoint, and no archiver."""
    slaves = sorted(
        row.node_id for row in rows if row.role == common_pb2.SLAVE and row.in_sync and row.endpoint
    )
    masters = [row.node_id for row in rows if row.role == common_pb2.MASTER]
    return next(iter([*slaves, *masters]), "")
