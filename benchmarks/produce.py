"""Producer to master over loopback gRPC, one client process: send_many and send.

Async flush and reput running; then the same with one slave in sync replication.
"""

import time
from pathlib import Path

import numpy as np

import tandemlog
from benchmarks.harness import Figure, best_of
from benchmarks.nodes import cluster
from benchmarks.workload import BODY_BYTES, QUEUES, topics
from tandemlog import Message

TOPICS = 64
MANY = 400_000
SINGLE = 150_000


def send_many_rate(endpoints: list[str], count: int = MANY) -> float:
    """Columns in, one answer out; bodies, keys and tags as the workload has them."""
    data = np.random.default_rng(1).integers(0, 256, count * BODY_BYTES, np.uint8)
    bodies = (data, np.arange(count + 1, dtype=np.int64) * BODY_BYTES)
    keys = [f"order-{number}" for number in range(count)]
    tags = [f"tag-{number % 10}" for number in range(count)]
    queues = np.arange(count, dtype=np.int32) % QUEUES
    with tandemlog.Producer(endpoints) as producer:
        producer.send_many(topics(TOPICS)[0], [b"warm up"])
        began = time.perf_counter()
        result = producer.send_many(topics(TOPICS)[1], bodies, keys=keys, tags=tags, queues=queues)
        seconds = time.perf_counter() - began
    if result.count != count:
        raise RuntimeError(f"{result.count} of {count} acknowledged")
    return count / seconds


def send_rate(endpoints: list[str], count: int = SINGLE) -> float:
    """One call a message, over all topics; the clock stops with the last answer."""
    names = topics(TOPICS)
    body = b"x" * BODY_BYTES
    with tandemlog.Producer(endpoints) as producer:
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
    with cluster(folder / "alone", TOPICS) as alone:
        endpoints = alone.endpoints.split(",")
        many = best_of(3, lambda: send_many_rate(endpoints))
        single = best_of(3, lambda: send_rate(endpoints))
    with cluster(folder / "pair", TOPICS, slaves=1, replication="sync", min_in_sync=2) as pair:
        endpoints = pair.endpoints.split(",")
        many_sync = best_of(3, lambda: send_many_rate(endpoints))
        single_sync = best_of(3, lambda: send_rate(endpoints))
    return [
        Figure("send_many, async flush", many, "messages/s", goal=300_000),
        Figure("send, async flush", single, "messages/s", goal=100_000),
        Figure("send_many, one slave in sync", many_sync, "messages/s", goal=0.7, reference=many),
        Figure("send, one slave in sync", single_sync, "messages/s", goal=0.7, reference=single),
    ]
