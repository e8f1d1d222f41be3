"""A cluster that elects its master, as real processes: an embedded coordinator and three nodes.

with Elected(folder) as cluster:
    cluster.tandemlog("switchover", "--to", "n1", "--yes")
"""

import contextlib
from collections.abc import Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

from helpers import forked
from helpers.coordinators import EmbeddedProcess
from helpers.elected_nodes import ElectedNodes
from helpers.running import NodeProcess, wait_until
from tandemlog.v1 import common_pb2


class Elected(ElectedNodes):
    """Nodes n0, n1, … below `folder`, with a coordinator of their own."""

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        min_in_sync: int = 2,
        replication: Mapping[str, Any] | None = None,
    ) -> None:
        self.coordinator = EmbeddedProcess(folder / "coordinator")
        super().__init__(
            folder,
            [self.coordinator.endpoint],
            count=nodes,
            min_in_sync=min_in_sync,
            replication=replication,
        )

    def node(self, node_id: str) -> NodeProcess:
        return next(node for node in self.nodes if node.node_id == node_id)

    def masters(self) -> list[NodeProcess]:
        """The nodes that say of themselves that they lead."""
        found = []
        for node in self.nodes:
            if node.alive and (status := node.status()) is not None:
                found += [node] if status.role == common_pb2.MASTER else []
        return found

    def the_master(self) -> NodeProcess:
        """The master, once there is one."""
        found: list[NodeProcess] = []

        def alone() -> bool:
            found[:] = self.masters()
            return len(found) == 1

        wait_until("a master", alone, 60)
        return found[0]

    def wait_led_by(self, master: NodeProcess) -> None:
        """`master` leads and no other node does, as all say; a node may not answer for a moment."""

        def led() -> bool:
            found = self.masters()
            assert all(node is master for node in found), [node.node_id for node in found]
            return bool(found)

        wait_until(f"{master.node_id} to lead", led, 60)

    def wait_in_sync(self, *, count: int) -> None:
        """Until the master has `count` nodes in sync, itself included, and takes puts."""

        def settled() -> bool:
            found = [node for node in self.nodes if node.alive]
            states = [node.status() for node in found]
            in_sync = sum(state is not None and state.in_sync for state in states)
            return in_sync >= count and self.run("check").returncode in (0, 1)

        wait_until(f"{count} nodes in sync", settled, 60)

    def run(self, *arguments: str, timeout_s: float = 120) -> CompletedProcess[str]:
        """The program, asked at all nodes."""
        endpoints = ",".join(self.endpoints)
        return forked.run(*arguments, "--endpoint", endpoints, timeout_s=timeout_s)

    def tandemlog(self, *arguments: str, code: int = 0) -> str:
        """What the program says on stdout and stderr; AssertionError for another exit code."""
        done = self.run(*arguments)
        said = done.stdout + done.stderr
        assert done.returncode == code, f"tandemlog {arguments}: {done.returncode}\n{said}"
        return said

    def __enter__(self) -> "Elected":
        try:
            self.coordinator.start()
            self.coordinator.wait_ready()
            for node in self.nodes:
                node.start(wait=False)
            for node in self.nodes:
                node.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for node in self.nodes:
            with contextlib.suppress(ProcessLookupError):
                if node.alive:
                    node.resume()
            node.kill()
        self.coordinator.kill()
