"""The port of RocketMQ's clients over real sockets: answers, order, pushes, and the end."""

import asyncio
import socket
import struct

from fakes.remoting_door import WAIT_S, Methods, served, until
from tandemlog.v1 import common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.door.remoting_call import (
    Ended,
    Method,
    RemotingCall,
    RemotingRefusedError,
    Serve,
)
from tandemlog_server.rocketmq.wire.remoting import (
    BINARY_HEADER,
    ONEWAY_FLAG,
    RESPONSE_FLAG,
    Command,
)


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


class Begun:
    """A method that needs no task, unless `declines`; its requests end when the test says so."""

    def __init__(self, *, declines: bool = False) -> None:
        self.declines = declines
        self.open: list[tuple[RemotingCall, Ended]] = []

    def begin(self, call: RemotingCall, ended: Ended) -> bool:
        if call.request.body == b"bad":
            raise RemotingRefusedError(13, "it is bad")
        if not self.declines:
            self.open.append((call, ended))
        return not self.declines

    async def serve(self, call: RemotingCall) -> Command:
        return call.request.response(remark="by a task")

    def end(self, response: Command | None = None, problem: Exception | None = None) -> None:
        call, ended = self.open.pop(0)
        ended(call, response, problem)

    def methods(self) -> dict[int, Method]:
        return {1: Method(self.serve, begin=self.begin)}


async def test_a_request_is_served_without_a_task() -> None:
    begun = Begun()
    async with served(begun.methods()) as (_, connect):
        client = await connect()
        client.send(Command(1, 1), Command(1, 2, body=b"bad"), Command(1, 3))
        (bad,) = await client.receive()
        assert (bad.opaque, bad.code, bad.remark) == (2, 13, "it is bad")
        assert all(call.task is None for call, _ in begun.open)
        begun.end(problem=KeyError("a bug"))
        begun.end(begun.open[0][0].request.response(b"done"))
        first, second = await client.receive(2)
        assert (first.opaque, first.code, second.opaque, second.body) == (1, 1, 3, b"done")


class Elsewhere:
    """Hands a request on that was refused here."""

    def __init__(self) -> None:
        self.refusals: list[RequestRefusedError | None] = []

    def serves_here(self, request: Command) -> bool:
        return True

    def goes_on(self, request: Command, refusal: RequestRefusedError) -> bool:
        return refusal.code == common_pb2.NOT_MASTER

    async def serve(
        self, call: RemotingCall, serve: Serve, refusal: RequestRefusedError | None = None
    ) -> Command | None:
        self.refusals.append(refusal)
        return await serve(call)


async def test_what_is_not_begun_or_not_the_masters_any_more_gets_a_task() -> None:
    begun, elsewhere = Begun(declines=True), Elsewhere()
    async with served(begun.methods(), master=elsewhere) as (_, connect):
        client = await connect()
        client.send(Command(1, 1))
        (answer,) = await client.receive()
        assert answer.remark == "by a task"
        begun.declines = False
        client.send(Command(1, 2), Command(1, 3))
        await until(lambda: len(begun.open) == 2)
        refusal = RequestRefusedError(common_pb2.NOT_MASTER, "it was")
        begun.end(problem=refusal)
        begun.end(problem=RequestRefusedError(common_pb2.BUSY, "not now"))
        answers = {each.opaque: each for each in await client.receive(2)}
        assert answers[2].remark == "by a task"
        assert answers[3].code == 2
    assert elsewhere.refusals == [None, refusal]


async def test_a_stop_waits_for_what_was_begun() -> None:
    begun = Begun()
    async with served(begun.methods()) as (server, connect):
        client = await connect()
        client.send(Command(1, 1))
        await until(lambda: bool(begun.open))
        stopping = asyncio.ensure_future(server.stop(WAIT_S))
        await asyncio.sleep(0)
        assert not stopping.done()
        begun.end(begun.open[0][0].request.response(b"last"))
        await stopping
        (answer,) = await client.receive()
        assert answer.body == b"last"
        assert await client.ends()


async def test_who_is_gone_is_counted_until_its_request_ends() -> None:
    begun = Begun()
    async with served(begun.methods()) as (server, connect):
        client = await connect()
        client.send(Command(1, 1))
        await until(lambda: bool(begun.open))
        client.writer.close()
        await until(lambda: not server.connections)
        begun.end()  # the door counts no call then, as `served` looks


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


async def test_a_connection_ends_with_a_reset_only_if_its_node_is_killed() -> None:
    """A client of 4.9.7 fails what it has asked at a reset, and at an orderly end waits on."""
    async with served(Methods().methods()) as (server, connect):
        client = await connect()
        client.send(Command(1, 1))
        await client.receive()
        (session,) = server._sessions
        assert session._transport is not None
        sock = session._transport.get_extra_info("socket")
        assert _resets(sock)
        session._close_now()
        assert not _resets(sock)
        assert await client.reader.read(1) == b""  # no ConnectionResetError


def _resets(sock: socket.socket) -> bool:
    on, seconds = struct.unpack("ii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, 8))
    return bool(on) and seconds == 0
