"""The Broker service: puts, pulls, queries and consumer offsets over gRPC.

A method decodes a request, calls the store in a reader thread (the loop never waits for a disk) and
builds the response. Every error becomes the `error` of the response: a call ends with a gRPC status
other than OK only if the transport failed, or a stream is one too many. Methods raise errors;
call_door.py turns them into responses, and gives the methods a Caller in place of gRPC's context.

Every response is bounded: records end at RECORDS_BYTES, rows at MAX_ROWS, and the caller continues
from there.

A request for the end of a queue, or for a key, waits a moment until everything confirmed so far is
dispatched, so that a client finds the message it has just sent. Of pulls only one for an offset
beyond the queue's end does so (pulls/queue_reads.py): the caller of any other comes again. But
after a crash a node still has a part of its log to dispatch, and no client may see a queue shorter
than it was: so pulls wait for the confirmed part of that.

A reader that is ahead of a queue's end, by the master's word, goes back: its log was cut. A new
master has all that was acknowledged before its term, but may not know yet that it was: so it says
where queues end only when everything below the beginning of its term is confirmed and dispatched
(Raft: a leader reads only when an entry of its own term is committed).
"""
# The methods have the names of broker.proto; grpc_server.py has those that answer in bytes.
# ruff: noqa: N802

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import Message

from tandemlog.cluster.histories import history_of, put_history
from tandemlog.format.calls import MAX_NAMES, MAX_ROWS, MAX_SEARCHES
from tandemlog.format.constants import MAX_QUERY, MAX_QUERY_ALL, NO_END, Buffer
from tandemlog.format.files.log_history import MAX_TERMS
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.reads.results import FoundRecords

from ..access.access_refusals import NotKnownError
from ..access.caller import Caller
from ..archive.cold_reads import ColdReads
from ..error_status import RequestRefusedError, check_count
from ..pulls.dispatch_wait import DispatchWait
from ..pulls.known_queues import KnownQueues
from ..pulls.pages import OFFSET_PAGES, number_of_page, rows_after
from ..pulls.pull_service import Parts, PullService
from ..pulls.raw_messages import records_response
from ..pulls.read_turns import ReadTurns
from ..pulls.segment_stream import SegmentStream
from ..pulls.state_stream import StateStream
from ..puts.put_pump import PutPump
from ..puts.put_stream import PutStream
from .cold_answers import with_archived_begins, with_archived_times
from .group_service import GroupService

MAX_LOOKED_UP = 4_096  # records of one query; a quarter of a second
SEARCHES_A_TURN = 32  # some 20 ms of a thread
RECORDS_BYTES = 8 << 20
ROWS_BYTES = 1 << 20

Answer = TypeVar("Answer", bound=Message)


