"""A whole node that asks who calls: streams, replaced files under load, HTTP, limits, the audit."""

import asyncio
import datetime
import json
import logging
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
from grpc import StatusCode, aio

from fakes.authority import Authority, Pair
from fakes.secured_node import access_text, bearer, channel, running, settings, token, until
from tandemlog.format.record.record import encode_record
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, broker_pb2, broker_pb2_grpc, common_pb2
from tandemlog_server.ha.protocol.frames import (
    Hello,
    Refusal,
    decode_master_frame,
    encode_slave_frame,
)
from tandemlog_server.ha.protocol.replication_service import PATH
from tandemlog_server.node.http import health
from tandemlog_server.node.http.http_server import HttpServer
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.config_error import ConfigError

DENIED = common_pb2.PERMISSION_DENIED
HOUR = datetime.timedelta(hours=1)
WRITER = {"write": ["a*"], "read": ["a*"], "consume": ["g"], "certificates": ["writer"]}
FILE = access_text(op={"admin": True}, writer=WRITER, n1={"node": "n1"})


def put_request(*topics: str, number: int = 0, body: bytes = b"body") -> broker_pb2.AppendRequest:
    """One record for each topic."""
    records = [encode_record(topic=topic, body=body) for topic in topics]
    return broker_pb2.AppendRequest(
        request_id=number,
        topics=topics,
        queue_topics=range(len(topics)),
        queue_ids=[0] * len(topics),
        records=b"".join(records),
        sizes=b"".join(len(each).to_bytes(4, "little") for each in records),
        queue_indexes=b"".join(each.to_bytes(2, "little") for each in range(len(topics))),
    )


async def create(on: aio.Channel, *topics: str, who: str = "op") -> admin_pb2.TopicResponse:
    admin: Any = admin_pb2_grpc.AdminStub(on)
    for topic in topics:
        asked = admin_pb2.CreateTopicRequest(topic=admin_pb2.Topic(name=topic))
        answer: admin_pb2.TopicResponse = await admin.CreateTopic(asked, metadata=bearer(who))
    return answer


def audit_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "tandemlog.audit"]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(settings(tmp_path, access=FILE, http=True)) as made:
        yield made


async def test_each_request_of_a_stream_is_checked_by_its_table(node: Node) -> None:
    async with channel(node) as on:
        await create(on, "a1", "a2", "b")
        broker: Any = broker_pb2_grpc.BrokerStub(on)
        stream = broker.Append(metadata=bearer("writer"))
        for number, topics in enumerate([("a1",), ("a1", "b"), ("b",), ("a2", "a1"), ("none",)]):
            await stream.write(put_request(*topics, number=number))
        answers = [await stream.read() for _ in range(5)]
        assert [each.request_id for each in answers] == list(range(5))
        assert [each.error.code for each in answers] == [0, DENIED, DENIED, 0, DENIED]
        assert answers[1].error.message == "identity 'writer' lacks the right 'write' for topic 'b'"
        assert answers[1].status == broker_pb2.MESSAGE_ILLEGAL
        assert [each.error.record_index for each in answers[1:3]] == [1, 0]
        await stream.done_writing()
        assert await stream.read() is aio.EOF
        ranges = await broker.QueueRanges(broker_pb2.QueueRangesRequest(), metadata=bearer("op"))
        held = {each.topic: each.max_offset for each in ranges.ranges}
        assert held == {"a1": 2, "a2": 1}
        seen = await broker.QueueRanges(broker_pb2.QueueRangesRequest(), metadata=bearer("writer"))
        assert {each.topic for each in seen.ranges} == {"a1", "a2"}


