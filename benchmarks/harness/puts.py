"""Puts that many benchmarks measure a node with, by one client process: send_many and send."""

import time

import numpy as np

import tandemlog
from benchmarks.harness.workload import BODY_BYTES, QUEUES, topics
from tandemlog import Message, Security

TOPICS = 64
MANY = 400_000
SINGLE = 150_000


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
