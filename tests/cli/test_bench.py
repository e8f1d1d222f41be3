"""`tandemlog bench`: what it counts and measures, and that it keeps a rate."""

import json
from typing import Any

import numpy as np
import pytest

from helpers.cli_node import (  # noqa: F401 - fixtures
    Run,
    node_of_a_module,
    objects,
    run_of_a_test,
    topic_of_a_test,
)
from tandemlog import Consumer
from tandemlog.message import Message
from tandemlog.sync.sync_producer import Producer
from tandemlog_server.cli.messages.load import HEAD, Load, Measured, heads_of
from tandemlog_server.node.node import Node

TIMES = ("p50_ms", "p99_ms", "p99_9_ms", "max_ms")


def benched(run: Run, *arguments: str) -> dict[str, Any]:
    code, out, err = run("bench", *arguments, "--format", "json")
    assert (code, err) == (0, "")
    (found,) = map(json.loads, out.splitlines())
    assert isinstance(found, dict)
    return found


def test_messages_are_sent_and_read_meanwhile(run: Run, topic: str) -> None:
    run("put", topic, stdin=b"of another run, and short\n\n")
    options = ("--count", "2000", "--producers", "2", "--consumers", "2", "--size", "50")
    found = benched(run, "both", topic, *options)
    for side in ("put", "get"):
        row = found[side]
        assert (row["messages"], row["failed"], row["body_bytes"]) == (2_000, 0, 100_000)
        times = [row[name] for name in TIMES]
        assert times == sorted(times)
        assert times[0] > 0
    assert found["get"]["max_ms"] <= 1000 * (found["get"]["seconds"] + 1)
    assert (found["topic"], found["size"], found["rate"]) == (topic, 50, None)
    read = benched(run, "get", topic)["get"]
    assert (read["messages"], read["p50_ms"]) == (2_002, None)
    assert "put" not in benched(run, "get", topic, "--count", "100")


def test_a_rate_is_kept(run: Run) -> None:
    found = benched(run, "put", "made-by-bench", "--create", "--rate", "400", "--duration", "0.5")
    assert 1 <= found["put"]["messages"] <= 201
    (row,) = objects(run("topic", "describe", "made-by-bench", "--format", "jsonl")[1])
    assert sum(each["messages"] for each in row["queues"]) == found["put"]["messages"]
    code, out, _ = run("bench", "put", "made-by-bench", "--create", "--count", "10")
    assert code == 0
    assert out.splitlines()[0].split()[:2] == ["messages", "failed"]
    assert out.splitlines()[1].split()[:3] == ["put", "10", "0"]


def test_what_bench_refuses(run: Run) -> None:
    assert run("bench", "put", "nothing", "--count", "1")[0] == 4
    assert run("bench", "put", "nothing", "--size", "15")[0] == 2
    assert run("bench", "send", "nothing")[0] == 2


def test_percentiles_are_of_all_times() -> None:
    measured = Measured()
    measured.begin()
    measured.add(1000, 5, np.arange(1, 1001) * 1_000_000)
    row = measured.row()
    assert [row[name] for name in TIMES] == [500.5, 990.01, 999.001, 1000.0]
    assert Measured().row()["p50_ms"] is None


@pytest.mark.parametrize(
    ("count", "duration", "sent", "seconds", "ended"),
    [
        (10, None, 9, 1e9, False),
        (10, None, 10, 0.0, True),
        (None, 2.0, 10**9, 1.9, False),
        (None, 2.0, 0, 2.0, True),
        (10, 2.0, 10, 0.0, True),
        (None, None, 10**9, 1e9, False),
    ],
)
def test_when_a_load_ends(
    count: int | None, duration: float | None, sent: int, seconds: float, ended: bool
) -> None:
    assert Load("t", 16, count, duration, None, 1, 1).ended(sent, seconds) is ended


def test_the_heads_of_a_batch(node: Node, topic: str) -> None:
    with Producer(node.endpoints.listen) as producer:
        for body in (HEAD.pack(7, 8) + b"rest", b"short", HEAD.pack(-1, 2**40)):
            producer.send(Message(topic, body, queue_id=0))
    with Consumer(node.endpoints.listen) as consumer:
        batch = consumer.pull(topic, 0, 0, wait_ms=5_000)  # sent is not yet dispatched
        runs, moments = heads_of(batch)
    assert (runs.tolist(), moments.tolist()) == ([7, -1], [8, 2**40])
