"""Slave brokers of RocketMQ and the roles of a node: only a master serves them, while it is one."""

import asyncio
import socket
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from fakes.clock import FakeClock
from fakes.inner_node import SMALL, running
from fakes.name_server import name_server
from fakes.replicas import Replica, eventually
from fakes.slave_broker import SlaveBroker
from helpers.running import free_ports
from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.cluster.topology import NodeInfo, Topology
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import TandemlogError
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.cli.cluster.nodes_table import node_rows
from tandemlog_server.cli.cluster.verdict import judge
from tandemlog_server.ha.config import Role
from tandemlog_server.ha.election.agent import ElectionAgent
from tandemlog_server.ha.master.record_keeper import LocalKeeper
from tandemlog_server.ha.master.term import WonTerm
from tandemlog_server.ha.state import Member
from tandemlog_server.node.roles import rocketmq_serving
from tandemlog_server.node.roles.elected_roles import ElectedRoles
from tandemlog_server.node.roles.rocketmq_serving import RocketmqServing
from tandemlog_server.node.roles.terms import Terms
from tandemlog_server.node.settings.host_port import split_endpoint
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.rocketmq_section import RocketmqSection
from tandemlog_server.node.settings.sections import StoreSection
from tandemlog_server.rocketmq.wire import requests
from tandemlog_server.rocketmq.wire.client import RemotingClient
from tandemlog_server.storage.metadata.topics import TopicConfig

NAME = "broker-a"
QUICK = ConnectionOptions(
    request_timeout_ms=5_000, retry_timeout_ms=200, discovery_timeout_ms=1_000
)


def config(directory: Path, name_server_port: int = 0, **rocketmq: Any) -> NodeConfig:
    servers = (f"127.0.0.1:{name_server_port}",) if name_server_port else ()
    keys: dict[str, Any] = {"listen": "127.0.0.1:0", "broker_name": NAME, "name_servers": servers}
    section = RocketmqSection(**{**keys, **rocketmq})
    store = StoreSection(directory=directory, **SMALL)
    return NodeConfig(listen="127.0.0.1:0", http_listen="", store=store, rocketmq=section)


def ports(serving: RocketmqServing) -> tuple[int, int]:
    """Remoting and HA."""
    assert serving.endpoints is not None
    return (
        split_endpoint(serving.endpoints.listen)[1],
        split_endpoint(serving.endpoints.ha_listen)[1],
    )


def reachable(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


async def test_a_master_is_followed_from_its_first_message_to_its_stop(tmp_path: Path) -> None:
    server = name_server(NAME)
    await server.start()
    async with running(config(tmp_path / "n0", server.port)) as node:
        endpoint = node.endpoints.listen
        await eventually(lambda: requests.REGISTER_BROKER in server.codes())
        remoting, ha = ports(node.brokers)
        async with AsyncAdmin(endpoint) as admin, AsyncProducer(endpoint) as producer:
            await admin.create_topic("Orders", 2)
            for number in range(20):
                await (await producer.send(Message("Orders", b"%d" % number, queue_id=number % 2)))
            broker = await SlaveBroker().connect(ha)
            await eventually(lambda: broker.end == node.store.confirmed.value)
            async with RemotingClient("127.0.0.1", remoting) as client:
                topics = await client.call(requests.GET_ALL_TOPIC_CONFIG)
            assert b'"Orders"' in topics.body
            # the clients of tandemlog leave it alone: it has no endpoint
            for read_from in ("any", "slave"):
                async with AsyncConsumer(
                    endpoint, read_from=read_from, connection=QUICK
                ) as consumer:
                    pulled = consumer.pull("Orders", 0, 0, wait_ms=1_000)
                    if read_from == "any":
                        assert len(await pulled) == 10
                    else:
                        with pytest.raises(TandemlogError, match="slave"):
                            await pulled
            topology = await admin.cluster()
        assert [each.node_id for each in topology.nodes if each.is_broker] == ["rocketmq:127.0.0.1"]
    await broker.closed.wait()
    assert server.codes()[-1] == requests.UNREGISTER_BROKER
    assert not reachable(remoting)
    await broker.close()
    await server.stop()


async def test_a_taken_port_is_tried_again_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rocketmq_serving, "RETRY_S", 0.02)
    replica = Replica(tmp_path, "m")
    await replica.lead()
    (port,) = free_ports(1)
    serving = RocketmqServing(config(tmp_path, listen=f"127.0.0.1:{port}"))
    remoting, ha = ports(serving)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", ha))
        taken.listen()
        serving.begin(replica.master)
        await eventually(lambda: "slave brokers cannot follow yet" in caplog.text)
    await eventually(lambda: reachable(ha) and reachable(remoting))
    assert caplog.text.count("cannot follow yet") == 1
    await serving.end()
    assert not reachable(ha)
    assert not reachable(remoting)
    await serving.end()
    await replica.stop()


