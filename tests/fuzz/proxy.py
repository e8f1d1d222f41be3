"""Between a slave and its master: a link that changes frames while it storms, else an honest one.

    slave ──▶ proxy ──▶ master        acknowledgements, some of them changed
          ◀──       ◀──               chunks and lists of members, some of them changed

What is never changed is what each side has to take on the other's word: the log's bytes, whose
lengths the checks of the store are for (test_files.py), the tables, and who the two say they are.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from grpc import aio

from fuzz.mutate import Mutator
from tandemlog.v1 import replication_pb2

PATH = "/tandemlog.v1.Replication/Replicate"
CHANGED = 0.1
_OPTIONS = [
    ("grpc.max_receive_message_length", 64 << 20),
    ("grpc.max_send_message_length", 64 << 20),
    ("grpc.so_reuseport", 0),
]


class Proxy:
    """See the module; `changed` counts frames. Slaves find it at `endpoint`."""

    def __init__(self, endpoint: str, master: str, seed: int) -> None:
        self.endpoint = endpoint
        self.storm = False
        self.changed = 0
        self._master = master
        self._random = Random(seed)
        self._mutator = Mutator((b"preparing", b"n1", b"n0"))
        self._server = aio.server(options=_OPTIONS)
        self._streams: set[asyncio.Future[Any]] = set()

    async def __aenter__(self) -> "Proxy":
        service, method = PATH.lstrip("/").split("/")
        handler: Any = grpc.stream_stream_rpc_method_handler(self._serve)
        handlers = grpc.method_handlers_generic_handler(service, {method: handler})
        self._server.add_generic_rpc_handlers((handlers,))
        self._server.add_insecure_port(self.endpoint)
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    def cut(self) -> None:
        """End the streams that are open; the next ones greet anew."""
        for stream in self._streams:
            stream.cancel()

    async def _serve(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async with aio.insecure_channel(self._master, options=_OPTIONS) as channel:
            call: Any = channel.stream_stream(PATH)()
            both = asyncio.gather(self._up(requests, call), self._down(call, context))
            self._streams.add(both)
            try:
                await both
            except (aio.BaseError, grpc.RpcError, asyncio.CancelledError):
                await context.abort(grpc.StatusCode.UNAVAILABLE, "the link is cut")
            finally:
                both.cancel()
                self._streams.discard(both)
                call.cancel()

    async def _up(self, requests: AsyncIterator[bytes], call: Any) -> None:
        async for data in requests:
            await call.write(self._perhaps(data, replication_pb2.SlaveFrame, ("ack",)))
        await call.done_writing()

    async def _down(self, call: Any, context: Any) -> None:
        while isinstance(data := await call.read(), bytes):
            kinds = ("chunk", "members")
            await context.write(self._perhaps(data, replication_pb2.MasterFrame, kinds))

    def _perhaps(self, data: bytes, kind: Any, may_change: tuple[str, ...]) -> bytes:
        if not self.storm or self._random.random() > CHANGED:
            return data
        frame = kind.FromString(data)
        if frame.WhichOneof("frame") not in may_change:
            return data
        changed = self._mutator.message(self._random, data, kind.DESCRIPTOR)
        try:
            found = kind.FromString(changed)
        except DecodeError:
            found = None
        if found is not None:
            same_kind = found.WhichOneof("frame") in (None, *may_change)
            if not same_kind or ("chunk" in may_change and found.chunk.data != frame.chunk.data):
                return data
        self.changed += 1
        return changed
