"""Measure, print a table, write build/bench.json. Ends with 1 where a goal is missed."""

import argparse
import importlib
import sys
from pathlib import Path

from benchmarks.harness import Figure, bring_in_memory, report
from benchmarks.scratch import scratch_folder

MODULES = (
    "append", "produce", "sync_flush", "catch_up", "pull", "restart", "memory", "segments", "live",
    "failover", "coordination", "secure",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    # no choices: argparse holds an empty list against them
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(MODULES)}")
    names = parser.parse_args().names or MODULES
    if unknown := sorted(set(names) - set(MODULES)):
        parser.error(f"no benchmark {', '.join(unknown)}: choose from {', '.join(MODULES)}")
    figures: list[Figure] = []
    for name in names:
        module = importlib.import_module(f"benchmarks.{name}")
        with scratch_folder(name) as folder:
            print(f"{name}: {(module.__doc__ or '').splitlines()[0]}", file=sys.stderr, flush=True)
            bring_in_memory(folder, 4 << 30)
            figures += module.run(folder)
    return 0 if report(figures, Path("build") / "bench.json") else 1


if __name__ == "__main__":
    sys.exit(main())
