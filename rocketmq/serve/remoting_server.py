"""The remoting port: the few requests by which a slave broker copies its master's tables.

Everything else is refused with a sentence: RocketMQ's clients find no route here, because no topic
is registered, but an operator may point a tool at this port.
"""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.ha.store_port import StorePort
from tandemlog_server.storage.errors import StoreError

from ..wire import requests
from ..wire.remoting import (
    NOT_SUPPORTED,
    SYSTEM_ERROR,
    Command,
    CommandReader,
    encode_command,
)
from . import tables
from .peers import Door, Peers, plain_address

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 64
MAX_OF_ONE_ADDRESS: Final = 16
REQUEST_BYTES: Final = 256 << 10
IDLE_S: Final = 120.0
"""As RocketMQ's own server: a slave asks every 60 s."""
CLOSE_S: Final = 1.0
WRITE_S: Final = 30.0
PATIENCE_S: Final = 3.0
"""How long a slave waits for a table."""
READ_BYTES: Final = 64 << 10
MAX_BODY_BYTES: Final = 16 << 20
"""RocketMQ's reader closes the connection at a larger frame, by default."""
REMARK: Final = (
    "this is a tandemlog node, which RocketMQ's clients cannot use: it answers only what a slave "
    "broker asks its master for"
)

Document = Callable[[StorePort], bytes]

DOCUMENTS: Final[dict[int, Document]] = {
    requests.GET_ALL_TOPIC_CONFIG: tables.topics,
    requests.GET_ALL_CONSUMER_OFFSET: tables.consumer_offsets,
    requests.GET_ALL_DELAY_OFFSET: tables.delay_offsets,
    requests.GET_ALL_SUBSCRIPTION_GROUP_CONFIG: tables.groups,
    requests.GET_ALL_MESSAGE_REQUEST_MODE: tables.request_modes,
    requests.GET_TIMER_CHECK_POINT: lambda _: tables.timer_checkpoint(),
    requests.GET_TIMER_METRICS: lambda _: tables.timer_metrics(),
}


def answer(request: Command, store: StorePort) -> Command:
    """The response to `request`. Encodes whole tables: not in the event loop."""
    document = DOCUMENTS.get(request.code)
    if document is None:
        return request.response(code=NOT_SUPPORTED, remark=f"request {request.code}: {REMARK}")
    try:
        body = document(store)
    except StoreError as error:
        return request.response(code=SYSTEM_ERROR, remark=str(error))
    if len(body) > MAX_BODY_BYTES:
        remark = f"the table has {len(body)} bytes, RocketMQ reads at most {MAX_BODY_BYTES}"
        logger.error("request %d of a RocketMQ slave cannot be answered: %s", request.code, remark)
        return request.response(code=SYSTEM_ERROR, remark=remark)
    return request.response(body)


class RemotingServer:
    """See the module. It listens on several addresses: RocketMQ has a port for administration, 2
    below the other one. Lives in one event loop."""

    def __init__(self, store: StorePort, peers: Peers, *, idle_s: float = IDLE_S) -> None:
        self._store = store
        self._door = Door(peers, MAX_CONNECTIONS, MAX_OF_ONE_ADDRESS)
        self._idle_s = idle_s
        # one: encoding a table holds its lock, and takes a processor
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="rocketmq-tables")
        self._servers: list[asyncio.Server] = []
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def ports(self) -> list[int]:
        return [int(each.sockets[0].getsockname()[1]) for each in self._servers]

    async def start(self, *addresses: tuple[str, int]) -> None:
        """Raises OSError if one cannot be listened on."""
        for host, port in addresses:
            server = await asyncio.start_server(self._accept, host, port, start_serving=False)
            self._servers.append(server)
            await server.start_serving()

    async def stop(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._open.values():
            writer.transport.abort()
        if self._open:
            await asyncio.wait([*self._open], timeout=CLOSE_S)
        self._worker.shutdown(wait=False)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str(plain_address(writer.get_extra_info("peername")[0]))
        fault = self._door.fault(address)
        if fault or not any(each.is_serving() for each in self._servers):
            if fault and self._door.worth_logging(address, asyncio.get_running_loop().time()):
                logger.warning("remoting from %s was turned away: %s", address, fault)
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        self._door.enter(address)
        try:
            await self._serve(reader, writer)
        except (OSError, TimeoutError) as error:
            logger.debug("remoting from %s ended: %r", address, error)
        except ProtocolError as error:
            if self._door.worth_logging(address, asyncio.get_running_loop().time()):
                logger.warning("remoting from %s: %s", address, error)
        finally:
            del self._open[task]
            self._door.leave(address)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request after the other, until the peer closes or is idle."""
        commands, loop = CommandReader(REQUEST_BYTES), asyncio.get_running_loop()
        while True:
            async with asyncio.timeout(self._idle_s):
                data = await reader.read(READ_BYTES)
            if not data:
                return
            for request in commands.feed(data):
                if request.is_response or request.is_oneway:
                    continue
                began = loop.time()
                response = await loop.run_in_executor(self._worker, answer, request, self._store)
                if loop.time() - began > PATIENCE_S:
                    logger.warning(
                        "request %d of a RocketMQ slave took %.1f s; it waits for 3 s",
                        request.code, loop.time() - began,
                    )  # fmt: skip
                writer.write(encode_command(response))
                async with asyncio.timeout(WRITE_S):
                    await writer.drain()
