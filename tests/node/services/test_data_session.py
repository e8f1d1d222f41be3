"""One data connection over a real socket: its calls, how they end, and bytes that no frame has."""

import asyncio
import contextlib
import random
import socket
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from fakes.secured_node import access_text, token
from tandemlog.format.constants import Buffer
from tandemlog.transport.data_frames import (
    FROM_NODE,
    GREETING_BYTES,
    MAX_PULL_BYTES,
    MAX_TOKEN_BYTES,
    Frame,
    FrameReader,
    Kind,
    frame,
    greeting,
    head,
    read_status,
)
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.access.access_file import parse_access
from tandemlog_server.node.access.doorkeeper import Doorkeeper
from tandemlog_server.node.services import data_session
from tandemlog_server.node.services.call_door import CallContext
from tandemlog_server.node.services.data_session import DataMethods, DataSession

KEY = bytes(range(16))
LARGEST_PUT = 1 << 20
INTERNAL = grpc.StatusCode.INTERNAL


class Client:
    """The other end."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._reader = FrameReader(FROM_NODE, 1 << 30)
        self._frames: list[Frame] = []

    async def greeted(self) -> bytes:
        return await asyncio.get_running_loop().sock_recv(self.sock, GREETING_BYTES)

    async def say(self, *frames: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, b"".join(frames))

    async def frame(self) -> Frame | None:
        """The next one; None at the end of the connection."""
        async with asyncio.timeout(10):
            while not self._frames:
                with contextlib.suppress(ConnectionResetError):
                    data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 20)
                    if data:
                        self._frames += self._reader.feed(data)
                        continue
                return None
        return self._frames.pop(0)


class Rig:
    """Methods that can be held: a pull answers with its request, a put with its number."""

    def __init__(self) -> None:
        self.answers: dict[bytes, Sequence[bytes] | bytes] = {}
        self.held: dict[bytes, asyncio.Event] = {}
        self.pulls: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.ended = 0
        self.puts: list[bytes] = []
        self.takes_puts = asyncio.Event()
        self.takes_puts.set()
        self.most_puts = 1 << 30
        self.tokens: list[object] = []
        self.stream_status: tuple[grpc.StatusCode, str] | None = None

    async def pull(self, requests: AsyncIterator[Buffer], context: CallContext) -> Any:
        context.add_done_callback(self._end)
        self.tokens.append(context.invocation_metadata())
        request = bytes(await anext(requests))
        self.pulls.append(request)
        if request == b"refused":
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "who calls?")
        if request == b"broken":
            raise ValueError("a defect")
        try:
            if request in self.held:
                await self.held[request].wait()
        except asyncio.CancelledError:
            self.cancelled.append(request)
            raise
        return self.answers.get(request, request)

    async def append(
        self, requests: AsyncIterator[Buffer], context: CallContext
    ) -> AsyncGenerator[Message, None]:
        context.add_done_callback(self._end)
        if self.stream_status is not None:
            context.set_code(self.stream_status[0])
            context.set_details(self.stream_status[1])
            return
        async for request in requests:
            await self.takes_puts.wait()
            self.puts.append(bytes(request))
            yield broker_pb2.AppendResponse(request_id=len(self.puts))
            if len(self.puts) >= self.most_puts:
                return

    def _end(self, _: object) -> None:
        self.ended += 1

    @asynccontextmanager
    async def connected(
        self, known_by: Doorkeeper | None = None, send_buffer: int = 0
    ) -> AsyncIterator[Client]:
        ours, theirs = socket.socketpair()
        for each in (ours, theirs):
            each.setblocking(False)
        if send_buffer:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
        methods = DataMethods(self.pull, self.append)
        self.session = DataSession(
            ours, "ipv4:1.2.3.4:5", KEY, methods, known_by, largest_put=LARGEST_PUT
        )
        self.running = asyncio.create_task(self.session.run())
        client = Client(theirs)
        try:
            assert await client.greeted() == greeting(KEY)
            yield client
        finally:
            theirs.close()
            async with asyncio.timeout(10):
                await self.running
            assert ours.fileno() == -1


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - there is no event for all of it
            await asyncio.sleep(0.001)


async def test_pulls_are_answered_in_any_order_and_in_parts() -> None:
    rig = Rig()
    rig.held[b"slow"] = asyncio.Event()
    rig.answers[b"large"] = [random.Random(1).randbytes(3 << 20), b"", b"end"]
    async with rig.connected() as client:
        await client.say(frame(1, Kind.PULL, b"slow"), frame(2, Kind.PULL, b"large"))
        found = await client.frame()
        assert found is not None
        assert (found.call, found.kind) == (2, Kind.ANSWER)
        assert found.payload == b"".join(rig.answers[b"large"])  # type: ignore[arg-type]
        rig.held[b"slow"].set()
        assert await client.frame() == Frame(1, Kind.ANSWER, b"slow")
    assert rig.ended == 2


async def test_a_refusal_is_a_status_and_ends_nothing_else() -> None:
    rig = Rig()
    async with rig.connected() as client:
        for call, request, code, text in (
            (7, b"refused", grpc.StatusCode.UNAUTHENTICATED, "who calls?"),
            (8, b"broken", grpc.StatusCode.UNKNOWN, "ValueError('a defect')"),
        ):
            await client.say(frame(call, Kind.PULL, request))
            said = await client.frame()
            assert said is not None
            assert (said.call, said.kind) == (call, Kind.STATUS)
            assert read_status(said.payload) == (code.value[0], text)
        await client.say(frame(7, Kind.PULL, b"again"))
        assert await client.frame() == Frame(7, Kind.ANSWER, b"again")
    assert rig.ended == 3


async def test_a_cancelled_pull_ends_and_its_number_is_free() -> None:
    rig = Rig()
    rig.held[b"slow"] = asyncio.Event()
    async with rig.connected() as client:
        await client.say(frame(1, Kind.PULL, b"slow"))
        await until(lambda: rig.pulls == [b"slow"])
        await client.say(frame(1, Kind.CANCEL), frame(99, Kind.CANCEL))
        await until(lambda: rig.ended == 1)
        assert rig.cancelled == [b"slow"]
        await client.say(frame(1, Kind.PULL, b"next"))
        assert await client.frame() == Frame(1, Kind.ANSWER, b"next")


async def test_a_pull_that_is_cancelled_while_its_answer_is_sent_is_answered() -> None:
    rig = Rig()
    rig.answers[b"large"] = random.Random(2).randbytes(8 << 20)
    async with rig.connected(send_buffer=4_096) as client:
        await client.say(frame(1, Kind.PULL, b"large"))
        await until(lambda: rig.session._answering == 1)
        await client.say(frame(1, Kind.CANCEL), frame(2, Kind.PULL, b"next"))
        await until(lambda: len(rig.pulls) == 2)
        assert await client.frame() == Frame(1, Kind.ANSWER, bytes(rig.answers[b"large"]))  # type: ignore[arg-type]
        assert await client.frame() == Frame(2, Kind.ANSWER, b"next")


async def test_an_answer_that_cannot_be_ended_ends_the_connection() -> None:
    """As the door does with a client that does not take it."""
    rig = Rig()
    rig.answers[b"large"] = bytes(8 << 20)
    async with rig.connected(send_buffer=4_096) as client:
        await client.say(frame(1, Kind.PULL, b"large"))
        await until(lambda: rig.session._answering == 1)
        rig.session._calls[1].cancel()
        await asyncio.wait([rig.running], timeout=10)
        assert rig.running.done()
    assert rig.ended == 1


async def test_calls_of_a_client_that_is_gone_end() -> None:
    rig = Rig()
    rig.held[b"slow"] = asyncio.Event()
    async with rig.connected() as client:
        await client.say(frame(1, Kind.PULL, b"slow"), frame(2, Kind.APPEND, b"a"))
        await until(lambda: bool(rig.pulls and rig.puts))
    assert rig.cancelled == [b"slow"]
    assert rig.ended == 2


async def test_puts_are_one_stream_in_order() -> None:
    rig = Rig()
    async with rig.connected() as client:
        given = [bytes([number]) * (number * 3_000) for number in range(60)]
        await client.say(*(frame(5, Kind.APPEND, each) for each in given))
        for number in range(1, 61):
            found = await client.frame()
            assert found is not None
            assert (found.call, found.kind) == (5, Kind.ANSWER)
            answer = broker_pb2.AppendResponse.FromString(bytes(found.payload))
            assert answer.request_id == number
        assert rig.puts == given


async def test_a_stream_that_takes_nothing_stops_the_reading() -> None:
    rig = Rig()
    rig.takes_puts.clear()
    async with rig.connected() as client:
        put = frame(1, Kind.APPEND, bytes(500_000))

        async def say_all() -> None:
            for _ in range(20):
                await client.say(put)

        saying = asyncio.create_task(say_all())
        done, _ = await asyncio.wait([saying], timeout=0.3)
        assert not done, "all 10 MB were taken, although no request was"
        rig.takes_puts.set()
        await saying
        await until(lambda: len(rig.puts) == 20)


@pytest.mark.parametrize("size", [1, 100_000])
@pytest.mark.parametrize("refused", [False, True])
async def test_the_end_of_a_stream_is_said_and_ends_the_connection(
    refused: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the client goes on writing meanwhile."""
    monkeypatch.setattr(data_session, "LAST_S", 0.2)
    rig = Rig()
    rig.most_puts = 2
    if refused:
        rig.stream_status = grpc.StatusCode.UNAVAILABLE, "too many streams"
    async with rig.connected() as client:
        await client.say(*[frame(1, Kind.APPEND, bytes(size))] * 6)
        kinds = []
        while (found := await client.frame()) is not None:
            kinds.append(found.kind)
            if found.kind is Kind.STATUS:
                expected = (14, "too many streams") if refused else (0, "")
                assert read_status(found.payload) == expected
        assert kinds == ([] if refused else [Kind.ANSWER] * 2) + [Kind.STATUS]
    assert rig.ended == 1