class BrokerService:
    """See the module."""

    def __init__(
        self,
        store: MessageStore,
        pump: PutPump,
        pulls: PullService,
        segments: SegmentStream,
        known: KnownQueues,
        turns: ReadTurns,
        members: GroupService,
        *,
        require_master: Callable[[], None],
        recall: Callable[[broker_pb2.RecallRequest], Awaitable[broker_pb2.RecallResponse]],
        cold: ColdReads | None = None,
    ) -> None:
        self._store = store
        self._dispatch = DispatchWait(store)
        self._require_master = require_master
        self._recall = recall
        self._members = members
        self._cold = cold
        self._pump = pump
        self._pulls = pulls
        self._segments = segments
        self._states = StateStream(store, turns)
        self._known = known
        self._turns = turns
        # a search is work for the processor alone: with several threads at it, the event loop
        # would wait for each of them before it gets the interpreter again
        self._searching = asyncio.Lock()

    async def append_bytes(
        self, request_iterator: AsyncIterator[Buffer], caller: Caller
    ) -> AsyncIterator[broker_pb2.AppendResponse]:
        """Append as it is served: the requests are read where gRPC has put them. Raises
        NotKnownError once the caller's proof is not valid any more."""
        stream = self._pump.open_stream(caller)
        reader = asyncio.create_task(self._read_puts(request_iterator, stream, caller))
        try:
            async for response in stream.responses():
                yield response
        finally:
            self._pump.close_stream(stream)
            reader.cancel()
            (ended,) = await asyncio.gather(reader, return_exceptions=True)
        if isinstance(ended, NotKnownError):
            raise ended

    async def _read_puts(
        self, requests: AsyncIterator[Buffer], stream: PutStream, caller: Caller
    ) -> None:
        now = asyncio.get_running_loop().time
        try:
            async for request in requests:
                caller.renew()
                await self._pump.receive(stream, request)
                await self._pump.room()
                await stream.room()
                await _bytes_room(caller)
                if wait_s := caller.spend(len(request), now(), calls=1):
                    await asyncio.sleep(wait_s)
        finally:
            stream.end()

    async def pull_bytes(self, request: broker_pb2.PullRequest, caller: Caller) -> bytes:
        """The encoded answer to a pull, as it is served (raw_messages.py says why)."""
        (answer,) = await self._pull(request, caller, joined=True)
        assert isinstance(answer, bytes)
        return answer

    async def pull_parts(self, request: broker_pb2.PullRequest, caller: Caller) -> Parts:
        """The same in parts, for a data connection."""
        return await self._pull(request, caller, joined=False)

    async def _pull(
        self, request: broker_pb2.PullRequest, caller: Caller, *, joined: bool
    ) -> Parts:
        await self._dispatch.caught_up()
        return await self._pulls.pull(request, caller, joined=joined)

    async def QueueRanges(
        self, request: broker_pb2.QueueRangesRequest, context: Any
    ) -> broker_pb2.QueueRangesResponse:
        await self._dispatched(of_master=request.of_master)
        response = await self._read(context, partial(self._ranges, request, context))
        return await with_archived_begins(self._cold, response, context)

    def _ranges(
        self, request: broker_pb2.QueueRangesRequest, caller: Caller
    ) -> broker_pb2.QueueRangesResponse:
        check_count("topics", len(request.topics), MAX_NAMES)
        for topic in request.topics:
            self._known.check_topic(topic)
        topics: Sequence[str] = request.topics
        if not topics and caller.restricted is not None:
            topics = caller.seen(self._store.topics.table)
            if not topics:
                return broker_pb2.QueueRangesResponse()
        first = number_of_page(request.page)
        ranges, following = self._store.reader.ranges_from(first, MAX_ROWS, topics)
        response = broker_pb2.QueueRangesResponse(next_page=str(following) if following else "")
        for each in ranges:
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
        await self._dispatched(of_master=request.of_master)
        check_count("queues", len(request.queues), MAX_SEARCHES)
        upper = request.boundary == broker_pb2.UPPER
        boundary = Boundary.UPPER if upper else Boundary.LOWER
        response = broker_pb2.SearchOffsetResponse()
        for first in range(0, len(request.queues), SEARCHES_A_TURN):
            queues = request.queues[first : first + SEARCHES_A_TURN]
            work = partial(self._search, queues, request.timestamp, boundary)
            async with self._searching:
                offsets = await self._turns.run(context, work)
            response.offsets.extend(
                await with_archived_times(
                    self._cold, queues, offsets, request.timestamp, boundary, context
                )
            )
        return response

    def _search(
        self, queues: Iterable[broker_pb2.QueuePosition], timestamp: int, boundary: Boundary
    ) -> list[int]:
        offsets = []
        for queue in queues:
            self._known.check_queue(queue.topic, queue.queue_id)
            offsets.append(
                self._store.reader.search_offset(queue.topic, queue.queue_id, timestamp, boundary)
            )
        return offsets

    async def query_bytes(self, request: broker_pb2.QueryByKeyRequest, caller: Caller) -> bytes:
        """The encoded answer to a query, as it is served."""
        await self._dispatched()
        return await self._read_records(caller, partial(self._query, request))

    def _query(self, request: broker_pb2.QueryByKeyRequest) -> FoundRecords:
        if not request.key:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT, "a query needs a key", field="key"
            )
        self._known.check_topic(request.topic)
        most = MAX_QUERY_ALL if request.all else MAX_QUERY
        wanted = min(request.max_messages or most, most)
        return self._store.reader.query_key(
            request.topic,
            request.key,
            max_messages=wanted,
            max_bytes=RECORDS_BYTES,
            begin_timestamp=request.begin_timestamp,
            end_timestamp=request.end_timestamp or NO_END,
            before=number_of_page(request.page) or NO_END,
            max_looked_up=MAX_LOOKED_UP,
            tags=request.tags,
        )

    async def by_offset_bytes(
        self, request: broker_pb2.GetByOffsetRequest, caller: Caller
    ) -> bytes:
        """The encoded records of the first positions, as it is served."""
        return await self._read_records(caller, partial(self._by_offset, request.physical_offsets))

    def _by_offset(self, offsets: Sequence[int]) -> FoundRecords:
        check_count("physical_offsets", len(offsets), MAX_ROWS)
        return self._store.reader.records_at(offsets, RECORDS_BYTES)

    async def CommitOffsets(
        self, request: broker_pb2.CommitOffsetsRequest, context: Any
    ) -> broker_pb2.CommitOffsetsResponse:
        return await self._members.commit(request, context)

    async def GroupHeartbeat(
        self, request: broker_pb2.GroupHeartbeatRequest, context: Any
    ) -> broker_pb2.GroupHeartbeatResponse:
        return await self._members.heartbeat(request, context)

    async def DescribeGroup(
        self, request: broker_pb2.DescribeGroupRequest, context: Any
    ) -> broker_pb2.DescribeGroupResponse:
        return self._members.describe(request, context)

    async def FetchOffsets(
        self, request: broker_pb2.FetchOffsetsRequest, context: Any
    ) -> broker_pb2.FetchOffsetsResponse:
        await self._members.offsets_known(request.group)
        response = await self._read(context, partial(self._fetch, request, context))
        await self._members.offsets_confirmed(request.group)
        return response

    def _fetch(
        self, request: broker_pb2.FetchOffsetsRequest, caller: Caller
    ) -> broker_pb2.FetchOffsetsResponse:
        check_count("topics", len(request.topics), MAX_NAMES)
        positions = self._store.consumer_offsets.fetch(request.group, list(request.topics))
        if caller.restricted is not None:
            seen = set(caller.seen({each.topic for each in positions}))
            positions = [each for each in positions if each.topic in seen]
        offsets = {(each.topic, each.queue_id): each.queue_offset for each in positions}
        rows, following = rows_after(
            request.page,
            list(offsets),
            lambda queue: broker_pb2.QueuePosition(
                topic=queue[0], queue_id=queue[1], queue_offset=offsets[queue]
            ),
            lambda row: row.ByteSize(),
            OFFSET_PAGES,
        )
        return broker_pb2.FetchOffsetsResponse(offsets=rows, next_page=following)

    async def CheckPositions(
        self, request: broker_pb2.CheckPositionsRequest, context: Any
    ) -> broker_pb2.CheckPositionsResponse:
        if request.positions:
            # a slave's log is behind, or has an end that is about to be cut: it cannot say
            self._require_master()
        return await self._read(context, partial(self._check_positions, request))

    def _check_positions(
        self, request: broker_pb2.CheckPositionsRequest
    ) -> broker_pb2.CheckPositionsResponse:
        check_count("positions", len(request.positions), MAX_ROWS)
        check_count("history.terms", len(request.history.terms), MAX_TERMS)
        now = self._store.log_identity.history
        cut = history_of(request.history).cut_against(now)
        rows = [(each.topic, each.queue_id, each.queue_offset) for each in request.positions]
        response = broker_pb2.CheckPositionsResponse()
        put_history(now, response.history)
        for index, first in sorted(self._store.cut_positions(rows, cut).items()):
            topic, queue_id, _ = rows[index]
            response.cut.add(topic=topic, queue_id=queue_id, queue_offset=first)
        return response

    async def DescribeProducer(
        self, request: broker_pb2.DescribeProducerRequest, context: Any
    ) -> broker_pb2.DescribeProducerResponse:
        return await self._read(context, partial(self._producer, request.producer_id))

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

    async def Recall(
        self, request: broker_pb2.RecallRequest, context: Any
    ) -> broker_pb2.RecallResponse:
        return await self._recall(request)

    def segment_bytes(
        self, request: broker_pb2.FetchSegmentRangeRequest, caller: Caller
    ) -> AsyncIterator[bytes]:
        """The encoded chunks, as they are served."""
        return self._segments.chunks(request, caller)

    def state_bytes(
        self, request: broker_pb2.FetchLogStateRequest, caller: Caller
    ) -> AsyncIterator[bytes]:
        """The encoded chunks, as they are served."""
        return self._states.chunks(request, caller)

    async def _dispatched(self, *, of_master: bool = False) -> None:
        """Wait until what is confirmed now is in queues and index. `of_master`: what they hold is
        taken for the cluster's; raises RequestRefusedError while it is not known."""
        if of_master:
            await self._dispatch.ends_known()
            return
        await self._dispatch.confirmed()

    async def _read(self, caller: Caller, work: Callable[[], Answer]) -> Answer:
        """An answer of rows, whose number is bounded."""
        return await self._turns.run(
            caller, work, room=ROWS_BYTES, size_of=lambda answer: answer.ByteSize()
        )

    async def _read_records(self, caller: Caller, work: Callable[[], FoundRecords]) -> bytes:
        return await self._turns.run(
            caller, lambda: _records(work()), room=RECORDS_BYTES, size_of=len
        )


async def _bytes_room(caller: Caller) -> None:
    """Wait while the puts of the caller's connection, or of its identity, fill their room."""
    for usage in caller.usages:
        while usage.full:
            room = asyncio.Event()
            usage.when_room(room.set)
            await room.wait()


def _records(records: FoundRecords) -> bytes:
    small = broker_pb2.RecordsResponse(
        sizes=np.array([len(record) for record in records.records], dtype="<u4").tobytes(),
        next_page=str(records.next_before) if records.next_before else "",
    )
    return records_response(small, records.records)
