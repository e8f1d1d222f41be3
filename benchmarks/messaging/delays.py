"""Delayed messages: a million that wait, how late they come, how many come at once.

While PENDING messages wait for hours, A_SECOND messages a second become due for STEADY_S seconds;
the lateness of one is the time from when it is due to the hand of a consumer that follows its
topic. Then BURST messages are due in the same moment, and the rate is from that moment to the last
one. Last the node is killed: how long a start takes until the first acknowledged put.
"""

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

import tandemlog
from benchmarks.harness.figures import Figure
from benchmarks.harness.nodes import cluster, first_put, memory_mb
from benchmarks.harness.workload import topics
from tandemlog import AsyncConsumer, Message

PENDING = 1_000_000
HOURS_MS = 40 * 3_600_000
QUEUES = 8
A_SECOND = 5_000
STEADY_S = 10
BURST = 100_000
AHEAD_MS = 20_000
"""From the first `send` to the first message that is due: longer than the sends take."""
BODY = b"x" * 100


def send_all(endpoint: str, topic: str, due_ms: Iterable[int]) -> None:
    """One message for each time, ms since the epoch; returns when all are acknowledged."""
    with tandemlog.Producer(endpoint) as producer:
        for each in due_ms:
            last = producer.send(Message(topic, b"%d " % each + BODY), deliver_at=each)
        producer.flush()
        last.result(60)
        if producer.statistics().failed:
            raise RuntimeError("a message was not stored")


async def late_ms(endpoint: str, topic: str, count: int) -> np.ndarray:
    """f8[count]: how late each message is in the hand of a consumer."""
    late: list[float] = []
    async with AsyncConsumer(endpoint) as consumer, asyncio.timeout(180):
        async for message in await consumer.follow(topic):
            late.append(time.time() * 1000 - int(message.body.split(b" ", 1)[0]))
            if len(late) == count:
                break
    return np.array(late)


def lateness(endpoint: str, topic: str) -> np.ndarray:
    """f8[n] in ms, of A_SECOND messages due each second for STEADY_S seconds."""
    first = time.time() * 1000 + AHEAD_MS
    due = (first + np.arange(A_SECOND * STEADY_S) * 1000 / A_SECOND).astype(np.int64)
    send_all(endpoint, topic, due.tolist())
    if time.time() * 1000 > first:
        raise RuntimeError("the first message was due before the last one was sent")
    return asyncio.run(late_ms(endpoint, topic, len(due)))


def burst_rate(endpoint: str, topic: str) -> float:
    """Messages a second at a consumer, of BURST that are due at once."""
    due = int(time.time() * 1000) + AHEAD_MS
    send_all(endpoint, topic, [due] * BURST)
    return 1000 * BURST / float(asyncio.run(late_ms(endpoint, topic, BURST)).max())


def run(folder: Path) -> list[Figure]:
    with cluster(folder / "cluster", 1) as nodes:
        node = nodes.nodes[0]
        if node.process is None:
            raise RuntimeError("the master has no process")
        with tandemlog.Admin(node.endpoint) as admin:
            for topic in ("pending", "steady", "burst"):
                admin.create_topic(topic, QUEUES)
        # what as many plain messages leave behind: pages and tables that are not those of delays
        with tandemlog.Producer(node.endpoint) as producer:
            producer.send_many(topics(1)[0], [BODY] * PENDING)
        time.sleep(6)
        before = memory_mb(node.process.pid)
        base = time.time() * 1000 + HOURS_MS
        send_all(node.endpoint, "pending", range(int(base), int(base) + PENDING))
        time.sleep(6)
        grown = memory_mb(node.process.pid) - before
        late = lateness(node.endpoint, "steady")
        rate = burst_rate(node.endpoint, "burst")
        start = first_put(nodes)
    return [
        Figure("delays: memory of 1,000,000 that wait", grown, "MB", 200, at_most=True),
        Figure(
            "delays: first put after kill -9 with 1,000,000 that wait", start, "s", 10, at_most=True
        ),
        Figure(
            "delays: how late at 5,000/s, p99",
            float(np.percentile(late, 99)), "ms", 100, at_most=True,
        ),
        Figure("delays: due at once, at a consumer", rate, "messages/s", 20_000),
    ]  # fmt: skip
