"""`tandemlog restart --rolling`: every node is restarted once, and no put fails meanwhile."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.elected import Elected
from helpers.elected_nodes import Account
from helpers.running import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

NAMED = r"^(n\d)( \(after a switchover\))?: restart it now"


def test_every_node_is_restarted_while_puts_continue(tmp_path: Path) -> None:
    made = Elected(tmp_path)
    for node in made.nodes:  # the order is checked: no other master if the machine stands still
        node.settings["coordinator"]["lease_ttl_s"] = 20
    with made as cluster:
        cluster.the_master()
        cluster.wait_in_sync(count=3)
        before = {node.node_id: node.process for node in cluster.nodes}
        first = cluster.the_master().node_id
        with Account(cluster.endpoints) as account:
            said = restart(cluster)
        account.check(cluster)
        order = [name for name, _ in re.findall(NAMED, said, re.MULTILINE)]
        assert sorted(order) == ["n0", "n1", "n2"]
        assert order[-1] == first, "the master comes last"
        assert all(node.process is not before[node.node_id] for node in cluster.nodes)
        assert cluster.the_master().node_id != first
        assert f"{cluster.the_master().node_id} is the master" in said.splitlines()[-1]


def restart(cluster: Elected) -> str:
    """Run the command as an operator's hands: restart each node that it names."""
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "tandemlog", "restart", "--rolling", "--timeout", "120"),
            *("--endpoint", ",".join(cluster.endpoints)),
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if named := re.match(NAMED, line):
            node = cluster.node(named[1])
            assert node.stop() == 0
            node.start()
    assert process.wait(60) == 0, "".join(said)
    return "".join(said)


def test_a_cluster_that_is_not_well_is_left_alone(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        master = cluster.the_master()
        cluster.wait_in_sync(count=3)
        gone = next(node for node in cluster.nodes if node is not master)
        gone.kill()
        said = cluster.tandemlog("restart", "--rolling", "--command", "true", code=5)
        assert re.search(r"nothing is restarted: n\d (cannot be reached|is )", said)
