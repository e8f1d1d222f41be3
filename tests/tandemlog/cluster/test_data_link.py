"""One data connection over a socket pair: its calls, and what becomes of them when it ends."""

import asyncio
import contextlib
import os
import random
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from fakes.secured_node import until
from tandemlog.cluster import data_link
from tandemlog.cluster.append_call import CallOverError, DataAppendCall
from tandemlog.cluster.data_link import DataLink, DataLinkError, DataStatusError, connected
from tandemlog.errors import NodeUnavailableError, TandemlogError
from tandemlog.transport.data_frames import (
    FROM_CLIENT,
    Frame,
    FrameReader,
    Kind,
    frame,
    greeting,
    head,
    status_frame,
)
from tandemlog.v1 import broker_pb2

LARGE = random.Random(1).randbytes(5 << 20)


class Far:
    """The node's end."""

    def __init__(self, sock: socket.socket, ended: list[DataLink]) -> None:
        self.sock = sock
        self.ended = ended
        self._reader = FrameReader(FROM_CLIENT, 1 << 30)
        self._frames: list[Frame] = []

    async def frame(self) -> Frame:
        async with asyncio.timeout(10):
            while not self._frames:
                data = await asyncio.get_running_loop().sock_recv(self.sock, 1 << 16)
                assert data
                self._frames += self._reader.feed(data)
        return self._frames.pop(0)

    async def say(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.sock, data)


@asynccontextmanager
async def linked(kind: Kind) -> AsyncIterator[tuple[DataLink, Far]]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    ended: list[DataLink] = []
    link = await DataLink(kind, lambda: ours, ended.append).opened()
    try:
        yield link, Far(theirs, ended)
    finally:
        link.close()
        assert ended == [link], "it is told once"
        await until(lambda: ours.fileno() == -1)
        theirs.close()


def pull(link: DataLink, request: bytes, seconds: float = 10) -> "asyncio.Task[object]":
    return asyncio.create_task(link.pull(request, "", seconds))


async def failure(*_: object) -> TandemlogError:
    return NodeUnavailableError("failed", reason="failed")


async def test_answers_come_in_any_order_and_size() -> None:
    async with linked(Kind.PULL) as (link, far):
        slow, quick = pull(link, b"slow"), pull(link, b"quick")
        asked = [await far.frame(), await far.frame()]
        assert [(each.kind, each.payload) for each in asked] == [
            (Kind.PULL, b"slow"),
            (Kind.PULL, b"quick"),
        ]
        assert not link.answered
        await far.say(frame(asked[1].call, Kind.ANSWER, LARGE) + frame(99, Kind.ANSWER, b"lost"))
        assert await quick == LARGE
        await far.say(frame(asked[0].call, Kind.ANSWER))
        assert await slow == b""
        assert link.answered


async def test_a_status_ends_its_call_alone() -> None:
    async with linked(Kind.PULL) as (link, far):
        refused, other = pull(link, b"a"), pull(link, b"b")
        await far.say(status_frame((await far.frame()).call, 16, "who calls?"))
        with pytest.raises(DataStatusError, match="who calls") as found:
            await refused
        assert found.value.code == 16
        await far.say(frame((await far.frame()).call, Kind.ANSWER, b"x"))
        assert await other == b"x"


@pytest.mark.parametrize(
    "said",
    [b"", head(1, Kind.ANSWER, 100)[:5], head(1, Kind.ANSWER, 1_000_000) + bytes(500_000)],
    ids=["between", "head", "payload"],
)
async def test_a_cut_ends_all_pulls(said: bytes) -> None:
    async with linked(Kind.PULL) as (link, far):
        calls = [pull(link, b"%d" % each) for each in range(3)]
        await far.frame()
        await far.say(said)
        far.sock.shutdown(socket.SHUT_RDWR)
        for each in calls:
            with pytest.raises(DataLinkError, match="has closed the connection"):
                await each
        with pytest.raises(DataLinkError, match="has closed the connection"):
            link.start_call()


@pytest.mark.parametrize("kind", [Kind.PULL, Kind.APPEND])
async def test_bytes_that_are_no_frame_end_it(kind: Kind) -> None:
    async with linked(kind) as (link, far):
        _, answers = link.start_call()
        await far.say(frame(1, Kind.PULL, b"what a client says"))
        with pytest.raises(DataLinkError, match="a frame of kind 2"):
            await answers.next()


async def test_a_late_answer_ends_the_link_and_all_calls() -> None:
    async with linked(Kind.PULL) as (link, far):
        other = pull(link, b"other")
        with pytest.raises(TimeoutError):
            await link.pull(b"late", "", 0.01)
        with pytest.raises(DataLinkError, match="not answered in time"):
            await other
        assert far.ended == [link]


async def test_a_node_that_takes_no_requests_counts_as_gone() -> None:
    async with linked(Kind.PULL) as (link, _):
        calls = [pull(link, bytes(60_000)) for _ in range(50)]
        for each in calls:
            with pytest.raises(DataLinkError, match="takes no requests"):
                await each


