"""Headers and bodies of the requests of POP, read; and the texts of its answers."""

import base64
import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog_server.rocketmq.clients.pop import pop_requests
from tandemlog_server.rocketmq.clients.pop.pop_requests import (
    ALL_QUEUES,
    BatchAck,
    PoppedQueue,
    pop_answer,
    queue_fields,
    read_batch_ack,
    read_place,
    read_pop,
    read_receipt,
    subscription_of,
)

POP = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "-1",
    "maxMsgNums": "32",
    "invisibleTime": "60000",
    "pollTime": "15000",
    "bornTime": "1700000000000",
    "initMode": "0",
    "expType": "TAG",
    "exp": "a || b",
    "order": "false",
}
ACK = {
    "consumerGroup": "g",
    "topic": "t",
    "queueId": "2",
    "offset": "9",
    "extraInfo": "7 1700000000000 60000 3 0 b 2 9",
}
PART = {"c": "g", "t": "t", "r": "0", "so": 7, "q": 2, "rq": 3, "pt": 1, "it": 2}


def bits(*offsets: int) -> str:
    number = sum(1 << each for each in offsets)
    return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "little")).decode()


def test_a_pop_is_read() -> None:
    asked = read_pop(POP)
    assert (asked.group, asked.topic, asked.queue_id) == ("g", "t", ALL_QUEUES)
    assert (asked.max_messages, asked.invisible_ms, asked.wait_ms) == (32, 60_000, 15_000)
    assert (asked.from_first, asked.in_order, asked.attempt_id) == (True, False, "")
    assert read_pop({**POP, "order": "true", "initMode": "1"}).in_order
    assert not read_pop({**POP, "initMode": "1"}).from_first
    assert read_pop({**POP, "queueId": "-7"}).queue_id == ALL_QUEUES
    assert read_pop({**POP, "pollTime": "-7"}).wait_ms == 0


@pytest.mark.parametrize(
    "change",
    [
        {"topic": ""},
        {"maxMsgNums": "many"},
        {"invisibleTime": ""},
        {"queueId": str(1 << 40)},
        {"attemptId": "a" * 256},
    ],
)
def test_a_pop_that_cannot_be_read_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(FormatError):
        read_pop({**POP, **change})


def test_a_place_is_read() -> None:
    asked = read_place({"consumerGroup": "g", "topic": "t", "queueId": "3", "pollTime": "100"})
    assert (asked.queue_id, asked.max_messages, asked.wait_ms) == (3, 1, 100)


def test_an_acknowledgement_is_of_the_message_of_its_receipt() -> None:
    asked = read_receipt({**ACK, "invisibleTime": "10000"})
    assert (asked.queue_id, asked.queue_offset, asked.invisible_ms) == (2, 9, 10_000)
    assert asked.receipt.delivery == 3
    for change in ({"offset": "8"}, {"queueId": "1"}):
        with pytest.raises(FormatError, match="its extraInfo about offset 9 of queue 2"):
            read_receipt({**ACK, **change})


def test_acknowledgements_by_bits_are_read() -> None:
    body = json.dumps({"brokerName": "b", "acks": [{**PART, "b": bits(0, 2, 17)}]}).encode()
    assert read_batch_ack(body) == [BatchAck("g", "t", 2, (7, 9, 24), 3)]
    long_names = {
        "consumerGroup": "g",
        "topic": "t",
        "startOffset": 1,
        "queueId": 0,
        "reviveQueueId": 5,
        "bitSet": bits(0),
    }
    body = json.dumps({"acks": [long_names]}).encode()
    assert read_batch_ack(body) == [BatchAck("g", "t", 0, (1,), 5)]


@pytest.mark.parametrize(
    "acks",
    [
        None,
        [7],
        [{**PART}],
        [{**PART, "b": "no base64!"}],
        [{**PART, "b": base64.b64encode(bytes(9_000)).decode()}],
        [{**PART, "b": [1]}],
        [{**PART, "b": bits(0), "r": "1"}],
        [{**PART, "b": bits(0), "so": -1}],
        [{**PART, "b": bits(0), "rq": True}],
        [{**PART, "b": bits(0), "t": 5}],
        [{**PART, "b": bits(0), "c": ""}],
        [{**PART, "b": bits(*range(8_000))}] * 2,
        [{**PART, "b": bits(0)}] * 2_000,
    ],
)
def test_what_is_no_batch_is_refused(acks: object) -> None:
    with pytest.raises(FormatError):
        read_batch_ack(json.dumps({"acks": acks}).encode())


def test_a_request_that_names_millions_is_refused_before_they_are_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """90 sets of 65,536 bits fit into one request."""
    made: list[bytes] = []
    real = pop_requests._bits

    def counted(data: bytes) -> Iterable[int]:
        made.append(data)
        return real(data)

    monkeypatch.setattr(pop_requests, "_bits", counted)
    full = {**PART, "b": base64.b64encode(b"\xff" * 8_192).decode()}
    with pytest.raises(FormatError, match="names 65536 messages or more, the most is 10000"):
        read_batch_ack(json.dumps({"acks": [full] * 90}).encode())
    assert made == []


@given(st.sets(st.integers(0, 2_000), max_size=50), st.integers(0, 1 << 40))
def test_bits_are_offsets_from_the_start(offsets: set[int], start: int) -> None:
    body = json.dumps({"acks": [{**PART, "so": start, "b": bits(*offsets)}]}).encode()
    [found] = read_batch_ack(body)
    assert list(found.queue_offsets) == [start + each for each in sorted(offsets)]


def test_the_answer_names_each_queue_once() -> None:
    queues = [PoppedQueue(0, [5, 7], [0, 1]), PoppedQueue(3, [2], [4])]
    assert queue_fields(queues, in_order=False) == {
        "startOffsetInfo": "0 0 5;0 3 2",
        "msgOffsetInfo": "0 0 5,7;0 3 2",
    }
    fields = queue_fields(queues, in_order=True)
    assert fields["orderCountInfo"] == "0 qo0%5 0;0 qo0%7 1;0 qo3%2 4"
    assert pop_answer(9, 60_000, 3, 17) == {
        "popTime": "9",
        "invisibleTime": "60000",
        "reviveQid": "3",
        "restNum": "17",
    }


@pytest.mark.parametrize(
    ("expression", "kind", "found"),
    [
        ("", "", ((), "")),
        ("*", "TAG", ((), "")),
        ("a || b||a", "TAG", (("a", "b"), "")),
        ("a > 5", "SQL92", ((), "a > 5")),
    ],
)
def test_a_subscription_is_tags_or_a_condition(
    expression: str, kind: str, found: tuple[tuple[str, ...], str]
) -> None:
    assert subscription_of(expression, kind) == found


@pytest.mark.parametrize(("expression", "kind"), [("||", "TAG"), (" ", "SQL92"), ("a", "CLASS")])
def test_what_is_no_subscription_is_refused(expression: str, kind: str) -> None:
    with pytest.raises(FormatError):
        subscription_of(expression, kind)
