"""What the scrub at its default rate costs puts and pulls: a node with it, beside one without.

Its rounds follow each other without a pause, so it reads all the time. A node stands still while it
is not its turn, and all turns are mixed, so that other load of the machine affects both. Also the
processor time that the idle node spends on it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import tandemlog
from benchmarks.harness import pulls
from benchmarks.harness.figures import Figure, medians_in_turns
from benchmarks.harness.nodes import cluster, cpu_seconds_of
from benchmarks.harness.puts import TOPICS, send_many_rate, send_rate
from benchmarks.harness.workload import topics
from tandemlog.memory import keep_freed_memory
from tandemlog_server.cli.local.local_cluster import LocalCluster

ROUNDS = 5
IDLE_S = 10.0
GOAL = 0.97
OFF, ON = "\n[scrub]\non = false\n", "\n[scrub]\ninterval_ms = 1\n"


def run(folder: Path) -> list[Figure]:
    # as docs/client.md tells a program that reads fast
    keep_freed_memory()
    with (
        cluster(folder / "off", TOPICS, lambda settings: settings + OFF) as off,
        cluster(folder / "on", TOPICS, lambda settings: settings + ON) as on,
    ):
        both = (off, on)
        for local in both:
            pulls.fill(local.nodes[0].endpoint)
        for local in both:
            os.kill(_pid(local), signal.SIGSTOP)
        idle = [_idle_share(local) for local in both]
        measures = {
            "send_many": lambda endpoint: send_many_rate([endpoint]),
            "send": lambda endpoint: send_rate([endpoint]),
            "pull, 1 KiB bodies": _pull_rate,
        }
        turns = [partial(_turn, local, rate) for rate in measures.values() for local in both]
        medians = medians_in_turns(ROUNDS, turns)
        for local in both:
            os.kill(_pid(local), signal.SIGCONT)
    figures = [
        Figure(
            f"{name}, scrub at its default rate, of the same without",
            medians[2 * number + 1],
            "1/s",
            goal=GOAL,
            reference=medians[2 * number],
        )
        for number, name in enumerate(measures)
    ]
    share = Figure(
        "scrub of small messages", (idle[1] - idle[0]) * 100, "% of a core", goal=3.0, at_most=True
    )
    return [*figures, share]


def _pull_rate(endpoint: str) -> float:
    """Of the first messages, since each turn adds some."""
    with (
        tandemlog.Consumer(endpoint) as consumer,
        consumer.follow(topics(1)[0], start=tandemlog.EARLIEST, until_end=True) as stream,
    ):
        count = 0
        began = time.perf_counter()
        for batch in stream.batches():
            count += len(batch)
            if count >= pulls.COUNT:
                break
        return count / (time.perf_counter() - began)


def _pid(local: LocalCluster) -> int:
    process = local.nodes[0].process
    if process is None:
        raise RuntimeError("the node has no process")
    return process.pid


@contextlib.contextmanager
def _running(local: LocalCluster) -> Iterator[None]:
    os.kill(_pid(local), signal.SIGCONT)
    try:
        yield
    finally:
        os.kill(_pid(local), signal.SIGSTOP)


def _turn(local: LocalCluster, rate: Callable[[str], float]) -> float:
    with _running(local):
        time.sleep(1)
        return rate(local.nodes[0].endpoint)


def _idle_share(local: LocalCluster) -> float:
    """Processor time in a second, of 1, while nothing is asked of the node."""
    with _running(local):
        time.sleep(2)
        began, before = time.monotonic(), cpu_seconds_of(_pid(local))
        time.sleep(IDLE_S)
        return (cpu_seconds_of(_pid(local)) - before) / (time.monotonic() - began)
