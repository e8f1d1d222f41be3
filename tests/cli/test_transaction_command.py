"""`tandemlog transaction` against a running node."""

from collections.abc import Iterator

import pytest

from helpers.cli_node import (  # noqa: F401 - fixtures
    Run,
    node_of_a_module,
    objects,
    run_of_a_test,
    topic_of_a_test,
)
from tandemlog import Consumer, Message, Producer, ProducerOptions, Transaction
from tandemlog_server.node.node import Node


@pytest.fixture
def producer(node: Node) -> Iterator[Producer]:
    options = ProducerOptions(linger_ms=0, transaction_group="shop")
    with Producer(node.endpoints.advertise, options) as producer:
        yield producer


def opened(producer: Producer, topic: str, *bodies: bytes) -> Transaction:
    """A transaction that its program forgets."""
    transaction = producer.transaction([Message(topic, body) for body in bodies]).__enter__()
    producer.flush()
    return transaction


def read(node: Node, topic: str) -> list[bytes]:
    with (
        Consumer(node.endpoints.advertise) as consumer,
        consumer.follow(topic, until_end=True) as stream,
    ):
        return sorted(message.body for message in stream)


def test_open_transactions_are_listed_and_decided(
    run: Run, node: Node, producer: Producer, topic: str
) -> None:
    first = opened(producer, topic, b"a", b"b").transaction_id
    second = opened(producer, topic, b"c").transaction_id
    code, out, _ = run("transaction", "list", "--format", "jsonl")
    rows = [row for row in objects(out) if row["topics"] == topic]
    assert code == 0
    assert [(row["transaction_id"], row["messages"], row["state"]) for row in rows] == [
        (first, 2, "open"), (second, 1, "open"),
    ]  # fmt: skip
    assert rows[0]["producer_group"] == "shop"
    code, out, _ = run("transaction", "commit", first, "--dry-run", "--format", "jsonl")
    assert objects(out) == [
        {"transaction_id": first, "messages": 2, "outcome": "would be committed"}
    ]
    assert read(node, topic) == []
    code, out, _ = run("transaction", "commit", first, "--format", "jsonl")
    assert (code, objects(out)[0]["outcome"]) == (0, "committed")
    code, out, _ = run("transaction", "rollback", second, "--format", "jsonl")
    assert (code, objects(out)[0]["outcome"]) == (0, "rolled back")
    assert read(node, topic) == [b"a", b"b"]
    code, out, err = run("transaction", "rollback", first, "missing", "--format", "jsonl")
    assert code == 4
    assert [row["outcome"] for row in objects(out)] == ["decided the other way", "not found"]
    assert "2 of 2 transactions are not open" in err
    assert run("transaction", "commit", first)[0] == 0, "again: it is committed"
