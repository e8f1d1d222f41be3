"""A client of RocketMQ with a socket, and a server of this door with a few methods for tests."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from tandemlog_server.node.access.doorkeeper import Doorkeeper, open_to_all
from tandemlog_server.node.pulls.read_turns import ReadTurns
from tandemlog_server.node.remoting.door.remoting_call import (
    Connection,
    Method,
    RemotingCall,
    RemotingRefusedError,
)
from tandemlog_server.node.remoting.door.remoting_door import HandsOn, RemotingDoor
from tandemlog_server.node.remoting.door.remoting_server import RemotingServer
from tandemlog_server.node.services.call_door import CallDoor
from tandemlog_server.rocketmq.wire.remoting import (
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
    methods: Mapping[int, Method],
    *,
    keeper: Doorkeeper | None = None,
    master: HandsOn | None = None,
    **options: Any,
) -> AsyncIterator[tuple[RemotingServer, Callable[[], "asyncio.Future[Client]"]]]:
    turns = ReadTurns(1, 1 << 20)
    door = CallDoor(
        turns, max_calls=4096, max_streams=16, keeper=keeper or open_to_all(time.monotonic)
    )
    server = RemotingServer(RemotingDoor(door, methods, master), door.keeper.audit, **options)
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


async def until(true: Callable[[], bool]) -> None:
    """Wait until that is true, which other tasks bring about."""
    async with asyncio.timeout(WAIT_S):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)
