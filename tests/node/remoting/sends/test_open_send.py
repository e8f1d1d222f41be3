"""Sends without a task: begun, answered by the log, refused, parked, and given up."""

import asyncio
from pathlib import Path

import pytest

from fakes.inner_node import until
from fakes.send_rig import FakeConnection, send_rig
from tandemlog.v1 import broker_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.access.identities import NO_LIMITS
from tandemlog_server.node.access.usage import Usage
from tandemlog_server.node.puts.joint_put import Stored
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall, RemotingRefusedError
from tandemlog_server.node.remoting.sends.open_send import OpenSend
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.stored_message import StoredMessage
from tandemlog_server.rocketmq.wire.remoting import ONEWAY_FLAG, Command

STORED = Stored(broker_pb2.PUT_OK, [100], 3)


class Ends:
    """What became of requests."""

    def __init__(self) -> None:
        self.came: list[tuple[Command | None, Exception | None]] = []

    def __call__(
        self, call: RemotingCall, response: Command | None, problem: Exception | None
    ) -> None:
        self.came.append((response, problem))


def call_of(
    topic: str = "T", *, flag: int = 0, usage: Usage | None = None, queue: str = "1"
) -> RemotingCall:
    fields = {"a": "g", "b": topic, "c": "TBW102", "d": "4", "e": queue, "i": "UNIQ_KEY\x01K1\x02"}
    request = Command(RequestCode.SEND_MESSAGE_V2, 7, flag, fields=fields, body=b"x")
    usages = () if usage is None else (usage,)
    return RemotingCall(request, Caller("p", usages=usages), FakeConnection())


def send_of(call: RemotingCall, response: Command | Exception | None = None) -> OpenSend:
    def respond(send: OpenSend, stored: Stored) -> Command | None:
        if isinstance(response, Exception):
            raise response
        return response

    return OpenSend(
        call,
        StoredMessage("T", 1, {}, b"x"),
        [b"record"],
        respond,
        received_at=0.0,
        asked_queue_id=1,
        key="K1",
        durability=broker_pb2.CLUSTER,
        share="",
    )


async def test_a_send_that_was_begun_has_the_answer_of_one_that_has_a_task(tmp_path: Path) -> None:
    async with send_rig(tmp_path, "T") as rig:
        method = rig.sends.methods()[RequestCode.SEND_MESSAGE_V2]
        assert method.begin is not None
        ends = Ends()
        assert method.begin(call_of(), ends)
        await until(lambda: bool(ends.came))
        [(response, problem)] = ends.came
        assert problem is None
        by_task = await method.serve(call_of())
        assert response is not None
        assert by_task is not None
        assert response.fields == {
            **by_task.fields,
            "queueOffset": "0",
            "msgId": response.fields["msgId"],
        }
        assert (response.code, by_task.fields["queueOffset"]) == (0, "1")
        assert [each.body for each in await rig.records("T", 1)] == [b"x", b"x"]


async def test_what_may_have_to_wait_for_a_topic_is_not_begun(tmp_path: Path) -> None:
    async with send_rig(tmp_path, "T") as rig:
        ends = Ends()
        assert not rig.sends.begin(call_of("new"), ends)
        assert not rig.sends.begin(call_of("%RETRY%g"), ends)
        with pytest.raises(RemotingRefusedError, match="has 2 queues"):
            rig.sends.begin(call_of(queue="2"), ends)
        assert not ends.came


@pytest.mark.parametrize("stored", [True, False])
async def test_a_client_that_leaves_takes_no_other_send_of_its_turn_along(
    tmp_path: Path, *, stored: bool
) -> None:
    """Its task is cancelled, and before that runs again all sends of one append are answered."""
    async with send_rig(tmp_path, "T") as rig:
        gone = send_of(call_of())
        waiting = asyncio.ensure_future(rig.sends._ended(gone))
        await asyncio.sleep(0)
        waiting.cancel()
        if stored:
            gone.answer_with(STORED)
        else:
            gone.refuse(ValueError("not stored"))
        with pytest.raises(asyncio.CancelledError):
            await waiting


def test_its_bytes_count_until_it_ends() -> None:
    usage, ends, answer = Usage("it", "limits.", NO_LIMITS, 0.0), Ends(), Command(0)
    send = send_of(call_of(usage=usage), answer)
    send.begin(ends)
    assert usage.bytes == len(b"record")
    send.answer_with(STORED)
    send.answer_with(STORED)
    send.refuse(ValueError("too late"))
    assert usage.bytes == 0
    assert ends.came == [(answer, None)]
    assert send.is_unwanted()


def test_a_refusal_and_a_response_that_cannot_be_made_are_problems() -> None:
    refusal, bug, ends = ValueError("refused"), KeyError("a bug"), Ends()
    refused = send_of(call_of())
    refused.begin(ends)
    refused.refuse(refusal)
    unmade = send_of(call_of(), bug)
    unmade.begin(ends)
    unmade.answer_with(STORED)
    assert ends.came == [(None, refusal), (None, bug)]


@pytest.mark.parametrize("flag", [0, ONEWAY_FLAG])
def test_who_is_gone_waits_for_no_answer(flag: int) -> None:
    usage, ends, call = Usage("it", "limits.", NO_LIMITS, 0.0), Ends(), call_of(flag=flag)
    call.caller.usages = (usage,)
    send = send_of(call)
    send.begin(ends)
    assert not send.is_unwanted()
    assert isinstance(call.connection, FakeConnection)
    call.connection.closed = True
    assert send.is_unwanted() is (flag == 0)
    assert ends.came == ([(None, None)] if flag == 0 else [])
    assert usage.bytes == (0 if flag == 0 else send.byte_size)


def test_what_was_given_up_has_no_end() -> None:
    ends = Ends()
    send = send_of(call_of())
    send.begin(ends)
    send.give_up()
    send.answer_with(STORED)
    assert not ends.came
