"""Everything is measured in turns: what else the machine does affects all sides of a ratio.

    for each round, for each number of topics, for each work: tandemlog, RocketMQ, Kafka

The result is a table of measurements, one for each round, by (work, topics, side).
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.harness.figures import bring_in_memory
from benchmarks.seeds.sides import (
    OWN_CLIENT,
    PACED,
    RAW,
    SAME_FOR_KAFKA,
    KafkaSide,
    Measurement,
    RemotingSide,
)

Rounds = dict[tuple[str, int, str], list[Measurement]]
"""(Work, topics, name of the side) -> a measurement of each round."""
WRITTEN_AT_MOST: Final = 1 << 30
"""Bytes that the measurements of one round and one number of topics write."""
READ: Final = SAME_FOR_KAFKA["push"]


def prepare(sides: Sequence[RemotingSide | KafkaSide], counts: Sequence[int]) -> None:
    """Topics, with what is to be read in them."""
    for side in sides:
        side.make_topics(counts[0], PACED)
    for topics in counts:
        for side in sides:
            _say(f"{side.name}: {topics} topics")
            side.make_topics(topics)
            side.fill(topics)


def warm_up(
    sides: Sequence[RemotingSide | KafkaSide], topics: int, raw: Sequence[RemotingSide]
) -> None:
    """Once everything, so that the compilers of the JVMs have seen it."""
    for side in sides:
        _say(f"warming up {side.name}")
        for work in (*works_of(side), PACED):
            side.measure(work, topics)
    for remoting in raw:
        for work in RAW:
            remoting.measure_raw(work, topics)


def works_of(side: RemotingSide | KafkaSide) -> list[str]:
    """Each one once."""
    if isinstance(side, RemotingSide):
        return [*OWN_CLIENT]
    return [*dict.fromkeys(SAME_FOR_KAFKA.get(work, work) for work in OWN_CLIENT)]


def with_clients(
    sides: Sequence[RemotingSide | KafkaSide], folder: Path, counts: Sequence[int], rounds: int
) -> Rounds:
    """Each side by its own client; the waiting times at an even pace with the fewest topics."""
    found: Rounds = {}
    for number in range(rounds):
        for topics in counts:
            _say(f"clients: round {number + 1} of {rounds}, {topics} topics")
            bring_in_memory(folder, WRITTEN_AT_MOST)
            for work in (*OWN_CLIENT, READ):
                for side in sides:
                    if work in works_of(side):
                        _add(found, work, topics, side.name, _one(side, work, topics))
            if topics == counts[0]:
                for side in sides:
                    _add(found, PACED, topics, side.name, _one(side, PACED, topics))
    return found


def without_clients(
    sides: Sequence[RemotingSide], folder: Path, counts: Sequence[int], rounds: int
) -> Rounds:
    """Raw frames to the node and to the broker."""
    found: Rounds = {}
    for number in range(rounds):
        for topics in counts:
            _say(f"raw frames: round {number + 1} of {rounds}, {topics} topics")
            bring_in_memory(folder, WRITTEN_AT_MOST)
            for work in RAW:
                for side in sides:
                    os.sync()
                    _add(found, work, topics, side.name, side.measure_raw(work, topics))
    return found


def _one(side: RemotingSide | KafkaSide, work: str, topics: int) -> Measurement:
    """The same start for each: what the one before has written is on the disk."""
    os.sync()
    return side.measure(work, topics)


def _add(found: Rounds, work: str, topics: int, name: str, measured: Measurement) -> None:
    found.setdefault((work, topics, name), []).append(measured)
    _say(f"    {work} {topics} {name}: {measured.rate:,.0f} messages/s")


def _say(text: str) -> None:
    sys.stderr.write(f"seeds: {text}\n")
