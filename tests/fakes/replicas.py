"""Real stores that replicate over real gRPC on loopback, in one event loop and with short times."""

import asyncio
import contextlib
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpc import aio

from fakes.batches import Put, batch_of
from tandemlog_server.ha.config import HaConfig, Replication, Role
from tandemlog_server.ha.master.replication_master import ReplicationMaster
from tandemlog_server.ha.protocol.proof import Prove, proven_service
from tandemlog_server.ha.slave.slave import ReplicationSlave
from tandemlog_server.storage.clock import Clock, SystemClock
from tandemlog_server.storage.config import ConfirmSource, FlushMode, StoreConfig
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

TIMEOUT_S = 20.0
STEP_S = 0.005
HA = HaConfig(
    "cluster",
    "unnamed",
    heartbeat_ms=50,
    dead_after_ms=1_000,
    replica_lag_time_ms=1_000,
    rejoin_ms=50,
    metadata_interval_ms=20,
    members_interval_ms=50,
    reconnect_min_ms=10,
    reconnect_max_ms=100,
    refused_retry_ms=100,
    chunk_bytes=1500,
    window_bytes=6000,
    flush_batch_bytes=4000,
)


async def eventually(holds: Callable[[], bool]) -> None:
    """Until `holds()`; fails after TIMEOUT_S."""
    for _ in range(round(TIMEOUT_S / STEP_S)):
        if holds():
            return
        await asyncio.sleep(STEP_S)
    raise AssertionError(f"it has not come to hold in {TIMEOUT_S} s")


class Replica:
    """A node without services: a store in `directory`, and the role it was started with."""

    def __init__(
        self,
        directory: Path,
        name: str,
        *,
        called: str = "",
        clock: Clock | None = None,
        file_size: int = 8192,
        **settings: object,
    ) -> None:
        self.config = replace(HA, node_id=called or name, **settings)  # type: ignore[arg-type]
        self.clock = clock or SystemClock()
        self.store_config = StoreConfig(
            directory=directory / name,
            commit_log_file_size=file_size,
            queue_file_size=400,
            index_slots=16,
            index_entries=40,
            flush=FlushMode.SYNC,
            flush_interval_ms=5,
            confirm=ConfirmSource.REPLICATION,
        )
        self.port = 0
        self.prove: Prove | None = None
        self.store: MessageStore
        self.master: ReplicationMaster
        self.slave: ReplicationSlave
        self._server: aio.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def open(self) -> None:
        self.store = await asyncio.to_thread(MessageStore.open, self.store_config)
        self.store.start()

    async def lead(self, **settings: object) -> None:
        """Open the store and serve as master, on the same port every time."""
        await self.open()
        self.config = replace(self.config, role=Role.MASTER, **settings)  # type: ignore[arg-type]
        self._server = aio.server(options=(("grpc.so_reuseport", 0),))
        self.port = self._server.add_insecure_port(self.endpoint)
        self.master = ReplicationMaster(
            self.store, replace(self.config, endpoint=self.endpoint), self.clock
        )
        await self.master.start()
        service = self.master.servicer
        if self.prove is not None:
            service = proven_service(service, self.prove)
        service.add_to(self._server)
        await self._server.start()
        if self.store.topics.get("T") is None:
            self.store.topics.create(TopicConfig("T", 4, 4), 1)

    async def follow(self, master: "Replica", **settings: object) -> None:
        """Open the store and follow `master`."""
        await self.open()
        self.config = replace(
            self.config,
            role=Role.SLAVE,
            master_endpoint=master.endpoint,
            endpoint=f"{self.store_config.directory.name}:1",
            **settings,  # type: ignore[arg-type]
        )
        self.slave = ReplicationSlave(self.store, self.config, self.clock)
        self._task = asyncio.create_task(self.slave.run())

    async def stop(self) -> None:
        """End the role and close the store; a second call does nothing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._server is not None:
            await self.master.close()
            await self._server.stop(None)
            self._server = None
        if hasattr(self, "store"):
            await asyncio.to_thread(self.store.close)

    def wipe(self) -> None:
        """The disk is lost."""
        shutil.rmtree(self.store_config.directory)

    def put(self, count: int = 1, size: int = 100) -> int:
        """`count` messages in one batch; where the log ends then."""
        batch = batch_of([Put("T", number % 4, b"%d" % number * size) for number in range(count)])
        return self.store.put(batch).end_offset

    def log(self) -> bytes:
        """The whole log."""
        data, position = b"", self.store.log.min_offset
        while position < self.store.log.committed.value:
            piece = bytes(self.store.log.read(position, 1 << 20))
            data += piece
            position += len(piece)
        return data

    async def confirmed(self, offset: int) -> None:
        await eventually(lambda: self.store.confirmed.value >= offset)

    async def caught_up(self, master: "Replica") -> None:
        """This slave holds and has confirmed all that the master has."""
        end = master.store.log.wrote.value
        await eventually(
            lambda: self.store.log.flushed.value == end and self.store.confirmed.value == end
        )


SYNC: dict[str, Any] = {"mode": Replication.SYNC, "min_in_sync": 2}


Make = Callable[..., Replica]
