"""False and broken peers against real sessions over real gRPC: nobody else is stopped."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from grpc import aio

from fakes.replicas import SYNC, Make, Replica, eventually
from tandemlog.format.constants import Buffer
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.v1 import replication_pb2
from tandemlog_server.ha.master import metadata_sync
from tandemlog_server.ha.master.session import SendChunk
from tandemlog_server.ha.protocol.chunk_codec import Chunk
from tandemlog_server.ha.protocol.frames import (
    Ack,
    Hello,
    MasterFrame,
    Refusal,
    SlaveFrame,
    decode_master_frame,
    decode_slave_frame,
    encode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.replication_service import PATH, ReplicationService
from tandemlog_server.storage.metadata.topics import TopicConfig

HELLO = Hello("cluster", "x", "1", "x:1")


async def say(master: Replica, *frames: SlaveFrame | bytes) -> list[MasterFrame]:
    """What a master says to these frames of a stranger, until it ends the stream or hears nothing
    more of it."""
    found: list[MasterFrame] = []
    async with aio.insecure_channel(master.endpoint) as channel:
        call: Any = channel.stream_stream(PATH)()
        for frame in frames:
            data = frame if isinstance(frame, bytes) else encode_slave_frame(frame)
            await call.write(data)
        while isinstance(data := await call.read(), bytes):
            found.append(decode_master_frame(data))
            if isinstance(found[-1], Refusal):
                break
    return found


async def refusal(master: Replica, *frames: SlaveFrame | bytes) -> str:
    last = (await say(master, *frames))[-1]
    assert isinstance(last, Refusal)
    return last.reason


async def sync_pair(make: Make) -> tuple[Replica, Replica]:
    master, slave = make("m", **SYNC), make("s", **SYNC)
    await master.lead()
    await slave.follow(master)
    await eventually(lambda: len(master.master.group.set.members) == 2)
    return master, slave


async def test_a_strangers_hello_changes_nothing(replica: Make) -> None:
    master, slave = await sync_pair(replica)
    state = (master.store_config.directory / "tandemlog/replication.json").read_bytes()
    lie = replace(
        HELLO, epochs=(EpochEntry(1, 0),), max_offset=1 << 40, confirm_offset=1 << 40,
        file_size=8192,
    )  # fmt: skip
    assert "so puts continue" in await refusal(master, lie)
    assert "so puts continue" in await refusal(master, replace(HELLO, accepted_epoch=1000))
    far = replication_pb2.SlaveFrame()
    far.hello.accepted_epoch = 2**31 - 1
    assert "which no cluster reaches" in await refusal(master, far.SerializeToString())
    long = replace(HELLO, endpoint="h" * (3 << 20) + ":1")
    assert "endpoint of 3145730 characters" in await refusal(master, long)
    assert "an acknowledgement came before the hello" in await refusal(master, Ack(1, "1", 5))
    end = master.put(3)
    await master.confirmed(end)
    await slave.confirmed(end)
    assert master.master.admission() is None
    assert {row.node_id for row in master.master.members()} == {"m", "s"}
    assert state == (master.store_config.directory / "tandemlog/replication.json").read_bytes()


async def test_streams_beyond_the_bound_are_told_so_and_members_come_in(replica: Make) -> None:
    master, slave = replica("m", max_streams=1), replica("s")
    await master.lead()
    await slave.follow(master)
    master.put(3)
    await slave.caught_up(master)
    await eventually(lambda: len(master.master.group.set.members) == 2)
    async with aio.insecure_channel(master.endpoint) as channel:
        held: Any = channel.stream_stream(PATH)()
        await held.write(encode_slave_frame(HELLO))
        await held.read()
        last = (await say(master, replace(HELLO, node_id="y")))[-1]
        assert isinstance(last, Refusal)
        assert "2 replication streams are open, no more are accepted" in last.reason
        held.cancel()
    await slave.caught_up(master)


async def test_a_topic_is_settled_once_the_slave_has_it(replica: Make) -> None:
    master, slave = await sync_pair(replica)
    master.store.create_topic(TopicConfig("New", 4, 4))
    assert await master.master.table_replicated("topics", 20)
    assert slave.store.topics.get("New") is not None
    await slave.stop()
    master.store.create_topic(TopicConfig("Later", 4, 4))
    assert not await master.master.table_replicated("topics", 0.1)


async def test_no_change_waits_for_the_rest_after_the_one_before(
    replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of many topics takes long to encode, and is sent rarely while nobody waits."""
    master, slave = await sync_pair(replica)
    monkeypatch.setattr(metadata_sync, "REST", 10**9)
    for number in range(3):
        master.store.create_topic(TopicConfig(f"t{number}", 4, 4))
        assert await master.master.table_replicated("topics", 20)
        assert slave.store.topics.get(f"t{number}") is not None


