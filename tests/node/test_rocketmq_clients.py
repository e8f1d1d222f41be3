"""The port of RocketMQ's clients on a node."""

from pathlib import Path

import pytest

from tandemlog_server.node.node import Node
from tandemlog_server.node.remoting.door.remoting_call import Method, RemotingCall
from tandemlog_server.node.rocketmq_clients import table_of
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.rocketmq_clients_section import RocketmqClientsSection
from tandemlog_server.node.settings.sections import StoreSection
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


async def test_a_node_answers_at_its_port(tmp_path: Path) -> None:
    config = NodeConfig(
        listen="127.0.0.1:0",
        http_listen="",
        store=StoreSection(directory=tmp_path),
        rocketmq_clients=RocketmqClientsSection(listen="127.0.0.1:0"),
    )
    node = Node(config)
    await node.start()
    try:
        host, port = node.endpoints.rocketmq_advertise.split(":")
        async with RemotingClient(host, int(port)) as client:
            with pytest.raises(BrokerRefusedError, match="request 999") as refused:
                await client.call(999)
        assert refused.value.code == 3
    finally:
        await node.stop()
