"""The section of docs/performance.md, made from the measurements.

A ratio is the median of the rounds' ratios, with the smallest and the largest behind it; rates and
times are medians of the rounds.
"""

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from benchmarks.harness.figures import Figure, number
from benchmarks.peers import kafka
from benchmarks.seeds.sides import (
    OWN_CLIENT,
    PACED,
    QUEUES,
    RAW,
    SAME_FOR_KAFKA,
    Measurement,
    Size,
)
from benchmarks.seeds.turns import Rounds

HEADING: Final = "## RocketMQ's own client"
PAIR_HEADING: Final = "## RocketMQ's own client, with a slave in sync"
NODE: Final = "tandemlog"
BROKER: Final = "RocketMQ"
KAFKA: Final = "Kafka"
ROCKETMQ: Final = "5.5.0"
CONNECTIONS: Final = 4
"""Those of java/RawLoad."""
WORKS: Final = {
    "sync": "send, 32 threads that wait",
    "async": "send, 1,024 in flight",
    "batch": "send batches of 32",
    "push": "push consumer",
    "pull": "pull by 32",
}
RAW_WORKS: Final = {"send": "send", "batch": "send a batch of 32", "pull": "pull 32"}


def spread(ours: Sequence[Measurement], theirs: Sequence[Measurement]) -> str:
    """The median of the rounds' ratios of rates, and the range where there are several."""
    ratios = [a.rate / b.rate for a, b in zip(ours, theirs, strict=True)]
    middle = f"{statistics.median(ratios):.2f}"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f} to {max(ratios):.2f})"


def median(rounds: Iterable[Measurement], value: Callable[[Measurement], float]) -> float:
    return statistics.median(value(each) for each in rounds)


def _rate(rounds: Iterable[Measurement]) -> str:
    return number(median(rounds, lambda each: each.rate))


def _wait(rounds: Sequence[Measurement]) -> str:
    """p50 and p99, ms."""
    return (
        f"{number(median(rounds, lambda each: each.p50_ms))} / "
        f"{number(median(rounds, lambda each: each.p99_ms))}"
    )


