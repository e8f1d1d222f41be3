"""The Broker service: puts, pulls, queries and consumer offsets over gRPC.

A method takes a request apart, calls the store in a reader thread (the loop never waits for a
disk) and puts the answer together. Whatever goes wrong becomes the `error` of the answer: a call
ends with a gRPC status other than OK only where the transport failed.

What asks where queues end, or for a key, is answered when everything that was confirmed at that
moment is dispatched, if that is soon: who has put a message finds it. A pull does not wait, its
caller comes again; but a node that starts after a crash has a part of its log still to dispatch,
and nobody shall see a queue shorter than it was: pulls wait for that part, as far as it is
confirmed already.
"""
# The methods have the names of broker.proto.
# ruff: noqa: N802

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol, TypeVar

import numpy as np

from storage.message_store import MessageStore
from storage.queue_search import Boundary
from storage.reads import NO_END
from tandemlog.v1 import broker_pb2, broker_pb2_grpc, common_pb2

from .append_pump import AppendPump, AppendStream
from .error_status import RequestRefusedError, error_of
from .known_queues import KnownQueues
from .pull_service import PullService
from .segment_stream import SegmentStream

MAX_QUERY = 64  # RocketMQ's limit for a query by key
MAX_QUERY_ALL = 100_000
MAX_ROWS = 65_536
# How long a question waits for dispatch, and over how many bytes of log one of queue ends or keys.
DISPATCH_WAIT_S = 1.0
DISPATCH_WAIT_BYTES = 64 << 20
DISPATCH_LOOK_S = 0.005

Answer = TypeVar("Answer")


class RoleGate(Protocol):
    """What a request that changes something needs to know of this node's role."""

    def require_master(self, what: str) -> None:
        """Raises RequestRefusedError (NOT_MASTER, with the master's endpoint) on a slave."""


