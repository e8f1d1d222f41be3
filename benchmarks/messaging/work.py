"""Work queues: 8 consumers of one group share 64 queues, and acknowledge each message by itself.

All consumers run in one client process, beside the node. First they empty a topic of MESSAGES; then
messages come at a steady rate, and the time is from the call that sends one to the begin of its
handler, of a producer in the same process.
"""

import asyncio
import threading
import time
from pathlib import Path

import numpy as np

import tandemlog
from benchmarks.harness.figures import Figure, median_of
from benchmarks.harness.nodes import cluster
from benchmarks.harness.workload import BODY_BYTES
from tandemlog import AsyncConsumer, AsyncDelivery

CONSUMERS = 8
QUEUES = 64
MESSAGES = 300_000
RUNS = 3
A_SECOND = 5_000
PIECES = 100
STEADY_S = 15
WARM_S = 3


async def drain(endpoints: list[str], topic: str, group: str, count: int) -> float:
    """Messages a second, all acknowledged; the clock begins with the first one."""
    taken, began = 0, 0.0

    async def consume(number: int) -> None:
        nonlocal taken, began
        async with AsyncConsumer(endpoints, group=group) as consumer:
            work = consumer.work(topic)
            works.append(work)
            async with work:
                async for delivery in work:
                    began = began or time.perf_counter()
                    await delivery.ack()
                    taken += 1
                    if taken == count:
                        for each in works:
                            each.stop()

    works: list[tandemlog.AsyncWork] = []
    await asyncio.gather(*map(consume, range(CONSUMERS)))
    seconds = time.perf_counter() - began
    acked = sum(each.statistics().acked for each in works)
    if acked != count:
        raise RuntimeError(f"{acked} of {count} were acknowledged")
    return count / seconds


async def latencies_ms(endpoints: list[str], topic: str) -> np.ndarray:
    """f8[n]: of the messages after the first WARM_S, from the call that sends one to its
    handler."""
    found: list[tuple[float, float]] = []
    works: list[tandemlog.AsyncWork] = []

    async def handle(delivery: AsyncDelivery) -> None:
        sent = float(delivery.body.split(b" ", 1)[0])
        found.append((sent, time.perf_counter() - sent))

    async def consume() -> None:
        async with AsyncConsumer(endpoints, group="steady") as consumer:
            work = consumer.work(topic, handler=handle, concurrency=4)
            works.append(work)
            await work

    working = [asyncio.create_task(consume()) for _ in range(CONSUMERS)]
    await asyncio.sleep(1)
    await asyncio.to_thread(produce, endpoints, topic)
    wanted = A_SECOND * STEADY_S
    async with asyncio.timeout(60):
        while len(found) < wanted:  # noqa: ASYNC110 - eight consumers tell no one
            await asyncio.sleep(0.1)
    for work in works:
        work.stop()
    await asyncio.gather(*working)
    first = min(sent for sent, _ in found)
    return np.array([1000 * late for sent, late in found if sent - first > WARM_S])


def produce(endpoints: list[str], topic: str) -> None:
    """A_SECOND messages a second, in PIECES a second."""
    with tandemlog.Producer(endpoints) as producer:
        begin = time.perf_counter()
        for piece in range(STEADY_S * PIECES):
            wait = begin + piece / PIECES - time.perf_counter()
            if wait > 0:
                threading.Event().wait(wait)
            stamp = b"%.6f " % time.perf_counter()
            for _ in range(A_SECOND // PIECES):
                producer.send(tandemlog.Message(topic, stamp.ljust(BODY_BYTES, b"x")))


def run(folder: Path) -> list[Figure]:
    with cluster(folder / "cluster", 0) as nodes:
        endpoints = nodes.endpoints.split(",")
        with tandemlog.Admin(endpoints) as admin:
            admin.create_topic("backlog", QUEUES)
            admin.create_topic("steady", QUEUES)
        with tandemlog.Producer(endpoints) as producer:
            bodies = np.random.default_rng(1).integers(32, 126, (MESSAGES, BODY_BYTES), np.uint8)
            queues = np.arange(MESSAGES, dtype=np.int32) % QUEUES
            producer.send_many("backlog", bodies, queues=queues)
        groups = (f"run-{number}" for number in range(RUNS))
        rate = median_of(
            RUNS, lambda: asyncio.run(drain(endpoints, "backlog", next(groups), MESSAGES))
        )
        late = asyncio.run(latencies_ms(endpoints, "steady"))
    return [
        Figure("work: 8 consumers, 64 queues, each acknowledged", rate, "messages/s", 30_000),
        Figure(
            "work: put to handler at 5,000/s, p99",
            float(np.percentile(late, 99)), "ms", 30, at_most=True,
        ),
    ]  # fmt: skip
