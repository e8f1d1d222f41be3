"""Sends as clients write them: three headers, the body of a batch, and what is none."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.send_requests import (
    MOST_IN_BATCH,
    BatchedMessage,
    SendRequest,
    has_more_messages,
    read_send,
    split_batch,
)
from tandemlog_server.rocketmq.wire.remoting import Command

LONG = {
    "producerGroup": "g",
    "topic": "T",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "3",
    "sysFlag": "1",
    "bornTimestamp": "1700000000000",
    "flag": "-7",
    "properties": "WAIT\x01true\x02",
    "reconsumeTimes": "2",
    "unitMode": "false",
    "maxReconsumeTimes": "16",
    "batch": "false",
}
SHORT = dict(zip("abcdefghijklm", LONG.values(), strict=True))


def member(flag: int, body: bytes, properties: bytes) -> bytes:
    size = 20 + len(body) + 2 + len(properties)
    return (
        struct.pack(">iiiii", size, 0, 0, flag, len(body))
        + body
        + struct.pack(">h", len(properties))
        + properties
    )


@pytest.mark.parametrize(
    ("code", "fields"),
    [(RequestCode.SEND_MESSAGE, LONG), (RequestCode.SEND_MESSAGE_V2, {**SHORT, "n": "broker-a"})],
)
def test_long_and_short_names_say_the_same(code: int, fields: dict[str, str]) -> None:
    expected = SendRequest(
        "g", "T", "TBW102", 4, 3, 1, 1700000000000, -7, "WAIT\x01true\x02", 2, 16, False, b"x"
    )
    assert read_send(Command(code, fields=fields, body=b"x")) == expected


def test_what_a_client_leaves_out_has_a_default() -> None:
    read = read_send(Command(RequestCode.SEND_MESSAGE_V2, fields={"b": "T"}))
    assert (read.queue_id, read.properties, read.max_reconsume_times) == (-1, "", None)
    assert read_send(Command(RequestCode.SEND_BATCH_MESSAGE, fields={"b": "T"})).batch


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({}, "'b'"),
        ({"b": "T", "e": "many"}, "'e'"),
        ({"b": "T", "e": str(1 << 31)}, "'e'"),
        ({"b": "T", "g": str(1 << 63)}, "'g'"),
        ({"b": "T", "g": "9" * 100_000}, "'g'"),
    ],
)
def test_a_field_that_cannot_be_is_named(fields: dict[str, str], named: str) -> None:
    with pytest.raises(FormatError, match=named):
        read_send(Command(RequestCode.SEND_MESSAGE_V2, fields=fields))


I32 = st.integers(-(1 << 31), (1 << 31) - 1)


@given(st.lists(st.tuples(I32, st.binary(max_size=50), st.binary(max_size=50)), min_size=1))
def test_a_batch_is_taken_apart_as_it_was_put_together(messages: list[Any]) -> None:
    body = b"".join(member(*each) for each in messages)
    assert split_batch(body) == [BatchedMessage(*each) for each in messages]


@given(
    st.lists(st.tuples(I32, st.binary(max_size=9), st.binary(max_size=9)), min_size=1, max_size=4),
    st.data(),
)
def test_a_batch_with_wrong_bytes_is_refused_or_covers_them_all(
    messages: list[Any], data: st.DataObject
) -> None:
    body = bytearray(b"".join(member(*each) for each in messages))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    try:
        read = split_batch(bytes(body))
    except FormatError:
        return
    assert sum(22 + len(each.body) + len(each.properties) for each in read) == len(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        member(0, b"x", b"p")[:-1],
        member(0, b"x", b"p") + bytes(5),
        struct.pack(">iiiii", 1 << 30, 0, 0, 0, 0) + bytes(2),
        struct.pack(">iiiii", 22, 0, 0, 0, -1) + bytes(2),
        struct.pack(">iiiiih", 22, 0, 0, 0, 0, -1),
    ],
)
def test_a_body_with_a_length_that_does_not_fit_is_refused(body: bytes) -> None:
    with pytest.raises(FormatError):
        split_batch(body)


def test_a_batch_has_a_bound_of_messages() -> None:
    with pytest.raises(FormatError, match="more than"):
        split_batch(member(0, b"", b"") * (MOST_IN_BATCH + 1))


def test_more_messages_than_a_few_are_seen_by_their_sizes() -> None:
    one = struct.pack(">iiiii", 30, 0, 0, 0, 8) + bytes(10)
    assert [has_more_messages(one * count, 5) for count in (1, 4, 5, 6, 100)] == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert not has_more_messages(one * 3 + bytes(500), 5)  # a message of 0 bytes
    assert not has_more_messages(one * 3 + b"\x7f" + bytes(500), 5)  # one beyond the end
    assert not has_more_messages(one * 3 + b"\xff" + bytes(500), 5)  # one of less than nothing
