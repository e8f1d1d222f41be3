"""Clients and a node in one process, by data connections: what they carry, and what goes wrong.

A connection may be cut at any byte; the clients go on by gRPC, or by the next one, and nothing is
lost, stored twice, or read twice.
"""

import asyncio
import itertools
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from fakes.authority import Authority
from fakes.data_listeners import Cutter, Listener
from fakes.inner_node import dispatched
from fakes.secured_node import access_text, running, settings, token, until
from tandemlog.cluster import data_path
from tandemlog.cluster.append_call import DataAppendCall, GrpcAppendCall
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.cluster.data_link import DataLink, DataLinkError
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import (
    AuthenticationError,
    InvalidArgumentError,
    NodeUnavailableError,
    PermissionDeniedError,
    TandemlogError,
    UnknownTopicError,
)
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog.transport.data_frames import HEAD, LAST_CALL, Kind, greeting, head
from tandemlog.transport.security import Security
from tandemlog_server.node.access.caller_addresses import peer_of
from tandemlog_server.node.node import Node
from tandemlog_server.node.services import data_server
from tandemlog_server.node.services.data_session import CallAbortedError, DataMethods
from tandemlog_server.node.settings.listen_endpoints import ListenError
from tandemlog_server.storage.metadata.topics import TopicConfig

BODY = 3_000


def options(mode: str = "always", **fields: Any) -> ConnectionOptions:
    return ConnectionOptions(
        request_timeout_ms=5_000,
        retry_timeout_ms=5_000,
        discovery_timeout_ms=1_000,
        data_connections=mode,
        **fields,
    )


@asynccontextmanager
async def one_node(folder: Path, **fields: Any) -> AsyncIterator[Node]:
    async with running(settings(folder, **fields)) as node:
        if "t" not in node.store.topics.table:
            node.store.create_topic(TopicConfig("t", 2, 2))
        yield node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with one_node(tmp_path) as made:
        yield made


