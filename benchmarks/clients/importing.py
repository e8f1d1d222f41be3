"""What `from tandemlog import Producer` costs a program, in processor time of a fresh interpreter.

The best of ten, in turns with `import asyncio`, which every client loads: the machine, and other
load on it, affect both alike.
"""

import subprocess
import sys
from pathlib import Path

from benchmarks.harness.figures import Figure

TIMES = 10
PRODUCER = "from tandemlog import Producer"
ASYNCIO = "import asyncio"
PRINT_CPU = "import resource as r; u = r.getrusage(r.RUSAGE_SELF); print(u.ru_utime + u.ru_stime)"


def seconds(statement: str) -> float:
    command = [sys.executable, "-c", f"{statement}\n{PRINT_CPU}"]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


def run(_folder: Path) -> list[Figure]:
    rounds = [(seconds(PRODUCER), seconds(ASYNCIO)) for _ in range(TIMES)]
    producer, asyncio = (min(column) for column in zip(*rounds, strict=True))
    return [
        Figure("import of a producer, beside asyncio", producer, "s", 3.0, asyncio, at_most=True)
    ]
