"""The pull that many benchmarks measure a node with: 1 KiB bodies of one topic, by one client."""

import time

import numpy as np

import tandemlog
from benchmarks.harness.workload import QUEUES, topics
from tandemlog import Security

COUNT = 400_000
BODY = 1_024


def rate(endpoint: str, security: Security | None = None) -> float:
    """Body bytes per second, from the first queue's start to the last one's end."""
    with (
        tandemlog.Consumer(endpoint, security=security) as consumer,
        consumer.follow(topics(1)[0], start=tandemlog.EARLIEST, until_end=True) as stream,
    ):
        count = 0
        began = time.perf_counter()
        for batch in stream.batches():
            count += len(batch)
        seconds = time.perf_counter() - began
    if count != COUNT:
        raise RuntimeError(f"{count} of {COUNT} messages were read")
    return count * BODY / seconds


def fill(endpoint: str, security: Security | None = None) -> None:
    """COUNT messages, dispatched."""
    data = np.random.default_rng(1).integers(0, 256, COUNT * BODY, np.uint8)
    bodies = (data, np.arange(COUNT + 1, dtype=np.int64) * BODY)
    with tandemlog.Producer(endpoint, security=security) as producer:
        producer.send_many(topics(1)[0], bodies, queues=np.arange(COUNT, dtype=np.int32) % QUEUES)
    time.sleep(1)