def body(number: int) -> bytes:
    return f"{number:06d}".encode() * (BODY // 6)


async def put(endpoint: str, numbers: Sequence[int], given: ConnectionOptions) -> None:
    async with AsyncProducer(endpoint, ProducerOptions(connection=given)) as producer:
        for number in numbers:
            await producer.send(Message("t", body(number), queue_id=number % 2))


async def read(endpoint: str, count: int, given: ConnectionOptions, **fields: Any) -> list[bytes]:
    """The next `count` messages of the topic."""
    found: list[bytes] = []
    async with (
        AsyncConsumer(endpoint, connection=given) as consumer,
        await consumer.follow("t", start="earliest", **fields) as stream,
        asyncio.timeout(30),
    ):
        async for message in stream:
            found.append(message.body)
            if len(found) == count:
                break
    return found


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a client: node and client share a slow machine."""
    monkeypatch.setattr(data_path, "WAIT_S", 5.0)


def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How each stream of puts is opened from here on."""
    opened = []
    for kind, name in ((DataAppendCall, "data"), (GrpcAppendCall, "grpc")):
        made: Any = kind.__init__

        def first(self: Any, *given: Any, made: Any = made, name: str = name) -> None:
            opened.append(name)
            made(self, *given)

        monkeypatch.setattr(kind, "__init__", first)
    return opened


@pytest.mark.parametrize("mode", ["auto", "always", "never"])
async def test_puts_and_pulls_go_by_data_connections(
    node: Node, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = calls(monkeypatch)
    by_data = 0 if mode == "never" else 1
    endpoint = node.endpoints.listen
    async with AsyncProducer(endpoint, ProducerOptions(connection=options(mode))) as producer:
        sent = [await producer.send(Message("t", body(each), queue_id=0)) for each in range(20)]
        assert [each.queue_offset for each in [await one for one in sent]] == list(range(20))
        assert opened == ["grpc" if mode == "never" else "data"]
        assert node.data.connections == by_data
    await until(lambda: node.data.connections == 0)
    async with AsyncConsumer(endpoint, connection=options(mode)) as consumer:
        for _ in range(3):
            batch = await consumer.pull("t", 0, 5, max_messages=3)
            assert [each.body for each in batch] == [body(each) for each in (5, 6, 7)]
        with pytest.raises(UnknownTopicError):
            await consumer.pull("none", 0, 0)
        await until(lambda: node.data.connections == by_data)
    await until(lambda: node.data.connections == 0)


async def test_a_long_poll_is_answered_and_one_that_is_given_up_is_not_kept(node: Node) -> None:
    endpoint = node.endpoints.listen
    async with AsyncConsumer(endpoint, connection=options()) as consumer:
        waiting = asyncio.create_task(consumer.pull("t", 0, 0, wait_ms=20_000))
        await until(lambda: node.pulls.waiting == 1)
        await put(endpoint, [0], options())
        assert [each.body for each in await waiting] == [body(0)]
        for _ in range(3):
            given_up = asyncio.create_task(consumer.pull("t", 0, 1, wait_ms=20_000))
            await until(lambda: node.pulls.waiting == 1)
            given_up.cancel()
            await until(lambda: node.pulls.waiting == 0)
        assert node.data.connections == 1


async def test_a_node_without_data_connections_is_read_by_grpc(tmp_path: Path) -> None:
    async with one_node(tmp_path, data_listen="") as node:
        assert node.data_offer()[0] == 0
        await put(node.endpoints.listen, range(5), options())
        assert len(await read(node.endpoints.listen, 5, options())) == 5
        assert node.data.connections == 0


async def test_a_node_with_tls_has_none(tmp_path: Path) -> None:
    authority = Authority()
    async with one_node(tmp_path, authority=authority) as node:
        assert node.data_offer()[0] == 0
        security = Security(ca_file=str(authority.write(tmp_path)))
        await put(node.endpoints.listen, range(5), options(security=security))
        await dispatched(node)
        assert node.store.queue_table.count == 2
    with pytest.raises(ValueError, match="data_listen: data connections are not encrypted"):
        settings(tmp_path, authority=authority, data_listen="127.0.0.1:0")


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="data_connections 'often': it must be one of"):
        options("often")


@pytest.mark.parametrize(
    "says",
    [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9, greeting(bytes(16))],
    ids=["nothing", "another program", "another node"],
)
async def test_another_program_at_the_port_hears_nothing(
    node: Node, says: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    impostor = Listener(says)
    async with impostor.listening() as port:
        monkeypatch.setattr(node.data, "port", port)
        security = Security(token="tl_secret", insecure=True)
        began = asyncio.get_running_loop().time()
        await put(node.endpoints.listen, range(5), options(security=security))
        assert asyncio.get_running_loop().time() - began < 2
        assert len(await read(node.endpoints.listen, 5, options(security=security))) == 5
        assert impostor.connections == 2, "a client tries it once, and uses gRPC from then on"
    assert impostor.heard == b""


async def test_a_port_that_cannot_be_reached_costs_a_quarter_of_a_second_once(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a firewall: nothing comes back at all."""
    monkeypatch.setattr(data_path, "WAIT_S", 0.25)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        # a queue that is full: further connections are not answered
        first = [socket.socket() for _ in range(3)]
        for each in first:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        monkeypatch.setattr(node.data, "port", port)
        async with AsyncProducer(
            node.endpoints.listen, ProducerOptions(connection=options())
        ) as producer:
            began = asyncio.get_running_loop().time()
            await (await producer.send(Message("t", b"first", queue_id=0)))
            assert asyncio.get_running_loop().time() - began < data_path.WAIT_S + 1
        for each in first:
            each.close()


async def test_a_node_that_comes_back_with_another_port_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = calls(monkeypatch)
    async with one_node(tmp_path) as node:
        endpoint = node.endpoints.listen
        async with AsyncProducer(endpoint, ProducerOptions(connection=options())) as producer:
            await (await producer.send(Message("t", body(0), queue_id=0)))
            await node.stop()
            again = Node(settings(tmp_path).model_copy(update={"listen": endpoint}))
            await again.start()
            try:
                await (await producer.send(Message("t", body(1), queue_id=0)))
                assert opened[0] == opened[-1] == "data"
                assert len(await read(endpoint, 2, options())) == 2
            finally:
                await producer.close()
                await again.stop()


async def test_a_reader_that_was_quiet_while_the_node_restarted_finds_the_new_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call of its own fails by that, so that nothing makes it ask for the topology."""
    monkeypatch.setattr(data_path, "AGAIN_S", 0.0)
    async with one_node(tmp_path) as node:
        endpoint = node.endpoints.listen
        await put(endpoint, range(2), options())
        async with AsyncConsumer(endpoint, connection=options("auto")) as consumer:
            for _ in range(2):
                await consumer.pull("t", 0, 0)
            await until(lambda: node.data.connections == 1)
            await node.stop()
            again = Node(settings(tmp_path).model_copy(update={"listen": endpoint}))
            await again.start()
            try:
                async with asyncio.timeout(10):
                    while not again.data.connections:
                        await consumer.pull("t", 0, 0)
                        await asyncio.sleep(0.01)
            finally:
                await again.stop()


ACCESS = {"writer": {"write": ["t"]}, "reader": {"read": ["t"]}}


async def test_the_door_looks_at_each_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def known(name: str) -> ConnectionOptions:
        return options(security=Security(token=token(name), insecure=True))

    async with one_node(tmp_path, access=access_text(**ACCESS)) as node:
        endpoint = node.endpoints.listen
        await put(endpoint, range(4), known("writer"))
        assert len(await read(endpoint, 4, known("reader"))) == 4
        async with AsyncConsumer(endpoint, connection=known("writer")) as consumer:
            with pytest.raises(PermissionDeniedError, match="identity 'writer' lacks the right"):
                await consumer.pull("t", 0, 0)
            assert node.data.connections == 1
        async with (
            AsyncConsumer(endpoint, connection=known("reader")) as consumer,
            AsyncProducer(
                endpoint, ProducerOptions(connection=known("writer"), delivery_timeout_ms=1_000)
            ) as producer,
        ):
            await consumer.pull("t", 0, 0)
            await (await producer.send(Message("t", body(4), queue_id=0)))
            (tmp_path / "access.toml").write_text(access_text(other={"admin": True}))
            await until(lambda: "a new access file is in use" in caplog.text)
            with pytest.raises(AuthenticationError, match="it may have been revoked"):
                await consumer.pull("t", 0, 0)
            # a producer tries again: the token may be new
            with pytest.raises(TandemlogError, match="it may have been revoked"):
                await (await producer.send(Message("t", body(5), queue_id=0)))
        assert node.store.queues.ends_of([0, 1]) == [3, 2]


@pytest.mark.parametrize("seed", range(12))
async def test_connections_may_be_cut_at_any_byte(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Puts and pulls at the same time, both only by connections that are cut again and again."""
    monkeypatch.setattr(data_path, "AGAIN_S", 0.0)
    streams = calls(monkeypatch)

    async def refused(*_: Any, **__: Any) -> None:
        raise NodeUnavailableError("not by gRPC in this test", reason="not here")

    monkeypatch.setattr(GrpcAppendCall, "read", refused)
    count = 150
    async with one_node(tmp_path) as node:
        cutter = Cutter(node.data.port, seed)
        async with cutter.listening() as port:
            monkeypatch.setattr(node.data, "port", port)
            endpoint = node.endpoints.listen
            reading = asyncio.create_task(read(endpoint, count, options()))
            async with AsyncProducer(endpoint, ProducerOptions(connection=options())) as producer:
                acknowledged = []
                for number in range(count):
                    sent = await producer.send(Message("t", body(number), queue_id=number % 2))
                    acknowledged.append(sent)
                    await asyncio.sleep(0.002)
                receipts = [await each for each in acknowledged]
            found = await reading
        assert cutter.cuts
        assert streams.count("data") > 1
        for queue in range(2):
            mine = [body(number) for number in range(queue, count, 2)]
            assert [each for each in found if each in set(mine)] == mine
            offsets = [each.queue_offset for each in receipts if each.queue_id == queue]
            assert offsets == list(range(len(mine)))
        assert sorted(node.store.queues.ends_of([0, 1])) == [count // 2] * 2


@pytest.mark.parametrize("ends", [True, False])
async def test_a_connection_that_opens_and_does_not_work_is_not_tried_again(
    node: Node, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    swallower = Listener(greeting(node.data.key), ends_after=5 if ends else None)
    async with swallower.listening() as port:
        monkeypatch.setattr(node.data, "port", port)
        producing = ProducerOptions(connection=options(), answer_timeout_ms=500)
        async with AsyncProducer(node.endpoints.listen, producing) as producer:
            for number in range(3):
                await (await producer.send(Message("t", body(number), queue_id=0)))
        assert swallower.connections == 1
        await dispatched(node)
        short = ConnectionOptions(request_timeout_ms=500, data_connections="always")
        async with AsyncConsumer(node.endpoints.listen, connection=short) as consumer:
            batch = await consumer.pull("t", 0, 0)
            assert [each.body for each in batch] == [body(number) for number in range(3)]
        assert swallower.connections == 2


@pytest.mark.parametrize("sent", [*range(1, HEAD.size + 1), 20])
async def test_an_answer_that_does_not_end_is_none(
    node: Node, sent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut within its head, or exactly behind it."""
    await put(node.endpoints.listen, range(3), options())
    await dispatched(node)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(greeting(node.data.key))
        first = await reader.readexactly(HEAD.size)
        writer.write((head(HEAD.unpack(first)[1], Kind.ANSWER, 1_000) + bytes(100))[:sent])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        monkeypatch.setattr(node.data, "port", server.sockets[0].getsockname()[1])
        async with AsyncConsumer(node.endpoints.listen, connection=options()) as consumer:
            began = asyncio.get_running_loop().time()
            assert len(await consumer.pull("t", 0, 0)) == 2
            assert asyncio.get_running_loop().time() - began < 3, "no timeout was waited for"


async def test_a_pool_that_is_full_is_not_waited_for(node: Node) -> None:
    """Of the loop's own threads: they may all wait for messages that are sent here."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(1))
    large = bytes(90_000)
    async with AsyncProducer(
        node.endpoints.listen, ProducerOptions(connection=options(), linger_ms=0)
    ) as producer:

        async def send() -> None:
            futures = [await producer.send(Message("t", large, queue_id=0)) for _ in range(100)]
            for each in futures:
                await each

        def wait() -> None:
            asyncio.run_coroutine_threadsafe(send(), loop).result(20)

        await asyncio.to_thread(wait)
    await until(lambda: node.store.queues.ends_of([0]) == [100])


def test_a_program_that_ends_without_a_close_sends_what_it_has(tmp_path: Path) -> None:
    program = """
import sys
from tandemlog import Message, Producer, ProducerOptions
producer = Producer(sys.argv[1], ProducerOptions(linger_ms=60_000))
if sys.argv[2] == "warm":
    producer.send(Message("t", b"first", queue_id=0))
    producer.flush()
for _ in range(30):
    producer.send(Message("t", bytes(90_000), queue_id=0))
"""

    async def run() -> list[int]:
        ends = []
        async with one_node(tmp_path) as node:
            for case in ("cold", "warm"):
                process = await asyncio.create_subprocess_exec(
                    sys.executable, "-c", program, node.endpoints.listen, case
                )
                assert await process.wait() == 0
                await until(lambda: bool(node.store.queue_table.count))
                await dispatched(node)
                ends += node.store.queues.ends_of([0])
        return ends

    assert asyncio.run(run()) == [30, 61]


async def test_unknown_codes_and_used_up_numbers_are_errors_of_the_package(node: Node) -> None:
    await put(node.endpoints.listen, [0], options())
    async with AsyncConsumer(node.endpoints.listen, connection=options()) as consumer:
        await consumer.pull("t", 0, 0)
        [session] = node.data._sessions
        session._methods = DataMethods(_unknown_code, session._methods.append)
        with pytest.raises(NodeUnavailableError, match="unknown: a code of a later time"):
            await consumer.pull("t", 0, 0)
    sock, other = socket.socketpair()
    with other:
        link = await DataLink(Kind.PULL, lambda: sock, lambda _: None).opened()
        link._numbers = itertools.count(LAST_CALL + 1)
        with pytest.raises(DataLinkError, match="every number"):
            await link.pull(b"", "", 1)
        with pytest.raises(DataLinkError, match="every number"):
            link.start_call()


async def _unknown_code(requests: Any, context: Any) -> bytes:
    raise CallAbortedError(99, "a code of a later time")


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("10.0.0.1", "ipv4:10.0.0.1:7"),
        ("::ffff:10.0.0.1", "ipv4:10.0.0.1:7"),
        ("::1", "ipv6:%5B::1%5D:7"),
    ],
)
def test_peers_have_the_names_that_grpc_gives_them(host: str, name: str) -> None:
    assert peer_of(host, 7) == name


async def test_a_node_starts_although_it_gets_no_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise OSError(98, "Address already in use")

    with socket.create_server(("127.0.0.1", 0)) as taken:
        by_hand = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ListenError, match="data_listen: cannot listen on"):
            await Node(settings(tmp_path / "a", data_listen=by_hand)).start()
    monkeypatch.setattr(data_server.socket, "create_server", refused)
    async with one_node(tmp_path / "b") as node:
        assert node.data_offer()[0] == 0
        assert "no data connections, clients use gRPC: data_listen" in caplog.text
        await put(node.endpoints.listen, [0], options())


async def test_a_stop_ends_streams_and_long_polls(tmp_path: Path) -> None:
    async with one_node(tmp_path) as node:
        endpoint = node.endpoints.listen
        async with (
            AsyncConsumer(endpoint, connection=options()) as consumer,
            AsyncProducer(endpoint, ProducerOptions(connection=options())) as producer,
        ):
            await (await producer.send(Message("t", body(0), queue_id=0)))
            waiting = asyncio.create_task(consumer.pull("t", 0, 1, wait_ms=60_000))
            await until(lambda: node.pulls.waiting == 1)
            began = asyncio.get_running_loop().time()
            await node.stop()
            assert asyncio.get_running_loop().time() - began < 5
            assert node.data.connections == 0
            batch = await waiting
            assert not len(batch)
