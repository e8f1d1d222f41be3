"""Producer to master over loopback gRPC, one client process: send_many and send.

Async flush and reput running; then the same with one slave in sync replication.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.harness.figures import Figure, bring_in_memory, medians_in_turns
from benchmarks.harness.nodes import cluster
from benchmarks.harness.puts import TOPICS, send_many_rate, send_rate
from tandemlog_server.cli.local.local_cluster import LocalCluster

RUNS = 5


def run(folder: Path) -> list[Figure]:
    """In turns, so that other load of the machine affects both."""
    with (
        cluster(folder / "alone", TOPICS) as alone,
        cluster(folder / "pair", TOPICS, slaves=1, replication="sync", min_in_sync=2) as pair,
    ):

        def once(rate: Callable[[list[str]], float], local: LocalCluster) -> float:
            bring_in_memory(folder, 3 << 30)
            return rate(local.endpoints.split(","))

        many, single = (
            medians_in_turns(RUNS, [partial(once, rate, local) for local in (alone, pair)])
            for rate in (send_many_rate, send_rate)
        )
    return [
        Figure("send_many, async flush", many[0], "messages/s", goal=300_000),
        Figure("send, async flush", single[0], "messages/s", goal=100_000),
        Figure("send_many, one slave in sync", many[1], "messages/s", goal=0.7, reference=many[0]),
        Figure("send, one slave in sync", single[1], "messages/s", goal=0.7, reference=single[0]),
    ]
