"""The producer without asyncio: the same names, from any number of threads.

    with Producer("10.0.0.1:10911") as producer:
        future = producer.send(Message("orders", b"..."))
        result = future.result()

Messages are framed in the calling thread and collected under one lock; the loop's thread gets only
whole requests. So a send does not have to switch threads, which is why this is by hand: a generated
one would call AsyncProducer for each message.
"""

import atexit
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Self

from ..cluster.connection_options import secured
from ..errors import ClientClosedError
from ..forks import inherited, watch
from ..lazy import lazy
from ..message import Bodies, Column, Message, Queues, SendManyResult
from ..produce.producer_options import ProducerOptions
from ..tracing import ProducerTracing, sending_many
from ..transport.security import Security
from .loop_thread import LoopThread

if TYPE_CHECKING:
    from ..delayed import Later
    from ..in_transaction import InTransaction
    from ..produce import delays, framing, futures, producer_core, put_batch, recalls
    from ..produce import send_many as many
    from ..produce.framing import Framer
    from ..produce.futures import SendFuture
    from ..produce.routes import Route
    from ..produce.transaction_checks import TransactionChecker
    from ..telemetry.producer_statistics import ProducerStatistics
    from . import sync_transaction
    from .sync_transaction import Transaction
else:
    framing = lazy("tandemlog.produce.framing")
    sync_transaction = lazy(f"{__package__}.sync_transaction")
    delays = lazy("tandemlog.produce.delays")
    recalls = lazy("tandemlog.produce.recalls")
    producer_core = lazy("tandemlog.produce.producer_core")
    futures = lazy("tandemlog.produce.futures")
    put_batch = lazy("tandemlog.produce.put_batch")
    many = lazy("tandemlog.produce.send_many")


class _PerThread(threading.local):
    framer: "Framer | None" = None


