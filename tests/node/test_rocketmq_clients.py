"""The port of RocketMQ's clients on a node."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tandemlog.admin import AsyncAdmin
from tandemlog_server.node.node import Node
from tandemlog_server.node.remoting.door.remoting_call import Method, RemotingCall
from tandemlog_server.node.rocketmq_clients import client_limits, table_of
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection
from tandemlog_server.node.settings.sections import StoreSection
from tandemlog_server.rocketmq.clients.client_table import ClientLimits
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.wire.client import RemotingClient
from tandemlog_server.rocketmq.wire.errors import BrokerRefusedError


async def _serve(call: RemotingCall) -> None:
    return


class _Part:
    def __init__(self, *codes: int) -> None:
        self.codes = codes

    def methods(self) -> dict[int, Method]:
        return {code: Method(_serve) for code in self.codes}


def test_a_code_is_served_once() -> None:
    assert sorted(table_of((_Part(10, 11), _Part(34)))) == [10, 11, 34]
    with pytest.raises(ValueError, match="request 11 is served by two"):
        table_of((_Part(10, 11), _Part(11)))


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    """A node with a port for RocketMQ's clients."""
    node = Node(
        NodeConfig(
            listen="127.0.0.1:0",
            http_listen="",
            store=StoreSection(directory=tmp_path),
            rocketmq_clients=RocketmqClientsSection(listen="127.0.0.1:0"),
        )
    )
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def client_of(node: Node) -> RemotingClient:
    host, port = node.endpoints.rocketmq_advertise.split(":")
    return RemotingClient(host, int(port))


async def test_a_node_answers_at_its_port(node: Node) -> None:
    async with client_of(node) as client:
        with pytest.raises(BrokerRefusedError, match="request 999") as refused:
            await client.call(999)
    assert refused.value.code == 3


def test_settings_bound_the_clients() -> None:
    usual = client_limits(RocketmqClientsSection())
    assert usual == ClientLimits()
    more = client_limits(
        RocketmqClientsSection(listen="127.0.0.1:0", max_clients=20_000, max_members=5)
    )
    assert more == ClientLimits(20_000, 5, 2 * usual.total_bytes)
    few = client_limits(RocketmqClientsSection(listen="127.0.0.1:0", max_clients=10))
    assert few.total_bytes == usual.total_bytes


HEARTBEAT = {
    "clientID": "10.0.0.5@1",
    "consumerDataSet": [
        {
            "groupName": "readers",
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [
                {"topic": "orders", "subString": "*", "expressionType": "TAG", "subVersion": 1}
            ],
        }
    ],
}


async def test_operators_see_the_clients_of_the_port(node: Node) -> None:
    async with client_of(node) as client:
        await client.call(RequestCode.HEART_BEAT, body=json.dumps(HEARTBEAT).encode())
        with pytest.raises(BrokerRefusedError):
            await client.call(999)
        numbers = node.numbers().doors["remoting"]
        async with AsyncAdmin(node.endpoints.listen) as admin:
            group = await admin.describe_group("readers")
    assert (numbers.connections, numbers.clients, numbers.members) == (1, 1, {"readers": 1})
    assert numbers.requests == {
        ("HEART_BEAT", "SUCCESS"): 1,
        ("other", "REQUEST_CODE_NOT_SUPPORTED"): 1,
    }
    assert (group.kind, group.state) == ("classic", "stable")
    (member,) = group.members
    assert (member.client_id, member.topics) == ("10.0.0.5@1", ("orders",))
    assert member.host.startswith("127.0.0.1:")


async def test_a_group_whose_clients_have_left_is_of_no_kind(node: Node) -> None:
    async with client_of(node) as client:
        await client.call(RequestCode.HEART_BEAT, body=json.dumps(HEARTBEAT).encode())
        await client.call(
            RequestCode.UNREGISTER_CLIENT,
            {"clientID": "10.0.0.5@1", "consumerGroup": "readers"},
        )
    async with AsyncAdmin(node.endpoints.listen) as admin, asyncio.timeout(10):
        # its settings are made beside the answer
        while "readers" not in await admin.groups():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        group = await admin.describe_group("readers")
    assert (group.kind, group.state, group.members) == ("", "empty", ())
    assert node.numbers().doors["remoting"].members == {}
