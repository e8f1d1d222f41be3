"""A node of a FakeCluster: a real gRPC server, with faults on demand.

    node.faults.append(Fault.DROP_AFTER)    the next request on the Append stream meets it
    node.ends_refused                       the error code for a question where queues end
    node.removed, node.holes                what this node lacks: older files, single messages
    node.damaged                            messages whose bodies have another byte on its disk
    node.old                                knows no filters and no work queues

Its log is that of its cluster: a slave sees the first `visible` records of it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio

from fakes.fake_log import MAX_BATCH_SIZE, MAX_MESSAGE_SIZE, FakeLog, RefusedError
from fakes.fake_work_door import FakeWorkDoor
from fakes.plain_filter import selects
from tandemlog.format.constants import TIMER_TOPIC
from tandemlog.format.delay.handle import decode_handle
from tandemlog.format.filter.expression import Condition, FilterError
from tandemlog.format.filter.parser import parse
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
    work_pb2_grpc,
)

if TYPE_CHECKING:
    from fakes.fake_cluster import FakeCluster

SERVER_OPTIONS = (
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
    ("grpc.so_reuseport", 0),
)


class Fault(Enum):
    """What happens to one request of an Append stream."""

    DROP_BEFORE = auto()  # the stream breaks, nothing stored
    DROP_AFTER = auto()  # stored, then the stream breaks without an answer
    ANSWER_TWICE = auto()
    ANSWER_LATE = auto()  # waits for node.late
    SILENCE = auto()  # stored, and no answer comes
    UNKNOWN = auto()  # stored, answered as unknown


@dataclass
class FakeNode(broker_pb2_grpc.BrokerServicer, admin_pb2_grpc.AdminServicer):
    cluster: "FakeCluster"
    node_id: str
    faults: deque[Fault | RefusedError | None] = field(default_factory=deque)
    visible: int | None = None
    removed: dict[tuple[str, int], int] = field(default_factory=dict)
    holes: set[tuple[str, int, int]] = field(default_factory=set)
    damaged: set[tuple[str, int, int]] = field(default_factory=set)
    old: bool = False
    unheard_topics: set[str] = field(default_factory=set)
    epoch: int | None = None
    pulls_fail: bool = False
    ends_refused: common_pb2.ErrorCode.ValueType = common_pb2.ERROR_CODE_UNSPECIFIED
    pulls_refused: common_pb2.ErrorCode.ValueType = common_pb2.ERROR_CODE_UNSPECIFIED
    suggest_slave: bool = False
    lag_bytes: int = 0
    advertised: str = ""
    endpoint: str = ""
    pulls: int = 0
    streams: int = 0
    requests: list[broker_pb2.AppendRequest] = field(default_factory=list)
    keep_requests: bool = False

    def __post_init__(self) -> None:
        self.late = asyncio.Event()
        self.pulled = asyncio.Event()
        self.committed = asyncio.Event()
        self._server: aio.Server | None = None
        self._port = 0

    @property
    def log(self) -> FakeLog:
        return self.cluster.log

    @property
    def is_master(self) -> bool:
        return self.cluster.master_id == self.node_id

    def _believed_master(self) -> str:
        return self.cluster.master_id if self.epoch is None else self.node_id

    async def start(self) -> None:
        self._server = aio.server(options=SERVER_OPTIONS, interceptors=self.cluster.guards)
        broker_pb2_grpc.add_BrokerServicer_to_server(self, self._server)
        admin_pb2_grpc.add_AdminServicer_to_server(self, self._server)
        if not self.old:
            work_pb2_grpc.add_WorkServicer_to_server(FakeWorkDoor(self), self._server)
        address, credentials = f"127.0.0.1:{self._port}", self.cluster.credentials
        if credentials is None:
            self._port = self._server.add_insecure_port(address)
        else:
            self._port = self._server.add_secure_port(address, credentials)
        self.endpoint = f"127.0.0.1:{self._port}"
        self.advertised = self.advertised or self.endpoint
        await self._server.start()

    async def stop(self) -> None:
        """As a killed process: every call breaks. `start` brings it back on the same port."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def _master_only(self) -> None:
        if not self.is_master:
            master = self.cluster.nodes.get(self.cluster.master_id)
            hint = "" if master is None else master.advertised
            raise RefusedError(common_pb2.NOT_MASTER, "this node is a slave", hint=hint)

    def _limit(self) -> int:
        return len(self.log.records) if self.visible is None else self.visible

    def _queue(self, key: tuple[str, int]) -> tuple[list[int], int, int]:
        """Of a queue as this node has it: places in the log, first offset, end."""
        limit = self._limit()
        queue = [index for index in self.log.queues.get(key, ()) if index < limit]
        low = max(self.log.removed.get(key, 0), self.removed.get(key, 0))
        return queue, min(low, len(queue)), len(queue)

    def _check_topic(self, topic: str) -> None:
        if topic not in self.log.topics or topic in self.unheard_topics:
            raise RefusedError(common_pb2.UNKNOWN_TOPIC, f"topic {topic} does not exist")

    # Broker

    async def Append(  # noqa: N802
        self, request_iterator: Any, context: Any
    ) -> AsyncIterator[broker_pb2.AppendResponse]:
        self.streams += 1
        async for request in request_iterator:
            if self.keep_requests:
                self.requests.append(request)
            fault = self.faults.popleft() if self.faults else None
            if fault is Fault.DROP_BEFORE:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            try:
                if isinstance(fault, RefusedError):
                    raise fault
                self._master_only()
                answer = self.log.append(request)
                await self.cluster.appended()
            except RefusedError as refusal:
                yield broker_pb2.AppendResponse(
                    request_id=request.request_id,
                    status=broker_pb2.MESSAGE_ILLEGAL,
                    error=refusal.error,
                )
                continue
            if fault is Fault.DROP_AFTER:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the connection broke")
            if fault is Fault.SILENCE:
                await asyncio.Event().wait()
            if fault is Fault.ANSWER_LATE:
                await self.late.wait()
            if fault is Fault.UNKNOWN:
                answer = broker_pb2.AppendResponse(
                    request_id=request.request_id,
                    status=broker_pb2.FLUSH_SLAVE_TIMEOUT,
                    error=common_pb2.Error(code=common_pb2.OUTCOME_UNKNOWN, message="timed out"),
                )
            yield answer
            if fault is Fault.ANSWER_TWICE:
                yield answer

    async def Pull(  # noqa: N802
        self, request: broker_pb2.PullRequest, context: Any
    ) -> broker_pb2.PullResponse:
        self.pulls += 1
        self.pulled.set()
        if self.pulls_fail:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the disk hangs")
        try:
            if self.pulls_refused:
                raise RefusedError(self.pulls_refused, "not now")
            answer, found = self._pull(request)
            if not found and request.wait_ms:
                try:
                    async with asyncio.timeout(request.wait_ms / 1000):
                        while not found:
                            await self.cluster.next_append()
                            answer, found = self._pull(request)
                except TimeoutError:
                    pass
        except RefusedError as refusal:
            return broker_pb2.PullResponse(error=refusal.error)
        answer.suggest_slave = self.suggest_slave
        return answer

    def _pull(self, request: broker_pb2.PullRequest) -> tuple[broker_pb2.PullResponse, bool]:
        answer = broker_pb2.PullResponse(filtered=bool(request.filter) and not self.old)
        if self.old:
            request.filter = ""
        room = request.max_bytes or 4 << 20
        act = False
        for index, position in enumerate(request.positions):
            queue = self._pull_queue(position, request, room, empty=not answer.queues or not act)
            queue.position_index = index
            answer.queues.append(queue)
            room -= len(queue.records)
            act = act or queue.status not in (
                broker_pb2.NO_MATCHED_LOGIC_QUEUE,
                broker_pb2.NO_MESSAGE_IN_QUEUE,
                broker_pb2.OFFSET_OVERFLOW_ONE,
            )
        return answer, act

    def _pull_queue(
        self,
        position: broker_pb2.QueuePosition,
        request: broker_pb2.PullRequest,
        room: int,
        *,
        empty: bool,
    ) -> broker_pb2.QueueRecords:
        key = (position.topic, position.queue_id)
        self._check_topic(position.topic)
        queue, low, high = self._queue(key)
        offset = position.queue_offset
        answer = broker_pb2.QueueRecords(
            min_offset=low, max_offset=high, next_offset=offset, status=broker_pb2.FOUND
        )
        if key not in self.log.queues:
            answer.status, answer.next_offset = broker_pb2.NO_MATCHED_LOGIC_QUEUE, 0
        elif high == 0:
            answer.status, answer.next_offset = broker_pb2.NO_MESSAGE_IN_QUEUE, 0
        elif offset < low:
            answer.status, answer.next_offset = broker_pb2.OFFSET_TOO_SMALL, low
        elif offset == high:
            answer.status = broker_pb2.OFFSET_OVERFLOW_ONE
        elif offset > high:
            answer.status, answer.next_offset = broker_pb2.OFFSET_OVERFLOW_BADLY, high
        if answer.status != broker_pb2.FOUND:
            return answer
        taken: list[bytes] = []
        condition = _condition(request.filter)
        for number in range(offset, high):
            if (*key, number) in self.holes:
                answer.next_offset = number + 1
                continue
            record = self.log.records[queue[number]]
            if request.tag_hashes and self.log.tag_hash(queue[number]) not in request.tag_hashes:
                answer.next_offset = number + 1
                continue
            if condition is not None and not selects(condition, decode_record(record).properties):
                answer.next_offset = number + 1
                continue
            full = len(record) > room and (taken or not empty)
            if full or (request.max_messages and len(taken) >= request.max_messages):
                break
            taken.append(_flipped(record) if (*key, number) in self.damaged else record)
            room -= len(record)
            answer.next_offset = number + 1
        if not taken:
            lost = (*key, offset) in self.holes
            answer.status = (
                broker_pb2.MESSAGE_WAS_REMOVING if lost else broker_pb2.NO_MATCHED_MESSAGE
            )
        answer.count = len(taken)
        answer.records = b"".join(taken)
        answer.sizes = b"".join(len(record).to_bytes(4, "little") for record in taken)
        return answer

    async def QueueRanges(  # noqa: N802
        self, request: broker_pb2.QueueRangesRequest, context: Any
    ) -> broker_pb2.QueueRangesResponse:
        answer = broker_pb2.QueueRangesResponse()
        if request.of_master and self.ends_refused:
            answer.error.CopyFrom(RefusedError(self.ends_refused, "not now").error)
            return answer
        for topic, queue_id in sorted(self.log.queues):
            queue, low, high = self._queue((topic, queue_id))
            if (request.topics and topic not in request.topics) or not high:
                continue
            times = [decode_record(self.log.records[at]).store_timestamp for at in queue[low:]]
            answer.ranges.add(
                topic=topic,
                queue_id=queue_id,
                min_offset=low,
                max_offset=high,
                min_timestamp=times[0] if times else -1,
                max_timestamp=times[-1] if times else -1,
            )
        return answer

    async def SearchOffset(  # noqa: N802
        self, request: broker_pb2.SearchOffsetRequest, context: Any
    ) -> broker_pb2.SearchOffsetResponse:
        answer = broker_pb2.SearchOffsetResponse()
        for position in request.queues:
            queue, _, _ = self._queue((position.topic, position.queue_id))
            times = [decode_record(self.log.records[index]).store_timestamp for index in queue]
            answer.offsets.append(sum(1 for time in times if time < request.timestamp))
        return answer

    async def QueryByKey(  # noqa: N802
        self, request: broker_pb2.QueryByKeyRequest, context: Any
    ) -> broker_pb2.RecordsResponse:
        found = self.log.matching(request.key, request.topic, tags=request.tags)
        return _records(found[: request.max_messages or 64])

    async def GetByOffset(  # noqa: N802
        self, request: broker_pb2.GetByOffsetRequest, context: Any
    ) -> broker_pb2.RecordsResponse:
        by_offset = {decode_record(raw).physical_offset: raw for raw in self.log.records}
        for offset in request.physical_offsets:
            if offset not in by_offset:
                refusal = RefusedError(common_pb2.OFFSET_OUT_OF_RANGE, actual=offset)
                return broker_pb2.RecordsResponse(error=refusal.error)
        return _records([by_offset[offset] for offset in request.physical_offsets])

    async def CommitOffsets(  # noqa: N802
        self, request: broker_pb2.CommitOffsetsRequest, context: Any
    ) -> broker_pb2.CommitOffsetsResponse:
        try:
            self._master_only()
        except RefusedError as refusal:
            return broker_pb2.CommitOffsetsResponse(error=refusal.error)
        try:
            answer = self.cluster.groups.commit(request)
        except RefusedError as refusal:
            return broker_pb2.CommitOffsetsResponse(error=refusal.error)
        self.committed.set()
        return answer

    async def GroupHeartbeat(  # noqa: N802
        self, request: broker_pb2.GroupHeartbeatRequest, context: Any
    ) -> broker_pb2.GroupHeartbeatResponse:
        try:
            return await self.cluster.groups.heartbeat(request, self._master_only)
        except RefusedError as refusal:
            return broker_pb2.GroupHeartbeatResponse(error=refusal.error)

    async def DescribeGroup(  # noqa: N802
        self, request: broker_pb2.DescribeGroupRequest, context: Any
    ) -> broker_pb2.DescribeGroupResponse:
        try:
            self._master_only()
            return self.cluster.groups.describe(request.group)
        except RefusedError as refusal:
            return broker_pb2.DescribeGroupResponse(error=refusal.error)

    async def DeleteGroup(  # noqa: N802
        self, request: admin_pb2.DeleteGroupRequest, context: Any
    ) -> admin_pb2.DeleteGroupResponse:
        try:
            self._master_only()
            self.cluster.groups.delete(request.group, dry_run=request.dry_run)
        except RefusedError as refusal:
            return admin_pb2.DeleteGroupResponse(error=refusal.error)
        return admin_pb2.DeleteGroupResponse()

    async def FetchOffsets(  # noqa: N802
        self, request: broker_pb2.FetchOffsetsRequest, context: Any
    ) -> broker_pb2.FetchOffsetsResponse:
        answer = broker_pb2.FetchOffsetsResponse()
        for (group, topic, queue_id), offset in sorted(self.log.committed.items()):
            if group == request.group and (not request.topics or topic in request.topics):
                answer.offsets.add(topic=topic, queue_id=queue_id, queue_offset=offset)
        return answer

    async def DescribeProducer(  # noqa: N802
        self, request: broker_pb2.DescribeProducerRequest, context: Any
    ) -> broker_pb2.DescribeProducerResponse:
        producer = self.log.producers.get(request.producer_id)
        if producer is None:
            return broker_pb2.DescribeProducerResponse()
        return broker_pb2.DescribeProducerResponse(
            known=True, epoch=producer.epoch, last_sequence=producer.last_sequence
        )

    async def Recall(  # noqa: N802
        self, request: broker_pb2.RecallRequest, context: Any
    ) -> broker_pb2.RecallResponse:
        offset = decode_handle(request.recall_handle).log_offset
        waiting = [each.physical_offset for each in self.log.decoded() if each.topic == TIMER_TOPIC]
        if offset in waiting:
            return broker_pb2.RecallResponse(physical_offset=offset)
        error = common_pb2.Error(code=common_pb2.NOT_WAITING, message="it came")
        return broker_pb2.RecallResponse(error=error)

    async def FetchSegmentRange(  # noqa: N802
        self, request: broker_pb2.FetchSegmentRangeRequest, context: Any
    ) -> AsyncIterator[broker_pb2.SegmentChunk]:
        data = b"".join(self.log.records)
        yield broker_pb2.SegmentChunk(physical_offset=0, data=data, confirm_offset=len(data))

    # Admin

    async def DescribeCluster(  # noqa: N802
        self, request: admin_pb2.DescribeClusterRequest, context: Any
    ) -> admin_pb2.DescribeClusterResponse:
        return admin_pb2.DescribeClusterResponse(
            cluster_id="fake",
            answered_by=self.node_id,
            master_id=self._believed_master(),
            nodes=[node._status(asked=self) for node in self.cluster.nodes.values()],
            flush="async",
            replication="async",
            min_in_sync=1,
            max_message_size=MAX_MESSAGE_SIZE,
            max_batch_size=MAX_BATCH_SIZE,
        )

    def _status(self, asked: "FakeNode") -> common_pb2.NodeStatus:
        """As `asked` tells it: a master that was deposed knows of no later epoch."""
        is_master = self.node_id == asked._believed_master()
        return common_pb2.NodeStatus(
            node_id=self.node_id,
            role=common_pb2.MASTER if is_master else common_pb2.SLAVE,
            endpoint=self.advertised,
            state="running",
            epoch=self.cluster.epoch if asked.epoch is None else asked.epoch,
            wrote_offset=self.log.end,
            in_sync=self.lag_bytes == 0,
            lag_bytes=self.lag_bytes,
            store_host=self.log.store_host,
        )

    async def CreateTopic(  # noqa: N802
        self, request: admin_pb2.CreateTopicRequest, context: Any
    ) -> admin_pb2.TopicResponse:
        name = request.topic.name
        if name in self.log.topics and not request.update:
            refusal = RefusedError(common_pb2.TOPIC_EXISTS, f"topic {name}")
            return admin_pb2.TopicResponse(error=refusal.error)
        self.log.topics[name] = request.topic
        return admin_pb2.TopicResponse(topic=request.topic)

    async def ListTopics(  # noqa: N802
        self, request: admin_pb2.ListTopicsRequest, context: Any
    ) -> admin_pb2.ListTopicsResponse:
        names = list(request.names) or sorted(self.log.topics)
        for name in names:
            try:
                self._check_topic(name)
            except RefusedError as refusal:
                return admin_pb2.ListTopicsResponse(error=refusal.error)
        return admin_pb2.ListTopicsResponse(topics=[self.log.topics[name] for name in names])

    async def DeleteTopic(  # noqa: N802
        self, request: admin_pb2.DeleteTopicRequest, context: Any
    ) -> admin_pb2.TopicResponse:
        topic = self.log.topics.pop(request.name, None)
        if topic is None:
            refusal = RefusedError(common_pb2.UNKNOWN_TOPIC, f"topic {request.name}")
            return admin_pb2.TopicResponse(error=refusal.error)
        return admin_pb2.TopicResponse(topic=topic)

    async def ListGroups(  # noqa: N802
        self, request: admin_pb2.ListGroupsRequest, context: Any
    ) -> admin_pb2.ListGroupsResponse:
        return admin_pb2.ListGroupsResponse(
            groups=sorted({group for group, _, _ in self.log.committed})
        )

    async def Stats(  # noqa: N802
        self, request: admin_pb2.StatsRequest, context: Any
    ) -> admin_pb2.StatsResponse:
        return admin_pb2.StatsResponse(values={"puts_total": float(len(self.log.records))})


def _records(found: list[bytes]) -> broker_pb2.RecordsResponse:
    return broker_pb2.RecordsResponse(
        records=b"".join(found),
        sizes=b"".join(len(record).to_bytes(4, "little") for record in found),
    )


def _condition(text: str) -> Condition | None:
    if not text:
        return None
    try:
        return parse(text)
    except FilterError as error:
        raise RefusedError(common_pb2.INVALID_ARGUMENT, str(error)) from error


def _flipped(record: bytes) -> bytes:
    """With another byte at the end of its body."""
    found = decode_record(record)
    at = record.rindex(found.body) + len(found.body) - 1
    return record[:at] + bytes([record[at] ^ 1]) + record[at + 1 :]
