"""The calls of real clients over a world's network: what tandemlog.cluster.node.Node is to them.

    client's loop  ask, call, pull, append ─▶ is it up and linked? ─▶ node's loop: Service
                   ◀─ answer, or NodeUnavailableError ──────────────┘

A node that stands still answers when it goes on; the caller's own patience ends a call before. A
call that is lost (`lose`) may have been carried out.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sim.ha_nodes import ViolationError
from sim.served_node import Service, later
from sim.world_loop import WorldLoop
from tandemlog.cluster.answer_errors import error_from
from tandemlog.cluster.append_call import CallOverError
from tandemlog.cluster.newest_epoch import NewestEpoch
from tandemlog.cluster.pull_answer import PullAnswer, parse_pull
from tandemlog.errors import NodeUnavailableError
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.puts.put_stream import PutStream

Find = Callable[[str], Service | None]
"""The service at an endpoint, None if nothing answers there for this client."""


class Methods:
    """A stub: its methods are their names."""

    def __getattr__(self, name: str) -> str:
        return name


class NoData:
    """Nothing goes by data connections."""

    def offered(self, port: int, key: bytes) -> None:
        return


class ClientNode:
    """See the module."""

    number = 0
    broker: Any = Methods()
    admin: Any = Methods()
    data = NoData()

    def __init__(self, endpoint: str, find: Find, epochs: NewestEpoch) -> None:
        self.endpoint = endpoint
        self._find = find
        self._epochs = epochs

    def _service(self) -> Service:
        service = self._find(self.endpoint)
        if service is None:
            raise NodeUnavailableError(f"{self.endpoint}: unavailable: connection refused")
        return service

    async def ask(self, method: Any, request: Any, timeout_ms: int) -> Any:
        answer = await self.call(method, request, timeout_ms)
        if answer.error.code:
            raise error_from(answer.error, self.endpoint)
        return answer

    async def call(self, method: Any, request: Any, timeout_ms: int) -> Any:
        answer = await self._call(method, request, timeout_ms)
        self._epochs.believe(answer, self.endpoint)
        return answer

    async def _call(self, method: Any, request: Any, timeout_ms: int) -> Any:
        service = self._service()
        here = asyncio.get_running_loop()
        done: asyncio.Future[Any] = here.create_future()
        service.calls.add(done)
        task: list[asyncio.Task[Any]] = []

        def ended(work: "asyncio.Task[Any]") -> None:
            if not done.done() and not work.cancelled():
                later(here, settle, done, work.result())

        def begin() -> None:
            work = service.loop.create_task(service.answer(method, request))
            task.append(work)
            work.add_done_callback(ended)

        later(service.loop, begin)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await done
        except TimeoutError:
            raise NodeUnavailableError(f"{self.endpoint}: deadline exceeded") from None
        except ConnectionResetError as error:
            raise NodeUnavailableError(f"{self.endpoint}: unavailable: {error}") from None
        finally:
            service.calls.discard(done)
            if task and not task[0].done():
                later(service.loop, task[0].cancel)

    async def pull(self, request: broker_pb2.PullRequest, timeout_ms: int) -> PullAnswer:
        answer = parse_pull(await self._call("Pull", request, timeout_ms))
        if answer.error.code:
            self._epochs.believe(answer, self.endpoint)
            raise error_from(answer.error, self.endpoint)
        return answer

    async def append(self) -> "StreamCall":
        service, newest = self._service(), self._epochs.value
        epoch = service.current.role.epoch()
        if epoch is not None and goes_back(epoch, newest):
            here = asyncio.get_running_loop()
            assert isinstance(here, WorldLoop)
            here.failure = ViolationError(  # the client would take it for a fault of its own
                f"a producer goes back to {self.endpoint}, the master of epoch {epoch}; it has "
                f"heard of epoch {newest}"
            )
        return StreamCall(self.endpoint, service)

    async def close(self) -> None:
        return


def goes_back(epoch: int, newest: int) -> bool:
    """Whether who has heard of epoch `newest` may not write to a master of `epoch`."""
    return epoch < newest


def settle(done: "asyncio.Future[Any]", answer: object) -> None:
    if not done.done():
        done.set_result(answer)


class StreamCall:
    """An AppendCall."""

    def __init__(self, endpoint: str, service: Service) -> None:
        self._endpoint = endpoint
        self._service = service
        self._here = asyncio.get_running_loop()
        self._answers: deque[broker_pb2.AppendResponse] = deque()
        self._changed = asyncio.Event()
        self._over = ""
        self._cancelled = False
        self._stream: PutStream | None = None
        self._answering: asyncio.Task[None] | None = None
        self._asked: dict[int, Callable[[Any], None]] = {}
        service.streams.append(self)
        later(service.loop, self._open)

    def _open(self) -> None:
        """In the node's loop, as what follows."""
        self._stream = self._service.open_stream()
        self._answering = self._service.loop.create_task(self._answer(self._stream))

    async def _answer(self, stream: PutStream) -> None:
        async for response in stream.responses():
            self._asked.pop(response.request_id)(response)
            later(self._here, self._answered, response)

    def _submit(self, data: bytes) -> None:
        if self._stream is not None:
            request_id = broker_pb2.AppendRequest.FromString(data).request_id
            self._asked[request_id] = self._service.answering("Append", None)
            self._service.pump.submit(self._stream, data)

    def _close(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
        if self._stream is not None:
            self._service.pump.close_stream(self._stream)
            self._stream = None

    def _answered(self, response: broker_pb2.AppendResponse) -> None:
        self._answers.append(response)
        self._changed.set()

    async def write(self, request: Sequence[bytes | memoryview]) -> None:
        if self._over or self._cancelled:
            raise CallOverError
        later(self._service.loop, self._submit, b"".join(request))

    async def read(self) -> broker_pb2.AppendResponse | None:
        while not self._answers:
            if self._cancelled:
                raise asyncio.CancelledError
            if self._over:
                raise NodeUnavailableError(f"{self._endpoint}: unavailable: {self._over}")
            self._changed.clear()
            await self._changed.wait()
        return self._answers.popleft()

    def break_off(self, reason: str = "the node is gone") -> None:
        """The connection ends here; answers under way are lost."""
        self._over = self._over or reason
        self._answers.clear()
        self._changed.set()

    def cancel(self) -> None:
        self._cancelled = True
        self._changed.set()
        with suppress(ValueError):
            self._service.streams.remove(self)
        later(self._service.loop, self._close)
