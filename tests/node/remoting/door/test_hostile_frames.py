"""What is no frame, or is meant to cost: the connection ends, and others are served."""

import asyncio
import json
import socket
import ssl
import time
from pathlib import Path
from struct import pack

import pytest

from fakes.remoting_door import WAIT_S, Client, Methods, served, until
from helpers.made_certificates import Authority
from tandemlog_server.node.access.access_file import parse_access
from tandemlog_server.node.access.doorkeeper import Doorkeeper
from tandemlog_server.node.certs.owners import OwnerKind
from tandemlog_server.node.remoting.door import remoting_server, remoting_session
from tandemlog_server.node.remoting.door.remoting_proofs import signature_of
from tandemlog_server.rocketmq.wire.remoting import Command, encode_command


def framed(header: bytes, *, header_format: int = 0) -> bytes:
    return pack(">ii", 4 + len(header), header_format << 24 | len(header)) + header


def header(**fields: object) -> bytes:
    return json.dumps({"code": 1, "opaque": 1, "flag": 0, **fields}).encode()


HOSTILE = {
    "another protocol": b"GET / HTTP/1.1\r\n\r\n",
    "a length below zero": pack(">ii", -1, 0),
    "no length": pack(">ii", 0, 0),
    "a length of 1 GiB": pack(">ii", 1 << 30, 0),
    "a header longer than its frame": pack(">ii", 8, 9) + b"abcd",
    "a header of 4 MiB announced": pack(">ii", 5 << 20, 4 << 20),
    "an unknown format": framed(header(), header_format=9),
    "no JSON": framed(b"{"),
    "no object": framed(b"[1]"),
    "no code": framed(b"{}"),
    "zeros": framed(bytes(64)),
    "a number of 5,000 digits": framed(b'{"code":' + b"1" * 5000 + b"}"),
    "a code above 32 bits": framed(header(code=1 << 40)),
    "an opaque above 32 bits": framed(header(opaque=1 << 31)),
    "a code that is a list": framed(header(code=[1])),
    "deep JSON": framed(b'{"code":1,"extFields":' + b"[" * 60_000 + b"]" * 60_000 + b"}"),
    "a list as a field": framed(header(extFields={"a": [1]})),
    "fields that are a list": framed(header(extFields=[1])),
    "many fields": framed(header(extFields={str(each): "" for each in range(9_000)})),
    "half a character": framed(header(extFields={"a": "\ud800"})),
    "a name of -1 bytes": framed(
        pack(">hBhii", 1, 0, 0, 1, 0) + pack(">iih", 0, 2, -1), header_format=1
    ),
    "a value of 1 GiB": framed(
        pack(">hBhii", 1, 0, 0, 1, 0) + pack(">iih", 0, 7, 1) + b"a" + pack(">i", 1 << 30),
        header_format=1,
    ),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
async def test_bytes_that_are_no_frame_end_the_connection_and_nothing_else(data: bytes) -> None:
    async with served(Methods().methods()) as (server, connect):
        other, hostile = await connect(), await connect()
        # what came before them is answered
        hostile.writer.write(encode_command(Command(1, 5, body=b"before")) + data)
        (answer,) = await hostile.receive()
        assert answer.body == b"before"
        assert await hostile.ends()
        other.send(Command(1, 6, body=b"still here"))
        assert (await other.receive())[0].body == b"still here"
        await until(lambda: server.connections == 1)
        assert server.held_bytes == 0


async def test_a_frame_that_stops_in_the_middle_counts_until_its_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remoting_session, "FRAME_S", 0.0)
    monkeypatch.setattr(remoting_server, "LOOK_S", 0.01)
    async with served(Methods().methods()) as (server, connect):
        slow = await connect()
        slow.writer.write(pack(">ii", 8 << 20, 10) + b"begun")
        assert await slow.ends()
        await until(lambda: server.connections == 0)
        assert server.held_bytes == 0


async def test_frames_that_have_no_room_wait_for_it() -> None:
    methods = Methods()
    size = 600 << 10
    async with served(methods.methods(), frame_bytes=1 << 20) as (server, connect):
        clients = [await connect() for _ in range(4)]
        for number, client in enumerate(clients):
            client.send(Command(2, number, body=bytes(size)))
        await until(lambda: server.held_bytes >= size)
        for _ in range(100):
            await asyncio.sleep(0)
        assert server.held_bytes <= 1 << 20
        methods.go.set()
        for client in clients:
            await client.receive()
        await until(lambda: server.held_bytes == 0)


KEY, SECRET = "k", "12345678"
ACCESS = f"""
[[identity]]
name = "orders"
write = ["orders"]
access_keys = [{{ key = "{KEY}", secret = "{SECRET}" }}]
"""


def guarded() -> Doorkeeper:
    return Doorkeeper("c", monotonic=time.monotonic, access=parse_access(ACCESS, "access.toml"))


