"""A stranger that has the id of a node of the cluster: in whatever order the answers come."""

from collections.abc import Collection
from itertools import permutations

import pytest

from tandemlog.cluster.topology import ReadFrom, Topology, merge_answers
from tandemlog.v1 import admin_pb2, common_pb2
from tandemlog_server.cli.cluster.nodes_table import alarm_lines, node_rows
from tandemlog_server.cli.cluster.verdict import Level, judge

Answers = dict[str, admin_pb2.DescribeClusterResponse]
CONFIGURED = None
SEEDS = ("n0:1", "n1:1", "n2:1", "old:1")


def answer(
    by: str, epoch: int, uuid: str | None, *, leads: bool = False, at: str = ""
) -> admin_pb2.DescribeClusterResponse:
    """Of node `by`, which says that it is at `at`, and names the nodes that its host has."""
    at = at or f"{by}:1"
    host = at.removeprefix(by)
    names = ("n0", "n1", "n2") if uuid is not None else (by,)
    rows = [
        common_pb2.NodeStatus(
            node_id=name,
            role=common_pb2.MASTER if leads and name == by else common_pb2.SLAVE,
            endpoint=at if name == by else f"{name}{host}",
            state="running" if leads and name == by else "in-sync",
            epoch=epoch,
            in_sync=True,
        )
        for name in names
    ]
    said = admin_pb2.DescribeClusterResponse(
        cluster_id="c", answered_by=by, master_id=by if leads else "", nodes=rows
    )
    if uuid is not None:
        status = admin_pb2.CoordinatorStatus(cluster_uuid=uuid, epoch=epoch)
        said.coordinator.CopyFrom(status)
    return said


N0, N1, N2 = answer("n0", 5, "X", leads=True), answer("n1", 5, "X"), answer("n2", 5, "X")
CLUSTER: Answers = {"n0:1": N0, "n1:1": N1, "n2:1": N2}
FRESH = answer("n0", 1, CONFIGURED, leads=True, at="old:1")
"""An old machine, started again without [coordinator]."""
OTHER: Answers = {
    f"{name}.other:1": answer(name, 9, "Y", leads=name == "n0", at=f"{name}.other:1")
    for name in ("n0", "n1", "n2")
}
"""Another elected cluster, in a higher epoch, whose nodes have the same names."""


def look(
    answers: Answers, before: Topology | None = None, given: Collection[str] | None = None
) -> Topology:
    return merge_answers(answers, SEEDS, before or Topology(), given=given)


HEALTHY = look(CLUSTER)


def orders(answers: Answers) -> list[Answers]:
    return [dict(each) for each in permutations(answers.items())]


@pytest.mark.parametrize("before", [Topology(), HEALTHY])
@pytest.mark.parametrize("silent", ["", "n1:1", "n2:1"])
def test_the_master_is_never_at_the_endpoint_of_a_stranger(before: Topology, silent: str) -> None:
    heard = {at: each for at, each in CLUSTER.items() if at != silent} | {"old:1": FRESH}
    for answers in orders(heard):
        seen = look(answers, before)
        assert seen.authority is not None
        assert (seen.authority.endpoint, seen.authority.epoch) == ("n0:1", 5)
        assert [each.endpoint for each in seen.candidates(ReadFrom.MASTER)] == ["n0:1"]
        assert "old:1" not in [each.endpoint for each in seen.candidates(ReadFrom.ANY)]


def test_the_master_and_the_stranger_alone() -> None:
    for answers in orders({"n0:1": N0, "old:1": FRESH}):
        seen = look(answers)
        assert seen.authority is not None
        assert seen.authority.endpoint == "n0:1"


def test_the_master_missed_one_round() -> None:
    """The stranger does not stand in for it, in that round or later."""
    for answers in orders({"n1:1": N1, "n2:1": N2, "old:1": FRESH}):
        missed = look(answers, HEALTHY)
        assert missed.master is None
        assert {each.node_id: each.endpoint for each in missed.nodes}["n0"] == "n0:1"
        for later in orders({**CLUSTER, "old:1": FRESH}):
            seen = look(later, missed)
            assert seen.authority is not None
            assert seen.authority.endpoint == "n0:1"


