"""The I/O of a producer: one Append stream to the master at a time, reopened as long as it takes.

    accumulator ──pop───▶ chain ──write──▶ stream ──▶ master
                            ▲                            │
                            └──────── answers ◀──────────┘

One task runs streams one after the other; inside a stream a second one writes. Whatever ends a
stream (a broken connection, a silent node, an answer that says "not now") leads to the same
place: look for the master, open a new stream, write again all that has no outcome (chain.py).
Streams without progress back off. An idle stream stays open.

A paused or partitioned master does not close the stream. So while answers are due and none comes,
the other nodes are asked who the master is: if it is another one by now, the stream is given up. It
is also given up if the node turns out not to belong to the cluster: its answers do not count.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..cluster.append_call import AppendCall, CallOverError
from ..cluster.connection import Connection, pauses
from ..cluster.node import Node
from ..cluster.silent_master import SILENCE_S, successor
from ..errors import (
    AuthenticationError,
    ClientClosedError,
    InternalError,
    NodeUnavailableError,
    OutcomeUnknownError,
    PermissionDeniedError,
    ProducerFencedError,
    SecurityError,
    TandemlogError,
)
from ..lazy import lazy
from ..telemetry.producer_statistics import ProducerCounters, ProducerStatistics, RequestHooks
from ..v1 import broker_pb2
from .accumulator import Accumulator
from .chain import Chain, Numbers, ProducerEndedError
from .put_batch import PutBatch

if TYPE_CHECKING:
    import tenacity
else:
    tenacity = lazy("tenacity")

logger = logging.getLogger(__name__)

CROWDED: Final = 2
"""Requests without an answer from which on a batch that is not full waits for one of them."""
CROWDED_LINGER_S: Final = 0.1
"""How long it waits at most."""
TIMER_STEP_S: Final = 0.001
"""How late a timer of an event loop may be: epoll counts whole milliseconds and rounds up."""


@dataclass(frozen=True, slots=True)
class RequestOptions:
    """See ProducerOptions; here times are in seconds, and math.inf is no limit."""

    batch_bytes: int
    answer_seconds: float
    linger_seconds: float = 0.0
    delivery_seconds: float = math.inf
    max_in_flight_bytes: int = 32 << 20
    max_in_flight_requests: int = 32
    compress_above: int | None = None
    unique_ids: bool = True
    hooks: RequestHooks | None = None


def linger_for(seconds: float, in_flight: int) -> float:
    """How long a batch that is not full waits, with so many requests on their way: behind one of
    them twice as long as behind none. The more a node has to do, the fuller are the requests: a
    few large ones cost it less. Without a linger nothing waits."""
    if not seconds or not in_flight:
        return seconds
    most = max(seconds, CROWDED_LINGER_S)
    return most if in_flight >= CROWDED else min(2 * seconds, most)


def due_after(linger: float) -> float:
    """Seconds from a batch's first message until the batch is due: a step of the timer less than
    `linger`, so that the batch goes out when the linger ends and not up to a step later. A linger
    below 5 ms loses a fifth."""
    return linger - min(TIMER_STEP_S, linger / 5)


class _StreamEndedError(Exception):
    """A stream without progress is over; the next one waits a little."""


class Sender:
    """Everything here runs in one event loop; `accumulator` is where other threads come in."""

    def __init__(
        self,
        connection: Connection,
        accumulator: Accumulator[Any],
        numbers: Numbers,
        options: RequestOptions,
        *,
        named: bool,
        refused: Callable[[PutBatch, TandemlogError], None],
        counters: ProducerCounters | None = None,
    ) -> None:
        self._counters = counters or ProducerCounters()
        self._connection = connection
        self._accumulator = accumulator
        self._options = options
        self._named = named
        self._numbers = numbers
        self._chain = Chain(
            numbers, self._release, refused, self._counters, lambda: connection.epochs.value
        )
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._empty = asyncio.Event()
        self._guard: asyncio.Timeout | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._node: Node | None = None
        self._epochs = connection.epochs
        self._failure: Exception | None = None
        self._task = self._loop.create_task(self._run(), name="tandemlog-sender")

    def send_due(self) -> None:
        """After the accumulator's wake: what is due goes out, what is not gets a timer."""
        linger = linger_for(self._options.linger_seconds, self._chain.in_flight)
        wait_s = self._accumulator.seal_due(due_after(linger))
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if wait_s is not None:
            self._linger = self._loop.call_later(wait_s, self.send_due)
        self._work.set()

    async def wait_for_room(self, size: int, seconds: float) -> None:
        """Until `size` bytes may be tried again; raises BufferFullError after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                while not self._accumulator.has_room(size):
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            raise self._accumulator.full(seconds) from None

    def statistics(self) -> ProducerStatistics:
        """Any thread."""
        return self._counters.statistics(
            waiting_bytes=self._accumulator.held_bytes,
            waiting_requests=len(self._chain),
            in_flight=self._chain.in_flight,
            last_error=str(self._chain.last_error or ""),
        )

    async def flush(self) -> None:
        """Until all that was given before has its outcome."""
        self._accumulator.seal()
        self._chain_sealed()
        self._work.set()
        first = self._chain.first_request_id
        if first is not None:
            done = self._loop.create_future()
            self._flushes.append((self._chain.last_request_id, done))
            await done

    async def close(self, seconds: float) -> None:
        """Sends what is there, `seconds` at most; the rest fails, as unknown if a node
        may have it."""
        self._accumulator.refuse(ClientClosedError("the producer is closed"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.flush()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._end(ClientClosedError("the producer was closed before the message was acknowledged"))

    def _end(self, error: TandemlogError) -> None:
        for timer in (self._linger, self._expiry):
            if timer is not None:
                timer.cancel()
        for batch in self._accumulator.close(error):
            self._chain.add(batch)
        self._chain.fail_all(error)
        self._flushed()

    def _release(self, size: int) -> None:
        self._accumulator.release(size)
        self._room.set()

    def _chain_sealed(self) -> None:
        while (batch := self._accumulator.pop()) is not None:
            self._chain.add(batch)
        self._watch_deadlines()

    async def _run(self) -> None:
        try:
            while True:
                self._chain_sealed()
                if len(self._chain):
                    await self._streams()
                else:
                    self._work.clear()
                    self._chain_sealed()
                    if not len(self._chain):
                        await self._work.wait()
        except ProducerFencedError as error:
            logger.error("producer fenced: %s", error)
            self._end(error)
        except ProducerEndedError as end:
            logger.error("producer ended: producer_id=%s %s", self._numbers.producer_id, end)
            self._end(end.error)
        except Exception as error:
            logger.exception("the sender of producer %s failed", self._numbers.producer_id)
            self._end(InternalError(f"the client failed: {error!r}"))

    async def _streams(self) -> None:
        """Streams until one makes progress or nothing is left to send."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_StreamEndedError),
            wait=pauses(),
            sleep=self._pause,
        )
        async for attempt in retrying:
            with attempt:
                if not len(self._chain):
                    return
                before = self._chain.acknowledged
                try:
                    await self._stream()
                except ProducerFencedError:
                    raise
                except TandemlogError as error:
                    self._stream_failed(error)
                    if len(self._chain) and self._chain.acknowledged == before:
                        raise _StreamEndedError from None

    async def _pause(self, seconds: float) -> None:
        """Until the next attempt; over at once when nothing is left to send."""
        self._empty.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._empty.wait()

    def _stream_failed(self, error: TandemlogError) -> None:
        logger.info("append stream ended: unresolved=%d reason=%s", len(self._chain), error)
        refused = isinstance(error, AuthenticationError | PermissionDeniedError | SecurityError)
        if error.retryable or refused or self._chain.last_error is None:
            self._chain.last_error = error
        if self._node is not None and (error.elsewhere or isinstance(error, OutcomeUnknownError)):
            self._connection.forget_master(self._node)
        self._chain.stream_ended()
        self._flushed()

    async def _stream(self) -> None:
        """One stream, until its end; raises why it ended."""
        self._node = None
        node = self._node = await self._connection.master()
        master_id = self._connection.master_id  # another user of the connection may change it
        if self._is_stranger():
            self._epochs = self._connection.epochs
            self._chain.cluster_left()
        self._chain.stream_opened(self._connection.master_epoch)
        if not self._numbers.agreed:
            await self._agree_epoch(node)
        call = await node.append()
        self._failure = None
        writer = self._loop.create_task(self._write(call), name="tandemlog-writer")
        doubt = self._doubt(node, master_id, call)
        doubter = self._loop.create_task(doubt, name="tandemlog-doubter")
        try:
            async with asyncio.timeout(None) as self._guard:
                while True:
                    response = await call.read()
                    if response is None:
                        raise NodeUnavailableError(f"{node.endpoint}: the node ended the stream")
                    self._received(response, node)
        except TimeoutError:
            raise NodeUnavailableError(
                f"{node.endpoint}: no answer within {self._options.answer_seconds:g} s"
            ) from None
        except asyncio.CancelledError:
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            self._guard = None
            writer.cancel()
            doubter.cancel()
            call.cancel()
            await asyncio.gather(writer, doubter, return_exceptions=True)

    def _is_stranger(self) -> bool:
        """Whether the node of this stream turned out not to belong to the cluster."""
        return self._epochs is not self._connection.epochs

    def _leave(self, node: Node, call: AppendCall) -> None:
        self._failure = _not_of_the_cluster(node)
        call.cancel()

    def _received(self, response: broker_pb2.AppendResponse, node: Node) -> None:
        if self._is_stranger():
            raise _not_of_the_cluster(node)
        self._connection.epochs.heard(response.master_epoch)
        try:
            self._chain.received(response, node.endpoint)
        finally:
            self._arm(fresh=True)
            if self._linger is not None:
                self.send_due()  # what waited for room on the stream may be due
            self._flushed()
            self._work.set()

    async def _write(self, call: AppendCall) -> None:
        try:
            await self._write_all(call)
        except CallOverError:
            pass  # the stream's reader says why
        except Exception as error:
            logger.exception("a request could not be written")
            self._failure = error
            call.cancel()

    async def _doubt(self, node: Node, node_id: str, call: AppendCall) -> None:
        """Give the stream up if the node is silent and another one is the master by now."""
        while True:
            await asyncio.sleep(SILENCE_S)
            if self._is_stranger():
                return self._leave(node, call)
            due = None if self._guard is None else self._guard.when()
            if due is None or self._loop.time() - due + self._options.answer_seconds < SILENCE_S:
                continue
            error = await successor(self._connection, node, node_id)
            if error is not None:
                self._failure = error
                call.cancel()
                return

    async def _write_all(self, call: AppendCall) -> None:
        while True:
            if self._is_stranger() and self._node is not None:
                return self._leave(self._node, call)
            if self._chain.in_flight < self._options.max_in_flight_requests:
                self._chain_sealed()
                batch = self._chain.to_write()
                if batch is not None:
                    self._arm(fresh=self._chain.in_flight == 1)
                    await call.write(batch.encoded(self._numbers.producer_id, 0))
                    continue
            self._work.clear()
            await self._work.wait()

    def _arm(self, *, fresh: bool) -> None:
        """The node has answer_seconds for the next answer; an idle stream has no limit."""
        guard = self._guard
        if guard is None or guard.expired():
            return
        if not self._chain.in_flight:
            guard.reschedule(None)
        elif fresh or guard.when() is None:
            guard.reschedule(self._loop.time() + self._options.answer_seconds)

    async def _agree_epoch(self, node: Node) -> None:
        """Agrees the epoch of a named producer with the master: above every one it has seen. An
        epoch in between is another process with the same name, which then owns it."""
        numbers = self._numbers
        if self._named:
            known = await node.ask(
                node.broker.DescribeProducer,
                broker_pb2.DescribeProducerRequest(producer_id=numbers.producer_id or ""),
                int(self._options.answer_seconds * 1000),
            )
            if known.known and numbers.epoch < 0:
                numbers.epoch = known.epoch + 1
            elif known.known and known.epoch >= numbers.epoch:
                raise ProducerFencedError(
                    f"producer {numbers.producer_id!r} was taken over: its epoch is "
                    f"{known.epoch}, this one would be {numbers.epoch}",
                    limit=known.epoch,
                    actual=numbers.epoch,
                )
        numbers.epoch = max(numbers.epoch, 0)
        numbers.agreed = True

    def _watch_deadlines(self) -> None:
        deadline = self._chain.next_deadline
        if self._expiry is not None:
            if deadline is not None and self._expiry.when() <= deadline:
                return
            self._expiry.cancel()
            self._expiry = None
        if deadline is not None:
            self._expiry = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        self._chain_sealed()
        self._chain.expire(self._loop.time(), self._options.delivery_seconds)
        if not len(self._chain):
            self._empty.set()
        self._flushed()
        self._watch_deadlines()

    def _flushed(self) -> None:
        """Tells those whose messages all have an outcome."""
        if not self._flushes:
            return
        first = self._chain.first_request_id
        waiting = []
        for last, done in self._flushes:
            if first is not None and first <= last:
                waiting.append((last, done))
            elif not done.done():
                done.set_result(None)
        self._flushes = waiting


def _not_of_the_cluster(node: Node) -> NodeUnavailableError:
    return NodeUnavailableError(
        f"{node.endpoint}: it was taken for the master before the nodes of the cluster answered"
    )
