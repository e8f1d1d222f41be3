"""RocketMQ's remoting commands, with both kinds of headers and in any pieces."""

import asyncio
import json
import signal
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.running import free_ports
from tandemlog_server.ha.errors import ProtocolError
from tandemlog_server.rocketmq.wire.client import RemotingClient
from tandemlog_server.rocketmq.wire.errors import BrokerError, BrokerRefusedError, NoBrokerError
from tandemlog_server.rocketmq.wire.remoting import (
    BINARY_HEADER,
    JSON_HEADER,
    Command,
    CommandReader,
    encode_command,
)

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
COMMANDS = st.builds(
    Command,
    code=st.integers(0, 32_000),
    opaque=st.integers(0, 2**31 - 1),
    flag=st.integers(0, 3),
    remark=TEXTS,
    fields=st.dictionaries(TEXTS, TEXTS, max_size=4),
    body=st.binary(max_size=200),
    header_format=st.sampled_from([JSON_HEADER, BINARY_HEADER]),
)


@given(commands=st.lists(COMMANDS, max_size=5), size=st.integers(1, 80))
def test_what_was_encoded_is_read_again(commands: list[Command], size: int) -> None:
    sent, reader = b"".join(map(encode_command, commands)), CommandReader()
    found = [each for at in range(0, len(sent), size) for each in reader.feed(sent[at : at + size])]
    assert found == commands


def test_a_broker_finds_what_it_looks_for() -> None:
    data = encode_command(Command(21, 7, fields={"a": "b"}, body=b"{}"))
    length, mark = int.from_bytes(data[:4]), int.from_bytes(data[4:8])
    assert length == len(data) - 4
    assert mark >> 24 == 0
    header = json.loads(data[8 : 8 + mark])
    assert (header["code"], header["opaque"], header["flag"]) == (21, 7, 0)
    assert header["extFields"] == {"a": "b"}
    assert data[8 + mark :] == b"{}"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        pack(">ii", 3, 0),
        pack(">ii", 8, 5) + b"abcd",
        pack(">ii", 8, 7 << 24 | 4) + b"abcd",
        pack(">ii", 8, 4) + b"[1]]",
        pack(">ii", 8, 4) + b"[12]",
        pack(">ii", 8, 1 << 24 | 4) + b"abcd",
    ],
)
def test_what_is_no_remoting_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        CommandReader().feed(data)


async def _asked(answer: bytes, *, close: bool = False, timeout_s: float = 60) -> Command:
    """A request to a peer that has `answer` for it."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(answer)
        if close:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with RemotingClient("127.0.0.1", port, timeout_s=timeout_s) as client:
            return await client.call(21)


def test_the_response_with_the_requests_number_counts() -> None:
    late = encode_command(Command(0, 99, flag=1, body=b"another"))
    right = encode_command(Command(0, 1, flag=1, body=b"mine"))
    assert asyncio.run(_asked(late + right)).body == b"mine"


def test_an_error_of_the_broker_has_its_text() -> None:
    refusal = encode_command(Command(3, 1, flag=1, remark="request type 21 not supported"))
    with pytest.raises(BrokerRefusedError, match="code 3: request type 21 not supported") as caught:
        asyncio.run(_asked(refusal))
    assert caught.value.code == 3


def test_silence_an_end_and_another_protocol_have_their_sentences() -> None:
    with pytest.raises(BrokerError, match=r"did not answer request 21 within 0\.3 s"):
        asyncio.run(_asked(b"", timeout_s=0.3))
    with pytest.raises(BrokerError, match="closed the connection"):
        asyncio.run(_asked(b"", close=True))
    with pytest.raises(BrokerError, match="is it the port of a RocketMQ broker"):
        asyncio.run(_asked(b"HTTP/1.1 400 Bad Request\r\n"))


def test_a_port_where_no_process_listens_is_told_apart() -> None:
    (port,) = free_ports(1)

    async def connect() -> None:
        async with RemotingClient("127.0.0.1", port):
            pass

    with pytest.raises(NoBrokerError, match=f"no process listens on 127.0.0.1:{port}"):
        asyncio.run(connect())


def _binary_command(fields: bytes) -> bytes:
    header = pack(">hBhii", 21, 0, 394, 1, 0) + pack(">i", 0)
    header += pack(">i", len(fields)) + fields
    return pack(">ii", 4 + len(header), BINARY_HEADER << 24 | len(header)) + header


def test_a_name_of_negative_length_in_a_binary_header_ends_and_is_refused() -> None:
    """Its length leads back to where it is read: the reader stood still in the event loop."""

    def late(*_: object) -> None:
        raise TimeoutError("the reader does not end")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, 30.0)
    try:
        first = pack(">h", 0) + pack(">i", 4) + bytes(4)
        with pytest.raises(ProtocolError):
            CommandReader().feed(_binary_command(first + pack(">h", -6) + bytes(4)))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    "header",
    [b'{"code":1e999}', b'{"code":1,"extFields":' + b"[" * 100_000, b'{"code":1,"opaque":-1e999}'],
)
def test_a_json_header_that_python_cannot_take_is_a_fault_of_the_peer(header: bytes) -> None:
    data = pack(">ii", 4 + len(header), len(header)) + header
    with pytest.raises(ProtocolError):
        CommandReader().feed(data)
