"""The very same send is recognised, and a later one with the same key is not."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import Bench
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.puts.confirm_waiters import ConfirmWaiters
from tandemlog_server.node.remoting.sends.repeated_sends import RepeatedSends
from tandemlog_server.node.roles.role import CurrentRole, NodeRole
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.wire.remoting import Command


class Term(NodeRole):
    def epoch(self) -> int | None:
        return 3

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.UNKNOWN_ERROR, ""

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        return []

    def put_fault(self) -> str:
        return ""

    def read_fault(self) -> str:
        return ""


def prepared(topic: str, *, settled: bool = True) -> tuple[RepeatedSends, Command, Bench]:
    """A store with one message, and the send that stored it."""
    bench = Bench(topics=("T", topic))
    queue_id = 1 if topic == "T" else 0
    waits = b"" if topic == "T" else b"REAL_TOPIC\x01T\x02REAL_QID\x011\x02DELAY\x011\x02"
    properties = b"UNIQ_KEY\x01K1\x02TRACE_ON\x01true\x02" + waits
    put = Put(topic, queue_id, b"one", properties)
    bench.store.put(batch_of([put]))
    if settled:
        bench.settle()
    loop = asyncio.get_running_loop()
    role: NodeRole = Term()
    waiters = ConfirmWaiters((bench.store.confirmed,), role.epoch, loop)
    repeated = RepeatedSends(bench.store, CurrentRole(role), waiters, lambda: 0.05)
    born = decode_record(put.record()).born_timestamp
    fields = {"b": "T", "e": "1", "g": str(born), "i": "A\x01b\x02UNIQ_KEY\x01K1\x02", "m": "false"}
    request = Command(RequestCode.SEND_MESSAGE_V2, 5, fields=fields, body=b"one")
    return repeated, request, bench


@pytest.mark.parametrize("topic", ["T", "SCHEDULE_TOPIC_XXXX"])
async def test_the_same_send_gets_the_answer_of_its_first_copy(topic: str) -> None:
    repeated, request, bench = prepared(topic)
    answer = await repeated.answer(request)
    record = bench.store.reader.record_at(0)
    assert answer is not None
    assert answer.opaque == 5
    assert await repeated.answer(replace(request, fields={**request.fields, "e": "2"})) is None
    assert await repeated.answer(replace(request, fields={**request.fields, "e": "-1"})) is not None
    assert answer.fields == {
        "msgId": decode_record(record).msg_id,
        "queueId": "1",
        "queueOffset": "0",
        "transactionId": "K1",
        "TRACE_ON": "true",
    }


async def test_another_send_with_the_same_key_is_another_message() -> None:
    repeated, request, _ = prepared("T")
    for changed in (
        replace(request, body=b"two"),
        replace(request, fields={**request.fields, "g": "17"}),
        replace(request, fields={**request.fields, "b": "U"}),
        # sent twice in one millisecond, to two queues in turn: both were acknowledged
        replace(request, fields={**request.fields, "e": "2"}),
        replace(request, fields={**request.fields, "i": "UNIQ_KEY\x01K2\x02"}),
        replace(request, fields={**request.fields, "i": ""}),
        replace(request, fields={**request.fields, "m": "true"}),
        replace(request, code=RequestCode.SEND_BATCH_MESSAGE),
    ):
        assert await repeated.answer(changed) is None
    assert repeated.knows(request)
    assert not repeated.knows(replace(request, fields={**request.fields, "i": "A\x01b\x02"}))


async def test_a_copy_that_is_not_confirmed_yet_is_waited_for() -> None:
    """As at the begin of a term: the last master could not confirm the end of its log any more."""
    repeated, request, bench = prepared("T", settled=False)
    answer = asyncio.ensure_future(repeated.answer(request))
    await asyncio.sleep(0)
    bench.settle()
    again = await answer
    assert again is not None
    assert again.fields["queueOffset"] == "0"


async def test_a_copy_that_may_be_there_is_not_stored_once_more() -> None:
    repeated, request, _ = prepared("T", settled=False)
    with pytest.raises(RequestRefusedError, match="a first copy of the message may") as refused:
        await repeated.answer(request)
    assert refused.value.code == common_pb2.OUTCOME_UNKNOWN
