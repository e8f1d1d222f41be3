"""The producer for asyncio: one message at a time, or many.

    async with AsyncProducer("10.0.0.1:10911") as producer:
        future = await producer.send(Message("orders", b"..."))   # waits for room only
        result = await future                                      # waits for the response

`send` returns once the message is in a batch; the future gives its position, or the error.
"""

import asyncio
import logging
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Self

from ..cluster.connection_options import secured
from ..delayed import Later
from ..errors import BufferFullError, ClientClosedError
from ..forks import inherited, watch
from ..in_transaction import InTransaction
from ..message import Bodies, Column, Message, Queues, SendManyResult, SendResult
from ..telemetry.producer_statistics import ProducerStatistics
from ..tracing import ProducerTracing, sending_many
from ..transport.security import Security
from .delays import later_of
from .framing import place_of
from .futures import AsyncGroup
from .producer_core import ProducerCore
from .producer_options import ProducerOptions
from .put_batch import PutBatch, durability_of
from .recalls import recall
from .send_many import Collector, ManySender
from .sender import Sender
from .transaction_checks import TransactionChecker
from .transactions import AsyncTransaction

logger = logging.getLogger(__name__)


class AsyncProducer:
    """Sends to the master of the cluster that `endpoints` belong to. Not for several event
    loops. Open it with `async with`, or `open` and `close`."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        options: ProducerOptions | None = None,
        *,
        security: Security | None = None,
        transaction_checker: TransactionChecker | None = None,
    ) -> None:
        self._endpoints = endpoints
        self._options = options or ProducerOptions()
        if security is not None:
            self._options = replace(
                self._options, connection=secured(self._options.connection, security)
            )
        if transaction_checker is not None:
            self._options = replace(self._options, transaction_checker=transaction_checker)
        self._tracing = ProducerTracing() if self._options.trace else None
        self._watched = self._tracing is not None or bool(self._options.hooks)
        self._core: ProducerCore[asyncio.Future[SendResult]] | None = None
        watch(self)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Finds the master; raises NoMasterError after the connection's retry_timeout_ms."""
        if self._core is not None:
            return
        loop = asyncio.get_running_loop()
        core: ProducerCore[asyncio.Future[SendResult]] = ProducerCore(
            self._endpoints,
            self._options,
            new_group=lambda: AsyncGroup(loop),
            wake=lambda: _soon(core, loop),
        )
        await core.open()
        self._framer = core.new_framer()
        self._core = core

    def __del__(self) -> None:
        if not inherited(self) and (core := getattr(self, "_core", None)) is not None:
            _warn_of(core)

    async def close(self, timeout_ms: float = 30_000) -> None:
        """Sends what is buffered, for `timeout_ms` at most; messages without a response then fail
        with OutcomeUnknownError or ClientClosedError."""
        if inherited(self):
            return
        core, self._core = self._core, None
        if core is not None:
            await core.close(timeout_ms / 1000)

    @property
    def producer_id(self) -> str | None:
        """The name under which a node recognises repeated requests; None: it cannot."""
        return self._opened().numbers.producer_id

    async def send(
        self,
        message: Message,
        *,
        wait: bool = True,
        delay: timedelta | None = None,
        deliver_at: datetime | int | None = None,
    ) -> asyncio.Future[SendResult]:
        """Sends a message, in order for its queue; waits while too many bytes have no response.

        `wait` False: the master responds once it has appended the message, without waiting for
        flush or replicas. With `delay`, or `deliver_at` (a datetime with a time zone, or ms), the
        message waits in the store, and comes to its queue at that time by the master's clock; the
        result has `deliver_at_ms` and `recall_handle`. Raises InvalidMessageError and its
        subclasses, UnknownTopicError, UnknownQueueError, BufferFullError; the future raises the
        errors of the request.
        """
        later = None
        if delay is not None or deliver_at is not None:
            later = later_of(delay, deliver_at)
        if self._watched:
            return await self._send_watched(message, later, wait=wait)
        return await self._send(message, later, wait=wait)

    async def _send_watched(
        self, message: Message, later: Later | InTransaction | None, *, wait: bool
    ) -> asyncio.Future[SendResult]:
        on_send = self._opened().hooks.on_send
        if on_send is not None:
            message = on_send(message)
        if self._tracing is not None:
            return await self._send_traced(self._tracing, message, later, wait=wait)
        return await self._send(message, later, wait=wait)

    async def _send_traced(
        self,
        tracing: ProducerTracing,
        message: Message,
        later: Later | InTransaction | None,
        *,
        wait: bool,
    ) -> asyncio.Future[SendResult]:
        span, message = tracing.start(message)
        try:
            future = await self._send(message, later, wait=wait)
        except BaseException as error:
            tracing.fail(span, error)
            raise
        tracing.end_with(span, future)
        return future

    async def _send(
        self, message: Message, later: Later | InTransaction | None, *, wait: bool
    ) -> asyncio.Future[SendResult]:
        core = self._core or self._opened()
        accumulator = core.accumulator
        route = core.routes.get(message.topic)
        queue_id = message.queue_id
        if route is None or (queue_id is not None and queue_id >= route.queues):
            route = await core.routes.load(message.topic)
        queue_id = route.queue_for(queue_id, message.sharding_key, accumulator.generation)
        topic, own, delayed = message.topic, None, None
        if later is None:
            record, own, size = self._framer.row(message, queue_id)
        else:
            record, delayed = self._framer.waiting(message, queue_id, later)
            size, (topic, queue_id) = len(record), place_of(later)
        durability = durability_of(wait)
        add = partial(accumulator.add, record, topic, queue_id, durability, own, size, delayed)
        future = add()
        if future is None:
            deadline = time.monotonic() + self._options.max_block_ms / 1000
            while future is None:
                await self._room(size, deadline)
                future = add()
        return future

    def transaction(self, message: Message | Sequence[Message] = ()) -> AsyncTransaction:
        """A transaction: its messages, `message` (one, or several) first, and the offsets of groups
        in it are seen together or not at all. Use it with `async with`: left normally it
        commits, left by an error it rolls back.

            async with producer.transaction(Message("orders", b"...")) as t:
                await t.send(Message("invoices", b"..."))
                t.commit_offsets(stream)

        One that is never ended, since the program died, is asked about: the master calls the
        `transaction_checker` of a producer of the same transaction_group, and rolls it back if
        none knows it (docs/client.md). Raises what AsyncProducer.send raises, when it is entered.
        """
        first = (message,) if isinstance(message, Message) else tuple(message)
        return AsyncTransaction(self._opened().new_transaction(), self._send_in, first)

    async def _send_in(
        self, message: Message, transaction: InTransaction
    ) -> asyncio.Future[SendResult]:
        if self._watched:
            return await self._send_watched(message, transaction, wait=True)
        return await self._send(message, transaction, wait=True)

    async def recall(self, topic: str, recall_handle: str) -> None:
        """Calls a message back that was sent to come later; once it returns, the message never
        comes. Raises NotWaitingError if it came already, or the cluster knows of no such message.
        """
        await recall(self._opened().connection, topic, recall_handle)

    async def send_many(
        self,
        topic: str | None,
        bodies: Bodies,
        *,
        keys: Column = None,
        tags: Column = None,
        queues: Queues = None,
        sharding_keys: Column = None,
        topics: Column = None,
        properties: dict[str, str] | None = None,
        wait: bool = True,
    ) -> SendManyResult:
        """Sends many messages and waits for all; returns one result with arrays. See
        Producer.send_many."""
        core = self._opened()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        collector = Collector(lambda: _finish(done))
        with sending_many(self._tracing, topic) as span:
            try:
                sender = ManySender(
                    core, self._framer, collector,
                    properties=properties, wait=wait, carried=span.carried,
                    on_send=core.hooks.on_send,
                )  # fmt: skip
                for batch in sender.batches(
                    topic, bodies, keys=keys, tags=tags, queues=queues,
                    sharding_keys=sharding_keys, topics=topics,
                ):  # fmt: skip
                    if isinstance(batch, tuple):
                        await core.routes.load_all(batch)
                    else:
                        await self._submit(batch, collector)
            except Exception as error:
                collector.stopped(error)
            collector.complete()
            await done
            return span.noted(collector.result())

    def statistics(self) -> ProducerStatistics:
        """What it has sent, how long that took, and what waits now."""
        return self._opened().statistics()

    async def flush(self) -> None:
        """Waits until every message sent before has been acknowledged or has failed."""
        await self._sender().flush()

    async def _submit(self, batch: PutBatch, collector: Collector) -> None:
        try:
            accumulator = self._opened().accumulator
            deadline = time.monotonic() + self._options.max_block_ms / 1000
            while not accumulator.submit(batch):
                await self._room(batch.byte_size, deadline)
        except BaseException:
            collector.withdrawn()
            raise
        await asyncio.sleep(0)  # framing a request takes a while: others get their turn

    async def _room(self, size: int, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise self._full()
        await self._sender().wait_for_room(size, left)

    def _full(self) -> BufferFullError:
        return self._opened().accumulator.full(self._options.max_block_ms / 1000)

    def _opened(self) -> ProducerCore[asyncio.Future[SendResult]]:
        if self._core is None:
            raise ClientClosedError("the producer is not open: use `async with` or open()")
        self._core.connection.check_loop()
        return self._core

    def _sender(self) -> Sender:
        sender = self._opened().sender
        assert sender is not None
        return sender


def _soon(core: ProducerCore[asyncio.Future[SendResult]], loop: asyncio.AbstractEventLoop) -> None:
    core.connection.check_loop()
    loop.call_soon(core.send_due)


def _warn_of(core: ProducerCore[asyncio.Future[SendResult]]) -> None:
    waiting, size = core.accumulator.held_messages, core.accumulator.held_bytes
    lost = f": {waiting} messages were not sent, {size} bytes have no answer" if size else ""
    text = f"an AsyncProducer was not closed{lost}; use `async with`, or await close()"
    if size:
        logger.warning("%s", text)
    warnings.warn(text, ResourceWarning, stacklevel=2)


def _finish(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
