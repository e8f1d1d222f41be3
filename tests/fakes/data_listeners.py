"""What a client of data connections may find at the port in place of the node.

Listener    another program, or a node that does not answer
Cutter      the node, by a way that is cut again and again
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Listener:
    """Says `says` to each connection, and ends it when it has heard `ends_after` bytes; None: when
    the client ends it. `heard` is what all clients have said."""

    def __init__(self, says: bytes, *, ends_after: int | None = None) -> None:
        self._says = says
        self._ends_after = ends_after
        self.heard = b""
        self.connections = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        writer.write(self._says)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
            if self._ends_after is None:
                self.heard += await reader.read()
            else:
                self.heard += await reader.readexactly(self._ends_after)
        writer.close()


class Cutter:
    """A way to the data connections at `port` that cuts each after some bytes, either way."""

    def __init__(self, port: int, seed: int) -> None:
        self._to = port
        self._random = random.Random(seed)
        self.cuts = 0
        self._writers: set[asyncio.StreamWriter] = set()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            yield server.sockets[0].getsockname()[1]
            for each in self._writers:
                each.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers |= {writer, back}
        # the later ones let all messages through, however they were collected
        left = 700 << min(self.cuts, 13)
        room = [self._random.randrange(left)]
        await asyncio.gather(self._pass(reader, back, room), self._pass(there, writer, room))

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, room: list[int]
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(self._random.randrange(1, 50_000)):
                part = data[: room[0]]
                room[0] -= len(part)
                writer.write(part)
                await writer.drain()
                if not room[0]:
                    self.cuts += 1
                    break
        writer.close()
