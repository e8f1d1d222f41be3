"""Two masters that know nothing of each other answer: which of them is the cluster's?"""

import pytest

from tandemlog.cluster.topology import ReadFrom, Topology, merge_answers
from tandemlog.v1 import admin_pb2, common_pb2

Answer = admin_pb2.DescribeClusterResponse
CONFIGURED = None


def answer(
    by: str, epoch: int, uuid: str | None = "X", *, leads: bool = False, given: int = 5
) -> Answer:
    """Of node `by`, in `epoch`. `uuid` None: its role is configured; `given` is the epoch of the
    coordinator's record as it sees it."""
    rows = [
        common_pb2.NodeStatus(
            node_id=name,
            role=common_pb2.MASTER if leads and name == by else common_pb2.SLAVE,
            endpoint=f"{name}:1",
            epoch=epoch,
            in_sync=leads,
            wrote_offset=ord(by[-1]),
        )
        for name in ("n0", "n1", "n2")
    ]
    said = Answer(cluster_id="c", answered_by=by, master_id=by if leads else "", nodes=rows)
    if uuid is not None:
        status = admin_pb2.CoordinatorStatus(cluster_uuid=uuid, epoch=given if uuid else 0)
        said.coordinator.CopyFrom(status)
    return said


def look(*answers: Answer, before: Topology | None = None) -> Topology:
    return merge_answers(
        {f"{each.answered_by}:1": each for each in answers},
        ("n0:1", "n1:1", "n2:1"),
        before or Topology(),
    )


N0, N1, N2 = answer("n0", 5, leads=True), answer("n1", 5), answer("n2", 5)
ALONE = answer("n2", 6, CONFIGURED, leads=True)
"""n2, started without [coordinator]."""
HEALTHY = look(N0, N1, N2)


@pytest.mark.parametrize("before", [Topology(), HEALTHY])
def test_a_master_by_its_configuration_is_none_of_a_cluster_that_elects(before: Topology) -> None:
    seen = look(N0, N1, ALONE, before=before)
    assert (seen.master_id, seen.newest_epoch) == ("n0", 5)
    assert seen.authority is not None
    assert "is a master (epoch 6) by its configuration" in seen.contradictions["n2"]
    rows = {node.node_id: node for node in seen.nodes}
    # what it says of the others counts for nothing
    assert (rows["n1"].epoch, rows["n1"].in_sync, rows["n2"].epoch) == (5, True, 6)
    assert [node.node_id for node in seen.candidates(ReadFrom.ANY)] == ["n0", "n1"]


def test_nor_is_it_when_no_other_node_answers() -> None:
    seen = look(ALONE, before=HEALTHY)
    assert seen.master is None
    assert "n2:1 (it is a master (epoch 6) by its configuration, but" in seen.asked_text()
    again = look(N1, ALONE, before=seen)
    assert again.master is None
    assert look(N0, N1, N2, before=again).master_id == "n0"


def test_one_of_two_that_elect_is_enough() -> None:
    assert look(N0, ALONE).master_id == "n0"


def test_a_node_of_another_elected_cluster() -> None:
    """Started with another coordinator, where it has founded a cluster of its own."""
    other = answer("n2", 9, "Y", leads=True, given=9)
    for before in (Topology(), HEALTHY, look(other)):
        seen = look(N0, N1, other, before=before)
        assert (seen.master_id, seen.newest_epoch) == ("n0", 5)
        assert "of the elected cluster Y, the other nodes belong to X" in seen.contradictions["n2"]
    assert look(other, before=HEALTHY).master is None


def test_a_cluster_that_was_founded_again_or_has_ended_its_elections() -> None:
    founded = answer("n0", 7, "Z", leads=True, given=7), answer("n1", 7, "Z", given=7)
    assert look(founded[0], before=HEALTHY).master is None
    assert look(*founded, before=HEALTHY).master_id == "n0"
    left = answer("n0", 7, CONFIGURED, leads=True), answer("n1", 7, CONFIGURED)
    assert look(left[0], before=HEALTHY).master is None
    assert look(*left, before=HEALTHY).master_id == "n0"


def test_configured_roles_that_become_elected_ones() -> None:
    before = look(answer("n0", 2, CONFIGURED, leads=True), answer("n1", 2, CONFIGURED))
    assert before.contradictions == {}
    assert look(answer("n1", 3, "X", leads=True, given=3), before=before).master_id == "n1"


def test_an_elected_node_that_does_not_say_its_cluster_belongs_to_the_others() -> None:
    """An older node, or one before its first term."""
    old = answer("n0", 6, "", leads=True)
    assert look(old, N1, N2, before=HEALTHY).master_id == "n0"
    assert look(old, ALONE).master_id == "n0"
    assert look(old).contradictions == {}


def test_of_two_masters_of_one_cluster_the_lower_is_named() -> None:
    seen = look(N0, answer("n1", 6, leads=True, given=6), answer("n2", 6, given=6))
    assert seen.master_id == "n1"
    assert "is the master, in epoch 5, but n1 leads epoch 6" in seen.contradictions["n0"]


def test_a_node_back_in_the_cluster_with_an_epoch_that_the_coordinator_never_gave() -> None:
    """Its epoch is no newer term, so the master keeps its authority; nobody reads from it."""
    back = answer("n2", 6)
    seen = look(N0, N1, back, before=HEALTHY)
    assert (seen.newest_epoch, seen.authority is not None) == (5, True)
    assert "has seen epoch 6, but the coordinator has given 5 at most" in seen.contradictions["n2"]
    assert "n2" not in {node.node_id for node in seen.candidates(ReadFrom.ANY)}
    unread = look(N0, N1, answer("n2", 6, given=0), before=HEALTHY)
    assert unread.authority is not None


def test_a_slave_knows_the_newest_epoch_where_its_coordinator_gave_it() -> None:
    seen = look(N0, answer("n1", 6, given=6))
    assert (seen.newest_epoch, seen.authority) == (6, None)
    assert seen.contradictions == {}
