"""Sends that are joined, parked until the master may take them, and refused in the end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.error_status import RequestRefusedError
from tandemlog_server.node.puts.ack_stats import AckStats
from tandemlog_server.node.puts.joint_put import JointPut, SendPut
from tandemlog_server.node.remoting.sends.joint_sends import (
    MOST_JOINT_BYTES,
    MOST_JOINT_REQUESTS,
    JointSends,
)


@dataclass
class FakePump:
    """Takes what it is given unless it has a refusal."""

    refusal: RequestRefusedError | None = None
    taken: list[JointPut] = field(default_factory=list)
    stats: AckStats = field(default_factory=AckStats)
    waiting: list[Callable[[], None]] = field(default_factory=list)

    def admit(self, byte_size: int, durability: int) -> None:
        if self.refusal is not None:
            raise self.refusal

    def enqueue(self, pending: JointPut) -> None:
        self.taken.append(pending)

    def after_appends(self, call: Callable[[], None]) -> None:
        self.waiting.append(call)

    def append(self) -> None:
        """All that was taken is in the log."""
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()

    @property
    def bodies(self) -> list[list[bytes]]:
        return [[send.records[0] for send in put._sends] for put in self.taken]


def joint_sends(pump: FakePump, **how: Any) -> JointSends:
    any_pump: Any = pump
    any_role: Any = None
    return JointSends(any_pump, any_role, timeout_s=1, **{"most_parked_bytes": 10, **how})


def put(record: bytes = b"x", **how: Any) -> SendPut:
    loop = asyncio.get_running_loop()
    return SendPut("T", 0, [record], Caller("p"), loop.create_future(), loop.time(), **how)


async def turn() -> None:
    """Until what was added is on its way: the turn of the loop in which it came, and one more."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def refusal(code: int) -> RequestRefusedError:
    return RequestRefusedError(common_pb2.ErrorCode.ValueType(code), "not now")


async def test_what_comes_in_one_turn_is_joined() -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    for record in (b"a", b"b"):
        joint.add(put(record))
    await turn()
    pump.append()
    joint.add(put(b"c"))
    await turn()
    assert pump.bodies == [[b"a", b"b"], [b"c"]]


async def test_what_comes_in_the_turn_after_is_joined_too() -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    joint.add(put(b"a"))
    await asyncio.sleep(0)
    joint.add(put(b"b"))
    await asyncio.sleep(0)
    assert pump.bodies == [[b"a", b"b"]]


async def test_what_comes_during_an_append_is_joined_after_it() -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    joint.add(put(b"a"))
    await turn()
    for record in (b"b", b"c"):
        joint.add(put(record))
        await turn()
    assert pump.bodies == [[b"a"]]
    pump.append()
    assert pump.bodies == [[b"a"], [b"b", b"c"]]
    pump.append()
    joint.add(put(b"d"))
    await turn()
    assert pump.bodies[2:] == [[b"d"]]


@pytest.mark.parametrize(
    "records", [[b"x"] * MOST_JOINT_REQUESTS, [bytes(MOST_JOINT_BYTES - 1), b"x"]]
)
async def test_what_would_fill_an_append_is_not_kept_back(records: list[bytes]) -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    joint.add(put())
    await turn()
    for record in records[:-1]:
        joint.add(put(record))
    await turn()
    assert len(pump.taken) == 1
    joint.add(put(records[-1]))
    await turn()
    assert pump.bodies[1:] == [records]


async def test_what_is_kept_back_at_the_end_is_appended() -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    joint.add(put(b"a"))
    await turn()
    joint.add(put(b"b"))
    joint.close()
    assert pump.bodies == [[b"a"], [b"b"]]
    pump.append()
    joint.add(put(b"c"))
    await turn()
    assert len(pump.taken) == 2


async def test_shares_and_durabilities_stay_apart() -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    for record, how in (
        (b"a", {}),
        (b"b", {"share": "host"}),
        (b"c", {"durability": broker_pb2.NO_WAIT}),
        (b"d", {}),
    ):
        joint.add(put(record, **how))
    await turn()
    assert pump.bodies == [[b"a", b"d"], [b"b"], [b"c"]]


@pytest.mark.parametrize(
    ("records", "pieces"),
    [
        ([b"x"] * (MOST_JOINT_REQUESTS + 1), [MOST_JOINT_REQUESTS, 1]),
        ([bytes(MOST_JOINT_BYTES - 1), b"x", b"y"], [2, 1]),
        ([b"x", bytes(2 * MOST_JOINT_BYTES), b"y"], [1, 1, 1]),
    ],
)
async def test_what_is_joined_has_a_bound(records: list[bytes], pieces: list[int]) -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    for record in records:
        joint.add(put(record))
    await turn()
    assert [len(each) for each in pump.bodies] == pieces


@pytest.mark.parametrize("code", [common_pb2.NOT_IN_SYNC, common_pb2.BUSY])
async def test_what_cannot_be_taken_yet_is_parked_in_order(code: int) -> None:
    pump = FakePump(refusal(code))
    joint = joint_sends(pump)
    joint.add(put(b"a"))
    await turn()
    pump.refusal = None
    joint.add(put(b"b"))
    await turn()
    assert joint.parked == 2
    joint._try_again()
    assert pump.bodies == [[b"a", b"b"]]
    assert joint.parked == 0
    joint.close()


async def test_who_has_no_patience_left_is_refused() -> None:
    pump = FakePump(refusal(common_pb2.NOT_IN_SYNC))
    joint = joint_sends(pump, park_s=0)
    send = put()
    joint.add(send)
    with pytest.raises(RequestRefusedError, match="not now"):
        await send.answer
    gone = put()
    gone.answer.cancel()
    joint.add(gone)
    await turn()
    assert joint.parked == 0


async def test_what_is_parked_has_a_bound() -> None:
    joint = joint_sends(FakePump(refusal(common_pb2.NOT_IN_SYNC)))
    first, second = put(bytes(11)), put()
    joint.add(first)
    joint.add(second)
    await turn()
    with pytest.raises(RequestRefusedError, match="limit is 10"):
        await second.answer
    assert joint.parked == 1
    joint.close()
    with pytest.raises(RequestRefusedError, match="stopping"):
        await first.answer


async def test_another_refusal_is_the_answer() -> None:
    joint = joint_sends(FakePump(refusal(common_pb2.NOT_MASTER)))
    send = put()
    joint.add(send)
    with pytest.raises(RequestRefusedError) as refused:
        await send.answer
    assert refused.value.code == common_pb2.NOT_MASTER


async def test_after_the_end_nothing_is_taken() -> None:
    pump = FakePump()
    joint = joint_sends(pump)
    send = put()
    joint.add(send)
    joint.close()
    with pytest.raises(RequestRefusedError, match="stopping"):
        await send.answer
    assert not pump.taken
