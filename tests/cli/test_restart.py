"""A rolling restart: who is next, and when the cluster can do without one more."""

from dataclasses import replace

import pytest

from tandemlog.cluster.topology import Topology, merge_answers
from tandemlog.v1 import admin_pb2, common_pb2
from tandemlog_server.cli.commands.restart import is_back, obstacle, order

NODES = ("n0", "n1", "n2")


def topology(
    master: str = "n1", *, silent: str = "", behind: str = "", alarm: str = ""
) -> Topology:
    rows = [
        common_pb2.NodeStatus(
            node_id=name,
            role=common_pb2.MASTER if name == master else common_pb2.SLAVE,
            endpoint=f"{name}:1",
            state="running" if name == master else "in-sync",
            epoch=3,
            in_sync=name != behind,
            alarm="it may hold more" if name == alarm else "",
        )
        for name in NODES
    ]
    answers = {
        f"{name}:1": admin_pb2.DescribeClusterResponse(
            cluster_id="c", answered_by=name, master_id=master, nodes=rows
        )
        for name in NODES
        if name != silent
    }
    return merge_answers(answers, tuple(f"{name}:1" for name in NODES), Topology())


def test_the_master_is_the_last() -> None:
    assert [node.node_id for node in order(topology("n0"))] == ["n1", "n2", "n0"]
    assert [node.node_id for node in order(topology("n2"))] == ["n0", "n1", "n2"]


def test_nothing_is_taken_from_a_cluster_that_is_not_well() -> None:
    assert obstacle(topology(), NODES) == ""
    assert "n2 cannot be reached" in obstacle(topology(silent="n2"), NODES)
    assert "n0 is in-sync, 0 bytes behind" in obstacle(topology(behind="n0"), NODES)
    assert "alarm of n2" in obstacle(topology(alarm="n2"), NODES)
    assert "there is no master" in obstacle(topology(silent="n1"), NODES)
    assert "n9 cannot be reached" in obstacle(topology(), (*NODES, "n9"))
    well = topology()
    stranger = replace(well.nodes[0], node_id="n0@old:1", contradiction="it is a master")
    seen = replace(well, nodes=(*well.nodes, stranger))
    assert obstacle(seen, NODES) == "n0@old:1: it is a master"


@pytest.mark.parametrize(("uptime", "seconds", "back"), [(5.0, 10.0, True), (50.0, 10.0, False)])
def test_a_node_is_back_once_it_was_started_again(
    uptime: float, seconds: float, back: bool
) -> None:
    (node, *_) = topology().nodes
    assert is_back(replace(node, uptime_seconds=uptime), seconds) is back
    assert not is_back(replace(node, uptime_seconds=uptime, reachable=False), seconds)