def client_table(found: Rounds, counts: Sequence[int]) -> list[str]:
    """Rates by each side's own client; waiting times where threads wait."""
    lines = [
        "| work | topics | node | RocketMQ's broker | ratio | Kafka | ratio | node, µs "
        "| broker, µs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for work in OWN_CLIENT:
        for topics in counts:
            ours, theirs = found[work, topics, NODE], found[work, topics, BROKER]
            peer = found.get((SAME_FOR_KAFKA.get(work, work), topics, KAFKA))
            cells = [
                WORKS[work],
                str(topics),
                _rate(ours),
                _rate(theirs),
                spread(ours, theirs),
                _rate(peer) if peer else "",
                spread(ours, peer) if peer else "",
                *(number(median(side, lambda each: each.server_us)) for side in (ours, theirs)),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def wait_table(found: Rounds, counts: Sequence[int], pace: int) -> list[str]:
    lines = [
        "| p50 / p99, ms | topics | node | RocketMQ's broker | Kafka |",
        "|---|---|---|---|---|",
    ]
    rows = [("sync", f"{WORKS['sync']}: to the answer", topics) for topics in counts]
    rows.append((PACED, f"{pace:,} a second, from the send to the consumer", counts[0]))
    for work, name, topics in rows:
        sides = [found.get((work, topics, side)) for side in (NODE, BROKER, KAFKA)]
        waits = [_wait(side) if side else "" for side in sides]
        lines.append(f"| {name} | {topics} | {' | '.join(waits)} |")
    return lines


def raw_table(found: Rounds, counts: Sequence[int]) -> list[str]:
    """Messages a second of raw frames, and the processor time of a request."""
    lines = [
        "| raw frames | topics | node | RocketMQ's broker | ratio | node, µs a request "
        "| broker, µs a request | p50 / p99, ms: node | broker |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for work in RAW:
        for topics in counts:
            ours, theirs = found[work, topics, NODE], found[work, topics, BROKER]
            cells = [
                RAW_WORKS[work],
                str(topics),
                _rate(ours),
                _rate(theirs),
                spread(ours, theirs),
                *(number(median(side, lambda each: each.request_us)) for side in (ours, theirs)),
                _wait(ours),
                _wait(theirs),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def figures(clients: Rounds, raw: Rounds, counts: Sequence[int]) -> list[Figure]:
    """What must hold, of what was measured."""

    def rate(found: Rounds, work: str, topics: int, side: str) -> float:
        return median(found[work, topics, side], lambda each: each.rate)

    least, most = counts[0], counts[-1]
    rows = []
    if clients:
        goals = (("async", 0.7), ("batch", 0.8), ("push", 0.7))
        rows += [
            Figure(
                f"{WORKS[work]}, {least} topics, of the broker's",
                rate(clients, work, least, NODE),
                "messages/s",
                goal,
                reference=rate(clients, work, least, BROKER),
            )
            for work, goal in goals
        ]
        if most != least:
            rows.append(
                Figure(
                    f"{WORKS['async']}, {most} topics, of {least}",
                    rate(clients, "async", most, NODE),
                    "messages/s",
                    0.95,
                    reference=rate(clients, "async", least, NODE),
                )
            )
    if raw:
        for work, goal in (("send", 60.0), ("pull", 50.0)):
            spent = median(raw[work, least, NODE], lambda each: each.request_us)
            name = f"processor time of the node: {RAW_WORKS[work]}"
            rows.append(Figure(name, spent, "us", goal, at_most=True))
    return rows


_ABOUT = """\
`make bench-seeds` fetches RocketMQ {rocketmq} and Kafka {kafka} by Maven and starts a node with
its door for RocketMQ's clients, RocketMQ's broker and Kafka. RocketMQ's own Java client loads the
node and the broker, Kafka's own Java client loads Kafka, all in turns in one run: bodies of 128
bytes, topics with {queues} queues, flush in the background, no slave. The JVM of a broker has a
heap of 2 GB; servers and clients share the cores, and what is read is in the page cache. Kafka's
client makes batches by itself (`acks=1`, a linger of 5 ms, none where threads wait), and its one
kind of consumer is compared with both of RocketMQ's. Rates are messages a second, µs the processor
time of the server for a message, all medians of the rounds; a ratio is the median of the rounds'
ratios, with its range.

Measured {when}.
"""


_ABOUT_PAIR = """\
`make bench-seeds ARGS=--slave`: the same with one slave in sync, on the same machine. A node
answers when its slave has the message durable (`replication = "sync"`, `min_in_sync = 2`), the
broker when its slave has received it (`SYNC_MASTER`, `inSyncReplicas=2`).

Measured {when}.
"""


def section(
    clients: Rounds,
    raw: Rounds,
    figures: Sequence[Figure],
    counts: Sequence[int],
    size: Size,
    when: str,
    slave: bool = False,
) -> str:
    """The whole section, with what was measured; `when` names the day, the commit, the machine."""
    heading, text = (PAIR_HEADING, _ABOUT_PAIR) if slave else (HEADING, _ABOUT)
    about = text.format(rocketmq=ROCKETMQ, kafka=kafka.VERSION, queues=QUEUES, when=when)
    parts = [[heading, "", *about.splitlines()]]
    if clients:
        parts += [client_table(clients, counts), wait_table(clients, counts, size.pace)]
    if raw:
        parts.append(
            [
                "Without a client in the way: one program writes frames that it made before, on "
                f"{CONNECTIONS} connections, many in flight, and only counts the responses.",
                "",
                *raw_table(raw, counts),
            ]
        )
    if figures:
        parts.append(goal_table(figures))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def goal_table(figures: Sequence[Figure]) -> list[str]:
    lines = ["| goal | measured | must be |", "|---|---|---|"]
    for figure in figures:
        unit = f" {figure.unit}" if figure.reference is None else ""
        value = figure.value if figure.reference is None else figure.ratio
        missed = "" if figure.holds else " (missed)"
        bound = "≤" if figure.at_most else "≥"
        goal = f"{bound} {number(figure.goal)}{unit}"
        lines.append(f"| {figure.name} | {number(value)}{unit}{missed} | {goal} |")
    return lines


def with_section(page: str, section: str) -> str:
    """`page` with `section` in place of the one with this heading that there was, or at the end."""
    head, found, rest = page.partition(section.partition("\n")[0] + "\n")
    if not found:
        return f"{page.rstrip()}\n\n{section.rstrip()}\n"
    _, heading, after = rest.partition("\n## ")
    return f"{head}{section.rstrip()}\n{heading}{after}"