async def test_a_token_that_is_taken_away_ends_its_streams_with_their_next_request(
    node: Node, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with channel(node) as on:
        await create(on, "a1")
        broker: Any = broker_pb2_grpc.BrokerStub(on)
        ended = broker.Append(metadata=bearer("writer"))
        kept = broker.Append(metadata=bearer("op"))
        for stream in (ended, kept):
            await stream.write(put_request("a1"))
            assert not (await stream.read()).error.code
        (tmp_path / "access.toml").write_text(access_text(op={"admin": True}))
        await until(lambda: "a new access file is in use: 1 identities" in caplog.text)
        for stream in (ended, kept):
            await stream.write(put_request("a1"))
        assert not (await kept.read()).error.code
        with pytest.raises(aio.AioRpcError, match="it may have been revoked") as revoked:
            await ended.read()
        assert revoked.value.code() is StatusCode.UNAUTHENTICATED
        assert node.store.queue_table.count == 1
        assert any("call=Append who=writer" in line for line in audit_lines(caplog))


async def test_files_are_replaced_under_load_without_a_failed_put(tmp_path: Path) -> None:
    """Old connections stay, new ones get the new certificate, no request notices."""
    authority = Authority()
    config = settings(tmp_path, authority=authority, required=True, access=FILE)
    pair = authority.client("op")
    stop, done = asyncio.Event(), [0, 0]

    async def put_on_one_stream(node: Node) -> None:
        async with channel(node, authority, pair) as on:
            stream = broker_pb2_grpc.BrokerStub(on).Append(metadata=bearer("writer"))
            while not stop.is_set():
                await stream.write(put_request("a1", number=done[0]))
                answer: Any = await stream.read()
                assert not answer.error.code, answer.error.message
                done[0] += 1

    async def put_on_new_connections(node: Node) -> None:
        while not stop.is_set():
            async with channel(node, authority, pair) as on:
                stream = broker_pb2_grpc.BrokerStub(on).Append(metadata=bearer("writer"))
                await stream.write(put_request("a1"))
                answer: Any = await stream.read()
                assert not answer.error.code, answer.error.message
                done[1] += 1

    async with running(config) as node:
        async with channel(node, authority, pair) as on:
            await create(on, "a1")
        loads = [
            asyncio.create_task(put_on_one_stream(node)),
            asyncio.create_task(put_on_new_connections(node)),
        ]
        tls = node.security.tls
        assert tls is not None
        for number in range(5):
            fresh = authority.node("n0")
            fresh.write(tmp_path, "n0")
            (tmp_path / "access.toml").write_text(FILE + f"# {number}\n")
            await until(lambda wanted=fresh: tls.files.key == wanted.key)
            before = list(done)
            await until(
                lambda since=before: (
                    all(b > a for a, b in zip(since, done, strict=True))
                    or any(each.done() for each in loads)
                )
            )
        stop.set()
        await asyncio.gather(*loads)
        assert node.store.queue_table.count == 1


@pytest.mark.parametrize("required", [True, False])
async def test_certificates_at_the_gate(tmp_path: Path, required: bool) -> None:
    """Without an access file: whoever has a certificate of the cluster may do everything."""
    authority, stranger = Authority(), Authority("another authority")
    config = settings(tmp_path, authority=authority, required=required)

    async def outcome(pair: Pair | None, trusted: Authority = authority) -> str:
        async with channel(started, trusted, pair) as on:
            admin: Any = admin_pb2_grpc.AdminStub(on)
            try:
                await admin.DescribeCluster(admin_pb2.DescribeClusterRequest(), timeout=10)
            except aio.AioRpcError as error:
                return f"{error.code().name} {error.details()}"
            return "ok"

    async with running(config) as started:
        good = authority.client("x")
        assert await outcome(good) == "ok"
        assert await outcome(authority.node("n1")) == "ok"
        assert "UNAVAILABLE" in await outcome(good, trusted=stranger)
        refused = [
            None,
            stranger.client("x"),
            authority.issue("tandemlog://test/client/x", begins=-2 * HOUR, ends=-HOUR),
            authority.issue("tandemlog://test/client/x", begins=HOUR, ends=2 * HOUR),
        ]
        for pair in refused:
            assert (await outcome(pair) == "ok") is not required
        other = await outcome(authority.client("x", "other"))
        wanted = "UNAUTHENTICATED the certificate is of the cluster 'other', and this is 'test'"
        assert other == (wanted if required else "ok")


@pytest.mark.parametrize("access", ["", FILE])
async def test_a_hello_needs_the_certificate_of_its_node(tmp_path: Path, access: str) -> None:
    authority = Authority()
    config = settings(tmp_path, authority=authority, required=True, access=access)
    hello = Hello("test", "n1", "1", "n1:1")

    async def said(pair: Pair, metadata: Any = (), each: Hello = hello) -> str:
        async with channel(started, authority, pair) as on:
            stream: Any = on.stream_stream(PATH)
            call = stream(metadata=metadata, timeout=10)
            await call.write(encode_slave_frame(each))
            try:
                frame = decode_master_frame(await call.read())
            except aio.AioRpcError as error:
                return f"{error.code().name} {error.details()}"
            return frame.reason if isinstance(frame, Refusal) else type(frame).__name__

    async with running(config) as started:
        before = started.status()
        assert "names another node: 'n2'" in await said(authority.node("n2"))
        assert "of the cluster 'x'" in await said(authority.node("n1", "x"))
        fault = await said(authority.client("writer"))
        assert "'writer' is an identity without one" in fault
        if access:
            both = await said(authority.node("n2"), bearer("n1"))
            assert "names another node: 'n2'" in both
            assert "of the cluster 'x'" in await said(authority.node("n1", "x"), bearer("n1"))
            assert await said(authority.client("writer"), bearer("n1")) == "Answer"
        members = {each.node_id for each in started.members()} - {"n1"}
        assert members == {"n0"}
        assert started.status().epoch == before.epoch
        far = replace(hello, accepted_epoch=1 << 20)
        assert "names another node" in await said(authority.node("n2"), each=far)
        assert await said(authority.node("n1")) == "Answer"


# ---- HTTP

ROUTES = [
    (route.method, route.resource.canonical)
    for route in HttpServer(cast("Any", None), cast("Any", None)).application().router.routes()
    if route.resource is not None
]


@asynccontextmanager
async def http(node: Node, tls: ssl.SSLContext | None = None) -> AsyncIterator[Any]:
    connector = aiohttp.TCPConnector(ssl=tls if tls is not None else True)
    async with aiohttp.ClientSession(connector=connector) as session:
        scheme = "http" if tls is None else "https"

        async def get(path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
            url = f"{scheme}://{node.endpoints.http}{path}"
            async with session.request(method, url, headers=headers) as answer:
                return answer.status, await answer.text()

        yield get


async def test_every_http_path_needs_an_identity(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    known = {"Authorization": f"Bearer {token('writer')}"}
    assert {path for _, path in ROUTES} >= {*health.PATHS, "/metrics", "/cluster", "/history"}
    async with http(node) as get:
        for method, path in ROUTES:
            for headers in ({}, {"Authorization": "Bearer tl_wrong"}, {"Authorization": "x"}):
                status, text = await get(path, method, **headers)
                assert status == 401, path
                if method == "GET":
                    assert set(json.loads(text)) == {"error"}
            status, text = await get(path, method, **known)
            assert status in (200, 404, 503), path
        metrics = (await get("/metrics", **known))[1]
        assert 'code="unauthenticated"' in metrics
        assert (await get("/nothing"))[0] == 401
        assert (await get("/nothing", **known))[0] == 404
    assert any("refused call=HTTP /health" in line for line in audit_lines(caplog))
    assert not any("tl_wrong" in each.getMessage() for each in caplog.records)


async def test_http_by_tls_with_a_certificate_or_a_token(tmp_path: Path) -> None:
    authority = Authority()
    config = settings(
        tmp_path,
        authority=authority,
        required=True,
        access=FILE,
        http=True,
        security={"open_health": True},
    )
    plain = ssl.create_default_context(cadata=authority.pem.decode())
    known = ssl.create_default_context(cadata=authority.pem.decode())
    known.load_cert_chain(*authority.node("n1").write(tmp_path, "caller"))
    async with running(config) as node:
        async with http(node, plain) as get:
            assert (await get("/health"))[0] == 200  # a probe
            assert (await get("/metrics"))[0] == 401
            status, text = await get("/metrics", Authorization=f"Bearer {token('writer')}")
            assert (status, "tandemlog_certificate_expiry_seconds" in text) == (200, True)
        async with http(node, known) as get:
            assert (await get("/metrics"))[0] == 200
        foreign = ssl.create_default_context(cadata=Authority().pem.decode())
        async with http(node, foreign) as get:
            with pytest.raises(aiohttp.ClientConnectorCertificateError):
                await get("/health")


# ---- limits


async def test_an_identity_has_limits_that_are_named(tmp_path: Path) -> None:
    limits = {"calls": 3, "streams": 1, "long_polls": 1}
    access = access_text(op={"admin": True}, few={**WRITER, "limits": limits})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        await create(on, "a1")
        broker: Any = broker_pb2_grpc.BrokerStub(on)
        streams = [broker.Append(metadata=bearer("few")) for _ in range(2)]
        await streams[0].write(put_request("a1"))
        assert not (await streams[0].read()).error.code
        with pytest.raises(aio.AioRpcError, match=r"identity 'few' has 2 streams .* is 1"):
            await streams[1].read()
        await until(lambda: node.store.reputed.value == node.store.log.wrote.value)
        wait = broker_pb2.PullRequest(
            positions=[broker_pb2.QueuePosition(topic="a1", queue_offset=1)], wait_ms=60_000
        )
        first = broker.Pull(wait, metadata=bearer("few"))
        await until(lambda: node.pulls.waiting == 1)
        second = await broker.Pull(wait, metadata=bearer("few"))
        assert second.error.code == common_pb2.BUSY
        assert "limits.long_polls is 1" in second.error.message
        third = broker.Pull(wait, metadata=bearer("op"))  # another identity waits as it likes
        await until(lambda: node.pulls.waiting == 2)
        first.cancel()
        third.cancel()
        await until(lambda: node.pulls.waiting == 0)


async def test_a_connection_has_limits_too(tmp_path: Path) -> None:
    config = settings(tmp_path, limits={"connection_streams": 1, "connection_calls_per_s": 5})
    async with running(config) as node, channel(node) as on:
        broker: Any = broker_pb2_grpc.BrokerStub(on)
        answers = await asyncio.gather(
            *(broker.QueueRanges(broker_pb2.QueueRangesRequest()) for _ in range(20))
        )
        codes = [each.error.code for each in answers]
        assert common_pb2.BUSY in codes
        assert 0 in codes
        assert "this connection is above the limit limits.connection_calls_per_s" in str(answers)
        async with channel(node) as other:
            fresh: Any = broker_pb2_grpc.BrokerStub(other)
            answer = await fresh.QueueRanges(broker_pb2.QueueRangesRequest())
            assert answer.error.code in (0, common_pb2.BUSY)


async def test_puts_above_the_rate_are_delayed_and_none_is_refused(tmp_path: Path) -> None:
    limits = {"bytes_per_s": 20_000, "bytes_in_flight": 2_000}
    access = access_text(op={"admin": True}, slow={**WRITER, "limits": limits})
    async with running(settings(tmp_path, access=access)) as node, channel(node) as on:
        await create(on, "a1")
        stream = broker_pb2_grpc.BrokerStub(on).Append(metadata=bearer("slow"), timeout=30)
        began = time.monotonic()
        for number in range(10):
            await stream.write(put_request("a1", number=number, body=bytes(3_000)))
        for _ in range(10):
            answer: Any = await stream.read()
            assert not answer.error.code
        # 30,000 bytes, of which the first second's worth and one request pass at once
        assert time.monotonic() - began > 0.25
        (usage,) = node.security.doorkeeper._identities.values()
        await stream.done_writing()
        await until(lambda: usage.calls == 0 and usage.bytes == 0 and usage.streams == 0)


# ---- audit


async def test_administrative_calls_are_one_line_each(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with channel(node) as on:
        await create(on, "a1")
        admin: Any = admin_pb2_grpc.AdminStub(on)
        await create(on, "a1", who="op")
        await create(on, "a9", who="writer")
        pause = admin_pb2.ChangeClusterRequest(action=admin_pb2.PAUSE)
        await admin.ChangeCluster(pause, metadata=bearer("op"))
        broker: Any = broker_pb2_grpc.BrokerStub(on)
        puts = broker.Append(metadata=bearer("writer"))
        for number in range(5):
            await puts.write(put_request("a1", number=number))
            assert not (await puts.read()).error.code
        await puts.done_writing()
        for offset in (0, 5, 3):
            row = broker_pb2.QueuePosition(topic="a1", queue_offset=offset)
            commit = broker_pb2.CommitOffsetsRequest(group="g", offsets=[row])
            assert not (await broker.CommitOffsets(commit, metadata=bearer("writer"))).error.code
        await admin.DeleteTopic(admin_pb2.DeleteTopicRequest(name="a1"), metadata=bearer("op"))
    lines = audit_lines(caplog)
    starts = [line.split(" from=")[0] for line in lines]
    assert starts == [
        "call=CreateTopic who=op",
        "call=CreateTopic who=op",
        "refused call=CreateTopic who=writer",
        "call=CreateTopic who=writer",
        "call=ChangeCluster who=op",
        "call=CommitOffsets who=writer",
        "call=DeleteTopic who=op",
    ]
    assert lines[0].endswith('arguments="topic { name: \\"a1\\" }" outcome=ok')
    assert 'outcome="TOPIC_EXISTS: ' in lines[1]
    assert 'outcome="PERMISSION_DENIED: ' in lines[3]
    assert "has no coordinator" in lines[4]
    assert "a1/0 5 -> 3" in lines[5]
    assert "tl_of" not in caplog.text


# ---- starting


async def test_a_node_does_not_start_with_files_that_cannot_be_used(tmp_path: Path) -> None:
    config = settings(tmp_path, access="[[identity]]\n")
    with pytest.raises(ConfigError, match=r"access\.toml: identity number 1: name: Field required"):
        await Node(config).start()
    assert not config.store.directory.exists()
