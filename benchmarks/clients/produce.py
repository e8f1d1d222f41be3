"""Producer to master over loopback gRPC, one client process: send_many and send.

Async flush and reput running; then the same with one slave in sync replication.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import tandemlog
from benchmarks.harness.figures import Figure, bring_in_memory, medians_in_turns
from benchmarks.harness.nodes import cluster
from benchmarks.harness.workload import BODY_BYTES, QUEUES, topics
from tandemlog import Message, Security
from tandemlog_server.cli.local.local_cluster import LocalCluster

TOPICS = 64
MANY = 400_000
SINGLE = 150_000
RUNS = 5


def send_many_rate(
    endpoints: list[str], count: int = MANY, security: Security | None = None
) -> float:
    """Columns in, one answer out; bodies, keys and tags as the workload has them."""
    data = np.random.default_rng(1).integers(0, 256, count * BODY_BYTES, np.uint8)
    bodies = (data, np.arange(count + 1, dtype=np.int64) * BODY_BYTES)
    keys = [f"order-{number}" for number in range(count)]
    tags = [f"tag-{number % 10}" for number in range(count)]
    queues = np.arange(count, dtype=np.int32) % QUEUES
    with tandemlog.Producer(endpoints, security=security) as producer:
        producer.send_many(topics(TOPICS)[0], [b"warm up"])
        began = time.perf_counter()
        result = producer.send_many(topics(TOPICS)[1], bodies, keys=keys, tags=tags, queues=queues)
        seconds = time.perf_counter() - began
    if result.count != count:
        raise RuntimeError(f"{result.count} of {count} acknowledged")
    return count / seconds


def send_rate(endpoints: list[str], count: int = SINGLE, security: Security | None = None) -> float:
    """One call a message, over all topics; the clock stops with the last answer."""
    names = topics(TOPICS)
    body = b"x" * BODY_BYTES
    with tandemlog.Producer(endpoints, security=security) as producer:
        producer.send(Message(names[0], body)).result(30)
        began = time.perf_counter()
        last = None
        for number in range(count):
            last = producer.send(
                Message(
                    names[number % TOPICS],
                    body,
                    keys=f"order-{number}",
                    tags=f"tag-{number % 10}",
                    queue_id=number % QUEUES,
                )
            )
        producer.flush()
        if last is not None:
            last.result(60)
        return count / (time.perf_counter() - began)


def run(folder: Path) -> list[Figure]:
    """In turns, so that other load of the machine affects both."""
    with (
        cluster(folder / "alone", TOPICS) as alone,
        cluster(folder / "pair", TOPICS, slaves=1, replication="sync", min_in_sync=2) as pair,
    ):

        def once(rate: Callable[[list[str]], float], local: LocalCluster) -> float:
            bring_in_memory(folder, 3 << 30)
            return rate(local.endpoints.split(","))

        many, single = (
            medians_in_turns(RUNS, [partial(once, rate, local) for local in (alone, pair)])
            for rate in (send_many_rate, send_rate)
        )
    return [
        Figure("send_many, async flush", many[0], "messages/s", goal=300_000),
        Figure("send, async flush", single[0], "messages/s", goal=100_000),
        Figure("send_many, one slave in sync", many[1], "messages/s", goal=0.7, reference=many[0]),
        Figure("send, one slave in sync", single[1], "messages/s", goal=0.7, reference=single[0]),
    ]