class Producer:
    """Sends to the master of the cluster that `endpoints` belong to; open from the start. Raises
    NoMasterError if none is found within the connection's retry_timeout_ms."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        options: ProducerOptions | None = None,
        *,
        security: Security | None = None,
        transaction_checker: "TransactionChecker | None" = None,
    ) -> None:
        self._options = options or ProducerOptions()
        if security is not None:
            self._options = replace(
                self._options, connection=secured(self._options.connection, security)
            )
        if transaction_checker is not None:
            self._options = replace(self._options, transaction_checker=transaction_checker)
        self._tracing = ProducerTracing() if self._options.trace else None
        self._per_thread = _PerThread()
        self._closed = False
        self._thread = LoopThread.of_process()
        # loaded by this thread: in the loop's thread the import would delay other clients
        self._cluster = put_batch.durability_of(wait=True)
        self._no_wait = put_batch.durability_of(wait=False)
        new_core = partial(
            producer_core.ProducerCore, endpoints, self._options,
            new_group=futures.SyncGroup, wake=self._wake,
        )  # fmt: skip
        self._core = self._thread.run(_opened(new_core))
        watch(self)
        # A program that ends without close sends what it has.
        atexit.register(self.close)
        self._accumulator = self._core.accumulator
        self._add = self._accumulator.add
        self._plain_limit = self._core.requests.plain_limit
        self._route = self._core.routes.get
        self._on_send = self._core.hooks.on_send
        self._watched = self._tracing is not None or self._on_send is not None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self, timeout_ms: float = 30_000) -> None:
        """Sends what is buffered, for `timeout_ms` at most; messages without a response then fail
        with OutcomeUnknownError or ClientClosedError."""
        if inherited(self) or self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        self._thread.run(self._core.close(timeout_ms / 1000))

    @property
    def producer_id(self) -> str | None:
        """The name under which a node recognises repeated requests; None: it cannot."""
        return self._core.numbers.producer_id

    def send(
        self,
        message: Message,
        *,
        wait: bool = True,
        delay: timedelta | None = None,
        deliver_at: datetime | int | None = None,
    ) -> "SendFuture":
        """Sends a message, in order for its queue; blocks while too many bytes have no response.

        `wait` False: the master responds once it has appended the message, without waiting for
        flush or replicas. With `delay`, or `deliver_at` (a datetime with a time zone, or ms), the
        message waits in the store, and comes to its queue at that time by the master's clock; the
        result has `deliver_at_ms` and `recall_handle`. Raises InvalidMessageError and its
        subclasses, UnknownTopicError, UnknownQueueError, BufferFullError; the future raises the
        errors of the request.
        """
        if delay is not None or deliver_at is not None:
            later = delays.later_of(delay, deliver_at)
            if self._watched:
                return self._send_watched(message, later, wait=wait)
            return self._send(message, later, wait=wait)
        if self._watched:
            return self._send_watched(message, wait=wait)
        # A short way for what most messages are; it does what `_send` does, in fewer calls.
        body = message.body
        route = self._route(message.topic)
        if (
            route is None
            or body.__class__ is not bytes
            or len(body) > self._plain_limit
            or message.keys
            or message.tags
            or message.properties
            or message.flag
            or message.sharding_key is not None
            or message.born_timestamp is not None
        ):
            return self._send(message, wait=wait)
        queue_id = message.queue_id
        if queue_id is None:
            queue_id = route.queue_for(None, None, self._accumulator.generation)
        elif not 0 <= queue_id < route.queues:
            return self._send(message, wait=wait)
        future = self._add(
            body,
            route.topic,
            queue_id,
            self._cluster if wait else self._no_wait,
            b"",
            route.empty_size + len(body),
        )
        return future or self._send(message, wait=wait)

    def _send_watched(
        self, message: Message, later: "Later | InTransaction | None" = None, *, wait: bool
    ) -> "SendFuture":
        if self._on_send is not None:
            message = self._on_send(message)
        if self._tracing is not None:
            return self._send_traced(self._tracing, message, later, wait=wait)
        return self._send(message, later, wait=wait)

    def _send_traced(
        self,
        tracing: ProducerTracing,
        message: Message,
        later: "Later | InTransaction | None",
        *,
        wait: bool,
    ) -> "SendFuture":
        span, message = tracing.start(message)
        try:
            future = self._send(message, later, wait=wait)
        except BaseException as error:
            tracing.fail(span, error)
            raise
        tracing.end_with(span, future)
        return future

    def _send(
        self, message: Message, later: "Later | InTransaction | None" = None, *, wait: bool
    ) -> "SendFuture":
        accumulator = self._accumulator
        topic, own, delayed = message.topic, None, None
        route = self._route(topic)
        queue_id = message.queue_id
        if route is None or (queue_id is not None and queue_id >= route.queues):
            route = self._load(topic)
        queue_id = route.queue_for(queue_id, message.sharding_key, accumulator.generation)
        framer = self._per_thread.framer or self._new_framer()
        if later is None:
            record, own, size = framer.row(message, queue_id)
        else:
            record, delayed = framer.waiting(message, queue_id, later)
            size, (topic, queue_id) = len(record), framing.place_of(later)
        durability = self._cluster if wait else self._no_wait
        add = partial(accumulator.add, record, topic, queue_id, durability, own, size, delayed)
        future = add()
        if future is None:
            deadline = time.monotonic() + self._options.max_block_ms / 1000
            while future is None:
                accumulator.wait_for_room(size, deadline - time.monotonic())
                future = add()
        return future

    def transaction(self, message: Message | Sequence[Message] = ()) -> "Transaction":
        """A transaction: its messages, `message` (one, or several) first, and the offsets of groups
        in it are seen together or not at all. Use it with `with`: left normally it
        commits, left by an error it rolls back.

            with producer.transaction(Message("orders", b"...")) as t:
                t.send(Message("invoices", b"..."))
                t.commit_offsets(stream)

        One that is never ended, since the program died, is asked about: the master calls the
        `transaction_checker` of a producer of the same transaction_group, and rolls it back if
        none knows it (docs/client.md). Raises what send raises, when it is entered.
        """
        if self._closed:
            raise ClientClosedError("the producer is closed")
        first = (message,) if isinstance(message, Message) else tuple(message)
        state = self._core.new_transaction()
        return sync_transaction.Transaction(self._thread, state, self._send_in, first)

    def _send_in(self, message: Message, transaction: "InTransaction") -> "SendFuture":
        if self._watched:
            return self._send_watched(message, transaction, wait=True)
        return self._send(message, transaction, wait=True)

    def recall(self, topic: str, recall_handle: str) -> None:
        """Calls a message back that was sent to come later; once it returns, the message never
        comes. Raises NotWaitingError if it came already, or the cluster knows of no such message.
        """
        if self._closed:
            raise ClientClosedError("the producer is closed")
        self._thread.run(recalls.recall(self._core.connection, topic, recall_handle))

    def send_many(
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
        """Sends many messages to `topic` and waits for all; returns one result with arrays.

        `bodies`: a list or iterator of bytes; an Arrow binary array; a numpy array (`S` or
        u1[n, width]); a pair (u1 data, i8 offsets[n+1]); an Arrow table with the columns body,
        topic, keys, tags and queue; or a list or iterator of Message, then with `topic` None for
        messages of several topics. `keys`, `tags`, `queues`, `sharding_keys`: a column of the
        same length, or one value for all. `topics`: a column with a topic for each body; then
        `topic` is None. `properties` are the same for all.

        If only some messages were acknowledged, raises SendManyError with their positions; if none
        were, raises the error itself.
        """
        done: Future[None] = Future()
        collector = many.Collector(lambda: done.set_result(None))
        framer = self._per_thread.framer or self._new_framer()
        with sending_many(self._tracing, topic) as span:
            try:
                sender = many.ManySender(
                    self._core, framer, collector,
                    properties=properties, wait=wait, carried=span.carried,
                    on_send=self._on_send,
                )  # fmt: skip
                for batch in sender.batches(
                    topic, bodies, keys=keys, tags=tags, queues=queues,
                    sharding_keys=sharding_keys, topics=topics,
                ):  # fmt: skip
                    if isinstance(batch, tuple):
                        self._load_all(batch)
                    else:
                        self._submit(batch, collector)
            except Exception as error:
                collector.stopped(error)
            collector.complete()
            done.result()
            return span.noted(collector.result())

    def statistics(self) -> "ProducerStatistics":
        """What it has sent, how long that took, and what waits now."""
        return self._core.statistics()

    def flush(self) -> None:
        """Waits until every message sent before has been acknowledged or has failed."""
        self._thread.run(self._flush())

    async def _flush(self) -> None:
        if self._core.sender is not None:
            await self._core.sender.flush()

    def _submit(self, batch: "put_batch.PutBatch", collector: "many.Collector") -> None:
        try:
            deadline = time.monotonic() + self._options.max_block_ms / 1000
            while not self._accumulator.submit(batch):
                self._accumulator.wait_for_room(batch.byte_size, deadline - time.monotonic())
        except BaseException:
            collector.withdrawn()
            raise

    def _load(self, topic: str) -> "Route":
        self._check_open()
        return self._thread.run(self._core.routes.load(topic))

    def _load_all(self, topics: Sequence[str]) -> None:
        self._check_open()
        self._thread.run(self._core.routes.load_all(topics))

    def _check_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the producer is closed")

    def _new_framer(self) -> "Framer":
        framer = self._per_thread.framer = self._core.new_framer()
        return framer

    def _wake(self) -> None:
        self._thread.loop.call_soon_threadsafe(self._send_due)

    def _send_due(self) -> None:
        self._core.send_due()


async def _opened(
    new_core: "Callable[[], producer_core.ProducerCore[SendFuture]]",
) -> "producer_core.ProducerCore[SendFuture]":
    """In the loop, which will own the core."""
    created = new_core()
    await created.open()
    return created
