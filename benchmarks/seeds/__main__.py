"""Measure, print, write build/seeds.json and build/seeds.md; `--write` puts it on the page.

    PYTHONPATH=.:tests python -m benchmarks.seeds --quick

Ends with 1 where a goal is missed. Needs Java, a JDK, Maven and the network.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.harness.figures import Figure, bring_in_memory, report
from benchmarks.harness.nodes import cluster, memory_mb
from benchmarks.harness.scratch import scratch_folder
from benchmarks.peers import kafka
from benchmarks.seeds import page, servers, turns
from benchmarks.seeds.programs import JavaProgram
from benchmarks.seeds.sides import KafkaSide, RemotingSide, Size
from benchmarks.seeds.turns import Rounds
from interop.jars import jars

PARTS = ("clients", "raw", "memory")
FULL, QUICK = Size(3, 131_072), Size(1, 32_768, pace=500)
COUNTS = (64, 128, 256)
ROUNDS = 3
IDLE_S = 3.0
DOOR_MB = 10.0
PAGE = kafka.ROOT / "docs" / "performance.md"
BUILD = kafka.ROOT / "build"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is to be measured: `only` of PARTS."""

    only: tuple[str, ...]
    counts: tuple[int, ...]
    rounds: int
    size: Size
    with_kafka: bool
    slave: bool


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.seeds", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="64 topics, one short round")
    parser.add_argument("--only", choices=PARTS, action="append", help="one part; may be repeated")
    parser.add_argument("--topics", type=int, action="append", help="a number; may be repeated")
    parser.add_argument("--rounds", type=int, default=0)
    parser.add_argument("--no-kafka", action="store_true")
    parser.add_argument(
        "--slave", action="store_true", help="node and broker with one slave in sync, without Kafka"
    )
    parser.add_argument("--write", action="store_true", help="put the tables on the page")
    given = parser.parse_args()
    wishes = Wishes(
        tuple(given.only or PARTS),
        tuple(sorted(given.topics or (COUNTS[:1] if given.quick else COUNTS))),
        given.rounds or (1 if given.quick else ROUNDS),
        QUICK if given.quick else FULL,
        not (given.no_kafka or given.slave),
        given.slave,
    )
    with scratch_folder("seeds") as folder:
        bring_in_memory(folder, 2 << 30)
        clients, raw = measured(folder, wishes)
        # the goals are those of a node without a slave
        figures = [] if wishes.slave else page.figures(clients, raw, wishes.counts)
        if "memory" in wishes.only:
            figures.append(door_memory(folder))
    BUILD.mkdir(exist_ok=True)
    kept = {"clients": _rows(clients), "raw": _rows(raw)}
    (BUILD / "seeds-rounds.json").write_text(json.dumps(kept, indent=1) + "\n")
    good = report(figures, BUILD / "seeds.json")
    text = page.section(clients, raw, figures, wishes.counts, wishes.size, _when(), wishes.slave)
    (BUILD / "seeds.md").write_text(text)
    sys.stdout.write(text)
    if given.write:
        PAGE.write_text(page.with_section(PAGE.read_text(), text))
    return 0 if good else 1


def measured(folder: Path, wishes: Wishes) -> tuple[Rounds, Rounds]:
    """By the clients, and by raw frames."""
    with contextlib.ExitStack() as running:
        enter = running.enter_context
        raw = enter(JavaProgram("RawLoad", folder / "raw"))
        remoting = []
        for server in (
            enter(servers.node(folder / "node", wishes.slave)),
            enter(servers.broker(folder / "rocketmq", wishes.slave)),
        ):
            client = enter(_client("RocketmqClient", folder, server, jars(page.ROCKETMQ)))
            remoting.append(RemotingSide(server, client, raw, wishes.size))
        sides: list[RemotingSide | KafkaSide] = [*remoting]
        if wishes.with_kafka and "clients" in wishes.only:
            server = enter(servers.kafka_broker(folder / "kafka"))
            client = enter(_client("KafkaClient", folder, server, f"{kafka.fetch_jars()}/*"))
            sides.append(KafkaSide(server, client, wishes.size))
        turns.prepare(sides, wishes.counts)
        turns.warm_up(sides if "clients" in wishes.only else [], wishes.counts[0], remoting)
        order = folder, wishes.counts, wishes.rounds
        clients = turns.with_clients(sides, *order) if "clients" in wishes.only else {}
        frames = turns.without_clients(remoting, *order) if "raw" in wishes.only else {}
    return clients, frames


def _client(main: str, folder: Path, server: servers.Server, class_path: str) -> JavaProgram:
    home = folder / f"{main}-{server.name}"
    return JavaProgram(main, home, server.name_server, class_path=class_path)


def door_memory(folder: Path) -> Figure:
    """What the door takes of a node that nobody uses, MB."""
    closed, opened = (_idle_mb(folder / f"idle{door}", door) for door in (False, True))
    name = "memory of an idle node: what the door adds"
    return Figure(name, opened - closed, "MB", DOOR_MB, at_most=True)


def _idle_mb(folder: Path, door: bool) -> float:
    with cluster(folder, 1, rocketmq=door) as local:
        process = local.nodes[0].process
        assert process is not None
        time.sleep(IDLE_S)
        return memory_mb(process.pid)


def _rows(found: Rounds) -> list[dict[str, object]]:
    return [
        {"work": work, "topics": topics, "side": side, "rounds": [asdict(each) for each in rounds]}
        for (work, topics, side), rounds in found.items()
    ]


def _when() -> str:
    """The day, the commit, and the machine."""
    commit = _git("rev-parse", "--short", "HEAD") or "no commit"
    changed = ", changed" if _git("status", "--porcelain", "--untracked-files=no") else ""
    day = datetime.now(UTC).date().isoformat()
    return f"{day}, commit {commit}{changed}, {os.cpu_count()} cores"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=kafka.ROOT, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
