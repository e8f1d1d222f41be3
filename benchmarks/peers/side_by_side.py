"""Kafka and confluent-kafka beside tandemlog on this machine: ratios of what ran in turns.

Both brokers run all the time, and idle while the other one works. Needs Java, Maven and the
network; what is fetched stays in build/peers.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.harness.figures import Figure, bring_in_memory, number
from benchmarks.harness.nodes import cluster, cpu_seconds_of
from benchmarks.peers import kafka
from benchmarks.peers.measures import Comparison, Measured, percentile

ROUNDS = 3
WARM_UP_RUNS = 6
SENT = 1_000_000
READ = 400_000
PACE = 50_000
"""Messages a second where waiting times are measured."""
TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True)
class Row:
    """What is compared: our work with theirs, and the ratio that must hold."""

    name: str
    ours: str
    theirs: str
    count: int
    goal: float

    @property
    def handled(self) -> int:
        """Messages that the broker handles for it, those by which the client warms up included: a
        fifth of what is sent, and all that is read."""
        return 2 * self.count if self.count == READ else self.count + self.count // 5


ROWS = (
    Row("send, one message a call", "send", "send", SENT, 0.75),
    Row("send_many of Message objects", "send_messages", "send", SENT, 0.9),
    Row("send_many by columns, 64 topics", "send_columns", "send", SENT, 1.5),
    Row("read batches", "read_batches", "read_batches", READ, 1.0),
    Row("read messages: body", "read_bodies", "read_bodies", READ, 0.8),
    Row("read messages: body, keys, tags, property", "read_fields", "read_fields", READ, 0.5),
)
WAITS = (("ack_ms", "send to acknowledgement", 10.0), ("hand_ms", "send to consumer", 20.0))


class Side:
    """One log and its client: `command` but for the work and the count; `server` the process id of
    its broker."""

    def __init__(self, command: Sequence[str], server: int) -> None:
        self._command = [*command]
        self._server = server
        self.server_cpu_us = 0.0
        """Of the broker, for each message that it handled in the last measurement."""

    def start(self, work: str, count: int) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [*self._command, work, str(count)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            cwd=kafka.ROOT,
            env={**os.environ, "PYTHONPATH": str(kafka.ROOT)},
        )

    def run(self, work: str, count: int) -> str:
        process = self.start(work, count)
        output, _ = process.communicate(timeout=TIMEOUT_S)
        if process.returncode:
            raise RuntimeError(f"{' '.join(self._command)} {work}: ended with {process.returncode}")
        return output.strip()

    def measure(self, work: str, row: Row) -> Measured:
        before = cpu_seconds_of(self._server)
        measured = Measured.from_json(self.run(work, row.count))
        used = cpu_seconds_of(self._server) - before
        self.server_cpu_us = 1e6 * used / row.handled
        return measured

    def waits(self, rate: int) -> Measured:
        """`rate` messages a second, and how long they waited."""
        reader = self.start("paced_read", rate)
        assert reader.stdout is not None
        if reader.stdout.readline().strip() != "ready":
            raise RuntimeError("the reader did not start")
        sent = Measured.from_json(self.run("paced_send", rate))
        received = Measured.from_json(reader.communicate(timeout=TIMEOUT_S)[0].strip())
        return replace(sent, hand_ms=received.hand_ms)


def run(folder: Path) -> list[Figure]:
    with (
        kafka.broker(folder / "kafka") as (broker, broker_id),
        cluster(folder / "tandemlog", 1) as local,
    ):
        [node] = local.nodes
        assert node.process is not None
        ours = Side(
            [sys.executable, "-m", "benchmarks.peers.tandemlog_client", node.endpoint],
            node.process.pid,
        )
        theirs = Side(
            [str(kafka.fetch_client()), "-m", "benchmarks.peers.confluent_client", broker],
            broker_id,
        )
        for side in (ours, theirs):
            side.run("make_topics", 0)
        _say("warming up")
        for _ in range(WARM_UP_RUNS):
            theirs.run("send", SENT)
        compared, costs = _compare(folder, ours, theirs)
        waits = _waits(ours, theirs)
    _print(compared, costs, waits)
    goals = {row.name: row.goal for row in ROWS} | {name: goal for _, name, goal in WAITS}
    return [
        Figure(f"peers: {each.name}", each.our_median, each.unit, goals[each.name],
               reference=each.their_median)
        for each in compared
    ] + [
        Figure(f"peers: {each.name}, p99 at {PACE:,}/s", each.our_median, each.unit,
               goals[each.name], at_most=True)
        for each in waits
    ]  # fmt: skip


def _compare(
    folder: Path, ours: Side, theirs: Side
) -> tuple[list[Comparison], dict[str, list[float]]]:
    """All rows; and by row the processor time of a message, us: client, broker, of both sides."""
    rates: dict[str, tuple[list[float], list[float]]] = {row.name: ([], []) for row in ROWS}
    costs: dict[str, list[float]] = {}
    reads = [row for row in ROWS if row.count == READ]
    for rows in ([row for row in ROWS if row not in reads], reads):
        if rows is reads:
            for side in (ours, theirs):
                side.run("fill", READ)
        for round_number in range(ROUNDS):
            _say(f"round {round_number + 1} of {ROUNDS}")
            measured: dict[str, Measured] = {}
            for row in rows:
                if row.theirs not in measured:
                    _prepare(folder)
                    measured[row.theirs] = theirs.measure(row.theirs, row)
                    their_cost = [measured[row.theirs].cpu_us, theirs.server_cpu_us]
                _prepare(folder)
                mine = ours.measure(row.ours, row)
                rates[row.name][0].append(mine.rate)
                rates[row.name][1].append(measured[row.theirs].rate)
                costs[row.name] = [mine.cpu_us, ours.server_cpu_us, *their_cost]
    return [Comparison(row.name, "messages/s", *rates[row.name]) for row in ROWS], costs


def _prepare(folder: Path) -> None:
    """The same start for each measurement: what the one before has written is on the disk, and
    there is memory for what this one writes."""
    os.sync()
    bring_in_memory(folder, 2 << 30)


def _waits(ours: Side, theirs: Side) -> list[Comparison]:
    """The 99th percentiles, ms."""
    rounds = []
    for round_number in range(ROUNDS):
        _say(f"waiting times, round {round_number + 1} of {ROUNDS}")
        rounds.append((ours.waits(PACE), theirs.waits(PACE)))

    def ninety_ninth(side: int, part: str) -> list[float]:
        return [percentile(getattr(each[side], part), 99) for each in rounds]

    return [
        Comparison(name, "ms", ninety_ninth(0, part), ninety_ninth(1, part))
        for part, name, _ in WAITS
    ]


def _say(text: str) -> None:
    sys.stderr.write(f"peers: {text}\n")


def _print(
    compared: Sequence[Comparison], costs: dict[str, list[float]], waits: Sequence[Comparison]
) -> None:
    table = Table(title=f"beside Kafka {kafka.VERSION} and {kafka.CLIENT}", title_justify="left")
    for column in (
        "work", "tandemlog", "Kafka", "ratio", "our client", "our node", "its client", "its broker"
    ):  # fmt: skip
        table.add_column(column, justify="left" if column == "work" else "right")
    for each in (*compared, *waits):
        table.add_row(
            each.name,
            number(each.our_median),
            number(each.their_median),
            f"{each.ratio:.2f}",
            *(f"{cost:.2f} us" for cost in costs.get(each.name, ())),
        )
    Console(width=140).print(table)
