"""Pull of 1 KiB bodies by one client, bytes delivered."""

from pathlib import Path

from benchmarks.harness import pulls
from benchmarks.harness.figures import Figure, median_of
from benchmarks.harness.nodes import cluster
from tandemlog.memory import keep_freed_memory


def run(folder: Path) -> list[Figure]:
    # as docs/client.md tells a program that reads fast
    keep_freed_memory()
    with cluster(folder, 1) as local:
        endpoint = local.nodes[0].endpoint
        pulls.fill(endpoint)
        bytes_per_s = median_of(3, lambda: pulls.rate(endpoint))
    return [Figure("pull, 1 KiB bodies", bytes_per_s / 1e6, "MB/s", goal=500)]
