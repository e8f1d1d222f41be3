"""Sends over a real socket to a whole node, as clients write them."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fakes.inner_node import config, running, until
from tandemlog.format.record.record import decode_record
from tandemlog_server.node.node import Node
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.wire.remoting import (
    BINARY_HEADER,
    JSON_HEADER,
    Command,
    CommandReader,
    encode_command,
)


@asynccontextmanager
async def node_with_port(directory: Path) -> AsyncIterator[Node]:
    async with running(config(directory, rocketmq_clients={"listen": "127.0.0.1:0"})) as node:
        yield node


async def answers(node: Node, commands: Iterable[Command]) -> list[Command]:
    """In the order of the requests."""
    host, _, port = node.endpoints.rocketmq.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    sent = list(commands)
    writer.write(b"".join(map(encode_command, sent)))
    came: list[Command] = []
    wire = CommandReader()
    async with asyncio.timeout(20):
        while len(came) < len(sent):
            data = await reader.read(1 << 16)
            assert data, "the connection has ended"
            came += wire.feed(data)
    writer.close()
    return sorted(came, key=lambda each: each.opaque)


def send(opaque: int, topic: str, body: bytes, header: int = JSON_HEADER) -> Command:
    fields = {
        "a": "g", "b": topic, "c": "TBW102", "d": "4", "e": str(opaque % 4), "f": "0",
        "g": "1700000000000", "h": "0", "i": "WAIT\x01true\x02", "j": "0", "k": "false",
    }  # fmt: skip
    return Command(
        RequestCode.SEND_MESSAGE_V2, opaque, fields=fields, body=body, header_format=header
    )


async def test_messages_of_two_headers_are_stored_in_their_order(tmp_path: Path) -> None:
    async with node_with_port(tmp_path) as node:
        commands = [
            send(number, "new", b"%d" % number, (JSON_HEADER, BINARY_HEADER)[number // 4 % 2])
            for number in range(80)
        ]
        came = await answers(node, commands)
        assert {each.code for each in came} == {0}
        assert [each.fields["queueOffset"] for each in came] == [str(n // 4) for n in range(80)]
        store = node.store
        await until(lambda: store.reputed.value >= store.log.wrote.value)
        got = store.reader.get("new", 3, 19, 1, 1 << 16)
        record = decode_record(bytes(got.records))
        assert record.body == b"79"
        assert record.born_host.startswith("127.0.0.1:")


async def test_what_is_refused_has_the_code_of_a_broker(tmp_path: Path) -> None:
    async with node_with_port(tmp_path) as node:
        forbidden = send(0, "SCHEDULE_TOPIC_XXXX", b"x")
        large = send(1, "new", bytes(100_001))
        unknown = send(2, "other", b"x")
        unknown.fields = {**unknown.fields, "c": "none"}
        came = await answers(node, [forbidden, large, unknown])
        assert [each.code for each in came] == [
            ResponseCode.NO_PERMISSION,
            ResponseCode.MESSAGE_ILLEGAL,
            ResponseCode.TOPIC_NOT_EXIST,
        ]
