"""What both faces of the producer share: everything but how a caller waits.

face (caller's thread)            core (event loop)
  frame, queue, add ────────────▶ accumulator ─▶ sender ─▶ master
  routes.get                      routes.load, and again every route_max_age_ms
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from ..cluster.connection import MAX_GRPC_MESSAGE, Connection
from ..cluster.endpoints import own_address
from ..errors import TandemlogError, UnknownQueueError, UnknownTopicError
from ..v1 import broker_pb2
from .accumulator import Accumulator, FutureGroup
from .chain import Numbers
from .framing import Framer
from .options import ProducerOptions
from .put_batch import PutBatch
from .routes import RouteTable
from .sender import Sender, SenderOptions

logger = logging.getLogger(__name__)

FutureT = TypeVar("FutureT")

_REQUEST_MARGIN = 1 << 20
"""Bytes of a gRPC message left for what is not the body."""


class ProducerCore(Generic[FutureT]):
    """Made and closed in the event loop that owns it. `wake` is called from any thread and must
    have `look` called in the loop."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        options: ProducerOptions,
        *,
        new_group: Callable[[], FutureGroup[FutureT]],
        wake: Callable[[], None],
    ) -> None:
        self.options = options
        self.connection = Connection(endpoints, options.connection)
        self.routes = RouteTable(self.connection.topics)
        self.numbers = _numbers(options)
        self.accumulator: Accumulator[FutureT] = Accumulator(
            batch_bytes=options.batch_bytes,
            max_bytes=options.max_in_flight_bytes,
            delivery_seconds=options.delivery_timeout_ms / 1000,
            new_group=new_group,
            wake=wake,
        )
        self.sender: Sender | None = None
        self.max_batch_bytes = options.batch_bytes
        self._refresher: asyncio.Task[None] | None = None
        self._born_address = "127.0.0.1"
        self._store_ipv6 = False
        self._max_body = 4 << 20

    async def open(self) -> None:
        """Finds the master and learns the cluster's limits; raises NoMasterError when nobody
        says that it is, retry_timeout_ms long."""
        try:
            await self.connection.on_master(_itself)
        except BaseException:
            await self.connection.close()
            raise
        topology = self.connection.topology
        master = topology.master
        if master is not None:
            self._born_address = await own_address(master.endpoint)
            self._store_ipv6 = master.store_host.startswith("[")
        self._max_body = min(topology.max_message_size, MAX_GRPC_MESSAGE - _REQUEST_MARGIN)
        self.max_batch_bytes = min(
            self.options.batch_bytes, topology.max_batch_size, MAX_GRPC_MESSAGE - _REQUEST_MARGIN
        )
        self.accumulator.batch_bytes = self.max_batch_bytes
        options = self.options
        self.sender = Sender(
            self.connection,
            self.accumulator,
            self.numbers,
            SenderOptions(
                linger_seconds=options.linger_ms / 1000,
                answer_seconds=options.answer_timeout_ms / 1000,
                delivery_seconds=options.delivery_timeout_ms / 1000,
                max_requests_in_flight=options.max_in_flight_requests,
            ),
            named=options.producer_id is not None,
            refused=self._refused,
        )
        self._refresher = asyncio.get_running_loop().create_task(self._refresh_routes())

    async def close(self, seconds: float) -> None:
        """Sends what is there, at most `seconds` long, and closes the connection."""
        if self._refresher is not None:
            self._refresher.cancel()
            await asyncio.gather(self._refresher, return_exceptions=True)
        if self.sender is not None:
            await self.sender.close(seconds)
        await self.connection.close()

    def look(self) -> None:
        if self.sender is not None:
            self.sender.look()

    @staticmethod
    def now() -> float:
        """The clock of all deadlines."""
        return time.monotonic()

    def new_deadline(self) -> float:
        """When the outcome of a request that is made now must be known."""
        return time.monotonic() + self.options.delivery_timeout_ms / 1000

    def new_framer(self) -> Framer:
        """For one thread."""
        return Framer(
            born_address=self._born_address,
            store_ipv6=self._store_ipv6,
            max_body=self._max_body,
            compress_above=self.options.compress_above,
            unique_ids=self.options.unique_ids,
        )

    def _refused(self, batch: PutBatch, error: TandemlogError) -> None:
        if isinstance(error, UnknownTopicError | UnknownQueueError):
            self.routes.forget(batch.topics)

    async def _refresh_routes(self) -> None:
        while True:
            await asyncio.sleep(self.options.route_max_age_ms / 1000)
            await self.routes.refresh()


async def _itself(node: object) -> None:
    """For on_master: it is enough that there is one."""


def _numbers(options: ProducerOptions) -> Numbers:
    if not options.idempotent:
        return Numbers(None)
    if options.producer_id is None:
        return Numbers(secrets.token_hex(8))
    if options.epoch is not None:
        return Numbers(options.producer_id, epoch=options.epoch, fixed=True)
    return Numbers(options.producer_id, epoch=-1, settled=False)


def durability_of(wait: bool) -> broker_pb2.Durability.ValueType:
    """`wait` False: answered once appended, RocketMQ's WAIT=false."""
    return broker_pb2.CLUSTER if wait else broker_pb2.NO_WAIT