def test_no_node_but_the_stranger_answers() -> None:
    seen = look({"old:1": FRESH}, HEALTHY)
    assert seen.master is None
    rows = {each.node_id: each for each in seen.nodes}
    assert (rows["n0"].endpoint, rows["n0"].reachable) == ("n0:1", False)
    assert rows["n0@old:1"].contradiction
    again = look({**CLUSTER}, look({"old:1": FRESH}, seen))
    assert again.authority is not None
    assert again.contradictions == {}


def test_it_is_named_with_both_addresses_and_the_way_out() -> None:
    for answers in orders({**CLUSTER, "old:1": FRESH}):
        seen = look(answers)
        assert list(seen.contradictions) == ["n0@old:1"]
        text = seen.contradictions["n0@old:1"]
        assert "it is a master (epoch 1) by its configuration, but this cluster elects" in text
        assert "It has the id of n0, which is at n0:1: stop it" in text
        verdict = judge(seen)
        assert verdict.level is Level.CRITICAL
        assert "n0@old:1: it is a master" in verdict.line
        states = {each["node"]: each["state"] for each in node_rows(seen)}
        assert (states["n0"], states["n0@old:1"]) == ("running", "second master")
        assert any("ALARM n0@old:1: " in line for line in alarm_lines(seen))
        assert "old:1 (it is a master" in seen.asked_text()


def test_one_process_under_two_names_is_one_stranger() -> None:
    heard = {**CLUSTER, "old:1": FRESH, "10.0.0.9:1": FRESH}
    for answers in orders(heard):
        assert list(look(answers).contradictions) == ["n0@10.0.0.9:1"]


def test_a_member_that_was_started_wrongly_at_its_own_address_keeps_its_name() -> None:
    alone = answer("n0", 6, CONFIGURED, leads=True)
    for answers in orders({"n0:1": alone, "n1:1": N1, "n2:1": N2}):
        assert list(look(answers, HEALTHY).contradictions) == ["n0"]
        assert list(look(answers).contradictions) == ["n0"]


def test_another_cluster_with_the_same_names_behind_one_address_of_the_caller() -> None:
    """Its nodes name each other, which gives them no vote."""
    given = {*CLUSTER, "n0.other:1"}
    for silent in ("", "n0:1", "n1:1"):
        here = {at: each for at, each in CLUSTER.items() if at != silent}
        for before in (Topology(), HEALTHY):
            for some in permutations(here):
                for there in permutations(OTHER):
                    answers = {at: {**here, **OTHER}[at] for at in (*there, *some)}
                    seen = look(answers, before, given)
                    assert seen.origin == "X"
                    assert (seen.master is None) == (silent == "n0:1")
                    assert seen.newest_epoch == 5
                    assert "n0@n0.other:1" in seen.contradictions
    assert look(OTHER, HEALTHY, given).master is None


def test_a_node_that_was_led_astray_does_not_speak_for_those_that_it_names() -> None:
    """The only address that the caller gave is that of the wrong node."""
    alone = answer("n2", 6, "Y", leads=True)
    for answers in orders({"n0:1": N0, "n1:1": N1, "n2:1": alone}):
        seen = look(answers, given=("n2:1",))
        assert seen.authority is not None
        assert seen.authority.node_id == "n0"


def test_a_copy_of_a_node_of_the_same_cluster_is_named_and_not_used() -> None:
    """Its disk was copied before the last election: it has the same cluster_uuid."""
    copy = answer("n0", 4, "X", leads=True, at="old:1")
    for answers in orders({**CLUSTER, "old:1": copy}):
        seen = look(answers, HEALTHY)
        assert seen.authority is not None
        assert (seen.authority.endpoint, seen.authority.epoch) == ("n0:1", 5)
        assert list(seen.contradictions) == ["n0@old:1"]
        assert "also has the id n0, as the node at n0:1 does" in seen.contradictions["n0@old:1"]