async def test_where_a_group_begins_is_settled_once_it_is_on_the_slaves_disk(
    replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = await sync_pair(replica)
    monkeypatch.setattr(metadata_sync, "REST", 10**9)
    master.store.consumer_offsets.commit("g", "T", 0, 7)
    version = master.store.consumer_offsets.version
    assert await master.master.table_replicated("consumer-offsets", 20)
    assert b"T@g" in (slave.store_config.directory / "config/consumerOffset.json").read_bytes()
    assert master.master.group.needed_tables["consumer-offsets"] == version
    await slave.stop()
    master.store.consumer_offsets.commit("g", "T", 0, 3)
    assert not await master.master.table_replicated("consumer-offsets", 0.1)


async def test_a_master_that_goes_gives_its_slaves_the_newest_tables(
    replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = await sync_pair(replica)
    monkeypatch.setattr(metadata_sync, "REST", 10**9)
    master.store.consumer_offsets.commit("g", "T", 0, 7)
    assert await master.master.send_tables(20)
    assert slave.store.consumer_offsets.offset("g", "T", 0) == 7
    master.store.consumer_offsets.commit("g", "T", 0, 8)
    assert await master.master.send_tables(20)
    assert slave.store.consumer_offsets.offset("g", "T", 0) == 8
    await slave.stop()
    await eventually(lambda: not master.master.group.sessions)
    master.store.consumer_offsets.commit("g", "T", 0, 9)
    assert await master.master.send_tables(20), "nobody is there to take them"


async def test_a_large_table_arrives_and_the_log_goes_on(replica: Make) -> None:
    master, slave = await sync_pair(replica)
    for number in range(60):
        topic = TopicConfig(f"large{number}", 1, 1, attributes={"a": "x" * 15_000})
        master.store.topics.create(topic, 1)
    master.master.metadata_changed()
    end = master.put(20)
    await slave.confirmed(end)
    assert await master.master.table_replicated("topics", 20)
    assert len(slave.store.topics.names()) == 61


async def test_a_chunk_that_is_changed_on_the_way_is_asked_for_again(
    replica: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    master, slave = replica("m"), replica("s")
    await master.lead()
    master.put(30)
    right = SendChunk.frame
    changed: list[int] = []

    def frame(this: SendChunk, data: Buffer, sent_at_ms: int) -> Chunk:
        made = right(this, data, sent_at_ms)
        if this.offset > 2000 and len(data) and len(changed) < 2:
            changed.append(this.offset)
            return replace(made, data=b"\xff" + bytes(data[1:]))
        return made

    monkeypatch.setattr(SendChunk, "frame", frame)
    await slave.follow(master)
    await slave.caught_up(master)
    assert len(changed) == 2
    assert slave.log() == master.log()
    assert not slave.slave.state.read_only


async def test_damage_in_the_masters_log_is_followed_byte_for_byte(replica: Make) -> None:
    master, slave = replica("m"), replica("s")
    await master.lead()
    first = master.put(3)
    end = master.put(40)
    await master.confirmed(end)
    await eventually(lambda: master.store.reputed.value == end)
    path = master.store_config.directory / "commitlog" / f"{0:020}"
    handle = os.open(path, os.O_RDWR)
    os.pwrite(handle, b"\xee" * 40, first)
    os.pwrite(handle, b"\xee" * 300, 5000)
    os.close(handle)
    await slave.follow(master)
    await slave.caught_up(master)
    assert slave.log() == master.log()
    assert not slave.slave.state.read_only
    end = master.put(5)
    await slave.confirmed(end)
    await eventually(lambda: slave.store.reputed.value == end)
    assert slave.store.failure is None


class FalseMaster:
    """Answers every hello with the same frames."""

    def __init__(self, *frames: bytes) -> None:
        self.frames = frames
        self.acks: list[Ack] = []
        self.hellos = 0

    async def replicate(
        self, requests: AsyncIterator[bytes], context: "aio.ServicerContext[bytes, bytes]"
    ) -> None:
        async for data in requests:
            frame = decode_slave_frame(data)
            if isinstance(frame, Ack):
                self.acks.append(frame)
                continue
            self.hellos += 1
            for each in self.frames:
                await context.write(each)


def answer(**changes: object) -> bytes:
    message = replication_pb2.MasterFrame()
    message.answer.action = replication_pb2.CONTINUE
    message.answer.master_id, message.answer.master_incarnation = "f", "1"
    message.answer.epoch, message.answer.commit_log_file_size = 1, 8192
    message.answer.max_offset = 1 << 20
    for name, value in changes.items():
        setattr(message.answer, name, value)
    return message.SerializeToString()


def chunk(data: bytes, **changes: object) -> bytes:
    from_master = SendChunk(0, len(data), 1, 0, 0, 1 << 20, 1)
    return encode_master_frame(replace(from_master.frame(data, 1), **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ([answer(commit_log_file_size=0)], "log files have 0 bytes"),
        ([answer(epoch=2**31 - 1)], "which no cluster reaches"),
        ([answer(), chunk(os.urandom(500))], "not a record at log offset 0"),
        ([answer(), chunk(b"\0" * 500)], "not a record at log offset 0"),
        ([answer(), chunk(b"abc", crc=1)], "changed in transit"),
        ([answer(), b"\x12" + b"\xff" * 300_000], "more than 10 bytes"),
        ([answer(action=replication_pb2.RESYNC, offset=8192)], "the master's log begins at 0"),
        ([answer(), encode_master_frame(Refusal("x" * 100_000, retry=True))], "xxx"),
    ],
)
async def test_a_false_master_ends_its_own_stream_and_nothing_else(
    replica: Make, frames: list[bytes], words: str
) -> None:
    false = FalseMaster(*frames)
    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    ReplicationService(false.replicate).add_to(server)
    await server.start()
    slave = replica("s")
    pretended = replica("f")
    pretended.port = port
    await slave.follow(pretended)
    try:
        await eventually(lambda: words in slave.slave.state.fault and false.hellos > 1)
    finally:
        await server.stop(None)
    assert slave.store.log.wrote.value == 0
    assert all(ack.durable == 0 for ack in false.acks)
    assert not slave.slave.state.read_only
    assert slave.store.failure is None


async def test_a_record_larger_than_the_window_arrives(replica: Make) -> None:
    """A slave acknowledges whole records only."""
    master, slave = replica("m", file_size=1 << 16), replica("s")
    await master.lead()
    await slave.follow(master)
    end = master.put(1, size=20_000)
    assert end > master.config.window_bytes
    await slave.caught_up(master)
    assert slave.log() == master.log()
