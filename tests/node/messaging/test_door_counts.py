"""What the metrics of a node say of its door for the 5.x API."""

from pathlib import Path
from typing import Any

from fakes.inner_node import until
from fakes.messaging_client import a_client, a_node
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.node.node import Node
from tandemlog_server.node.rocketmq_messaging import GRPC
from tandemlog_server.node.services.door_numbers import DoorNumbers
from tandemlog_server.node.settings.security_sections import SecuritySection

ACCESS = """
[[identity]]
name = "admin"
admin = true
access_keys = [{ key = "admin", secret = "12345678" }]
"""


def numbers(node: Node) -> DoorNumbers:
    return node._door.rocketmq[GRPC]()


async def say(stream: Any, settings: v2.Settings) -> None:
    await stream.write(v2.TelemetryCommand(settings=settings).SerializeToString())
    await stream.read()


def consumer(group: str) -> v2.Settings:
    said = v2.Settings(client_type=v2.PUSH_CONSUMER)
    said.subscription.group.name = group
    return said


async def test_requests_are_counted_by_method_and_code(tmp_path: Path) -> None:
    async with a_node(tmp_path) as node, a_client(node.endpoints.rocketmq_grpc) as client:
        await client.send("T", b"1")
        await client.send("T", b"2")
        await client.receive("T")
        await client.receive("T", poll_s=0)
        await client.ask("SendMessage", b"\xff", v2.SendMessageResponse)
        stream = client.telemetry()
        await say(stream, consumer("G"))
        await say(stream, v2.Settings(client_type=v2.LITE_SIMPLE_CONSUMER))
        assert numbers(node).requests == {
            ("SendMessage", "OK"): 2,
            ("SendMessage", "BAD_REQUEST"): 1,
            ("ReceiveMessage", "OK"): 1,
            ("ReceiveMessage", "MESSAGE_NOT_FOUND"): 1,
            ("Telemetry", "OK"): 1,
            ("Telemetry", "UNRECOGNIZED_CLIENT_TYPE"): 1,
        }


async def test_refusals_of_strangers_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(ACCESS)
    path.chmod(0o600)
    secured = SecuritySection(access_file=str(path))
    async with (
        a_node(tmp_path, security=secured) as node,
        a_client(node.endpoints.rocketmq_grpc) as client,
    ):
        await client.send("T", b"1")
        await client.telemetry().read()
        refused = {("SendMessage", "UNAUTHORIZED"): 1, ("Telemetry", "UNAUTHORIZED"): 1}
        assert numbers(node).requests == refused


async def test_a_client_with_several_streams_is_one_member(tmp_path: Path) -> None:
    async with (
        a_node(tmp_path) as node,
        a_client(node.endpoints.rocketmq_grpc, "c-1") as first,
        a_client(node.endpoints.rocketmq_grpc, "c-2") as second,
    ):
        before = numbers(node)
        assert (before.connections, before.clients, dict(before.members)) == (0, 0, {})
        streams = [each.telemetry() for each in (first, first, second)]
        for stream, group in zip(streams, ("G", "G", "H"), strict=True):
            await say(stream, consumer(group))
        producing = second.telemetry()
        await say(producing, v2.Settings(client_type=v2.PRODUCER))
        during = numbers(node)
        assert (during.connections > 0, during.clients) == (True, 2)
        assert during.members == {"G": 1, "H": 1}
        for stream in (*streams, producing):
            stream.cancel()
        await until(lambda: not numbers(node).clients and not numbers(node).connections)
        assert numbers(node).members == {}
