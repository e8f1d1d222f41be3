"""Which nodes a list shows: those of the role, and those of the roster that it has not met."""

from tandemlog.v1 import common_pb2
from tandemlog_server.ha.election.key_values import MemberValue, RosterValue
from tandemlog_server.ha.election.snapshot import Snapshot
from tandemlog_server.node.cluster_rows import with_roster


def row(node_id: str, **values: object) -> common_pb2.NodeStatus:
    return common_pb2.NodeStatus(node_id=node_id, **values)  # type: ignore[arg-type]


SNAPSHOT = Snapshot(
    roster={
        "n0": RosterValue(1),
        "n1": RosterValue(1),
        "n2": RosterValue(1),
        "n3": RosterValue(1, removed=True),
        "n4": RosterValue(1, removed=True),
    },
    members={"n2": MemberValue("n2", "d", "s", "n2:1", end_offset=7)},
)


def test_nodes_that_the_master_has_not_met_are_shown() -> None:
    found = {each.node_id: each for each in with_roster(SNAPSHOT, [row("n0")], "n0")}
    assert list(found) == ["n0", "n1", "n2"]
    assert (found["n1"].state, found["n1"].detail) == ("unreachable", "it is not up")
    assert found["n2"].endpoint == "n2:1"
    assert found["n2"].detail == "it does not follow the master"


def test_removed_nodes_are_not_shown_unless_it_matters() -> None:
    rows = [row("n0"), row("n3"), row("n4", in_sync=True)]
    assert [each.node_id for each in with_roster(SNAPSHOT, rows, "n0")][:2] == ["n0", "n4"]
    alarmed = [row("n0"), row("n3", alarm="it holds more")]
    assert "n3" in [each.node_id for each in with_roster(SNAPSHOT, alarmed, "n0")]
    itself = [row("n3")]
    assert "n3" in [each.node_id for each in with_roster(SNAPSHOT, itself, "n3")]
