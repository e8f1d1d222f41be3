"""Seconds without an acknowledged put while something happens to a cluster of three.

One client with default options, sync replication with min_in_sync 2, the embedded coordinator;
ROUNDS of each fault in a row. `tandemlog drill` plays the same rounds.
"""

import statistics
from pathlib import Path

import tandemlog
from benchmarks.harness.figures import Figure
from benchmarks.harness.nodes import cluster
from tandemlog_server.cli.local.drills import TOPIC, Drill, Load

ROUNDS = 20
# fault: most seconds in the median, and at worst
GOALS = {
    "kill-master": (0.5, 1.5),
    "switchover": (0.5, 1.0),
    "kill-slave": (3.5, 3.5),
    "pause-master": (8.0, 8.0),
}


def run(folder: Path) -> list[Figure]:
    figures = []
    with cluster(
        folder, 0, slaves=2, replication="sync", min_in_sync=2, commit_log_file_size=64 << 20
    ) as local:
        endpoints = local.endpoints.split(",")
        with tandemlog.Admin(endpoints) as admin:
            admin.create_topic(TOPIC, queues=4)
            load = Load(endpoints)
            drill = Drill(local, load, admin)
            with load:
                for fault, (median, worst) in GOALS.items():
                    times = [drill.play(fault).seconds for _ in range(ROUNDS)]
                    figures += [
                        Figure(
                            f"{fault}, median", statistics.median(times), "s", median, at_most=True
                        ),
                        Figure(f"{fault}, worst of {ROUNDS}", max(times), "s", worst, at_most=True),
                    ]
            account = drill.account()
    wrong = account.lost + account.duplicated + account.failed
    return [*figures, Figure("messages lost, doubled or failed", wrong, "", 0, at_most=True)]
