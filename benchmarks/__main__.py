"""Measure, print a table, write build/bench.json. Ends with 1 where a goal is missed."""

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks import history
from benchmarks.harness.figures import Figure, bring_in_memory, report
from benchmarks.harness.scratch import scratch_folder

MODULES = (
    "store.append", "node.many_topics", "clients.produce", "store.sync_flush",
    "replication.catch_up", "clients.pull", "node.restart", "node.memory", "spark.segments",
    "spark.live", "replication.failover", "replication.coordination", "clients.secure",
    "clients.columns", "store.filters", "clients.importing", "messaging.delays",
    "messaging.work", "messaging.transactions", "archive.archiving", "archive.cold_reads",
    "archive.restore", "store.scrub", "node.console", "stages.waiting_stages",
)  # fmt: skip
EACH_TIME = {module.rpartition(".")[2]: module for module in MODULES}
"""What `make bench` runs, in this order: name -> module."""
ASKED_FOR = {"peers": "peers.side_by_side", "rocketmq": "peers.rocketmq_slave"}
"""Run only by name, since they fetch other programs: name -> module."""
EVERY = EACH_TIME | ASKED_FOR


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    every = ", ".join(EVERY)
    # no choices: argparse would refuse an empty list
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {every}")
    parser.add_argument(
        "--record",
        action="store_true",
        help="add the ratios to benchmarks/history.jsonl, draw docs/benchmarks.svg, and name what "
        "has fallen",
    )
    given = parser.parse_args()
    names = given.names or list(EACH_TIME)
    if unknown := sorted(set(names) - set(EVERY)):
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {every}")
    figures: list[Figure] = []
    for name in names:
        module = importlib.import_module(f"benchmarks.{EVERY[name]}")
        with scratch_folder(name) as folder:
            print(f"{name}: {(module.__doc__ or '').splitlines()[0]}", file=sys.stderr, flush=True)
            bring_in_memory(folder, 4 << 30)
            figures += module.run(folder)
    holds = report(figures, Path("build") / "bench.json")
    if given.record:
        for line in history.record(figures, os.cpu_count() or 1):
            print(f"fallen by more than a tenth: {line}")
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
