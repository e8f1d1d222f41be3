"""Batches: which are framed in the loop and which in a thread, and which no node takes."""

import struct
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from fakes.popping_node import TOPIC, connected, popping_node
from fakes.remoting_calls import call_of
from fakes.send_rig import SendRig, send_rig
from tandemlog.format.record.record import Record
from tandemlog_server.node.remoting.door.remoting_call import RemotingCall, RemotingRefusedError
from tandemlog_server.node.remoting.sends import batch_frames, send_methods
from tandemlog_server.node.remoting.sends.batch_frames import (
    FEW_BYTES,
    FEW_MESSAGES,
    FEW_PROPERTIES,
    is_large,
)
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.send_requests import BatchedMessage, split_batch
from tandemlog_server.rocketmq.wire.remoting import Command

MOST_BYTES = 100_000
"""Of a message on the nodes of these tests."""
KEY = b"UNIQ_KEY\x01A\x02"


def member(text: bytes, properties: bytes = KEY) -> bytes:
    size = 22 + len(text) + len(properties)
    head = struct.pack(">iiiii", size, 0, 0, 0, len(text))
    return head + text + struct.pack(">h", len(properties)) + properties


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[SendRig]:
    async with send_rig(tmp_path, "T") as rig:
        yield rig


@pytest.fixture
def framed_in(monkeypatch: pytest.MonkeyPatch) -> list[threading.Thread]:
    """The threads in which batches are framed, as they come."""
    threads: list[threading.Thread] = []
    real = batch_frames.batch_records

    def noted(*arguments: object, **more: object) -> list[bytes]:
        threads.append(threading.current_thread())
        return real(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_frames, "batch_records", noted)
    return threads


def test_a_batch_is_large_by_its_bytes_its_messages_or_its_properties() -> None:
    assert not is_large(member(b"x" * 1_000) * 32)
    assert not is_large(member(b"x") * FEW_MESSAGES)
    assert is_large(member(b"x") * (FEW_MESSAGES + 1))
    assert is_large(member(b"x" * FEW_BYTES))
    assert not is_large(member(b"", b"\x02" * (FEW_PROPERTIES - 1)))
    assert is_large(member(b"", b"\x02" * 20_000))


async def test_a_batch_is_no_larger_than_a_message_may_be(tmp_path: Path) -> None:
    async with popping_node(tmp_path / "n0") as node, connected(node) as popper:
        header = {"a": "p", "b": TOPIC, "e": 0, "g": 1, "m": "true"}
        many = member(b"", b"DELAY\x02" + b"\x02" * 20_000)
        refused = await popper.ask(RequestCode.SEND_BATCH_MESSAGE, many * 10, **header)
        assert refused.code == ResponseCode.MESSAGE_ILLEGAL
        assert f"the limit is {MOST_BYTES} (store.max_message_size)" in refused.remark
        whole = member(b"x" * (MOST_BYTES - len(member(b""))))
        assert len(whole) == MOST_BYTES
        stored = await popper.ask(RequestCode.SEND_BATCH_MESSAGE, whole, **header)
        assert stored.code == ResponseCode.SUCCESS, stored.remark


@pytest.mark.parametrize("properties", [KEY, b"DELAY\x012\x02" + KEY])
async def test_a_large_batch_is_framed_in_a_thread(
    rig: SendRig, framed_in: list[threading.Thread], properties: bytes
) -> None:
    texts = [b"%d" % number for number in range(FEW_MESSAGES + 1)]
    body = b"".join(member(each, properties) for each in texts)
    fields = {"b": "T", "e": "1", "m": "true"}
    answer = await rig.ask(RequestCode.SEND_BATCH_MESSAGE, fields, body)
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    [thread] = framed_in
    assert thread is not threading.current_thread()
    records = await rig.records("T", 1)
    assert [each.body for each in records] == texts
    assert {each.properties_raw for each in records} == {KEY}


async def test_only_a_small_batch_is_begun_without_a_task(
    rig: SendRig, framed_in: list[threading.Thread]
) -> None:
    def begun(messages: int) -> bool:
        call = call_of(RequestCode.SEND_BATCH_MESSAGE, member(b"x") * messages, b="T", m="true")
        return rig.sends.begin(call, ended)

    def ended(_: RemotingCall, response: Command | None, problem: Exception | None) -> None:
        assert problem is None

    assert begun(FEW_MESSAGES)
    assert framed_in == [threading.current_thread()]
    assert not begun(FEW_MESSAGES + 1)
    assert len(framed_in) == 1


async def test_what_is_wrong_with_a_large_batch_is_said(rig: SendRig) -> None:
    body = member(b"x") * FEW_MESSAGES * 2 + b"rest"
    with pytest.raises(RemotingRefusedError, match="4 bytes are left") as refusal:
        await rig.ask(RequestCode.SEND_BATCH_MESSAGE, {"b": "T", "m": "true"}, body)
    assert refusal.value.code == ResponseCode.MESSAGE_ILLEGAL


class NewlyElected:
    """SecondAttempts of a node that has stored none of what is sent."""

    def looks(self) -> bool:
        return True

    async def first_copies(self, *_: object) -> Sequence[Record]:
        return ()


async def test_after_an_election_a_large_batch_is_split_in_a_thread(
    rig: SendRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def noted(body: bytes) -> list[BatchedMessage]:
        threads.append(threading.current_thread())
        return split_batch(body)

    monkeypatch.setattr(send_methods, "split_batch", noted)
    rig.sends._attempts = NewlyElected()  # type: ignore[assignment]
    for messages in (FEW_MESSAGES, FEW_MESSAGES + 1):
        fields = {"b": "T", "e": "0", "m": "true"}
        await rig.ask(RequestCode.SEND_BATCH_MESSAGE, fields, member(b"x") * messages)
    own = threading.current_thread()
    assert [each is own for each in threads] == [True, False]
    assert len(await rig.records("T")) == 2 * FEW_MESSAGES + 1
