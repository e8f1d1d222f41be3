"""What a stranger could do to a node that asks no one: each of it is refused by one that does.

A master that waits for its slave (sync, min_in_sync 2), and a slave that holds its stream with the
token of its node. Three strangers try: one without a proof, a client with rights of its own, and
another node. After each attempt nothing of it is left: members, in-sync set, epoch, producers,
topics and the log are as before, the real slave's stream lives, and the audit log has a line.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from grpc import StatusCode, aio

from fakes.inner_node import dispatched
from fakes.secured_node import access_text, bearer, channel, running, settings, until
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    broker_pb2,
    broker_pb2_grpc,
    common_pb2,
    replication_pb2,
)
from tandemlog_server.ha.protocol.chunk_codec import Chunk
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Answer,
    Hello,
    Refusal,
    decode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.replication_service import PATH
from tandemlog_server.ha.protocol.table_pieces import Piece
from tandemlog_server.node.access.access_refusals import NotKnownError
from tandemlog_server.node.node import Node
from tandemlog_server.node.services.strangers import StrangerInterceptor
from tandemlog_server.storage.metadata.topics import TopicConfig

ACCESS = access_text(
    owner={"read": ["t"], "write": ["t"]},
    client={"read": ["own"], "write": ["own"]},
    n1={"node": "n1"},
    n2={"node": "n2"},
)
HELLO = Hello("test", "n1", "i1", "n1:1", store_host="127.0.0.1:1")
SYNC = {
    "mode": "sync",
    "min_in_sync": 2,
    "heartbeat_ms": 50,
    "rejoin_ms": 1,
    "dead_after_ms": 60_000,
    "replica_lag_time_ms": 60_000,
}
STRANGERS = {"no proof": (), "a client": bearer("client"), "another node": bearer("n2")}


class RealSlave:
    """Holds the stream of node n1, and acknowledges what it gets."""

    def __init__(self) -> None:
        self.frames = 0
        self.ended = False

    async def follow(self, on: aio.Channel) -> None:
        call: Any = on.stream_stream(PATH)(metadata=bearer("n1"))
        try:
            await call.write(encode_slave_frame(HELLO))
            epoch = durable = 0
            tables: dict[str, int] = {}
            while isinstance(data := await call.read(), bytes):
                self.frames += 1
                frame = decode_master_frame(data)
                if isinstance(frame, Answer):
                    epoch = frame.epoch
                elif isinstance(frame, Chunk):
                    durable = max(durable, frame.offset + len(frame.data))
                elif isinstance(frame, Piece):
                    tables[frame.kind] = frame.version
                if epoch:
                    held = tuple(tables.items())
                    ack = Ack(epoch, "i1", durable, durable, durable, tables=held)
                    await call.write(encode_slave_frame(ack))
        finally:
            self.ended = True


@dataclass
class Scene:
    """The master, a way to it, and what must not change."""

    node: Node
    on: aio.Channel
    slave: RealSlave

    @property
    def broker(self) -> Any:
        return broker_pb2_grpc.BrokerStub(self.on)

    @property
    def admin(self) -> Any:
        return admin_pb2_grpc.AdminStub(self.on)

    def state(self) -> tuple[object, ...]:
        node, producer = self.node, self.node.store.producers.describe("p")
        directory = node.config.store.directory
        return (
            [(each.node_id, each.endpoint, each.in_sync, each.alarm) for each in node.members()],
            (directory / "tandemlog/replication.json").read_bytes(),
            None if producer is None else (producer.epoch, producer.last_sequence),
            sorted(node.store.topics.names()),
            node.store.log.wrote.value,
            node.store.confirmed.value,
            node.store.consumer_offsets.groups(),
            node.health().alarms,
            self.slave.ended,
        )


@asynccontextmanager
async def scene(folder: Path) -> AsyncIterator[Scene]:
    config = settings(folder, access=ACCESS, replication=SYNC)
    async with running(config) as node, channel(node) as on, channel(node) as of_slave:
        node.store.create_topic(TopicConfig("t", 1, 1))
        slave = RealSlave()
        following = asyncio.create_task(slave.follow(of_slave))
        await until(lambda: {"n0", "n1"} == {each.node_id for each in node.members()})
        await until(lambda: all(each.in_sync for each in node.members()))
        made = Scene(node, on, slave)
        stored = await append(made, "t", bearer("owner"), ProducerMark("p", 3, 0, 0, 1))
        assert stored.status == broker_pb2.PUT_OK  # both nodes have it
        await dispatched(node)
        yield made
        following.cancel()
        with suppress(asyncio.CancelledError, aio.AioRpcError):
            await following


async def append(
    made: Scene, topic: str, metadata: Any, mark: ProducerMark | None = None
) -> broker_pb2.AppendResponse:
    properties = {} if mark is None else {"__TL_SEQ": mark.encode()}
    record = encode_record(topic=topic, body=b"body", properties=properties)
    request = broker_pb2.AppendRequest(
        topics=[topic], queue_topics=[0], queue_ids=[0], records=record,
        sizes=len(record).to_bytes(4, "little"), queue_indexes=b"\0\0", timeout_ms=5_000,
    )  # fmt: skip
    call = made.broker.Append(metadata=metadata)
    await call.write(request)
    answer: broker_pb2.AppendResponse = await call.read()
    return answer


Attempt = Callable[[Scene, Any], Awaitable[object]]


async def read_everything(made: Scene, who: Any) -> object:
    position = broker_pb2.QueuePosition(topic="t")
    return await made.broker.Pull(broker_pb2.PullRequest(positions=[position]), metadata=who)


async def read_by_key(made: Scene, who: Any) -> object:
    request = broker_pb2.QueryByKeyRequest(topic="t", key="k")
    return await made.broker.QueryByKey(request, metadata=who)


async def read_the_log_by_offset(made: Scene, who: Any) -> object:
    request = broker_pb2.GetByOffsetRequest(physical_offsets=[0] * 1_000)
    return await made.broker.GetByOffset(request, metadata=who)


async def read_the_log_in_ranges(made: Scene, who: Any) -> object:
    call = made.broker.FetchSegmentRange(broker_pb2.FetchSegmentRangeRequest(), metadata=who)
    return await call.read()


async def write_to_a_topic(made: Scene, who: Any) -> object:
    return await append(made, "t", who)


async def fence_a_producer(made: Scene, who: Any) -> object:
    return await append(made, "t", who, ProducerMark("p", 4, 0, 0, 1))


async def give_up_what_a_group_has_consumed(made: Scene, who: Any) -> object:
    row = broker_pb2.QueuePosition(topic="t", queue_offset=0)
    request = broker_pb2.CommitOffsetsRequest(group="g", offsets=[row])
    return await made.broker.CommitOffsets(request, metadata=who)


async def create_topics(made: Scene, who: Any) -> object:
    topic = admin_pb2.Topic(name="x", attributes={"+a": "x" * 100_000})
    return await made.admin.CreateTopic(admin_pb2.CreateTopicRequest(topic=topic), metadata=who)


async def delete_a_topic(made: Scene, who: Any) -> object:
    return await made.admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="t"), metadata=who)


async def change_the_master(made: Scene, who: Any) -> object:
    request = admin_pb2.ChangeClusterRequest(
        action=admin_pb2.FAILOVER, node_id="n2", request_id="1", force=True
    )
    return await made.admin.ChangeCluster(request, metadata=who)


async def greet(made: Scene, who: Any, hello: Hello | bytes, *acks: Ack) -> object:
    stream: Any = made.on.stream_stream(PATH)
    call = stream(metadata=who)
    await call.write(hello if isinstance(hello, bytes) else encode_slave_frame(hello))
    for ack in acks:
        with suppress(aio.AioRpcError, asyncio.InvalidStateError):
            await call.write(encode_slave_frame(ack))
    return decode_master_frame(await call.read())


async def join_the_in_sync_set(made: Scene, who: Any) -> object:
    stranger = replace(HELLO, node_id="n9", incarnation="9", endpoint="n9:1")
    return await greet(made, who, stranger, Ack(1, "9", 0))


async def claim_to_hold_what_was_never_sent(made: Scene, who: Any) -> object:
    end = made.node.store.log.wrote.value
    held = replace(HELLO, max_offset=end, epochs=(EpochEntry(1, 0),), file_size=1 << 20)
    return await greet(made, who, held, Ack(1, "i1", 1 << 40, 1 << 40))


async def cut_the_stream_of_a_slave(made: Scene, who: Any) -> object:
    return await greet(made, who, HELLO)


async def say_a_confirm_offset_beyond_the_end(made: Scene, who: Any) -> object:
    return await greet(made, who, replace(HELLO, confirm_offset=1 << 40, max_offset=1 << 40))


async def say_an_epoch_far_ahead(made: Scene, who: Any) -> object:
    frame = replication_pb2.SlaveFrame()
    frame.ParseFromString(encode_slave_frame(HELLO))
    frame.hello.accepted_epoch = 2**31 - 1
    return await greet(made, who, frame.SerializeToString())


async def say_an_endpoint_of_megabytes(made: Scene, who: Any) -> object:
    return await greet(made, who, replace(HELLO, node_id="n9", endpoint="h" * (3 << 20) + ":1"))


ATTEMPTS: tuple[Attempt, ...] = (
    read_everything,
    read_by_key,
    read_the_log_by_offset,
    read_the_log_in_ranges,
    write_to_a_topic,
    fence_a_producer,
    give_up_what_a_group_has_consumed,
    create_topics,
    delete_a_topic,
    change_the_master,
    join_the_in_sync_set,
    claim_to_hold_what_was_never_sent,
    cut_the_stream_of_a_slave,
    say_a_confirm_offset_beyond_the_end,
    say_an_epoch_far_ahead,
    say_an_endpoint_of_megabytes,
)


async def outcome(made: Scene, attempt: Attempt, who: Any) -> str:
    try:
        answer: Any = await attempt(made, who)
    except aio.AioRpcError as error:
        return "not known" if error.code() is StatusCode.UNAUTHENTICATED else str(error)
    if isinstance(answer, Refusal):
        return "refused"
    assert answer.error.code == common_pb2.PERMISSION_DENIED
    return "denied"


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_each_attempt_is_refused_is_a_line_and_leaves_nothing(
    tmp_path: Path, stranger: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path) as made:
        # each attempt comes at a time of its own: the log leaves out none
        clock = [0.0]
        made.node.security.doorkeeper.audit._lines._monotonic = lambda: clock[0]
        before = made.state()
        for attempt in ATTEMPTS:
            clock[0] += 1_000
            caplog.clear()
            said = await outcome(made, attempt, STRANGERS[stranger])
            wanted = {"not known"} if stranger == "no proof" else {"refused", "denied"}
            assert said in wanted, attempt.__name__
            assert made.state() == before, attempt.__name__
            lines = [each for each in caplog.records if each.name == "tandemlog.audit"]
            refused = [each for each in lines if "refused call=" in each.getMessage()]
            assert len(refused) == 1, attempt.__name__
            assert not any(each.levelno >= logging.ERROR for each in caplog.records)
            assert not any(each.exc_info for each in caplog.records)
        frames = made.slave.frames
        stored = await append(made, "t", bearer("owner"), ProducerMark("p", 3, 1, 0, 1))
        assert stored.status == broker_pb2.PUT_OK
        await until(lambda: made.slave.frames > frames)


async def test_the_node_itself_may_still_do_what_others_may_not(tmp_path: Path) -> None:
    """So that the test above cannot pass because the attempts are wrong."""
    async with scene(tmp_path) as made:
        assert isinstance(await cut_the_stream_of_a_slave(made, bearer("n1")), Answer)
        assert not (await read_everything(made, bearer("owner"))).error.code  # type: ignore[attr-defined]
        fenced: Any = await fence_a_producer(made, bearer("owner"))
        state = made.node.store.producers.describe("p")
        assert state is not None
        assert state.epoch == 4 or fenced.error.code


async def test_a_strangers_request_is_not_received() -> None:
    """Only the headers: what would be its request stays with the client."""

    class Keeper:
        open_health = False

        def check_token(self, authorization: str) -> None:
            raise NotKnownError("who?")

    asked: Any = type("Details", (), {"method": "/a/B", "invocation_metadata": ()})()

    async def served(_: object) -> object:
        raise AssertionError("its method was looked up")

    handler: Any = await StrangerInterceptor(Keeper()).intercept_service(served, asked)  # type: ignore[arg-type]
    # gRPC receives a request before it calls a method, unless the method is a stream
    assert handler.request_streaming
