"""A local cluster whose nodes note moments (watched_node.py), each into a file beside its log."""

import os
import subprocess
import sys
from pathlib import Path

from tandemlog_server.cli.local.local_cluster import LocalCluster, NodeProcess
from tandemlog_server.cli.local.local_coordinator import with_package_path


class WatchedCluster(LocalCluster):
    """See the module. The files are there once a node has stopped."""

    def start_node(self, node: NodeProcess) -> None:
        node.log_start = node.log.stat().st_size if node.log.exists() else 0
        with node.log.open("ab") as log:
            node.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "benchmarks.stages.watched_node"),
                    *(str(self.marks_of(node)), "node", "--config", str(node.config)),
                    *("--with-parent", str(os.getpid())),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=with_package_path(),
            )

    def marks_of(self, node: NodeProcess) -> Path:
        return node.log.with_name("marks.npz")
