"""What an elected master costs puts and pulls: a cluster with a coordinator beside one without.

A master and a slave in sync, twice. Each measure runs on both clusters in turns, and the ratio is
that of the times of all turns: other load of the machine affects both.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

import tandemlog
from benchmarks.harness.figures import Figure
from benchmarks.harness.nodes import cluster
from benchmarks.harness.puts import TOPICS, send_many_rate, send_rate
from benchmarks.harness.workload import QUEUES, topics
from tandemlog_server.cli.local.local_cluster import LocalCluster
from tandemlog_server.cli.local.local_coordinator import EMBEDDED, NONE

TURNS = 12
MANY = 200_000
SINGLE = 60_000
PULLED = 200_000
GOAL = 0.97


def run(folder: Path) -> list[Figure]:
    with ExitStack() as stack:
        without, elected = (
            stack.enter_context(
                cluster(
                    folder / kind, TOPICS, slaves=1, replication="sync", min_in_sync=2,
                    coordinator=kind,
                )
            )
            for kind in (NONE, EMBEDDED)
        )  # fmt: skip
        for local in (without, elected):
            _fill(local)
        return [
            _figure(name, count, rate, without, elected)
            for name, count, rate in (
                ("send_many", MANY, lambda local: send_many_rate(_endpoints(local), MANY)),
                ("send", SINGLE, lambda local: send_rate(_endpoints(local), SINGLE)),
                ("pull", PULLED, _pull_rate),
            )
        ]


def _endpoints(local: LocalCluster) -> list[str]:
    return local.endpoints.split(",")


def _figure(
    name: str,
    count: int,
    rate: Callable[[LocalCluster], float],
    without: LocalCluster,
    elected: LocalCluster,
) -> Figure:
    """Messages per second over all turns, each cluster first in every second one."""
    seconds = {id(without): 0.0, id(elected): 0.0}
    for turn in range(TURNS):
        for local in (without, elected) if turn % 2 else (elected, without):
            seconds[id(local)] += count / rate(local)
    with_it, without_it = (TURNS * count / seconds[id(local)] for local in (elected, without))
    return Figure(
        f"{name}, elected master / configured", with_it, "messages/s", GOAL, reference=without_it
    )


def _fill(local: LocalCluster) -> None:
    data = np.random.default_rng(1).integers(0, 256, PULLED * 128, np.uint8)
    bodies = (data, np.arange(PULLED + 1, dtype=np.int64) * 128)
    with tandemlog.Producer(_endpoints(local)) as producer:
        queues = np.arange(PULLED, dtype=np.int32) % QUEUES
        producer.send_many(topics(1)[0], bodies, queues=queues)


def _pull_rate(local: LocalCluster) -> float:
    """One topic, which also has the messages of the other measures."""
    with (
        tandemlog.Consumer(local.nodes[0].endpoint) as consumer,
        consumer.follow(topics(1)[0], start=tandemlog.EARLIEST) as stream,
    ):
        count, began = 0, time.perf_counter()
        for batch in stream.batches():
            count += len(batch)
            if count >= PULLED:
                break
        return count / (time.perf_counter() - began)
