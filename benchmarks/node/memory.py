"""Memory of a node: idle, and flat under load."""

import time
from pathlib import Path

from benchmarks.harness.figures import Figure
from benchmarks.harness.nodes import cluster, memory_mb
from benchmarks.harness.puts import TOPICS, send_many_rate


def run(folder: Path) -> list[Figure]:
    with cluster(folder, TOPICS) as local:
        process = local.nodes[0].process
        if process is None:
            raise RuntimeError("the master has no process")
        time.sleep(2)
        idle = memory_mb(process.pid)
        send_many_rate([local.nodes[0].endpoint], 500_000)
        early = memory_mb(process.pid)
        for _ in range(3):
            send_many_rate([local.nodes[0].endpoint], 500_000)
        late = memory_mb(process.pid)
    return [
        Figure("memory of an idle node", idle, "MB", goal=150, at_most=True),
        Figure(
            "memory after 2,000,000 messages", late, "MB", goal=1.3, reference=early, at_most=True
        ),
    ]
