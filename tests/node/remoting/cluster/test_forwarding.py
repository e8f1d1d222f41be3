"""Requests for the master that arrive elsewhere: handed on, parked, and never done twice."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import pytest

from tandemlog.v1 import common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.remoting.cluster.forwarding import Forwarder, ForwardingLimits
from tandemlog_server.node.remoting.door.remoting_call import (
    Connection,
    RemotingCall,
    RemotingRefusedError,
)
from tandemlog_server.node.remoting.door.remoting_errors import response_code_of
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.handed_on import (
    HANDED_ON,
    NOT_LEADING,
    OUTCOME_UNKNOWN,
    REPEATED,
)
from tandemlog_server.rocketmq.wire.remoting import (
    BINARY_HEADER,
    JSON_HEADER,
    ONEWAY_FLAG,
    Command,
    CommandReader,
    encode_command,
)

QUICK = ForwardingLimits(park_s=5.0, grace_s=0.02)
SEND = Command(RequestCode.SEND_MESSAGE_V2, 7, fields={"b": "t", "i": "K\x01v"}, body=b"one")


class Roles:
    """Who leads, as one node knows it."""

    def __init__(self) -> None:
        self.leading = False
        self.master = ""

    def leads(self) -> bool:
        return self.leading

    def master_address(self) -> str:
        return self.master


class Seen:
    """What an earlier copy of a send has stored, by its body."""

    def __init__(self) -> None:
        self.stored: dict[bytes, Command] = {}

    async def answer(self, request: Command) -> Command | None:
        found = self.stored.get(request.body)
        return None if found is None else replace(found, opaque=request.opaque)

    def knows(self, request: Command) -> bool:
        return True


class Door:
    """A node: its forwarder, and a method that stores bodies. `stop_at` is a body with which the
    node dies after it has stored it, `depose_at` one with which its term ends."""

    def __init__(self, recognises: Seen | None = None, limits: ForwardingLimits = QUICK) -> None:
        self.roles = Roles()
        self.forwarder = Forwarder(self.roles, recognises, limits=limits)
        self.bodies: list[bytes] = []
        self.flags: list[int] = []
        self.fields: list[dict[str, str]] = []
        self.silent = False
        self.stop_at = self.depose_at = b""
        self.refusals = 0
        self.address = ""
        self.connections = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def kill(self) -> None:
        """No connection, no new one, and nothing is done any more."""
        self.roles.leading = False
        if self._server is not None:
            self._server.close()
        for writer in self._writers:
            writer.transport.abort()

    async def stop(self) -> None:
        self.forwarder.close()
        await self.kill()

    async def ask(self, request: Command, host: str = "10.0.0.1") -> Command | None:
        """The answer to a request of a client of this node."""
        caller = Caller(f"ipv4:{host}:1")
        now = asyncio.get_running_loop().time()
        call = RemotingCall(request, caller, cast("Connection", None), now)
        return await self.forwarder.serve(call, self.store)

    async def store(self, call: RemotingCall) -> Command | None:
        request = call.request
        if self.refusals:
            self.refusals -= 1
            self.roles.leading = False
            raise RequestRefusedError(common_pb2.NOT_MASTER, "no longer the master")
        self.bodies.append(request.body)
        self.flags.append(request.flag)
        self.fields.append(dict(request.fields))
        if self.stop_at and request.body == self.stop_at:
            await self.kill()
        if self.depose_at and request.body == self.depose_at:
            self.roles.leading, self.depose_at = False, b""
            raise RequestRefusedError(common_pb2.OUTCOME_UNKNOWN, "stored, outcome unknown")
        return None if request.is_oneway else request.response(fields={"at": str(len(self.bodies))})

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        self.connections += 1
        commands, tasks = CommandReader(), set[asyncio.Task[None]]()
        while data := await reader.read(1 << 16):
            for command in [] if self.silent else commands.feed(data):
                task = asyncio.ensure_future(self._serve(command, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

    async def _serve(self, request: Command, writer: asyncio.StreamWriter) -> None:
        try:
            answer = await self.ask(request, "10.0.0.2")
        except RequestRefusedError as refusal:
            answer = request.response(code=response_code_of(refusal.code), remark=str(refusal))
        if answer is not None and not writer.is_closing():
            writer.write(encode_command(answer))


@asynccontextmanager
async def doors(count: int, seen: Seen | None = None, **limits: float) -> AsyncIterator[list[Door]]:
    nodes = [Door(seen, replace(QUICK, **cast("Any", limits))) for _ in range(count)]
    for node in nodes:
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            await node.stop()


def lead(master: Door, *others: Door) -> None:
    master.roles.leading = True
    for other in others:
        other.roles.leading, other.roles.master = False, master.address


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what happens in sockets has no event
            await asyncio.sleep(0.001)


async def test_the_master_serves_by_itself() -> None:
    async with doors(1) as (node,):
        lead(node)
        answer = await node.ask(SEND)
        assert answer is not None
        assert (answer.code, answer.opaque, node.flags) == (0, 7, [0])
        assert node.forwarder.handed_on_total == 0


@pytest.mark.parametrize("header", [JSON_HEADER, BINARY_HEADER])
async def test_a_slave_hands_on_many_at_once_over_one_connection(header: int) -> None:
    async with doors(2) as (master, slave):
        lead(master, slave)
        requests = [
            replace(SEND, opaque=number % 3, body=b"%d" % number, header_format=header)
            for number in range(200)
        ]
        answers = await asyncio.gather(*(slave.ask(each) for each in requests))
        for request, answer in zip(requests, answers, strict=True):
            assert answer is not None
            assert (answer.opaque, answer.header_format) == (request.opaque, header)
            assert master.bodies[int(answer.fields["at"]) - 1] == request.body
        assert master.bodies == [each.body for each in requests]
        assert master.connections == 1
        assert set(master.flags) == {HANDED_ON}
        assert master.fields[0] == {"b": "t", "i": "K\x01v"}
        assert slave.forwarder.parked == 0


async def test_oneway_requests_are_handed_on_without_an_answer() -> None:
    async with doors(2) as (master, slave):
        lead(master, slave)
        assert await slave.ask(replace(SEND, flag=ONEWAY_FLAG)) is None
        await until(lambda: bool(master.bodies))


async def test_requests_are_parked_until_there_is_a_master() -> None:
    async with doors(2) as (one, other):
        asked = [
            asyncio.ensure_future(other.ask(replace(SEND, body=b"%d" % number)))
            for number in range(20)
        ]
        await until(lambda: other.forwarder.parked == 20)
        lead(one, other)
        assert all(each is not None and each.code == 0 for each in await asyncio.gather(*asked))
        assert one.bodies == [b"%d" % number for number in range(20)]


async def test_a_node_that_becomes_the_master_serves_what_it_has_parked() -> None:
    async with doors(1) as (node,):
        asked = asyncio.ensure_future(node.ask(SEND))
        await until(lambda: node.forwarder.parked == 1)
        node.roles.leading = True
        answer = await asked
        assert answer is not None
        assert (answer.code, node.bodies, node.flags) == (0, [b"one"], [0])


async def test_a_master_that_just_lost_its_role_hands_on() -> None:
    async with doors(2) as (old, new):
        lead(old)
        old.refusals = 1
        asked = asyncio.ensure_future(old.ask(SEND))
        await until(lambda: old.refusals == 0)
        lead(new, old)
        answer = await asked
        assert answer is not None
        assert (answer.code, old.bodies, new.bodies) == (0, [], [b"one"])


async def test_two_nodes_that_take_each_other_for_the_master_do_not_send_in_circles() -> None:
    async with doors(2) as (one, other):
        one.roles.master, other.roles.master = other.address, one.address
        answer = await one.ask(replace(SEND, flag=HANDED_ON))
        assert answer is not None
        assert answer.code == NOT_LEADING
        asked = asyncio.ensure_future(one.ask(SEND))
        await until(lambda: one.forwarder.handed_on_total >= 2)
        assert other.forwarder.handed_on_total == 0
        lead(other, one)
        answer = await asked
        assert answer is not None
        assert (answer.code, other.bodies) == (0, [b"one"])


async def test_a_master_that_cannot_be_reached_takes_nothing_from_a_request() -> None:
    async with doors(3) as (dead, new, slave):
        await dead.kill()
        slave.roles.master = dead.address
        asked = asyncio.ensure_future(slave.ask(replace(SEND, code=RequestCode.SEND_REPLY_MESSAGE)))
        await until(lambda: slave.forwarder.parked == 1)
        lead(new, slave)
        answer = await asked
        assert answer is not None
        assert (answer.code, new.bodies, new.flags) == (0, [b"one"], [HANDED_ON])


async def test_a_send_is_not_repeated_where_it_would_not_be_recognised() -> None:
    async with doors(3) as (master, new, slave):
        lead(master, slave)
        master.stop_at = b"one"
        answer = await slave.ask(SEND)
        lead(new, slave)
        assert answer is not None
        assert (answer.code, answer.opaque) == (OUTCOME_UNKNOWN, 7)
        assert "may or may not" in answer.remark
        assert (master.bodies, new.bodies) == ([b"one"], [])


async def test_a_message_that_is_sent_back_is_left_to_the_consumer() -> None:
    async with doors(2) as (master, slave):
        lead(master, slave)
        master.stop_at = b"one"
        answer = await slave.ask(replace(SEND, code=RequestCode.CONSUMER_SEND_MSG_BACK))
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR


async def test_what_may_be_done_twice_is_asked_again() -> None:
    async with doors(3) as (master, new, slave):
        lead(master, slave)
        master.stop_at = b"one"
        commit = replace(SEND, code=RequestCode.UPDATE_CONSUMER_OFFSET)
        asked = asyncio.ensure_future(slave.ask(commit))
        await until(lambda: bool(master.bodies))
        lead(new, slave)
        answer = await asked
        assert answer is not None
        assert (answer.code, master.bodies, new.bodies) == (0, [b"one"], [b"one"])


@pytest.mark.parametrize("stored", [True, False])
async def test_a_repeated_send_is_stored_once(stored: bool) -> None:
    seen = Seen()
    async with doors(3, seen) as (master, new, slave):
        lead(master, slave)
        master.stop_at = b"one"
        if stored:  # replicated before the master died
            seen.stored[b"one"] = SEND.response(fields={"at": "1"})
        asked = asyncio.ensure_future(slave.ask(SEND))
        await until(lambda: bool(master.bodies))
        lead(new, slave)
        answer = await asked
        assert answer is not None
        assert (answer.code, answer.opaque, answer.fields["at"]) == (0, 7, "1")
        assert new.bodies == ([] if stored else [b"one"])
        assert new.flags == ([] if stored else [HANDED_ON | REPEATED])


async def test_a_slave_that_is_elected_looks_for_what_the_old_master_stored() -> None:
    seen = Seen()
    async with doors(2, seen) as (master, slave):
        lead(master, slave)
        master.stop_at = b"one"
        asked = asyncio.ensure_future(slave.ask(SEND))
        await until(lambda: bool(master.bodies))
        seen.stored[b"one"] = SEND.response(fields={"at": "9"})
        slave.roles.leading = True
        answer = await asked
        assert answer is not None
        assert (answer.fields["at"], slave.bodies) == ("9", [])


@pytest.mark.parametrize("handed_on", [False, True])
async def test_what_a_term_leaves_open_is_asked_of_the_next_master(handed_on: bool) -> None:
    seen = Seen()
    async with doors(3, seen) as (old, new, slave):
        lead(old, slave)
        old.depose_at = b"one"
        asking = asyncio.create_task((slave if handed_on else old).ask(SEND))
        await until(lambda: old.bodies == [b"one"])
        seen.stored[b"one"] = SEND.response(fields={"at": "first"})
        new.roles.leading = True
        for each in (old, slave):
            each.roles.master = new.address
        answer = await asking
        assert answer is not None
        assert answer.fields == {"at": "first"}
        assert new.bodies == []


async def test_what_a_term_leaves_open_and_no_one_recognises_is_for_the_program() -> None:
    async with doors(2) as (old, slave):
        lead(old, slave)
        old.depose_at = b"one"
        answer = await slave.ask(SEND)
        assert answer is not None
        assert answer.code == OUTCOME_UNKNOWN
        old.roles.leading, old.depose_at = True, b"one"
        with pytest.raises(RequestRefusedError, match="outcome unknown"):
            await old.ask(SEND)


async def test_a_master_that_was_stopped_is_given_up_when_another_leads() -> None:
    seen = Seen()
    async with doors(3, seen) as (master, new, slave):
        lead(master, slave)
        master.silent = True
        asked = asyncio.ensure_future(slave.ask(SEND))
        await until(lambda: master.connections == 1)
        lead(new, slave)
        answer = await asked
        assert answer is not None
        assert (answer.code, new.bodies) == (0, [b"one"])


async def test_a_request_waits_no_longer_than_its_client() -> None:
    async with doors(1, park_s=0.02) as (node,):
        with pytest.raises(RemotingRefusedError, match="tandemlog check") as refusal:
            await node.ask(SEND)
        assert refusal.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert node.forwarder.parked == 0


@pytest.mark.parametrize("limits", [{"requests": 8}, {"bytes": 8 * 1027}])
async def test_what_is_parked_is_bounded_and_one_host_leaves_room_for_others(
    limits: dict[str, int],
) -> None:
    async with doors(2, None, **limits) as (node, master):
        asked = [asyncio.ensure_future(node.ask(SEND)) for _ in range(20)]
        await until(lambda: sum(each.done() for each in asked) == 14)
        refused = [each.exception() for each in asked if each.done()]
        assert all(isinstance(each, RemotingRefusedError) for each in refused)
        assert {cast("RemotingRefusedError", each).code for each in refused} == {
            ResponseCode.SYSTEM_BUSY
        }
        other = asyncio.ensure_future(node.ask(SEND, "10.0.0.9"))
        await until(lambda: node.forwarder.parked == 7)
        lead(master, node)
        assert (await other) is not None
        assert len(master.bodies) == 7
        again = await node.ask(SEND)
        assert again is not None


async def test_a_node_that_stops_answers_what_it_has_parked() -> None:
    async with doors(1) as (node,):
        asked = asyncio.ensure_future(node.ask(SEND))
        await until(lambda: node.forwarder.parked == 1)
        node.forwarder.close()
        with pytest.raises(RemotingRefusedError) as refusal:
            await asked
        assert refusal.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
        with pytest.raises(RemotingRefusedError, match="stopping"):
            await node.ask(SEND)


async def test_the_connection_lends_its_rights_to_no_caller() -> None:
    async with doors(2) as (master, slave):
        lead(master, slave)
        caller = Caller("ipv4:10.0.0.1:1", who=cast("Any", object()))
        now = asyncio.get_running_loop().time()
        call = RemotingCall(SEND, caller, cast("Connection", None), now)
        serve: Callable[[RemotingCall], Awaitable[Command | None]] = slave.store
        with pytest.raises(RemotingRefusedError, match="certificate") as refusal:
            await slave.forwarder.serve(call, serve)
        assert refusal.value.code == ResponseCode.NO_PERMISSION
        signed = replace(SEND, fields={**SEND.fields, "AccessKey": "k"})
        answer = await slave.forwarder.serve(replace(call, request=signed), serve)
        assert answer is not None
        assert master.fields[-1]["AccessKey"] == "k"
