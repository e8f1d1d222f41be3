"""Heartbeats as Java, C++ and Go write them, and those that nobody may send."""

import json

import pytest

from tandemlog.format.errors import FormatError
from tandemlog_server.rocketmq.clients.heartbeats import (
    MAX_BODY_BYTES,
    MAX_GROUPS,
    MAX_SUBSCRIPTIONS,
    Consumer,
    Subscription,
    read_heartbeat,
)

JAVA = (
    b'{"clientID":"10.0.0.7@4711#1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",'
    b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING",'
    b'"subscriptionDataSet":[{"classFilterMode":false,"codeSet":[65],"expressionType":"TAG",'
    b'"subString":"A || B","subVersion":1700000000001,"tagsSet":["A","B"],"topic":"t"},'
    b'{"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":7,"tagsSet":[],'
    b'"topic":"%RETRY%g"}],"unitMode":false}],"heartbeatFingerprint":0,'
    b'"producerDataSet":[{"groupName":"CLIENT_INNER_PRODUCER"},{"groupName":"p"}],"withoutSub":false}'
)
CPP = (
    b'{"clientID":"c","consumerDataSet":[{"groupName":"g","consumeFromWhere":0,"consumeType":1,'
    b'"messageModel":0,"subscriptionDataSet":[{"topic":"t","subString":"*","subVersion":"123"}]}],'
    b'"producerDataSet":[]}'
)
GO = (
    b'{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"g",'
    b'"consumeType":"CONSUME_PASSIVELY","messageModel":"Clustering",'
    b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[{"topic":"t",'
    b'"subString":"a > 3","expressionType":"SQL92","subVersion":5}],"unitMode":false}]}'
)


def test_java_writes_names() -> None:
    heartbeat = read_heartbeat(JAVA)
    assert heartbeat.client_id == "10.0.0.7@4711#1"
    assert heartbeat.producers == {"CLIENT_INNER_PRODUCER", "p"}
    assert heartbeat.consumers == (
        Consumer(
            "g",
            (
                Subscription("t", "A || B", "TAG", 1_700_000_000_001),
                Subscription("%RETRY%g", "*", "TAG", 7),
            ),
            "CONSUME_PASSIVELY",
            "CLUSTERING",
            "CONSUME_FROM_FIRST_OFFSET",
        ),
    )
    assert heartbeat.size == len(JAVA)


def test_cpp_writes_ordinals_and_numbers_as_texts() -> None:
    (consumer,) = read_heartbeat(CPP).consumers
    assert consumer.model == "BROADCASTING"
    assert consumer.kind == "CONSUME_PASSIVELY"
    assert consumer.start == "CONSUME_FROM_LAST_OFFSET"
    assert consumer.subscriptions == (Subscription("t", "*", "TAG", 123),)


def test_go_writes_the_model_in_its_own_case() -> None:
    (consumer,) = read_heartbeat(GO).consumers
    assert consumer.model == "CLUSTERING"
    assert consumer.subscriptions == (Subscription("t", "a > 3", "SQL92", 5),)


def test_a_short_heartbeat_leaves_the_subscriptions_out() -> None:
    assert read_heartbeat(b'{"clientID":"c","withoutSub":true}').without_subscriptions


def of(**fields: object) -> bytes:
    return json.dumps({"clientID": "c", **fields}).encode()


def consumers(*rows: object) -> bytes:
    return of(consumerDataSet=list(rows))


def topics(count: int) -> list[dict[str, str]]:
    return [{"topic": f"t{index}"} for index in range(count)]


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"", "no JSON"),
        (b"[]", "no JSON object"),
        (b"{" * 10_000, "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b" " * (MAX_BODY_BYTES + 1), "the limit is"),
        (b"{}", "clientID is missing"),
        (of(clientID="x" * 256), "clientID has 256 characters"),
        (of(clientID="a\nb"), "printable"),
        (of(clientID=7), "clientID is missing"),
        (of(producerDataSet={}), "producerDataSet is no list"),
        (of(producerDataSet=["p"]), "producerDataSet is no list"),
        (of(producerDataSet=[{"groupName": f"g{n}"} for n in range(MAX_GROUPS + 1)]), "entries"),
        (consumers({}), "groupName is missing"),
        (consumers({"groupName": "a b"}), "groupName 'a b'"),
        (consumers({"groupName": "g", "messageModel": 2}), "messageModel"),
        (consumers({"groupName": "g", "messageModel": -1}), "messageModel"),
        (consumers({"groupName": "g", "consumeType": True}), "consumeType"),
        (consumers({"groupName": "g", "consumeType": "9" * 5000}), "consumeType"),
        (consumers({"groupName": "g", "subscriptionDataSet": [{}]}), "topic is missing"),
        (
            consumers({"groupName": "g", "subscriptionDataSet": topics(MAX_SUBSCRIPTIONS + 1)}),
            "subscriptionDataSet has",
        ),
        (
            consumers(
                {"groupName": "g", "subscriptionDataSet": topics(MAX_SUBSCRIPTIONS)},
                {"groupName": "h", "subscriptionDataSet": topics(1)},
            ),
            "subscriptionDataSet has 1 entries, 0 fit",
        ),
        (
            consumers({"groupName": "g", "subscriptionDataSet": [{"topic": "", "subVersion": 1}]}),
            "topic is missing",
        ),
        (
            consumers(
                {"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subVersion": 1 << 63}]}
            ),
            "subVersion",
        ),
        (
            consumers(
                {"groupName": "g", "subscriptionDataSet": [{"topic": "t", "subString": "x" * 9000}]}
            ),
            "subString",
        ),
    ],
    ids=range(24),
)  # fmt: skip
def test_what_a_client_may_not_say_is_named(body: bytes, says: str) -> None:
    with pytest.raises(FormatError, match=says):
        read_heartbeat(body)