class BrokerService(broker_pb2_grpc.BrokerServicer):
    """See the module."""

    def __init__(
        self,
        store: MessageStore,
        pump: AppendPump,
        pulls: PullService,
        segments: SegmentStream,
        gate: RoleGate,
        known: KnownQueues,
        executor: Executor,
    ) -> None:
        self._store = store
        self._pump = pump
        self._pulls = pulls
        self._segments = segments
        self._gate = gate
        self._known = known
        self._executor = executor
        # where the log ended when this node began to serve
        self._begin = store.log.wrote.value

    async def Append(
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[broker_pb2.AppendResponse]:
        encoded = (request.SerializeToString() async for request in request_iterator)
        async for response in self.append_bytes(encoded, context):
            yield response

    async def append_bytes(
        self, request_iterator: AsyncIterator[bytes], context: Any
    ) -> AsyncIterator[broker_pb2.AppendResponse]:
        """Append as it is served: the requests are read where gRPC has put them."""
        stream = self._pump.open_stream()
        reader = asyncio.create_task(self._read_puts(request_iterator, stream))
        try:
            async for response in stream.responses():
                yield response
        finally:
            self._pump.close_stream(stream)
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    async def _read_puts(self, requests: AsyncIterator[bytes], stream: AppendStream) -> None:
        try:
            async for request in requests:
                self._pump.submit(stream, request)
                await self._pump.room()
                await stream.room()
        finally:
            stream.end()

    async def Pull(self, request: broker_pb2.PullRequest, context: Any) -> broker_pb2.PullResponse:
        return broker_pb2.PullResponse.FromString(await self.pull_bytes(request, context))

    async def pull_bytes(self, request: broker_pb2.PullRequest, context: Any) -> bytes:
        """The encoded answer to a pull, as it is served (raw_messages.py says why)."""
        if self._store.reputed.value < self._begin:
            await self._reach(min(self._begin, self._store.confirmed.value))
        return await _answered(
            self._pulls.pull(request),
            lambda error: broker_pb2.PullResponse(error=error).SerializeToString(),
        )

    async def QueueRanges(
        self, request: broker_pb2.QueueRangesRequest, context: Any
    ) -> broker_pb2.QueueRangesResponse:
        await self._dispatched()
        return await self._in_thread(
            lambda: self._ranges(list(request.topics)),
            lambda error: broker_pb2.QueueRangesResponse(error=error),
        )

    def _ranges(self, topics: Sequence[str]) -> broker_pb2.QueueRangesResponse:
        for topic in topics:
            self._known.check_topic(topic)
        response = broker_pb2.QueueRangesResponse()
        for each in self._store.reader.ranges(topics):
            response.ranges.add(
                topic=each.topic,
                queue_id=each.queue_id,
                min_offset=each.min_offset,
                max_offset=each.max_offset,
                min_timestamp=each.min_timestamp,
                max_timestamp=each.max_timestamp,
            )
        return response

    async def SearchOffset(
        self, request: broker_pb2.SearchOffsetRequest, context: Any
    ) -> broker_pb2.SearchOffsetResponse:
        await self._dispatched()
        return await self._in_thread(
            lambda: self._search(request),
            lambda error: broker_pb2.SearchOffsetResponse(error=error),
        )

    def _search(self, request: broker_pb2.SearchOffsetRequest) -> broker_pb2.SearchOffsetResponse:
        _limit("queues", len(request.queues), MAX_ROWS)
        upper = request.boundary == broker_pb2.UPPER
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        offsets = []
        for queue in request.queues:
            self._known.check_queue(queue.topic, queue.queue_id)
            offsets.append(
                self._store.reader.search_offset(
                    queue.topic, queue.queue_id, request.timestamp, boundary
                )
            )
        return broker_pb2.SearchOffsetResponse(offsets=offsets)

    async def QueryByKey(
        self, request: broker_pb2.QueryByKeyRequest, context: Any
    ) -> broker_pb2.RecordsResponse:
        await self._dispatched()
        return await self._in_thread(
            lambda: self._query(request), lambda error: broker_pb2.RecordsResponse(error=error)
        )

    def _query(self, request: broker_pb2.QueryByKeyRequest) -> broker_pb2.RecordsResponse:
        if not request.key:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT, "a query needs a key", field="key"
            )
        self._known.check_topic(request.topic)
        most = MAX_QUERY_ALL if request.all else MAX_QUERY
        wanted = min(request.max_messages or most, most)
        found = self._store.reader.query_key(
            request.topic,
            request.key,
            max_messages=wanted,
            begin_timestamp=request.begin_timestamp,
            end_timestamp=request.end_timestamp or NO_END,
            tags=request.tags,
        )
        return _records(found.records)

    async def GetByOffset(
        self, request: broker_pb2.GetByOffsetRequest, context: Any
    ) -> broker_pb2.RecordsResponse:
        return await self._in_thread(
            lambda: self._by_offset(request.physical_offsets),
            lambda error: broker_pb2.RecordsResponse(error=error),
        )

    def _by_offset(self, offsets: Sequence[int]) -> broker_pb2.RecordsResponse:
        _limit("physical_offsets", len(offsets), MAX_ROWS)
        return _records([self._store.reader.record_at(offset) for offset in offsets])

    async def CommitOffsets(
        self, request: broker_pb2.CommitOffsetsRequest, context: Any
    ) -> broker_pb2.CommitOffsetsResponse:
        return await self._in_thread(
            lambda: self._commit(request),
            lambda error: broker_pb2.CommitOffsetsResponse(error=error),
        )

    def _commit(self, request: broker_pb2.CommitOffsetsRequest) -> broker_pb2.CommitOffsetsResponse:
        self._gate.require_master("consumer offsets are committed")
        _limit("offsets", len(request.offsets), MAX_ROWS)
        for each in request.offsets:
            self._known.check_queue(each.topic, each.queue_id)
            if each.queue_offset < 0:
                raise RequestRefusedError(
                    common_pb2.INVALID_ARGUMENT,
                    f"queue_offset must not be negative: {each.queue_offset}",
                    field="queue_offset",
                    actual=each.queue_offset,
                )
        self._store.groups.ensure(request.group, self._store.clock.now_ms())
        for each in request.offsets:
            self._store.consumer_offsets.commit(
                request.group, each.topic, each.queue_id, each.queue_offset
            )
        return broker_pb2.CommitOffsetsResponse()

    async def FetchOffsets(
        self, request: broker_pb2.FetchOffsetsRequest, context: Any
    ) -> broker_pb2.FetchOffsetsResponse:
        return await self._in_thread(
            lambda: self._fetch(request),
            lambda error: broker_pb2.FetchOffsetsResponse(error=error),
        )

    def _fetch(self, request: broker_pb2.FetchOffsetsRequest) -> broker_pb2.FetchOffsetsResponse:
        response = broker_pb2.FetchOffsetsResponse()
        for each in self._store.consumer_offsets.fetch(request.group, list(request.topics)):
            response.offsets.add(
                topic=each.topic, queue_id=each.queue_id, queue_offset=each.queue_offset
            )
        return response

    async def DescribeProducer(
        self, request: broker_pb2.DescribeProducerRequest, context: Any
    ) -> broker_pb2.DescribeProducerResponse:
        return await self._in_thread(
            lambda: self._producer(request.producer_id),
            lambda error: broker_pb2.DescribeProducerResponse(error=error),
        )

    def _producer(self, producer_id: str) -> broker_pb2.DescribeProducerResponse:
        state = self._store.producers.describe(producer_id)
        if state is None:
            return broker_pb2.DescribeProducerResponse(known=False)
        return broker_pb2.DescribeProducerResponse(
            known=True,
            epoch=state.epoch,
            last_sequence=state.last_sequence,
            last_timestamp=state.timestamp,
        )

    async def FetchSegmentRange(
        self, request: broker_pb2.FetchSegmentRangeRequest, context: Any
    ) -> AsyncIterator[broker_pb2.SegmentChunk]:
        async for chunk in self.segment_bytes(request, context):
            yield broker_pb2.SegmentChunk.FromString(chunk)

    async def segment_bytes(
        self, request: broker_pb2.FetchSegmentRangeRequest, context: Any
    ) -> AsyncIterator[bytes]:
        """The encoded chunks, as they are served."""
        try:
            async for chunk in self._segments.chunks(request):
                yield chunk
        except Exception as problem:
            yield broker_pb2.SegmentChunk(error=error_of(problem)).SerializeToString()

    async def _dispatched(self) -> None:
        """Wait until what is confirmed now is in queues and index."""
        confirmed = self._store.confirmed.value
        # a node that catches up: what it has is the answer
        if confirmed - self._store.reputed.value <= DISPATCH_WAIT_BYTES:
            await self._reach(confirmed)

    async def _reach(self, target: int) -> None:
        """Wait until the log is dispatched up to `target`, for a moment at most."""
        store, loop = self._store, asyncio.get_running_loop()
        deadline = loop.time() + DISPATCH_WAIT_S
        while (  # noqa: ASYNC110 - a listener for each question would cost more than some looks
            store.reputed.value < target and store.failure is None and loop.time() < deadline
        ):
            await asyncio.sleep(DISPATCH_LOOK_S)

    async def _in_thread(
        self, work: Callable[[], Answer], failed: Callable[[common_pb2.Error], Answer]
    ) -> Answer:
        loop = asyncio.get_running_loop()
        return await _answered(loop.run_in_executor(self._executor, work), failed)


async def _answered(
    work: Awaitable[Answer], failed: Callable[[common_pb2.Error], Answer]
) -> Answer:
    try:
        return await work
    except Exception as problem:  # bad input never ends a call, nor the node
        return failed(error_of(problem))


def _records(records: Sequence[bytes]) -> broker_pb2.RecordsResponse:
    return broker_pb2.RecordsResponse(
        sizes=np.array([len(record) for record in records], dtype="<u4").tobytes(),
        records=b"".join(records),
    )


def _limit(field: str, actual: int, limit: int) -> None:
    if actual > limit:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            f"{field} may have {limit} entries, not {actual}",
            field=field,
            limit=limit,
            actual=actual,
        )
