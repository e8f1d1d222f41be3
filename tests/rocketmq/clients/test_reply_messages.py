"""Replies on their way to the client that waits for them."""

import pytest

from tandemlog_server.rocketmq.clients.reply_messages import as_send, push_fields
from tandemlog_server.rocketmq.clients.send_requests import read_send
from tandemlog_server.rocketmq.wire.remoting import Command

LONG = {
    "producerGroup": "CLIENT_INNER_PRODUCER",
    "topic": "c_REPLY_TOPIC",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "1",
    "bornTimestamp": "17",
    "flag": "3",
    "properties": "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01me",
    "reconsumeTimes": "0",
    "unitMode": "false",
}
SHORT = dict(zip("abcdefghijk", LONG.values(), strict=True))


@pytest.mark.parametrize(("code", "fields"), [(324, LONG), (325, SHORT)])
def test_a_reply_of_either_form(code: int, fields: dict[str, str]) -> None:
    request = read_send(as_send(Command(code, fields=fields, body=b"yes")))
    pushed = push_fields(
        request,
        born_host="10.0.0.7:51234",
        store_host="10.0.0.1:10911",
        now_ms=99,
        facts={"TRACE_ON": "true"},
    )
    assert pushed == LONG | {
        "properties": LONG["properties"] + "\x02TRACE_ON\x01true\x02PUSH_REPLY_TIME\x0199\x02",
        "bornHost": "10.0.0.7:51234",
        "storeHost": "10.0.0.1:10911",
        "storeTimestamp": "99",
    }
    assert request.body == b"yes"


@pytest.mark.parametrize(
    ("before", "after"),
    [("", "PUSH_REPLY_TIME\x015\x02"), ("a\x01b\x02", "a\x01b\x02PUSH_REPLY_TIME\x015\x02")],
)
def test_what_stands_before_the_time(before: str, after: str) -> None:
    fields = SHORT | {"i": before}
    request = read_send(as_send(Command(325, fields=fields)))
    pushed = push_fields(request, born_host="", store_host="", now_ms=5, facts={})
    assert pushed["properties"] == after
