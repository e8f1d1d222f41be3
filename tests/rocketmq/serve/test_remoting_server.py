"""What a slave broker is told of its master's tables, and what everyone else is told."""

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes.fake_store import FakeDisk, FakeStore
from fakes.replicas import Replica
from tandemlog.format.files import store_json
from tandemlog_server.rocketmq.serve import remoting_server, tables
from tandemlog_server.rocketmq.serve.peers import Peers
from tandemlog_server.rocketmq.serve.remoting_server import (
    MAX_OF_ONE_ADDRESS,
    REMARK,
    RemotingServer,
    answer,
)
from tandemlog_server.rocketmq.wire import requests
from tandemlog_server.rocketmq.wire.client import RemotingClient
from tandemlog_server.rocketmq.wire.errors import BrokerRefusedError
from tandemlog_server.rocketmq.wire.remoting import (
    BINARY_HEADER,
    ONEWAY_FLAG,
    Command,
    CommandReader,
    encode_command,
)
from tandemlog_server.storage.metadata.topics import TopicConfig

HERE = ("127.0.0.1", 0)
ZERO = {"counter": 0, "stateVersion": 0, "timestamp": 0}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RemotingServer]:
    made = RemotingServer(fake_store(tmp_path), Peers(), idle_s=0.3)
    await made.start(HERE, HERE)
    yield made
    await made.stop()


def fake_store(folder: Path) -> FakeStore:
    store = FakeStore(FakeDisk())
    store.config = replace(store.config, directory=folder)
    return store


def body(store: Any, code: int) -> Any:
    return store_json.loads(answer(Command(code), store).body)


def test_an_empty_store_has_documents_without_holes(tmp_path: Path) -> None:
    """RocketMQ's reader makes a null of what is missing, and then fails."""
    store = fake_store(tmp_path)
    assert body(store, requests.GET_ALL_TOPIC_CONFIG) == {
        "dataVersion": ZERO,
        "topicConfigTable": {},
        "mappingDataVersion": ZERO,
        "topicQueueMappingDetailMap": {},
        "topicQueueMappingInfoMap": {},
    }
    assert body(store, requests.GET_ALL_SUBSCRIPTION_GROUP_CONFIG) == {
        "dataVersion": ZERO,
        "subscriptionGroupTable": {},
        "forbiddenTable": {},
    }
    for code in (requests.GET_ALL_CONSUMER_OFFSET, requests.GET_ALL_DELAY_OFFSET):
        assert body(store, code) == {"dataVersion": ZERO, "offsetTable": {}}
    assert body(store, requests.GET_ALL_MESSAGE_REQUEST_MODE) == {"messageRequestModeMap": {}}
    assert body(store, requests.GET_TIMER_METRICS) == {"dataVersion": ZERO, "timingCount": {}}
    checkpoint = answer(Command(requests.GET_TIMER_CHECK_POINT), store).body
    assert struct.unpack(">7q", checkpoint) == (0,) * 7


async def test_the_tables_are_those_of_the_store(tmp_path: Path) -> None:
    replica = Replica(tmp_path, "m")
    await replica.open()
    try:
        store = replica.store
        store.topics.create(TopicConfig("Orders", 3, 3), 5)
        store.groups.ensure("GID_a", 6)
        store.consumer_offsets.commit("GID_a", "Orders", 2, 77)
        topics = body(store, requests.GET_ALL_TOPIC_CONFIG)
        assert topics["topicConfigTable"]["Orders"]["readQueueNums"] == 3
        assert topics["dataVersion"]["counter"] > 0
        groups = body(store, requests.GET_ALL_SUBSCRIPTION_GROUP_CONFIG)
        assert groups["subscriptionGroupTable"]["GID_a"]["groupName"] == "GID_a"
        offsets = body(store, requests.GET_ALL_CONSUMER_OFFSET)
        assert offsets["offsetTable"] == {"Orders@GID_a": {2: 77}}
        assert set(offsets) == {"dataVersion", "offsetTable"}
    finally:
        await replica.stop()


def test_files_that_rocketmq_left_in_the_store_are_passed_on(tmp_path: Path) -> None:
    store = fake_store(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "delayOffset.json").write_text('{"offsetTable":{1:12,3:4}}')
    modes = {"Orders": {"GID_a": {"mode": "POP"}}}
    path = tmp_path / "config" / "messageRequestMode.json"
    path.write_text(json.dumps({"messageRequestModeMap": modes}))
    assert body(store, requests.GET_ALL_DELAY_OFFSET)["offsetTable"] == {1: 12, 3: 4}
    assert body(store, requests.GET_ALL_MESSAGE_REQUEST_MODE) == {"messageRequestModeMap": modes}
    path.write_text("[]")
    assert body(store, requests.GET_ALL_MESSAGE_REQUEST_MODE) == {"messageRequestModeMap": {}}


def test_a_table_that_rocketmq_could_not_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remoting_server, "MAX_BODY_BYTES", 20)
    refused = answer(Command(requests.GET_ALL_TOPIC_CONFIG), fake_store(tmp_path))
    assert refused.code == 1
    assert refused.remark.endswith("RocketMQ reads at most 20")


@pytest.mark.parametrize("code", [10, 11, requests.GET_BROKER_CONFIG, 310, 105])
async def test_a_client_of_rocketmq_is_told_whom_it_has_reached(
    server: RemotingServer, code: int
) -> None:
    async with RemotingClient("127.0.0.1", server.ports[0]) as client:
        with pytest.raises(BrokerRefusedError, match=REMARK) as refused:
            await client.call(code)
    assert refused.value.code == 3


async def test_both_ports_answer_many_requests_of_one_connection(server: RemotingServer) -> None:
    assert len(set(server.ports)) == 2
    for port in server.ports:
        async with RemotingClient("127.0.0.1", port) as client:
            for _ in range(3):
                response = await client.call(requests.GET_ALL_TOPIC_CONFIG)
                assert response.body == tables.topics(fake_store(Path("/nowhere")))


async def test_a_binary_header_is_answered_in_kind_and_a_oneway_request_not_at_all(
    server: RemotingServer,
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
    oneway = Command(requests.GET_ALL_TOPIC_CONFIG, 1, flag=ONEWAY_FLAG)
    binary = Command(requests.GET_ALL_DELAY_OFFSET, 2, header_format=BINARY_HEADER)
    writer.write(encode_command(oneway) + encode_command(binary))
    (response,) = CommandReader().feed(await reader.read(1 << 16))
    assert (response.opaque, response.header_format, response.is_response) == (2, 1, True)
    writer.close()


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">ii", 1 << 20, 0), struct.pack(">ii", 20, 99)]
)
async def test_what_is_no_small_request_ends_the_connection(
    server: RemotingServer, sent: bytes
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
    writer.write(sent)
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    writer.close()


async def test_idle_connections_make_room(server: RemotingServer) -> None:
    held = [
        await asyncio.open_connection("127.0.0.1", server.ports[0])
        for _ in range(MAX_OF_ONE_ADDRESS)
    ]
    reader, writer = await asyncio.open_connection("127.0.0.1", server.ports[0])
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await reader.readexactly(1)
    for each, _ in held:
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await each.readexactly(1)
    async with RemotingClient("127.0.0.1", server.ports[0]) as client:
        await client.call(requests.GET_ALL_TOPIC_CONFIG)
    for _, each_writer in [*held, (reader, writer)]:
        each_writer.close()
