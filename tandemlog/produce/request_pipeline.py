"""Requests on their way to the master: what every sender of messages is built on.

    any thread                                  event loop
      records  ── accumulator.add ─┐
      requests ── offer ───────────┴─▶ accumulator ─▶ sender ─▶ master
      outcome of each request   ◀── its sink ◀──────────────────┘

A producer adds records one by one and gets them collected into requests; Spark's sink frames its
requests itself, and offers them whole.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from ..cluster.connection import Connection
from ..cluster.endpoints import own_address
from ..errors import (
    BufferFullError,
    PropertiesTooLargeError,
    TandemlogError,
    UnknownQueueError,
    UnknownTopicError,
)
from ..format.constants import MAX_GRPC_MESSAGE
from ..lazy import lazy
from ..put_answer import PutAnswer
from ..telemetry.producer_statistics import ProducerCounters
from .accumulator import Accumulator, FutureGroup
from .chain import Numbers
from .framing import USER_PROPERTIES_LIMIT, Framer
from .futures import SendFuture, SyncGroup
from .put_batch import CallbackSink, PutBatch, durability_of
from .routes import RouteTable
from .row_framing import RowFramer
from .sender import RequestOptions, Sender

if TYPE_CHECKING:
    from ..format.arrays.byte_column import ByteColumn
    from ..format.record.batch import RecordBatch
    from . import column_framing
else:
    column_framing = lazy(f"{__package__}.column_framing")

FutureT = TypeVar("FutureT")

_REQUEST_MARGIN: Final = 1 << 20
"""Bytes of a gRPC message left for what is not the body."""


class RequestPipeline(Generic[FutureT]):
    """Sends the requests of one writer in order, over a connection that stays the caller's.

    Made, opened and closed in the event loop that owns the connection. From `open` to `close` any
    thread may give it requests. Each request's sink always gets one outcome, in the loop: the
    positions of its records, or the error. What may pass is repeated until
    `delivery_seconds` are over; what a node stored once is never stored again under its number.
    `wake` is called from any thread, and must have `send_due` called in the loop.
    """

    def __init__(
        self,
        connection: Connection,
        options: RequestOptions,
        numbers: Numbers,
        *,
        named: bool,
        new_group: Callable[[], FutureGroup[FutureT]],
        wake: Callable[[], object],
    ) -> None:
        """`named`: the caller has chosen the name under which the requests are numbered."""
        self.connection = connection
        self.options = options
        self.numbers = numbers
        self.routes = RouteTable(connection.topics, self._empty_size)
        self.accumulator: Accumulator[FutureT] = Accumulator(
            batch_bytes=options.batch_bytes,
            max_bytes=options.max_in_flight_bytes,
            delivery_seconds=options.delivery_seconds,
            new_group=new_group,
            wake=wake,
        )
        self.sender: Sender | None = None
        self.max_request_bytes = options.batch_bytes
        """Of the cluster's largest request; known once open."""
        self._named = named
        self._born_address = "127.0.0.1"
        self._store_ipv6 = False
        self._max_body = 4 << 20
        self._framer: Framer | None = None
        # the event loop's
        self._row_framer: Framer | None = None

    @staticmethod
    async def with_fixed_numbers(
        connection: Connection,
        producer_id: str | None,
        epoch: int,
        *,
        batch_bytes: int,
        answer_seconds: float,
        unique_ids: bool,
    ) -> "RequestPipeline[SendFuture]":
        """An open one, for whole requests that another attempt makes again: the nth that is
        offered has the number n of `epoch`, and the first that would need another number fails,
        with all behind it. No request expires. `producer_id` None: a random name, so that only
        this attempt knows its requests again. Raises NoMasterError as `open`."""
        loop = asyncio.get_running_loop()
        pipeline: RequestPipeline[SendFuture] = RequestPipeline(
            connection,
            RequestOptions(batch_bytes, answer_seconds, unique_ids=unique_ids),
            Numbers(producer_id or os.urandom(8).hex(), epoch=epoch, fixed=True),
            named=producer_id is not None,
            new_group=SyncGroup,
            wake=lambda: loop.call_soon_threadsafe(pipeline.send_due),
        )
        await pipeline.open()
        return pipeline

    async def open(self) -> None:
        """Finds the master and learns the cluster's limits; raises NoMasterError if no node reports
        that it is the master for retry_timeout_ms."""
        await self.connection.wait_for_master()
        topology = self.connection.topology
        master = topology.master
        if master is not None:
            self._born_address = await own_address(master.endpoint)
            self._store_ipv6 = master.store_host.startswith("[")
        largest = MAX_GRPC_MESSAGE - _REQUEST_MARGIN
        self._max_body = min(topology.max_message_size, largest)
        self.max_request_bytes = min(topology.max_batch_size, largest)
        options = self.options
        self._row_framer = self.new_framer()
        self.accumulator.rows = RowFramer(self._row_framer)
        self.accumulator.batch_bytes = min(options.batch_bytes, self.max_request_bytes)
        self.sender = Sender(
            self.connection,
            self.accumulator,
            self.numbers,
            options,
            named=self._named,
            refused=self._refused,
            counters=ProducerCounters(options.delivery_seconds, hooks=options.hooks),
        )

    async def close(self, seconds: float) -> None:
        """Sends what is there, at most `seconds` long; the rest fails."""
        if self.sender is not None:
            await self.sender.close(seconds)

    def send_due(self) -> None:
        """In the loop, after a wake."""
        if self.sender is not None:
            self.sender.send_due()

    def new_framer(self) -> Framer:
        """With the cluster's limits; for one thread."""
        return Framer(
            born_address=self._born_address,
            store_ipv6=self._store_ipv6,
            max_body=self._max_body,
            compress_above=self.options.compress_above,
            unique_ids=self.options.unique_ids,
        )

    @property
    def plain_limit(self) -> int:
        """Bytes of a body up to which it is stored as it is; known once open."""
        above = self.options.compress_above
        return self._max_body if above is None else min(self._max_body, above - 1)

    def _empty_size(self, topic: str) -> int:
        assert self._row_framer is not None
        return self._row_framer.empty_size(topic)

    def frame(self, *, bodies: "ByteColumn", **columns: Any) -> "RecordBatch":
        """The records of a request from rows that know their queues; `columns` as framed_columns
        takes them. For one thread, once open.

        Raises MessageTooLargeError and PropertiesTooLargeError with the row as `record_index`,
        InvalidTopicNameError, and FormatError for what no record can be made of.
        """
        framer = self._framer = self._framer or self.new_framer()
        column_framing.check_bodies(bodies, framer.max_body)
        batch = column_framing.framed_columns(framer, bodies=bodies, **columns).batch
        # The first record gets the writer's mark beside its own properties.
        first = int(batch.sizes[0]) - int(bodies.lengths[0])
        if first > USER_PROPERTIES_LIMIT:
            raise PropertiesTooLargeError(
                f"keys, tags and properties take about {first} bytes, the limit is "
                f"{USER_PROPERTIES_LIMIT}",
                field="properties",
                limit=USER_PROPERTIES_LIMIT,
                actual=first,
                record_index=0,
            )
        return batch

    def request(
        self,
        batch: "RecordBatch",
        *,
        wait: bool,
        checksum: int,
        acknowledged: Callable[[PutAnswer], None],
        failed: Callable[[TandemlogError], None],
    ) -> PutBatch:
        """The records of `frame` as a request to offer; one of `acknowledged` and `failed` is
        called once, in the loop. `wait` as in Producer.send, `checksum` as in PutBatch."""
        return column_framing.FramedColumns(batch).put_batch(
            durability_of(wait),
            CallbackSink(acknowledged, failed),
            time.monotonic() + self.options.delivery_seconds,
            checksum,
        )

    def offer(self, request: PutBatch, seconds: float) -> bool:
        """Takes a request behind all that was taken before; False if there was no room for
        `seconds`. Raises why nothing is taken any more."""
        if self.accumulator.submit(request):
            return True
        with contextlib.suppress(BufferFullError):
            self.accumulator.wait_for_room(request.byte_size, seconds)
        return self.accumulator.submit(request)

    def _refused(self, batch: PutBatch, error: TandemlogError) -> None:
        if isinstance(error, UnknownTopicError | UnknownQueueError):
            self.routes.forget([topic for topic, _ in batch.queues()])
