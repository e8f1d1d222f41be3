"""At name servers: registered while the term lasts, never in the place of a live broker."""

import json
import zlib
from collections.abc import AsyncIterator

import pytest

from fakes.name_server import RemotingPeer, cluster_info, name_server
from fakes.replicas import eventually
from helpers.running import free_ports
from tandemlog_server.rocketmq.serve.options import ServeOptions
from tandemlog_server.rocketmq.serve.peers import Peers
from tandemlog_server.rocketmq.serve.registration import Registration, master_address
from tandemlog_server.rocketmq.wire import requests
from tandemlog_server.rocketmq.wire.remoting import NOT_SUPPORTED

NAME = "broker-a"
HERE = ("127.0.0.1", 0)


def options(*ports: int) -> ServeOptions:
    return ServeOptions(
        remoting=HERE,
        vip=HERE,
        ha=HERE,
        address="10.0.0.1:10911",
        ha_address="10.0.0.1:10912",
        broker_name=NAME,
        cluster_name="Default",
        name_servers=tuple(("127.0.0.1", port) for port in ports),
        peers=Peers(),
    )


class World:
    """Peers and registrations that are all stopped at the end."""

    def __init__(self) -> None:
        self.peers: list[RemotingPeer] = []
        self.registrations: list[Registration] = []

    async def peer(self, made: RemotingPeer, port: int = 0) -> RemotingPeer:
        await made.start(port)
        self.peers.append(made)
        return made

    def register(self, *ports: int, epoch: int = 7) -> Registration:
        made = Registration(options(*ports), epoch, register_s=0.02, retry_s=0.02)
        self.registrations.append(made)
        made.start()
        return made

    async def close(self) -> None:
        for registration in self.registrations:
            await registration.stop()
        for peer in self.peers:
            await peer.stop()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.close()


async def test_it_registers_without_topics_again_and_again_and_leaves(world: World) -> None:
    server = await world.peer(name_server(NAME))
    registration = world.register(server.port)
    await eventually(lambda: server.codes().count(requests.REGISTER_BROKER) >= 3)
    assert server.connections == 1, "a name server forgets a broker whose connection has ended"
    await registration.stop()
    assert server.codes()[0] == requests.GET_BROKER_CLUSTER_INFO
    told = server.got[1]
    document = json.loads(told.body)["topicConfigSerializeWrapper"]
    assert document["topicConfigTable"] == {}
    assert document["dataVersion"]["stateVersion"] == 7
    assert told.fields == {
        "brokerName": NAME,
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "Default",
        "brokerId": "0",
        "haServerAddr": "10.0.0.1:10912",
        "heartbeatTimeoutMillis": "90000",
        "compressed": "false",
        "bodyCrc32": str(zlib.crc32(told.body) & 0x7FFFFFFF),
    }
    last = server.got[-1]
    assert (last.code, last.fields["brokerAddr"]) == (
        requests.UNREGISTER_BROKER,
        "10.0.0.1:10911",
    )


async def test_a_name_server_that_comes_later_and_one_that_restarts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (port,) = free_ports(1)
    world.register(port)
    await eventually(lambda: "no process listens" in caplog.text)
    server = await world.peer(name_server(NAME), port)
    await eventually(lambda: requests.REGISTER_BROKER in server.codes())
    seen = len(server.got)
    server.cut_off()
    await eventually(lambda: requests.REGISTER_BROKER in server.codes()[seen:])
    lines = [each.getMessage() for each in caplog.records if "name server" in each.getMessage()]
    assert [line.partition(" at")[0] for line in lines] == ["not registered", "registered"]


async def test_one_name_server_that_is_down_does_not_keep_it_from_the_others(world: World) -> None:
    (down,) = free_ports(1)
    server = await world.peer(name_server(NAME))
    world.register(down, server.port)
    await eventually(lambda: requests.REGISTER_BROKER in server.codes())


async def test_a_live_broker_keeps_its_name(world: World, caplog: pytest.LogCaptureFixture) -> None:
    broker = await world.peer(RemotingPeer({requests.GET_BROKER_CONFIG: b"brokerName=x"}))
    address = f"127.0.0.1:{broker.port}"
    server = await world.peer(name_server(NAME, address))
    world.register(server.port)
    await eventually(lambda: f"is the name of the broker at {address}" in caplog.text)
    await eventually(lambda: len(broker.got) >= 3)
    assert requests.REGISTER_BROKER not in server.codes()
    # an operator stops it
    server.answers[requests.GET_BROKER_CLUSTER_INFO] = cluster_info(NAME, "")
    await eventually(lambda: requests.REGISTER_BROKER in server.codes())


@pytest.mark.parametrize("alive", [True, False])
async def test_the_place_of_an_older_master_of_ours_or_of_none_is_taken(
    world: World, alive: bool
) -> None:
    """A tandemlog node answers that request with `not supported`."""
    older = await world.peer(RemotingPeer({}, NOT_SUPPORTED))
    (port,) = [older.port] if alive else free_ports(1)
    server = await world.peer(name_server(NAME, f"127.0.0.1:{port}"))
    world.register(server.port)
    await eventually(lambda: requests.REGISTER_BROKER in server.codes())


async def test_a_broker_that_refuses_to_tell_is_a_broker(world: World) -> None:
    broker = await world.peer(RemotingPeer({}))
    server = await world.peer(name_server(NAME, f"127.0.0.1:{broker.port}"))
    world.register(server.port)
    await eventually(lambda: len(broker.got) >= 2)
    assert requests.REGISTER_BROKER not in server.codes()


async def test_leaving_waits_for_no_name_server_that_is_stuck(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr("tandemlog_server.rocketmq.serve.registration.UNREGISTER_S", 0.05)
    server = await world.peer(name_server(NAME))
    registration = world.register(server.port)
    await eventually(lambda: "registered at" in caplog.text)
    monkeypatch.setattr(server, "answers", {})
    await registration.stop()
    assert "was not told that this node leaves" in caplog.text


@pytest.mark.parametrize(
    ("body", "address"),
    [
        (cluster_info(NAME, "1.2.3.4:5"), "1.2.3.4:5"),
        (cluster_info("other", "1.2.3.4:5"), ""),
        (b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"1.2.3.4:5",1:"x"}}}}', "1.2.3.4:5"),
        (b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{1:"1.2.3.4:6"}}}}', ""),
        (b"{}", ""),
        (b"[]", ""),
    ],
)
def test_who_has_the_name(body: bytes, address: str) -> None:
    assert master_address(body, NAME) == address


async def test_a_broker_that_comes_later_under_the_same_name_keeps_it(world: World) -> None:
    """A name server of 4.x compares no versions: each registration again would take its clients."""
    server = await world.peer(name_server(NAME))
    world.register(server.port)
    await eventually(lambda: requests.REGISTER_BROKER in server.codes())
    broker = await world.peer(RemotingPeer({requests.GET_BROKER_CONFIG: b"brokerName=x"}))
    server.answers[requests.GET_BROKER_CLUSTER_INFO] = cluster_info(
        NAME, f"127.0.0.1:{broker.port}"
    )
    seen = len(server.got) + 1  # one may be under way
    await eventually(lambda: len(server.got) >= seen + 4)
    assert requests.REGISTER_BROKER not in server.codes()[seen:]
