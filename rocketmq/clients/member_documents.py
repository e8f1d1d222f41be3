"""What mqadmin and the clients read about members and their progress, as RocketMQ's JSON.

Java writes maps whose keys are objects, `{{"brokerName":"b","queueId":0,"topic":"t"}:7}`. That is
no JSON, and fastjson alone reads it; Go's client has a reader of its own for it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tandemlog.format.java_hash import java_hash

from .heartbeats import TAG, Consumer, Subscription


@dataclass(frozen=True, slots=True)
class ClientRow:
    """`version`: RocketMQ's number of its version."""

    address: str
    client_id: str
    language: str
    version: int


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """Of a group in one queue. `last_ms`: the store time of what it consumed last, 0 if that is
    not known."""

    topic: str
    queue_id: int
    end: int
    consumed: int
    last_ms: int = 0


def member_list(client_ids: Iterable[str]) -> bytes:
    """Of GET_CONSUMER_LIST_BY_GROUP."""
    return _json({"consumerIdList": list(client_ids)})


def consumer_connections(
    clients: Iterable[ClientRow],
    consumer: Consumer,
    subscriptions: Mapping[str, Subscription],
) -> bytes:
    """RocketMQ's ConsumerConnection."""
    return _json(
        {
            "connectionSet": _connections(clients),
            "consumeFromWhere": consumer.start,
            "consumeType": consumer.kind,
            "messageModel": consumer.model,
            "subscriptionTable": {
                topic: _subscription(each) for topic, each in sorted(subscriptions.items())
            },
        }
    )


def producer_connections(clients: Iterable[ClientRow]) -> bytes:
    """RocketMQ's ProducerConnection."""
    return _json({"connectionSet": _connections(clients)})


def group_list(groups: Iterable[str]) -> bytes:
    """RocketMQ's GroupList."""
    return _json({"groupList": list(groups)})


def consume_stats(broker_name: str, rows: Iterable[ProgressRow]) -> bytes:
    """RocketMQ's ConsumeStats."""
    offsets = object_keyed(
        (
            queue_key(row.topic, broker_name, row.queue_id),
            {
                "brokerOffset": row.end,
                "consumerOffset": row.consumed,
                "lastTimestamp": row.last_ms,
                "pullOffset": row.consumed,
            },
        )
        for row in rows
    )
    return f'{{"consumeTps":0.0,"offsetTable":{offsets}}}'.encode()


def reset_offsets(
    broker_name: str, topic: str, offsets: Mapping[int, int], *, language: str = "JAVA"
) -> bytes:
    """RocketMQ's ResetOffsetBody: to what each queue was reset. The C++ client reads a list."""
    if language == "CPP":
        rows = [
            {**queue_key(topic, broker_name, queue_id), "offset": offset}
            for queue_id, offset in sorted(offsets.items())
        ]
        return _json({"offsetTable": rows})
    keyed = object_keyed(
        (queue_key(topic, broker_name, queue_id), offset)
        for queue_id, offset in sorted(offsets.items())
    )
    return f'{{"offsetTable":{keyed}}}'.encode()


def object_keyed(rows: Iterable[tuple[Mapping[str, object], object]]) -> str:
    """A map whose keys are objects, as fastjson writes it."""
    return "{" + ",".join(f"{_text(key)}:{_text(value)}" for key, value in rows) + "}"


def queue_key(topic: str, broker_name: str, queue_id: int) -> dict[str, object]:
    """RocketMQ's MessageQueue."""
    return {"brokerName": broker_name, "queueId": queue_id, "topic": topic}


def _connections(clients: Iterable[ClientRow]) -> list[dict[str, object]]:
    return [
        {
            "clientAddr": each.address,
            "clientId": each.client_id,
            "language": each.language,
            "version": each.version,
        }
        for each in clients
    ]


def _subscription(each: Subscription) -> dict[str, object]:
    tags: list[str] = []
    if each.expression_type == TAG and each.expression != "*":
        tags = sorted({tag.strip() for tag in each.expression.split("||")} - {""})
    return {
        "classFilterMode": False,
        "codeSet": sorted({java_hash(tag) for tag in tags}),
        "expressionType": each.expression_type,
        "subString": each.expression,
        "subVersion": each.version,
        "tagsSet": tags,
        "topic": each.topic,
    }


def _json(document: object) -> bytes:
    return _text(document).encode()


def _text(document: object) -> str:
    return json.dumps(document, separators=(",", ":"))
