"""usage: python -m benchmarks [NAME ...]     NAME is a module of this folder, e.g. append pull"""

import importlib
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Figure, bring_in_memory, report

MODULES = (
    "append", "produce", "sync_flush", "catch_up", "pull", "restart", "memory", "segments", "live",
)  # fmt: skip


def main() -> int:
    figures: list[Figure] = []
    for name in sys.argv[1:] or MODULES:
        module = importlib.import_module(f"benchmarks.{name}")
        with tempfile.TemporaryDirectory(prefix=f"tandemlog-bench-{name}-") as folder:
            print(f"{name}: {(module.__doc__ or '').splitlines()[0]}", file=sys.stderr, flush=True)
            bring_in_memory(Path(folder), 4 << 30)
            figures += module.run(Path(folder))
    return 0 if report(figures, Path("build") / "bench.json") else 1


if __name__ == "__main__":
    sys.exit(main())
