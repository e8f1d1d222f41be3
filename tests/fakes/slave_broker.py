"""A slave broker of RocketMQ, as far as its master can tell: it asks, stores frames whole,
acknowledges, and ends the connection when an offset is not its own end."""

import asyncio

from tandemlog_server.rocketmq.wire.frames import HEADER, encode_offset


class SlaveBroker:
    """`log` is what it holds from `start` on; `frames` are the sizes of what came, 0 a heartbeat.
    `reads` and `acknowledges` can be switched off."""

    def __init__(self, log: bytes = b"", start: int = 0) -> None:
        self.log = bytearray(log)
        self.start = start
        self.frames: list[int] = []
        self.closed = asyncio.Event()
        self.acknowledges = True
        self._writer: asyncio.StreamWriter | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.log)

    async def connect(self, port: int, *, reads: bool = True, asks: bool = True) -> "SlaveBroker":
        self.closed = asyncio.Event()
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        if asks:
            self.say(self.end)
        if reads:
            self._task = asyncio.create_task(self._read(reader))
        return self

    def say(self, offset: int) -> None:
        self.send(encode_offset(offset))

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        self._writer.write(data)

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
                if not self.log and not self.start:
                    self.start = offset
                if offset != self.end:
                    raise AssertionError(f"{offset} came, this slave's log ends at {self.end}")
                self.log += await reader.readexactly(size)
                self.frames.append(size)
                if self.acknowledges:
                    self.say(self.end)
        except (OSError, asyncio.IncompleteReadError):
            return
        finally:
            self.closed.set()