async def test_a_flood_of_answers_to_no_call_is_thrown_away() -> None:
    async with linked(Kind.PULL) as (link, far):
        given_up = pull(link, b"given up")
        call = (await far.frame()).call
        given_up.cancel()
        cancelled = await far.frame()
        assert (cancelled.call, cancelled.kind) == (call, Kind.CANCEL)
        await far.say(frame(call, Kind.ANSWER, bytes(100)) * 10_000 + frame(7, Kind.ANSWER, LARGE))
        asked = pull(link, b"next")
        call = (await far.frame()).call
        await far.say(frame(call, Kind.ANSWER, b"x") + frame(call, Kind.ANSWER, b"y") * 10_000)
        assert await asked == b"x"
        assert link._calls == {}


async def test_the_token_goes_before_the_first_call_and_when_it_changes() -> None:
    async with linked(Kind.PULL) as (link, far):
        calls = [asyncio.create_task(link.pull(b"x", each, 10)) for each in ("a", "a", "b", "")]
        found = [await far.frame() for _ in range(7)]
        assert [bytes(each.payload) for each in found] == [b"a", b"x", b"x", b"b", b"x", b"", b"x"]
        for each in calls:
            each.cancel()


async def test_puts_go_in_order_however_slowly_the_node_takes_them() -> None:
    """What the socket does not take at once is the thread's, and the next waits for it."""
    async with linked(Kind.APPEND) as (link, far):
        call = DataAppendCall(link, "n:1", "token", failure)
        given = [random.Random(each).randbytes(each * 200_000) for each in range(8)]

        async def write() -> None:
            for each in given:
                await call.write([each[:100], memoryview(each)[100:]])

        writing = asyncio.create_task(write())
        assert (await far.frame()).kind is Kind.TOKEN
        for each in given:
            found = await far.frame()
            assert (found.call, found.kind, found.payload) == (1, Kind.APPEND, each)
        await writing
        for number in range(3):
            answer = broker_pb2.AppendResponse(request_id=number).SerializeToString()
            await far.say(frame(1, Kind.ANSWER, answer))
        for number in range(3):
            response = await call.read()
            assert response is not None
            assert response.request_id == number
        await far.say(status_frame(1, 0, ""))
        assert await call.read() is None


@pytest.mark.parametrize("how", ["cut", "cancel", "give up"])
async def test_a_stream_ends_in_the_middle_of_a_request(how: str) -> None:
    """Reader and writer both hear of it, and nothing else is sent behind half a request."""
    async with linked(Kind.APPEND) as (link, far):
        call = DataAppendCall(link, "n:1", "", failure)
        writing = asyncio.create_task(call.write([LARGE]))
        reading = asyncio.create_task(call.read())
        await until(lambda: link._sending is not None)
        if how == "cut":
            far.sock.close()
            with pytest.raises(NodeUnavailableError, match="n:1: unavailable"):
                await reading
        elif how == "cancel":
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        else:
            writing.cancel()
            with pytest.raises(NodeUnavailableError, match="the connection is closed"):
                await reading
        error = asyncio.CancelledError if how == "give up" else CallOverError
        with pytest.raises(error):
            await writing
        with pytest.raises(CallOverError):
            await call.write([b"more"])


@pytest.mark.parametrize("fault", [OSError(111, "refused"), ValueError("no name"), OSError()])
async def test_a_link_that_cannot_be_opened_is_an_error_and_told_to_nobody(
    fault: Exception,
) -> None:
    def connect() -> socket.socket:
        raise fault

    ended: list[DataLink] = []
    with pytest.raises(DataLinkError, match=r"refused|no name|OSError|closed"):
        await DataLink(Kind.PULL, connect, ended.append).opened()
    assert ended == []


@pytest.mark.parametrize("kind", [Kind.PULL, Kind.APPEND])
async def test_a_link_that_is_given_up_while_it_opens_is_closed(kind: Kind) -> None:
    ours, theirs = socket.socketpair()
    there = threading.Event()

    def connect() -> socket.socket:
        there.wait(10)
        return ours

    opening = asyncio.create_task(DataLink(kind, connect, lambda _: None).opened())
    await asyncio.sleep(0)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    there.set()
    await until(lambda: ours.fileno() == -1)
    theirs.close()


async def test_in_another_process_a_close_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is the parent's, which goes on with it."""
    async with linked(Kind.PULL) as (link, far):
        with monkeypatch.context() as child:
            child.setattr(os, "getpid", lambda: -1)
            link.close()
        asked = pull(link, b"x")
        await far.say(frame((await far.frame()).call, Kind.ANSWER, b"y"))
        assert await asked == b"y"


@pytest.mark.parametrize("kind", [Kind.PULL, Kind.APPEND])
def test_a_thread_ends_whose_loop_was_closed_before(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_link, "_CHECK_S", 0.01)
    ours, theirs = socket.socketpair()

    async def leave() -> DataLink:
        return await DataLink(kind, lambda: ours, lambda _: None).opened()

    link = asyncio.run(leave())
    theirs.close()
    deadline = threading.Event()
    for _ in range(1_000):
        if ours.fileno() == -1:
            break
        deadline.wait(0.01)
    assert ours.fileno() == -1
    del link


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 400 Bad", greeting(bytes(16))])
def test_who_greets_with_another_key_is_another(said: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            other, _ = listener.accept()
            with contextlib.closing(other):
                other.sendall(said)

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(OSError, match="another program"):
            connected("127.0.0.1", listener.getsockname()[1], b"k" * 16)
        serving.join()
