"""etcd answers reads and renews leases, and accepts no change: no failover is possible, which
`check` and the metrics tell before the master is lost."""

import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from helpers import forked
from helpers.coordinators import EtcdProcesses, etcd_or_skip, etcdctl
from helpers.elected_nodes import ElectedNodes
from helpers.running import NodeProcess, wait_until

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

QUOTA = 16 << 20


def check(nodes: ElectedNodes) -> "subprocess.CompletedProcess[str]":
    return forked.run("check", "--endpoint", ",".join(nodes.endpoints), timeout_s=60)


def fill(endpoint: str) -> None:
    for number in range(2 * QUOTA >> 20):
        etcdctl(endpoint, "--command-timeout=25s", "put", f"other/{number}", stdin="x" * (1 << 20))


def accepted_age_s(node: NodeProcess) -> float:
    with urllib.request.urlopen(f"{node.http}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    (line,) = [
        each
        for each in text.splitlines()
        if each.startswith("tandemlog_coordinator_last_accepted_age_seconds{")
    ]
    return float(line.split()[-1])


def test_an_etcd_without_space(tmp_path: Path) -> None:
    etcd_or_skip()
    with EtcdProcesses(tmp_path / "etcd", 1, (f"--quota-backend-bytes={QUOTA}",)) as etcd:
        etcd.members[0].wait_ready()
        (endpoint,) = etcd.endpoints
        with ElectedNodes(tmp_path, [endpoint]) as nodes:
            wait_until("all to be well", lambda: "take over" in check(nodes).stdout, 60)
            with pytest.raises(AssertionError, match="space exceeded"):
                fill(endpoint)
            assert "NOSPACE" in etcdctl(endpoint, "alarm", "list")

            def told() -> bool:
                said = check(nodes)
                return said.returncode == 1 and "has accepted no change of it for" in said.stdout

            wait_until("check to tell it", told, 60)
            said = check(nodes).stdout
            assert "space exceeded" in said
            assert "take over" not in said
            # each node tries by itself, and check may have been told by another one first
            wait_until("the metric of a node", lambda: accepted_age_s(nodes.nodes[0]) > 5, 60)

            etcdctl(endpoint, "del", "--prefix", "other/")
            revision = etcdctl(endpoint, "get", "x", "-w", "fields").split('"Revision" : ')[1]
            etcdctl(endpoint, "compact", revision.split()[0])
            etcdctl(endpoint, "defrag")
            etcdctl(endpoint, "alarm", "disarm")
            wait_until("all to be well again", lambda: "take over" in check(nodes).stdout, 60)
