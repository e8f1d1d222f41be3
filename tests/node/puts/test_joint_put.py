"""Requests that are appended together: their places, and an outcome for each."""

import asyncio
from typing import Any

import numpy as np
import pytest

from tandemlog.format.record.batch import AppendSegment
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.puts.ack_stats import AckStats
from tandemlog_server.node.puts.confirm_waiters import Outcome
from tandemlog_server.node.puts.joint_put import JointPut, SendPut, Stored, joined
from tandemlog_server.storage.puts.put_path import PutResult


class FakeRole:
    def __init__(self, epoch: int | None = 3) -> None:
        self.epoch_of = epoch

    @property
    def role(self) -> "FakeRole":
        return self

    def epoch(self) -> int | None:
        return self.epoch_of

    def unconfirmed(self, end_offset: int) -> tuple[int, str]:
        return broker_pb2.FLUSH_SLAVE_TIMEOUT, "slaves are silent"

    def no_master(self, what: str) -> RequestRefusedError:
        return RequestRefusedError(common_pb2.NOT_MASTER, what)


class FakeStore:
    """Two segments: the first two records, and the rest."""

    def put(self, batch: Any, *, holder: str) -> PutResult:
        first = AppendSegment(0, 2, 100, np.array([5, 40]), 1)
        rest = AppendSegment(2, batch.count - 2, 1000, np.array([6, 41]), 1)
        return PutResult([first, rest], 2000, 7)


class Waiters:
    def __init__(self) -> None:
        self.added: list[Any] = []

    def add(self, waiter: Any) -> None:
        self.added.append(waiter)


def send(topic: str, *records: bytes, durability: int = broker_pb2.CLUSTER) -> SendPut:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Stored] = loop.create_future()
    return SendPut(topic, 0, records, Caller("p"), answer, loop.time(), durability=durability)


def appended(*sends: SendPut) -> tuple[JointPut, Waiters, bool]:
    current: Any = FakeRole()
    put = JointPut(sends, current, AckStats(), timeout_s=5)
    store: Any = FakeStore()
    waiters: Any = Waiters()
    put.result = put.append(store)
    put.end_offset = put.result.end_offset
    return put, waiters, put.stored(waiters)


async def test_a_batch_has_a_table_of_queues() -> None:
    batch, entries = joined([send("a", b"1"), send("b", b"22", b"333"), send("a", b"4")])
    assert bytes(batch.records) == b"1223334"
    assert batch.sizes.tolist() == [1, 2, 3, 1]
    assert entries == batch.queue_indexes.tolist() == [0, 1, 1, 0]
    assert batch.topics == ("a", "b")


async def test_each_request_hears_its_places() -> None:
    one, two, three = send("a", b"1"), send("b", b"22", b"333"), send("a", b"4")
    put, waiters, waits = appended(one, two, three)
    assert waits
    assert waiters.added == [put]
    assert (put.requests, put.byte_size) == (3, 7)
    put.resolve(Outcome.CONFIRMED, None)
    assert one.answer.result() == (broker_pb2.PUT_OK, [100], 5)
    # records are one byte longer in the log
    assert two.answer.result() == (broker_pb2.PUT_OK, [102, 1000], 40)
    assert three.answer.result() == (broker_pb2.PUT_OK, [1004], 6)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.TIMED_OUT, broker_pb2.FLUSH_SLAVE_TIMEOUT),
        (Outcome.FAILED, broker_pb2.FLUSH_DISK_TIMEOUT),
    ],
)
async def test_what_is_not_confirmed_is_stored_all_the_same(outcome: Outcome, status: int) -> None:
    one, two = send("a", b"1"), send("b", b"2")
    put, _, _ = appended(one, two)
    put.resolve(outcome, None)
    assert one.answer.result().status == two.answer.result().status == status


async def test_a_message_that_waits_for_nothing_is_answered_at_once() -> None:
    one, two = (send(topic, b"1", durability=broker_pb2.NO_WAIT) for topic in "ab")
    _, waiters, waits = appended(one, two)
    assert not waits
    assert not waiters.added
    assert one.answer.result().status == broker_pb2.PUT_OK


async def test_after_a_change_of_master_the_outcome_is_not_known() -> None:
    one, two = send("a", b"1"), send("b", b"2")
    put, _, _ = appended(one, two)
    put.resolve(Outcome.FENCED, None)
    with pytest.raises(RequestRefusedError, match="outcome unknown"):
        await one.answer
    assert isinstance(two.answer.exception(), RequestRefusedError)


@pytest.mark.parametrize(
    ("epoch", "code", "heard"),
    [
        (None, common_pb2.SHUTTING_DOWN, common_pb2.NOT_MASTER),
        (3, common_pb2.SHUTTING_DOWN, common_pb2.SHUTTING_DOWN),
        (None, common_pb2.DISK_FULL, common_pb2.DISK_FULL),
    ],
)
async def test_a_refusal_says_whether_another_node_may_take_it(
    epoch: int | None, code: Any, heard: int
) -> None:
    one, gone = send("a", b"1"), send("a", b"2")
    gone.answer.cancel()
    role: Any = FakeRole(epoch)
    put = JointPut([one, gone], role, AckStats(), timeout_s=5)
    put.refuse_with(common_pb2.Error(code=code, message="no"))
    refusal = one.answer.exception()
    assert isinstance(refusal, RequestRefusedError)
    assert refusal.code == heard


async def test_a_batch_that_is_refused_has_a_part_for_each_request() -> None:
    role: Any = FakeRole()
    put = JointPut([send("a", b"1"), send("b", b"2", b"3")], role, AckStats(), timeout_s=5)
    assert [(each.requests, each.byte_size) for each in put.parts()] == [(1, 1), (1, 2)]
    assert not list(put.parts()[0].parts())
