"""First acknowledged put after kill -9, process start included, with 4 and 16 GiB in the store.

The process is killed right after a burst, when most is not yet dispatched or flushed.
"""

from pathlib import Path

import tandemlog
from benchmarks.harness.figures import Figure, median_of
from benchmarks.harness.nodes import cluster, first_put
from benchmarks.harness.puts import TOPICS, send_many_rate
from tandemlog_server.cli.local.local_cluster import LocalCluster

GIB = 1 << 30
STEP = 1_000_000


def fill(local: LocalCluster, size: int) -> None:
    with tandemlog.Admin(local.nodes[0].endpoint) as admin:
        while admin.cluster().nodes[0].wrote_offset < size:
            send_many_rate([local.nodes[0].endpoint], STEP)


def restart(local: LocalCluster) -> float:
    """The median of several kills, each after another burst."""

    def once() -> float:
        send_many_rate([local.nodes[0].endpoint], STEP)
        return first_put(local)

    return median_of(3, once)


def run(folder: Path) -> list[Figure]:
    with cluster(folder, TOPICS, flush="async") as local:
        fill(local, 4 * GIB)
        small = restart(local)
        fill(local, 16 * GIB)
        large = restart(local)
    return [
        Figure("first put after kill -9, 4 GiB", small, "s", goal=2, at_most=True),
        Figure(
            "first put after kill -9, 16 GiB", large, "s", goal=1.5, reference=small, at_most=True
        ),
    ]
