"""Everything that was ever found is played again: it stays mended."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fuzz import corpus, web
from fuzz.damage import suffer
from fuzz.messaging_target import MessagingTarget, trial_of
from fuzz.one_node import OneNode, tracebacks
from fuzz.remoting_frames import Frame
from fuzz.remoting_target import Target
from fuzz.requests import Call
from fuzz.situations import the_master
from fuzz.trials import master_hears, slave_hears
from helpers.running import free_ports
from tandemlog.v1 import common_pb2
from tandemlog_server.node.http.health import Health
from tandemlog_server.node.http.http_server import serve_http
from tandemlog_server.node.http.node_numbers import NodeNumbers
from tandemlog_server.node.puts.ack_stats import AckStats

SLAVE = common_pb2.NodeStatus(node_id="n1", role=common_pb2.SLAVE, in_sync=True, lag_bytes=5)


def parameters(kind: str) -> list[Any]:
    return [pytest.param(entry, id=name) for name, entry in corpus.entries(kind)]


@pytest.mark.parametrize("entry", parameters("rpc"))
async def test_requests(
    entry: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    calls = [Call.from_json(call) for call in entry["calls"]]
    async with OneNode.running(tmp_path / "store") as node:
        for _ in range(entry.get("rounds", 1)):
            assert await node.play(calls, expect=entry.get("expect", "")) == ""
        await node.check()
        if any(call.path.endswith("/Replicate") for call in calls):
            await node.restart()
            await node.check()
    assert tracebacks(caplog.records) == []


@pytest.mark.parametrize("entry", parameters("slave-frames"))
def test_frames_to_a_slave(entry: dict[str, Any]) -> None:
    frames = [corpus.unpack(frame) for frame in entry["frames"]]
    assert slave_hears(entry["situation"], frames) == ""


@pytest.mark.parametrize("entry", parameters("master-frames"))
def test_frames_to_a_master(entry: dict[str, Any]) -> None:
    frames = [corpus.unpack(frame) for frame in entry["frames"]]
    assert master_hears(the_master(), frames) == ""


@pytest.mark.parametrize("entry", parameters("store"))
def test_damaged_stores(entry: dict[str, Any]) -> None:
    assert suffer(entry["store"], entry["damages"]) == ""


@pytest.mark.parametrize("entry", parameters("remoting"))
async def test_frames_of_rocketmqs_clients(
    entry: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frames = [
        Frame(corpus.unpack(row["data"]), row["code"], row["opaque"]) for row in entry["frames"]
    ]
    async with Target.running(tmp_path, entry["situation"]) as target:
        assert await target.play(frames) == ""
        await target.check()
        await target.rest()
    assert tracebacks(caplog.records) == []


@pytest.mark.parametrize("entry", parameters("messaging"))
async def test_calls_of_clients_of_the_5x_api(
    entry: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with MessagingTarget.running(tmp_path, entry["situation"]) as target:
        assert await target.play([trial_of(row) for row in entry["calls"]]) == ""
        await target.check()
        await target.rest()
    assert tracebacks(caplog.records) == []


class Slave:
    def health(self) -> Health:
        return Health(SLAVE, "", {}, "", "")

    def numbers(self) -> NodeNumbers:
        return NodeNumbers(SLAVE, [SLAVE], False, 1, {}, AckStats(), "async-async", 7)


@pytest.mark.parametrize("entry", parameters("http"))
async def test_http_requests(entry: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    (port,) = free_ports(1)
    server = await serve_http(Slave(), "c", "n1", ("127.0.0.1", port))
    try:
        data = corpus.unpack(entry["request"])
        answer = await asyncio.to_thread(web.ask, ("127.0.0.1", port), data)
        assert web.finding(answer) == ""
    finally:
        await server.stop()
    assert tracebacks(caplog.records) == []


@pytest.mark.parametrize(
    "data", [b"", b"abc", b"\0" * 1000, bytes(range(256)) * 3, b"ab" * 90 + b"c"]
)
def test_a_message_is_packed_without_loss(data: bytes) -> None:
    packed = corpus.pack(data)
    assert corpus.unpack(packed) == data
    assert len(str(packed)) <= 2 * len(data) + 40