def signed(code: int, body: bytes) -> Command:
    fields = {"AccessKey": KEY}
    fields["Signature"] = signature_of(SECRET, fields, body)
    return Command(code, 7, fields=fields, body=body)


async def test_the_first_request_of_a_client_may_be_the_send_of_a_large_message() -> None:
    async with served(Methods().methods(), keeper=guarded()) as (server, connect):
        client = await connect()
        client.send(signed(1, bytes(300 << 10)), signed(1, bytes(300 << 10)))
        assert [len(each.body) for each in await client.receive(2)] == [300 << 10] * 2
        assert server.held_bytes == 0
        stranger = await connect()
        stranger.send(Command(1, 7, body=bytes(300 << 10)))
        (refusal,) = await stranger.receive()
        assert (refusal.code, refusal.body) == (16, b"")


async def test_strangers_hold_little_and_leave_room_for_those_who_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    size = 200 << 10
    methods = Methods().methods()
    async with served(methods, keeper=guarded(), frame_bytes=8 * size) as (server, connect):
        known = await connect()
        known.send(signed(1, b"who I am"))
        await known.receive()
        strangers = [await connect() for _ in range(6)]
        for each in strangers:
            each.writer.write(pack(">ii", size, 10) + b"begun")
        await until(lambda: server.held_bytes > 0)
        known.send(signed(1, bytes(size)))
        (answer,) = await known.receive()
        assert len(answer.body) == size
        assert server.held_bytes <= size + 4
        monkeypatch.setattr(remoting_session, "FIRST_S", 0.0)
        monkeypatch.setattr(remoting_server, "LOOK_S", 0.01)
        for each in strangers:
            assert await each.ends()
        await until(lambda: server.held_bytes == 0)


async def test_a_stranger_that_goes_on_asking_gets_no_more_time() -> None:
    async with served(Methods().methods(), keeper=guarded()) as (server, connect):
        stranger = await connect()
        stranger.send(Command(1, 1))
        assert (await stranger.receive())[0].code == 16
        (session,) = server._sessions
        later = asyncio.get_running_loop().time() + remoting_session.FIRST_S + 1
        session._last_at = later  # of its last request
        assert session.overdue(later)


async def test_a_client_that_takes_no_answers_is_not_read_any_further() -> None:
    methods = Methods()
    async with served(methods.methods()) as (_, connect):
        client = await connect()
        reading = client.writer.get_extra_info("socket")
        assert isinstance(reading.fileno(), int)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        request = encode_command(Command(1, 1, body=bytes(256 << 10)))
        sent = 0
        for _ in range(400):
            client.writer.write(request)
            try:
                async with asyncio.timeout(0.5):
                    await client.writer.drain()
            except TimeoutError:
                break
            sent += 1
        assert sent < 400
        assert len(methods.seen) < 400
        client.writer.transport.abort()


async def test_a_host_has_its_share_of_the_connections() -> None:
    methods = Methods()
    async with served(methods.methods(), connections=8) as (server, connect):
        clients: list[Client] = []
        for number in range(20):
            client = await connect()
            client.send(Command(1, number))
            await client.receive()
            clients.append(client)
        assert server.connections <= 8
        clients[-1].send(Command(1, 99))
        assert (await clients[-1].receive())[0].opaque == 99


async def test_tls_and_plain_text_share_the_port(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate = authority.make(OwnerKind.NODE, "n0", ("127.0.0.1",))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    trusting = ssl.create_default_context(cafile=authority.ca_file)
    async with served(Methods().methods(), tls=context) as (server, connect):
        plain = await connect()
        secured = Client(
            *await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=trusting, server_hostname="127.0.0.1"
            )
        )
        for client in (plain, secured):
            client.send(Command(1, 1, body=bytes(100_000)))
            (answer,) = await client.receive()
            assert len(answer.body) == 100_000
    async with served(Methods().methods(), tls=context, plaintext=False) as (server, connect):
        turned_away = await connect()
        turned_away.send(Command(1, 1))
        assert await turned_away.ends()
        await until(lambda: server.connections == 0)


async def test_a_tls_client_of_a_node_without_is_turned_away() -> None:
    async with served(Methods().methods()) as (server, _):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection(
                "127.0.0.1", server.port, ssl=ssl.create_default_context(), server_hostname="x"
            )
        await until(lambda: server.connections == 0)


async def test_a_client_that_says_nothing_does_not_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remoting_server, "FIRST_S", 0.01)
    async with served(Methods().methods()) as (server, _):
        with socket.create_connection(("127.0.0.1", server.port)) as silent:
            silent.setblocking(False)
            async with asyncio.timeout(WAIT_S):
                assert await asyncio.get_running_loop().sock_recv(silent, 1) == b""
        await until(lambda: server.connections == 0)
