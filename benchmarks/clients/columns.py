"""A scan into Arrow batches beside the pull of the same messages, on the same cluster.

400,000 messages with bodies of 1 KiB in 4 queues, each with a key and a tag. Batches are read as
`pull` does, without decoding them; a scan decodes and checks every record.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np

import tandemlog
from benchmarks.harness.figures import Figure, medians_in_turns
from benchmarks.harness.nodes import cluster
from benchmarks.harness.workload import QUEUES, topics
from tandemlog.memory import keep_freed_memory

COUNT = 400_000
BODY = 1_024
PARTS = 8
COLUMNS: dict[str, list[str] | None] = {
    "body": ["body"],
    "body, keys and tags": ["body", "keys", "tags"],
    "default columns": None,
}
GOALS = {"body": 0.5, "body, keys and tags": 0.4, "default columns": 0.3}


def fill(endpoint: str) -> None:
    size = COUNT // PARTS
    bodies = np.random.default_rng(1).integers(0, 256, (size, BODY), np.uint8)
    queues = np.arange(size, dtype=np.int32) % QUEUES
    with tandemlog.Producer(endpoint) as producer:
        for part in range(PARTS):
            keys = [f"k{part}-{number}" for number in range(size)]
            producer.send_many(topics(1)[0], bodies, queues=queues, keys=keys, tags="bench")
    time.sleep(1)


def pull_rate(consumer: tandemlog.Consumer) -> float:
    """Messages per second, not decoded."""
    began = time.perf_counter()
    with consumer.follow(topics(1)[0], start=tandemlog.EARLIEST, until_end=True) as stream:
        count = sum(len(batch) for batch in stream.batches())
    return checked(count) / (time.perf_counter() - began)


def scan_rate(consumer: tandemlog.Consumer, columns: list[str] | None) -> float:
    """Messages per second."""
    began = time.perf_counter()
    count = sum(batch.num_rows for batch in consumer.scan(topics(1)[0], columns=columns))
    return checked(count) / (time.perf_counter() - began)


def checked(count: int) -> int:
    if count != COUNT:
        raise RuntimeError(f"{count} of {COUNT} messages were read")
    return count


def run(folder: Path) -> list[Figure]:
    # as docs/client.md tells a program that reads fast
    keep_freed_memory()
    with cluster(folder, 1) as local:
        endpoint = local.nodes[0].endpoint
        fill(endpoint)
        with tandemlog.Consumer(endpoint) as consumer:
            scan_rate(consumer, None)  # loads Arrow
            scans = [partial(scan_rate, consumer, columns) for columns in COLUMNS.values()]
            pulled, *scanned = medians_in_turns(3, [partial(pull_rate, consumer), *scans])
    return [
        Figure(f"scan, {name}, of batches that are not decoded", rate, "messages/s", goal, pulled)
        for (name, goal), rate in zip(GOALS.items(), scanned, strict=True)
    ]
