from typing import Any

import pytest

from tandemlog.cluster.topology import WAY_OUT, ReadFrom, Topology, merge_answers
from tandemlog.v1 import admin_pb2, common_pb2


def status(node_id: str, role: common_pb2.Role.ValueType, **fields: Any) -> common_pb2.NodeStatus:
    return common_pb2.NodeStatus(
        node_id=node_id, role=role, endpoint=f"{node_id}.inside:1", **fields
    )


def answer(
    by: str, master: str, *nodes: common_pb2.NodeStatus
) -> admin_pb2.DescribeClusterResponse:
    return admin_pb2.DescribeClusterResponse(
        cluster_id="c", answered_by=by, master_id=master, nodes=nodes, max_message_size=7
    )


def test_a_node_is_used_under_the_endpoint_at_which_it_answered() -> None:
    nodes = (status("m", common_pb2.MASTER, epoch=1), status("s", common_pb2.SLAVE, epoch=1))
    topology = merge_answers({"outside:1": answer("m", "m", *nodes)}, ("outside:1",), Topology())
    assert topology.master is not None
    assert topology.master.endpoint == "outside:1"
    assert {node.endpoint for node in topology.nodes} == {"outside:1", "s.inside:1"}
    assert topology.max_message_size == 7


def test_the_master_with_the_highest_epoch_counts() -> None:
    old = answer("a", "a", status("a", common_pb2.MASTER, epoch=1), status("b", common_pb2.SLAVE))
    new = answer("b", "b", status("b", common_pb2.MASTER, epoch=2), status("a", common_pb2.MASTER))
    topology = merge_answers({"a:1": old, "b:1": new}, ("a:1", "b:1"), Topology())
    assert topology.master_id == "b"


def test_what_a_slave_says_of_a_master_is_hearsay() -> None:
    told = answer("s", "m", status("m", common_pb2.MASTER, epoch=1), status("s", common_pb2.SLAVE))
    topology = merge_answers({"s:1": told}, ("s:1", "m:1"), Topology())
    assert topology.master is None
    assert "m:1 (no answer)" in topology.asked_text()


def test_no_answer_keeps_the_nodes_but_no_master() -> None:
    before = merge_answers(
        {"m:1": answer("m", "m", status("m", common_pb2.MASTER))}, ("m:1",), Topology()
    )
    after = merge_answers({}, ("m:1",), before)
    assert [node.node_id for node in after.nodes] == ["m"]
    assert after.master is None
    assert after.asked_text() == f"m:1 (no answer){WAY_OUT}"
    assert after.max_message_size == 7


def test_why_there_was_no_answer_is_told() -> None:
    topology = merge_answers(
        {"m:1": answer("m", "m", status("m", common_pb2.MASTER))},
        ("m:1", "s:1", "t:1"),
        Topology(),
        {"s:1": "connection refused"},
    )
    assert topology.asked_text() == "m:1 (master), s:1 (connection refused), t:1 (no answer)"


def test_lag_and_in_sync_are_the_masters_to_say() -> None:
    master = answer(
        "m",
        "m",
        status("m", common_pb2.MASTER, epoch=1),
        status("s", common_pb2.SLAVE, epoch=1, lag_bytes=9, in_sync=False),
    )
    slave = answer("s", "m", status("s", common_pb2.SLAVE, epoch=1, in_sync=True, wrote_offset=5))
    topology = merge_answers({"m:1": master, "s:1": slave}, ("m:1", "s:1"), Topology())
    found = {node.node_id: node for node in topology.nodes}["s"]
    assert (found.in_sync, found.lag_bytes, found.wrote_offset) == (False, 9, 5)


def test_a_node_without_an_address_is_not_read_from() -> None:
    nodes = (
        status("m", common_pb2.MASTER),
        common_pb2.NodeStatus(node_id="s", role=common_pb2.SLAVE),
    )
    topology = merge_answers({"m:1": answer("m", "m", *nodes)}, ("m:1",), Topology())
    assert topology.candidates(ReadFrom.SLAVE) == []


@pytest.mark.parametrize(
    ("read_from", "prefer_slave", "order"),
    [
        (ReadFrom.MASTER, False, ["m"]),
        (ReadFrom.SLAVE, False, ["s2", "s1"]),
        (ReadFrom.ANY, False, ["m", "s2", "s1"]),
        (ReadFrom.ANY, True, ["s2", "s1", "m"]),
    ],
)
def test_whom_to_read_from(read_from: ReadFrom, prefer_slave: bool, order: list[str]) -> None:
    nodes = (
        status("m", common_pb2.MASTER, epoch=1, in_sync=True),
        status("s1", common_pb2.SLAVE, lag_bytes=100, in_sync=True),
        status("s2", common_pb2.SLAVE, lag_bytes=1, in_sync=True),
    )
    answers = {f"{name}:1": answer(name, "m", *nodes) for name in ("m", "s1", "s2")}
    topology = merge_answers(answers, tuple(answers), Topology())
    found = topology.candidates(read_from, prefer_slave=prefer_slave)
    assert [node.node_id for node in found] == order


def test_a_node_that_answers_under_two_names_keeps_the_one_it_had() -> None:
    """Else it would look like another node to those that compare endpoints."""
    said = answer("m", "m", status("m", common_pb2.MASTER, epoch=1))
    asked = ("a:1", "b:1")
    first = merge_answers({"b:1": said, "a:1": said}, asked, Topology())
    assert first.nodes[0].endpoint == "b:1"
    assert merge_answers({"a:1": said, "b:1": said}, asked, first).nodes[0].endpoint == "b:1"
    assert merge_answers({"a:1": said}, asked, first).nodes[0].endpoint == "a:1"
