"""Transactions: one client, of one message each and of many, side by side and one after the other.

Each transaction is committed and its answer awaited before the same task begins the next one. A
message of a transaction is stored twice, so plain sends are no yardstick.
"""

import asyncio
import time
from pathlib import Path

import numpy as np

from benchmarks.harness.figures import Figure, median_of
from benchmarks.harness.nodes import cluster
from benchmarks.harness.workload import BODY_BYTES
from tandemlog import Admin, AsyncProducer, Message, ProducerOptions

QUEUES = 8
SIDE_BY_SIDE = 32
SINGLE = 4_000
LARGE, MANY = 40, 1_000
ALONE = 300
RUNS = 3
AT_ONCE = ProducerOptions(linger_ms=0)


async def committed_rate(endpoints: list[str], tasks: int, count: int, size: int) -> float:
    """Messages a second of `count` transactions of `size` messages, `tasks` at a time."""
    left = iter(range(count))
    body = b"x" * BODY_BYTES

    async def commit() -> None:
        for number in left:
            async with producer.transaction() as t:
                for row in range(size):
                    await t.send(Message("ledger", body, queue_id=(number + row) % QUEUES))

    async with AsyncProducer(endpoints, AT_ONCE) as producer:
        await producer.send_many("ledger", [b"warm up"])
        began = time.perf_counter()
        await asyncio.gather(*[commit() for _ in range(tasks)])
        return count * size / (time.perf_counter() - began)


async def commit_ms(endpoints: list[str], count: int) -> np.ndarray:
    """f8[count]: of transactions of one message, one after the other, from begin to answer."""
    times = []
    async with AsyncProducer(endpoints, AT_ONCE) as producer:
        for number in range(count):
            began = time.perf_counter()
            async with producer.transaction(Message("ledger", b"x", queue_id=number % QUEUES)):
                pass
            times.append(1000 * (time.perf_counter() - began))
    return np.array(times)


def run(folder: Path) -> list[Figure]:
    with cluster(folder / "cluster", 0) as nodes:
        endpoints = nodes.endpoints.split(",")
        with Admin(endpoints) as admin:
            admin.create_topic("ledger", QUEUES)
        single = median_of(
            RUNS, lambda: asyncio.run(committed_rate(endpoints, SIDE_BY_SIDE, SINGLE, 1))
        )
        many = median_of(RUNS, lambda: asyncio.run(committed_rate(endpoints, 2, LARGE, MANY)))
        times = asyncio.run(commit_ms(endpoints, ALONE))
    return [
        Figure("transactions of one message, 32 at a time", single, "transactions/s", 100),
        Figure("transactions of 1,000 messages", many, "messages/s", 2_000),
        Figure(
            "transaction of one message, p50",
            float(np.percentile(times, 50)),
            "ms",
            50,
            at_most=True,
        ),
        Figure(
            "transaction of one message, p99",
            float(np.percentile(times, 99)),
            "ms",
            200,
            at_most=True,
        ),
    ]
