"""Sync flush with 64 producers against async flush: what group commit saves."""

import threading
import time
from functools import partial
from pathlib import Path

import tandemlog
from benchmarks.harness.figures import Figure, median_of
from benchmarks.harness.nodes import cluster
from benchmarks.harness.workload import BODY_BYTES, QUEUES, topics
from tandemlog import Message, ProducerOptions

PRODUCERS = 64
EACH = 1_500


def rate(endpoints: list[str]) -> float:
    """Messages per second of 64 producers together, each with its own window."""
    body = b"x" * BODY_BYTES
    name = topics(1)[0]
    start = threading.Barrier(PRODUCERS + 1)

    def work(number: int) -> None:
        with tandemlog.Producer(endpoints, ProducerOptions(linger_ms=2)) as producer:
            producer.send(Message(name, body)).result(30)
            start.wait(60)
            for serial in range(EACH):
                producer.send(
                    Message(
                        name, body, keys=f"k{number}-{serial}", tags="t", queue_id=number % QUEUES
                    )
                )
            producer.flush()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(PRODUCERS)]
    for thread in threads:
        thread.start()
    start.wait(60)
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return PRODUCERS * EACH / (time.perf_counter() - began)


def run(folder: Path) -> list[Figure]:
    rates = {}
    for flush in ("async", "sync"):
        with cluster(folder / flush, 1, flush=flush) as local:
            endpoints = local.endpoints.split(",")
            rates[flush] = median_of(3, partial(rate, endpoints))
    return [
        Figure(
            "sync flush, 64 producers",
            rates["sync"],
            "messages/s",
            goal=0.6,
            reference=rates["async"],
        )
    ]