async def test_it_may_end_before_it_has_begun(tmp_path: Path) -> None:
    replica = Replica(tmp_path, "m")
    await replica.lead()
    serving = RocketmqServing(config(tmp_path))
    serving.begin(replica.master)
    await serving.end()
    await asyncio.sleep(0)
    assert not reachable(ports(serving)[1])
    await replica.stop()


async def test_an_elected_node_serves_in_its_terms_only(tmp_path: Path) -> None:
    """It is led, sends, loses its role in the middle of a transfer, and leads again."""
    replica = Replica(tmp_path, "m", clock=FakeClock())
    await replica.open()
    store = replica.store
    settings = config(tmp_path)
    brokers = RocketmqServing(settings)
    _, ha = ports(brokers)
    terms = Terms(store, replica.config, replica.clock, brokers, settings.put, lambda _: None)
    roles = ElectedRoles(terms)
    roles.agent = Mock(spec=ElectionAgent, losses=Mock())
    roles.agent.lease_fault.return_value = ""
    await roles.prepare()
    state = roles.state
    assert not reachable(ha)
    me = Member(state.node_id, state.incarnation)
    slave = SlaveBroker()
    for epoch in (1, 2):
        won = WonTerm(epoch, epoch, frozenset({me}), frozenset({me.node_id}))
        await roles.lead(won, LocalKeeper(), "")
        await eventually(lambda: reachable(ha))
        assert terms.master is not None
        assert terms.master.config.role is Role.MASTER
        if epoch == 1:
            store.topics.create(TopicConfig("T", 4, 4), 1)
        for _ in range(20):
            replica.put(20)
        await slave.connect(ha)
        held = slave.end
        await eventually(lambda: slave.end > held)  # noqa: B023
        await roles.wait("another node leads")
        await slave.closed.wait()
        assert not reachable(ha)
        assert slave.log == replica.log()[: slave.end]
    await roles.close()
    await slave.close()
    await asyncio.to_thread(store.close)


def broker_info(state: str, *, in_sync: bool = False, lag_bytes: int = 0) -> NodeInfo:
    return info("rocketmq:10.0.0.9", "slave", state, in_sync=in_sync, lag_bytes=lag_bytes)


def info(
    node_id: str, role: str, state: str, *, in_sync: bool = True, lag_bytes: int = 0
) -> NodeInfo:
    reachable = not node_id.startswith("rocketmq:")
    return NodeInfo(
        node_id, role, "h:1" if reachable else "", "", state, 1, in_sync, 0, 10, 10, 10, 10,
        lag_bytes, 0.0, "", "", reachable=reachable,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("broker", "line"),
    [
        (broker_info("following"), "OK: n0 is the master, 1 slave in sync"),
        (broker_info("in-sync", in_sync=True), "OK: n0 is the master, 1 slave in sync"),
        (
            broker_info("catching-up", lag_bytes=7),
            "WARNING: rocketmq:10.0.0.9 is catching-up, 7 bytes behind",
        ),
    ],
)
def test_a_broker_is_judged_by_what_the_master_says_of_it(broker: NodeInfo, line: str) -> None:
    nodes = (info("n0", "master", "running"), info("n1", "slave", "in-sync"), broker)
    topology = Topology(nodes=nodes, master_id="n0")
    assert judge(topology).line.startswith(line)
    rows = {row["node"]: row["state"] for row in node_rows(topology)}
    assert rows[broker.node_id] == broker.state
