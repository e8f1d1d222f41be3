"""The port of RocketMQ's clients over real sockets: answers, order, pushes, and the end."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager

from tandemlog_server.node.access.doorkeeper import open_to_all
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.remoting.remoting_call import (
    Connection,
    Method,
    RemotingCall,
    RemotingRefusedError,
)
from tandemlog_server.node.remoting.remoting_door import RemotingDoor
from tandemlog_server.node.remoting.remoting_server import RemotingServer
from tandemlog_server.node.services.call_door import CallDoor
from tandemlog_server.rocketmq.wire.remoting import (
    BINARY_HEADER,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
    CommandReader,
    encode_command,
)

WAIT_S = 10


class Methods:
    """What the tests ask for: 1 echoes, 2 waits for `go`, 3 refuses, 4 has a bug, 5 asks back."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.seen: list[Command] = []
        self.connections: list[Connection] = []
        self.ended = 0

    def methods(self) -> dict[int, Method]:
        serves = (self.echo, self.wait, self.refuse, self.fail, self.ask)
        return {code: Method(serve) for code, serve in enumerate(serves, 1)}

    async def echo(self, call: RemotingCall) -> Command:
        self.seen.append(call.request)
        self.connections.append(call.connection)
        return call.request.response(call.request.body, fields=dict(call.request.fields))

    async def wait(self, call: RemotingCall) -> Command:
        await self.go.wait()
        self.ended += 1
        return call.request.response(remark="at last")

    async def refuse(self, call: RemotingCall) -> Command:
        raise RemotingRefusedError(17, "no such topic")

    async def fail(self, call: RemotingCall) -> Command:
        raise KeyError("a bug")

    async def ask(self, call: RemotingCall) -> Command:
        answer = await call.connection.ask(220, {"topic": "t"}, b"now")
        return call.request.response(answer.body)


class Client:
    """A client with a socket: `send` commands, `receive` those that come."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.commands = CommandReader()
        self.came: list[Command] = []

    def send(self, *commands: Command) -> None:
        self.writer.write(b"".join(map(encode_command, commands)))

    async def receive(self, count: int = 1) -> list[Command]:
        async with asyncio.timeout(WAIT_S):
            while len(self.came) < count:
                data = await self.reader.read(1 << 16)
                assert data, "the connection has ended"
                self.came += self.commands.feed(data)
        found, self.came = self.came[:count], self.came[count:]
        return found

    async def ends(self) -> bool:
        """Whether the server closes the connection."""
        async with asyncio.timeout(WAIT_S):
            try:
                while await self.reader.read(1 << 16):
                    pass
            except ConnectionError:
                pass
        return True


@asynccontextmanager
async def served(
    methods: Mapping[int, Method], **options: int
) -> AsyncIterator[tuple[RemotingServer, Callable[[], "asyncio.Future[Client]"]]]:
    turns = ReadTurns(1, 1 << 20)
    door = CallDoor(turns, max_calls=4096, max_streams=16, keeper=open_to_all(time.monotonic))
    server = RemotingServer(RemotingDoor(door, methods), door.keeper.audit, **options)
    server.start("127.0.0.1:0")

    async def connect() -> Client:
        return Client(*await asyncio.open_connection("127.0.0.1", server.port))

    try:
        yield server, lambda: asyncio.ensure_future(connect())
        await asyncio.sleep(0)
    finally:
        await server.stop(0.5)
        turns.close()
    assert door.calls == 0


async def test_a_request_is_answered_in_its_own_form() -> None:
    methods = Methods()
    async with served(methods.methods()) as (_, connect):
        client = await connect()
        for header_format in (0, BINARY_HEADER):
            client.send(
                Command(
                    1, 7, fields={"a": "b"}, body=b"x", header_format=header_format, version=407
                )
            )
            (answer,) = await client.receive()
            assert (answer.code, answer.opaque, answer.flag) == (0, 7, RESPONSE_FLAG)
            assert (answer.fields, answer.body) == ({"a": "b"}, b"x")
            assert answer.header_format == header_format
            assert answer.version >= 513
        assert {each.version for each in methods.seen} == {407}


async def test_a_parked_request_holds_up_no_other() -> None:
    methods = Methods()
    async with served(methods.methods()) as (_, connect):
        client = await connect()
        client.send(Command(2, 1), Command(1, 2, body=b"quick"), Command(2, 3))
        (quick,) = await client.receive()
        assert (quick.opaque, quick.body) == (2, b"quick")
        methods.go.set()
        assert {each.opaque for each in await client.receive(2)} == {1, 3}


async def test_errors_have_their_codes() -> None:
    async with served(Methods().methods()) as (_, connect):
        client = await connect()
        client.send(Command(3, 1), Command(4, 2), Command(99, 3))
        answers = {each.opaque: each for each in await client.receive(3)}
        assert (answers[1].code, answers[1].remark) == (17, "no such topic")
        assert answers[2].code == 1
        assert answers[3].code == 3
        assert "request 99: this node does not answer" in answers[3].remark


async def test_one_way_has_no_answer_and_is_served_though_its_client_is_gone() -> None:
    methods = Methods()
    async with served(methods.methods()) as (_, connect):
        client = await connect()
        client.send(Command(1, 1, flag=ONEWAY_FLAG), Command(1, 2))
        (answer,) = await client.receive()
        assert answer.opaque == 2
        client.send(Command(2, 3, flag=ONEWAY_FLAG))
        client.writer.close()
        gone = asyncio.Event()
        methods.connections[0].on_close(gone.set)
        await asyncio.wait_for(gone.wait(), WAIT_S)
        methods.go.set()
    assert methods.ended == 1


async def test_a_client_is_asked_and_pushed_to() -> None:
    methods = Methods()
    async with served(methods.methods()) as (_, connect):
        client = await connect()
        client.send(Command(5, 1))
        (question,) = await client.receive()
        assert (question.code, question.body) == (220, b"now")
        client.send(question.response(b"done"))
        (answer,) = await client.receive()
        assert answer.body == b"done"
        client.send(Command(1, 2))
        await client.receive()
        methods.connections[0].push(40, {"consumerGroup": "g"})
        (pushed,) = await client.receive()
        assert (pushed.code, pushed.is_oneway) == (40, True)


async def test_a_stop_answers_what_is_parked() -> None:
    methods = Methods()
    async with served(methods.methods()) as (server, connect):
        server.on_stop(methods.go.set)
        client = await connect()
        client.send(Command(1, 1))
        await client.receive()
        client.send(Command(2, 2))
        client.send(Command(1, 3))
        await client.receive()
        await server.stop(WAIT_S)
        (answer,) = await client.receive()
        assert (answer.opaque, answer.remark) == (2, "at last")
        assert await client.ends()
