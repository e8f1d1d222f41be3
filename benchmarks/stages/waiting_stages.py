"""Where a message waits between `send`, the node, its slave, dispatch and the consumer's hand.

For a node alone, and for one with a slave in sync replication, a table of stages at three rates.
The processes note when something passes (marks.py); the product has no hooks for it.
Messages and pacing are those of the waiting times in `make bench-peers`. Then a program that
computes while it sends, with Python's turns between threads and with short ones.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness.figures import Figure, number
from benchmarks.harness.nodes import cluster
from benchmarks.stages.marks import Noted
from benchmarks.stages.stage_times import PERCENTS, Run, Way
from benchmarks.stages.watched_clients import QUEUES, TOPIC, WARM_UP_S
from benchmarks.stages.watched_cluster import WatchedCluster
from tandemlog import Admin

RATES = (1_000, 10_000, 50_000)
SECONDS = 10.0
GOALS = {"send to acknowledgement": 10.0, "send to the consumer's hand": 20.0}
"""Milliseconds, p99 at the highest rate, of a node alone."""
TIMEOUT_S = 120.0
COMPUTING_ROUNDS = 5
COMPUTING_S = 3.0


def run(folder: Path) -> list[Figure]:
    figures = []
    for slaves in (0, 1):
        for rate, ways, pauses in measure(folder / f"slaves-{slaves}", slaves, RATES, SECONDS):
            title = f"{rate:,} messages/s, {'a slave in sync' if slaves else 'no slave'}"
            show(title, ways, pauses)
            if rate == RATES[-1] and not slaves:
                figures += [
                    Figure(
                        f"{way.name}, p99 at {rate:,}/s", way.whole.at[1], "ms", GOALS[way.name],
                        at_most=True,
                    )
                    for way in ways
                ]  # fmt: skip
    return figures + computing(folder / "computing")


def computing(folder: Path) -> list[Figure]:
    """A program that computes while it sends, in turns with short turns between its threads and
    with Python's own."""
    results: dict[str, list[dict[str, float]]] = {"short": [], "as_is": []}
    with cluster(folder, 0) as local:
        endpoint = local.nodes[0].endpoint
        with Admin(endpoint) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        for _ in range(COMPUTING_ROUNDS):
            for turns, found in results.items():
                program = "benchmarks.stages.computing_client"
                done = subprocess.run(
                    [sys.executable, "-m", program, endpoint, TOPIC, turns, str(COMPUTING_S)],
                    check=True,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=COMPUTING_S + TIMEOUT_S,
                )
                found.append(json.loads(done.stdout))

    def median(turns: str, part: str) -> float:
        return statistics.median(each[part] for each in results[turns])

    return [
        Figure(
            "send to acknowledgement of a program that computes, with short turns",
            median("short", "ack_ms"), "ms", goal=0.6, reference=median("as_is", "ack_ms"),
            at_most=True,
        ),
        Figure(
            "what such a program computes in a second of processor time, with short turns",
            median("short", "steps"), "steps", goal=0.8, reference=median("as_is", "steps"),
        ),
    ]  # fmt: skip


def measure(
    folder: Path, slaves: int, rates: Sequence[int], seconds: float
) -> list[tuple[int, tuple[Way, Way], list[str]]]:
    """By rate the two ways, and what the garbage collectors took."""
    with cluster(folder, 0, kind=WatchedCluster, slaves=slaves) as local:
        assert isinstance(local, WatchedCluster)
        with Admin(local.nodes[0].endpoint) as admin:
            admin.create_topic(TOPIC, queues=QUEUES)
        endpoint = local.nodes[0].endpoint
        for rate in rates:
            with _client(endpoint, folder / f"read-{rate}.npz", "read", rate, seconds) as reader:
                assert reader.stdout is not None
                if reader.stdout.readline().strip() != "ready":
                    raise RuntimeError("the reader did not start")
                with _client(endpoint, folder / f"send-{rate}.npz", "send", rate, seconds):
                    pass
    nodes = [Noted.load(local.marks_of(node)) for node in local.nodes]
    results = []
    for rate in rates:
        producer = Noted.load(folder / f"send-{rate}.npz")
        consumer = Noted.load(folder / f"read-{rate}.npz")
        noted = Run(producer, consumer, nodes[0], nodes[1] if slaves else None)
        names = ("producer", "consumer", "node", "slave")
        pauses = [
            _pauses(name, each, producer, seconds)
            for name, each in zip(names, (producer, consumer, *nodes), strict=False)
        ]
        results.append((rate, noted.ways(), pauses))
    return results


@contextmanager
def _client(
    endpoint: str, marks: Path, work: str, rate: int, seconds: float
) -> Iterator["subprocess.Popen[str]"]:
    """Until it has ended by itself. Raises RuntimeError if it failed."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "benchmarks.stages.watched_clients"),
            *(endpoint, str(marks), work, str(rate), str(seconds)),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
        process.communicate(timeout=seconds + WARM_UP_S + TIMEOUT_S)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    if process.returncode:
        raise RuntimeError(f"{work}: ended with {process.returncode}")


def _pauses(name: str, noted: Noted, producer: Noted, seconds: float) -> str:
    """What the collector of a process took while messages were sent."""
    [[began]] = producer.rows("began", 1)
    rows = noted.between("collected", 3, 0, int(began), int(began + seconds * 1e9))
    took = (rows[:, 1] - rows[:, 0]) / 1e6
    longest = float(took.max()) if len(took) else 0.0
    oldest = int(np.count_nonzero(rows[:, 2] == 2))
    return (
        f"{name}: {len(took)} garbage collections ({oldest} of everything), "
        f"{took.sum():.1f} ms in all, the longest {longest:.1f}"
    )


def show(title: str, ways: Sequence[Way], pauses: Sequence[str]) -> None:
    console = Console(width=140)
    for way in ways:
        table = Table(title=f"{title}: {way.name}, ms", title_justify="left")
        table.add_column("stage")
        for percent in PERCENTS:
            table.add_column(f"p{percent:g}", justify="right")
        table.add_column("mean of the slowest 1 %", justify="right")
        for row in way.rows:
            if row is way.whole:
                table.add_section()
            table.add_row(row.name, *map(number, row.at), number(row.slowest_mean))
        console.print(table)
    for each in pauses:
        console.print(each)