@pytest.mark.parametrize(
    "frames",
    [
        [struct.pack("<IIB3x", 3, 1, 77) + b"abc"],
        [head(1, Kind.APPEND, LARGEST_PUT + 1)],
        [frame(1, Kind.PULL, bytes(MAX_PULL_BYTES + 1))],
        [frame(0, Kind.TOKEN, bytes(MAX_TOKEN_BYTES + 1))],
        [frame(1, Kind.PULL, b"slow"), frame(1, Kind.PULL, b"twice")],
        [frame(1, Kind.PULL, b"slow"), frame(1, Kind.APPEND, b"twice")],
        [frame(1, Kind.APPEND, b"a"), frame(2, Kind.APPEND, b"another stream")],
    ],
    ids=["kind", "put", "pull", "token", "pull twice", "put twice", "streams"],
)
async def test_what_is_no_frame_ends_the_connection(
    frames: list[bytes], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = Rig()
    rig.held[b"slow"] = asyncio.Event()
    monkeypatch.setattr(data_session, "LAST_S", 0.1)
    async with rig.connected() as client:
        await client.say(*frames)
        found = []
        while (each := await client.frame()) is not None:
            found += [each] if each.kind is Kind.STATUS else []
        [said] = found
        assert said.call == struct.unpack_from("<I", frames[-1], 4)[0]
        code, text = read_status(said.payload)
        expected = grpc.StatusCode.RESOURCE_EXHAUSTED if "limit" in text else INTERNAL
        assert code == expected.value[0]
    assert f"data connection ends: peer=ipv4:1.2.3.4:5 reason={text}" in caplog.text


def keeper() -> Doorkeeper:
    """Knows one token."""
    access = parse_access(access_text(good={"admin": True}), "access.toml")
    return Doorkeeper("c", monotonic=time.monotonic, access=access)


def shown(name: str) -> bytes:
    return frame(0, Kind.TOKEN, f"Bearer {token(name)}".encode())


async def test_before_a_token_frames_are_small(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(data_session, "LAST_S", 0.1)
    rig = Rig()
    large = frame(1, Kind.PULL, bytes(MAX_TOKEN_BYTES + 1))
    for first, reason in ((b"", "send the token"), (shown("bad"), "may have been revoked")):
        async with rig.connected(keeper()) as client:
            await client.say(first + large)
            said = await client.frame()
            assert said is not None
            code, text = read_status(said.payload)
            assert code == grpc.StatusCode.UNAUTHENTICATED.value[0]
            assert reason in text
            assert await client.frame() is None
        assert reason in caplog.text, "the audit log says so"
    assert rig.pulls == []
    async with rig.connected(keeper()) as client:
        await client.say(shown("good") + large)
        found = await client.frame()
        assert found is not None
        assert found.kind is Kind.ANSWER
        # small ones of a caller that is not known come to the door, which says so
        await client.say(shown("old"), frame(2, Kind.PULL, b"x"))
        assert await client.frame() == Frame(2, Kind.ANSWER, b"x")
    assert rig.tokens == [(("authorization", f"Bearer {token(each)}"),) for each in ("good", "old")]


async def test_a_caller_that_shows_no_token_has_little_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever else it says."""
    monkeypatch.setattr(data_session, "FIRST_FRAME_S", 0.5)
    rig = Rig()
    began = asyncio.get_running_loop().time()
    async with rig.connected(keeper()) as client:
        with contextlib.suppress(OSError):
            for _ in range(200):
                await client.say(shown("bad"), frame(9, Kind.CANCEL))
                await asyncio.sleep(0.05)
        assert await client.frame() is None
    assert asyncio.get_running_loop().time() - began < 5


@pytest.mark.parametrize("case", ["nothing", "half a frame", "a call"])
async def test_a_silent_client_is_let_go_unless_it_waits(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FIRST_FRAME_S", "FRAME_S", "IDLE_S"):
        monkeypatch.setattr(data_session, name, 0.5)
    rig = Rig()
    rig.held[b"slow"] = asyncio.Event()
    async with rig.connected() as client:
        if case == "half a frame":
            await client.say(frame(1, Kind.PULL, b"abc")[:-1])
        elif case == "a call":
            await client.say(frame(1, Kind.PULL, b"slow"))
            await asyncio.sleep(1.5)
            rig.held[b"slow"].set()
            assert await client.frame() == Frame(1, Kind.ANSWER, b"slow")
        assert await client.frame() is None


async def test_no_more_than_so_many_calls_are_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they come at once."""
    monkeypatch.setattr(data_session, "CALLS", 3)
    rig = Rig()
    rig.held[b"slow"] = asyncio.Event()
    async with rig.connected() as client:
        await client.say(*(frame(number, Kind.PULL, b"slow") for number in range(10)))
        await until(lambda: len(rig.pulls) == 3)
        await asyncio.sleep(0.05)
        assert len(rig.pulls) == 3
        rig.held[b"slow"].set()
        for _ in range(10):
            assert await client.frame() is not None


async def test_a_stream_cannot_be_cancelled_by_a_frame() -> None:
    """Its requests would wait for a stream that is no more, and the session for ever."""
    rig = Rig()
    async with rig.connected() as client:
        for _ in range(3):
            await client.say(frame(1, Kind.APPEND, b"a"), frame(1, Kind.CANCEL))
            found = await client.frame()
            assert found is not None
            assert found.kind is Kind.ANSWER
        assert rig.puts == [b"a"] * 3


async def test_a_pull_may_be_cancelled_before_it_begins() -> None:
    rig = Rig()
    async with rig.connected() as client:
        for number in range(1, data_session.CALLS + 10):
            await client.say(frame(number, Kind.PULL, b"x"), frame(number, Kind.CANCEL))
        await client.say(frame(7_000, Kind.PULL, b"last"))
        while (found := await client.frame()) is not None and found.call != 7_000:
            pass
        assert found == Frame(7_000, Kind.ANSWER, b"last")
        await until(lambda: not rig.session._calls)


async def test_a_session_ends_with_its_task_whatever_it_waits_for() -> None:
    """As the node's stop ends it: no frame is read while a stream takes none."""
    rig = Rig()
    rig.takes_puts.clear()
    async with rig.connected() as client:
        await client.say(*[frame(1, Kind.APPEND, bytes(100_000))] * 4)
        await asyncio.sleep(0.05)
        rig.running.cancel()
        async with asyncio.timeout(5):
            await asyncio.wait([rig.running])
        rig.running = asyncio.create_task(asyncio.sleep(0))  # ended, as expected
    assert rig.ended == 1


@pytest.mark.parametrize("kind", [Kind.CANCEL, Kind.TOKEN])
async def test_a_client_that_says_much_leaves_others_their_turn(kind: Kind) -> None:
    rig = Rig()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with rig.connected() as client:
        await until(lambda: rig.session._timer is not None)
        working = asyncio.create_task(other())
        # far more than a read takes
        await client.say(frame(1, kind, b"") * 60_000)
        await client.say(frame(2, Kind.PULL, b"x"))
        assert await client.frame() == Frame(2, Kind.ANSWER, b"x")
        working.cancel()
    assert turns > 60_000 / 64 / 2


async def test_a_frame_has_its_time_however_it_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_session, "FRAME_S", 0.3)
    rig = Rig()
    began = asyncio.get_running_loop().time()
    async with rig.connected() as client:
        await client.say(head(1, Kind.APPEND, 1_000))
        with contextlib.suppress(OSError):
            for _ in range(100):
                await client.say(b"x")
                await asyncio.sleep(0.05)
        assert await client.frame() is None
    assert asyncio.get_running_loop().time() - began < 3
