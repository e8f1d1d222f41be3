"""The HA port: the slaves' connections, their bounds, and what the list of nodes says of them.

accept ──▶ is the address listed? is there room? ──▶ SlaveStream ──▶ rows
log.committed, store.confirmed ──▶ one wake-up for all that moves meanwhile
every second: who is silent, who needs a heartbeat
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.master.replication_master import ReplicationMaster

from .peers import Door, Peers, plain_address
from .refused_brokers import RefusedBrokers
from .stream import SlaveStream, broker_id

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

MAX_SLAVES: Final = 32
MAX_OF_ONE_ADDRESS: Final = 8
TICK_S: Final = 1.0
CLOSE_S: Final = 1.0


class HaServer:
    """See the module. `start`, then `stop`; lives in one event loop."""

    def __init__(self, master: ReplicationMaster, peers: Peers) -> None:
        self.streams: set[SlaveStream] = set()
        self.sent_to: dict[str, int] = {}
        self.refused = RefusedBrokers(master.store.config.directory, master.files)
        self._searching = asyncio.Lock()
        self._master = master
        self._peers = peers
        self._door = Door(peers, MAX_SLAVES, MAX_OF_ONE_ADDRESS)
        self._server: asyncio.Server | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._serving: set[asyncio.Task[None]] = set()
        self._unlisten: list[Callable[[], None]] = []
        self._loop = asyncio.get_running_loop()
        self._moved_pending = False

    @property
    def port(self) -> int:
        assert self._server is not None, "start comes first"
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, address: tuple[str, int]) -> None:
        """Raises OSError if the address cannot be listened on."""
        await self._master.short_read(self.refused.load)
        # known to stop() before it listens: a cancel may come in between
        self._server = await asyncio.start_server(self._accept, *address, start_serving=False)
        await self._server.start_serving()
        store = self._master.store
        self._unlisten = [
            store.log.committed.listen(self._notify),
            store.confirmed.listen(self._notify),
        ]
        self._ticker = asyncio.create_task(self._tick_for_ever(), name="rocketmq-ha")

    async def stop(self) -> None:
        """No byte is sent, and no acknowledgement counts, from the first line on."""
        for stream in [*self.streams]:
            stream.close("this node is no longer the master")
        for remove in self._unlisten:
            remove()
        if self._server is not None:
            self._server.close()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        if self._serving:
            await asyncio.wait(self._serving, timeout=CLOSE_S)

    def rows(self) -> list[common_pb2.NodeStatus]:
        """The slaves that do not count; the master's group has the others."""
        now = self._master.clock.monotonic()
        return [
            stream.row(now)
            for stream in sorted(self.streams, key=lambda each: each.node_id)
            if not stream.counts and stream.session.streaming
        ]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer, port = writer.get_extra_info("peername")[:2]
        address = str(plain_address(peer))
        fault = self._door.fault(address)
        if fault and self._door.worth_logging(address, self._master.clock.monotonic()):
            logger.warning("a RocketMQ slave at %s was turned away: %s", address, fault)
        if fault or self._server is None or not self._server.is_serving():
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        self._door.enter(address)
        try:
            await self._serve(reader, writer, address, port)
        finally:
            self._serving.discard(task)
            self._door.leave(address)

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, port: int
    ) -> None:
        counts = self._peers.counts(address)
        node_id = broker_id(address)
        if not counts and any(each.node_id == node_id for each in self.streams):
            node_id = broker_id(f"{address}:{port}")
        stream = SlaveStream(
            self._master,
            reader,
            writer,
            node_id=node_id,
            address=address,
            counts=counts,
            sent_to=self.sent_to,
            refused=self.refused,
            searching=self._searching,
        )
        self.streams.add(stream)
        try:
            await stream.serve()
        finally:
            self.streams.discard(stream)
            self._log_end(stream, address)

    def _log_end(self, stream: SlaveStream, address: str) -> None:
        """A slave that is refused connects again every few seconds: logged once a minute."""
        session = stream.session
        if not session.fault:
            logger.info(
                "RocketMQ slave %s: sent=%d acknowledged=%d: %s",
                stream.node_id, session.sent, session.acked, session.closed_reason,
            )  # fmt: skip
        elif self._door.worth_logging(address, self._master.clock.monotonic()):
            logger.warning("RocketMQ slave refused: %s", session.closed_reason)

    async def _tick_for_ever(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.tick()

    def tick(self) -> None:
        """Close the slaves that are silent; send heartbeats to those that wait for one."""
        now = self._master.clock.monotonic()
        for stream in [*self.streams]:
            stream.tick(now)

    def _notify(self) -> None:
        # in the thread that moved the position
        if not self._moved_pending:
            self._moved_pending = True
            self._loop.call_soon_threadsafe(self._moved)

    def _moved(self) -> None:
        self._moved_pending = False
        for stream in self.streams:
            stream.wake.set()
