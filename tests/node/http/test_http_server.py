"""What a load balancer is told."""

import asyncio
import json
from collections.abc import Mapping

import aiohttp
import pytest

from helpers.running import free_ports
from tandemlog.v1 import common_pb2
from tandemlog_server.node.http.health import BadQueryError, Health, faults, parse_bytes
from tandemlog_server.node.http.http_server import serve_http
from tandemlog_server.node.http.node_numbers import NodeNumbers
from tandemlog_server.node.puts.ack_stats import AckStats

MASTER = common_pb2.NodeStatus(node_id="n0", role=common_pb2.MASTER, in_sync=True, state="running")
SLAVE = common_pb2.NodeStatus(
    node_id="n1", role=common_pb2.SLAVE, in_sync=True, state="in-sync", lag_bytes=5_000_000
)
BEHIND = common_pb2.NodeStatus(
    node_id="n1", role=common_pb2.SLAVE, state="catching-up", detail="3.1 s behind"
)


def health(
    status: common_pb2.NodeStatus,
    *,
    store: str = "",
    put: str = "",
    read: str = "",
    alarm: str = "",
) -> Health:
    return Health(status, store, {"n1": alarm} if alarm else {}, put, read)


@pytest.mark.parametrize(
    ("path", "state", "query", "fault"),
    [
        ("/health", health(MASTER), {}, ""),
        ("/health", health(MASTER, store="fdatasync failed"), {}, "fdatasync failed"),
        ("/health", health(MASTER, alarm="lost"), {}, "alarm of n1: lost"),
        ("/liveness", health(MASTER, alarm="lost"), {}, ""),
        ("/liveness", health(MASTER, store="fdatasync failed"), {}, ""),
        ("/readiness", health(MASTER), {}, ""),
        ("/readiness", health(SLAVE), {"lag": "10MB"}, ""),
        ("/readiness", health(SLAVE), {"lag": "1MB"}, "5000000 bytes behind"),
        ("/readiness", health(SLAVE, read="never connected"), {}, "never connected"),
        ("/master", health(MASTER), {}, ""),
        ("/master", health(MASTER, put="1 of 2 in sync"), {}, "1 of 2 in sync"),
        ("/master", health(SLAVE), {}, "this node is a slave"),
        ("/slave", health(SLAVE), {}, ""),
        ("/slave", health(SLAVE), {"lag": "4MiB"}, "5000000 bytes behind"),
        ("/slave", health(MASTER), {}, "this node is the master"),
        ("/in-sync", health(SLAVE), {}, ""),
        ("/in-sync", health(BEHIND), {}, "3.1 s behind"),
    ],
)
def test_who_is_healthy_for_what(
    path: str, state: Health, query: Mapping[str, str], fault: str
) -> None:
    answer = faults(path, state, query)
    assert fault in answer
    assert bool(fault) == bool(answer)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0", 0), ("100", 100), ("10MB", 10_000_000), ("1.5 KiB", 1536), ("2GiB", 2 << 30), ("7b", 7)],
)
def test_sizes(text: str, value: int) -> None:
    assert parse_bytes(text) == value


@pytest.mark.parametrize(
    "text", ["", "MB", "-1", "10XB", "1e3", "9" * 400, "1." + "0" * 400, "9MB" + "B" * 400, "٣"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadQueryError, match="not a size"):
        parse_bytes(text)


class SlaveNode:
    def health(self) -> Health:
        return health(SLAVE)

    def numbers(self) -> NodeNumbers:
        return NodeNumbers(SLAVE, [SLAVE], False, 1, {}, AckStats(), "async-async", 7)


async def aiohttp_get(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port}{path}") as answer,
    ):
        return answer.status, await answer.text()


async def test_over_http() -> None:
    (port,) = free_ports(1)
    server = await serve_http(SlaveNode(), "c", "n1", ("127.0.0.1", port))
    try:
        status, body = await aiohttp_get(port, "/slave?lag=10MB")
        assert status == 200
        assert '"role": "slave"' in body
        status, body = await aiohttp_get(port, "/slave?lag=1")
        assert status == 503
        assert "bytes behind" in body
        assert (await aiohttp_get(port, "/slave?lag=x"))[0] == 400
        status, body = await aiohttp_get(port, f"/slave?lag={'9' * 400}")
        assert status == 400
        assert "(400 characters)" in body
        assert (await aiohttp_get(port, "/nothing"))[0] == 404
        status, body = await aiohttp_get(port, "/metrics")
        assert status == 200
        assert 'tandemlog_disk_free_bytes{cluster="c",node="n1"} 7.0' in body
        status, body = await aiohttp_get(port, "/cluster")
        assert status == 200
        told = json.loads(body)
        assert [each["node"] for each in told["nodes"]] == ["n1"]
        assert (told["answered_by"], told["elections"]) == ("n1", None)
        status, body = await aiohttp_get(port, "/history")
        assert (status, "roles of this cluster are configured" in body) == (404, True)
        assert (await aiohttp_get(port, "/health", "HEAD"))[0] == 200
        assert (await aiohttp_get(port, "/master", "OPTIONS"))[0] == 503
    finally:
        await server.stop()


async def test_what_a_client_writes_badly_leaves_no_traceback_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    (port,) = free_ports(1)
    server = await serve_http(SlaveNode(), "c", "n1", ("127.0.0.1", port))
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health HTTP/1.1\r\n: no name\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 400")
        writer.close()
    finally:
        await server.stop()
    assert "Traceback" not in caplog.text
