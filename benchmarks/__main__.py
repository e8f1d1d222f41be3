"""Measure, print a table, write build/bench.json. Ends with 1 where a goal is missed."""

import argparse
import importlib
import os
import sys
from pathlib import Path

from benchmarks import history
from benchmarks.harness import Figure, bring_in_memory, report
from benchmarks.scratch import scratch_folder

MODULES = (
    "append", "many_topics", "produce", "sync_flush", "catch_up", "pull", "restart", "memory",
    "segments", "live", "failover", "coordination", "secure", "columns", "filters", "importing",
    "delays", "work", "transactions", "archiving", "cold_reads", "restore", "scrub", "console",
    "waiting_stages",
)  # fmt: skip
ASKED_FOR = {"peers": "peers.side_by_side", "rocketmq": "rocketmq"}
"""Run only by name, since they fetch other programs: name -> module."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    every = ", ".join((*MODULES, *ASKED_FOR))
    # no choices: argparse would refuse an empty list
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {every}")
    parser.add_argument(
        "--record",
        action="store_true",
        help="add the ratios to benchmarks/history.jsonl, draw docs/benchmarks.svg, and name what "
        "has fallen",
    )
    given = parser.parse_args()
    names = given.names or MODULES
    if unknown := sorted(set(names) - {*MODULES, *ASKED_FOR}):
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {every}")
    figures: list[Figure] = []
    for name in names:
        module = importlib.import_module(f"benchmarks.{ASKED_FOR.get(name, name)}")
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
