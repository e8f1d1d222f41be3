"""What an operator reads of an election: one picture, its rows and sentences."""

from dataclasses import replace

import pytest

from tandemlog.cluster.elections import (
    Coordination,
    History,
    PendingRequest,
    RosterNode,
    Term,
)
from tandemlog.cluster.topology import CoordinatorInfo, NodeInfo, Topology
from tandemlog_server.cli.cluster.elections_table import (
    SINGLE,
    duration,
    failover_lines,
    history_columns,
    history_rows,
    history_texts,
    loss_lines,
    loss_text,
    reinit_lines,
    topology_lines,
    topology_rows,
)


def entry(node_id: str, **changed: object) -> RosterNode:
    row = RosterNode(
        node_id=node_id, removed=False, starts=1, in_sync=True, why_not_in_sync="", up=True,
        endpoint=f"{node_id}:1", http_endpoint="", incarnation="d", last_epoch=3, end_offset=100,
        priority=0, obstacle="",
    )  # fmt: skip
    return replace(row, **changed)  # type: ignore[arg-type]


def seen(node_id: str, role: str = "slave", **changed: object) -> NodeInfo:
    row = NodeInfo(
        node_id=node_id, role=role, endpoint=f"{node_id}:1", http_endpoint="",
        state="running" if role == "master" else "in-sync", epoch=3, in_sync=True, min_offset=0,
        wrote_offset=100, flushed_offset=100, confirm_offset=100, reput_offset=100, lag_bytes=0,
        lag_seconds=0.0, detail="", store_host="", reachable=True,
    )  # fmt: skip
    return replace(row, **changed)  # type: ignore[arg-type]


LOST = entry("c", in_sync=False, why_not_in_sync="it is not up", up=False, endpoint="")
GONE = entry("d", removed=True, in_sync=False, up=False, why_not_in_sync="it was removed")
STATE = Coordination(
    answered_by="b",
    coordinator=CoordinatorInfo(("k:1",), "embedded", 17, 0.0, False),
    cluster_uuid="u",
    epoch=3,
    leader_id="a",
    leader_present=True,
    reason="the port of b is closed",
    unclean_epoch=0,
    in_sync=(("a", "d"), ("b", "d")),
    roster=(entry("b"), entry("a"), LOST, GONE),
    request=None,
)
PICTURE = Topology(nodes=(seen("a", "master"), seen("b")), min_in_sync=2, master_id="a")


REINIT = PendingRequest("reinit", "c", "r", "")


def test_a_row_a_node_with_the_reason_why_it_is_not_in_sync() -> None:
    rows = topology_rows(STATE, PICTURE)
    assert [(row["node"], row["role"], row["state"]) for row in rows] == [
        ("a", "master", "running"),
        ("b", "slave", "in-sync"),
        ("c", "", "down"),
        ("d", "", "removed"),
    ]
    lines = topology_lines(STATE, rows)
    assert lines == [
        "a leads epoch 3: the port of b is closed",
        "c: it is not up",
        "d: it was removed",
        "coordinator k:1 (embedded), revision 17, answered by b",
        SINGLE,
    ]


def test_a_node_that_is_up_and_does_not_answer_here() -> None:
    rows = topology_rows(STATE, replace(PICTURE, nodes=(seen("a", "master"),)))
    assert rows[1]["state"] == "unreachable"


def test_a_cluster_without_a_master_and_a_request() -> None:
    state = replace(
        STATE,
        leader_present=False,
        unclean_epoch=2,
        request=PendingRequest("failover", "c", "r", ""),
    )
    lines = topology_lines(state, topology_rows(state, Topology()))
    assert lines[0].startswith("a led last, its lease has ended: no master now")
    assert "failover to c is under way" in lines
    assert any(line.startswith("epoch 2 was unclean: acknowledged messages may") for line in lines)
    state = replace(state, lost_bytes=5_120, request=replace(REINIT, outcome="no disk"))
    lines = topology_lines(state, topology_rows(state, Topology()))
    assert "reinit of c was refused: no disk" in lines
    assert (
        "epoch 2 was unclean: at most 5,120 bytes of acknowledged messages are missing since"
        in lines
    )
    lines = topology_lines(replace(state, lost_bytes=0), [])
    assert "epoch 2 was unclean: no acknowledged message is missing" in lines


def test_how_long_epochs_lasted() -> None:
    terms = (Term(1, "a", "first start", 1_000, False, 0), Term(2, "b", "forced", 91_000, True, 7))
    history = History("a", 17, terms)
    rows = history_rows(history, 101_000)
    texts = [history_texts(row) for row in rows]
    assert [text["lasted"] for text in texts] == ["1 min 30 s", "10.0 s so far"]
    assert [text["unclean"] for text in texts] == ["", "UNCLEAN"]
    assert [row["duration_seconds"] for row in rows] == [90.0, 10.0]
    assert [row["unclean"] for row in rows] == [False, True]
    assert rows[1]["ended_ms"] is None
    assert [row["lost_bytes"] for row in rows] == [None, None]


def test_what_was_lost_has_a_column_where_there_is_something_to_say() -> None:
    clean = Term(1, "a", "first start", 1_000, False, 0)
    assert "lost" not in history_columns(History("a", 17, (clean,)))
    terms = (
        clean,
        *(
            Term(n, "b", "forced", 2_000, True, 7, size)
            for n, size in ((2, None), (3, 0), (4, 5120))
        ),
    )
    history = History("a", 17, terms)
    assert "lost" in history_columns(history)
    rows = history_rows(history, 101_000)
    texts = [history_texts(row)["lost"] for row in rows]
    assert texts == ["", "unknown", "nothing", "at most 5,120 B"]
    assert [row["lost_bytes"] for row in rows] == [None, None, 0, 5120]
    assert loss_lines(history) == [
        "epoch 2 lost: unknown",
        "epoch 3 lost: nothing",
        "epoch 4 lost: at most 5,120 B",
    ]


def test_what_a_resync_does_and_costs() -> None:
    asked = replace(PICTURE, nodes=(seen("a", "master"), seen("b", wrote_offset=1_100)))
    assert reinit_lines(STATE, asked, "b") == [
        "b sets its log aside (1,100 bytes) and is sent all of it again by a. Reads from b find "
        "nothing until then.",
        "Meanwhile b is not in sync; a is (min_in_sync is 2).",
    ]
    alarmed = replace(PICTURE, nodes=(seen("a", "master"), seen("b", alarm="it knows more")))
    assert "b is refused by the master: it knows more." in reinit_lines(STATE, alarmed, "b")[-1]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.9, "59.9 s"), (7_320, "2 h 2 min"), (180_000, "2 d 2 h")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_what_a_forced_failover_costs() -> None:
    waits = replace(PICTURE, replication="sync")
    assert loss_text(STATE, waits, "b").endswith("nothing is lost.")
    behind = replace(STATE, roster=(entry("a"), entry("b"), replace(LOST, up=True, end_offset=30)))
    text = loss_text(behind, PICTURE, "c")
    assert text == (
        "c is not in sync. Up to 70 bytes of acknowledged messages are lost: confirmed up to 100, "
        "the log of c ends at 30."
    )
    without = replace(PICTURE, nodes=(seen("b", confirm_offset=60),))
    text = loss_text(behind, without, "c")
    assert "Up to 30 bytes" in text
    assert "a does not answer and may have confirmed more" in text
    lines = failover_lines(behind, without, "c")
    assert lines[0] == "c will be the master by force, in epoch 4."
    assert "The lease of a still holds; the failover waits until it has ended." in lines
    assert lines[-1].startswith("Puts are refused until 1 more of the nodes follow c")


def test_in_sync_is_no_promise_where_acknowledgements_do_not_wait() -> None:
    far = replace(PICTURE, replication="async", nodes=(seen("a", "master", confirm_offset=170),))
    text = loss_text(STATE, replace(far, nodes=(*far.nodes, seen("b"))), "b")
    assert text == (
        "b is in sync, but replication is async: an acknowledgement does not wait for b, so it may "
        "lack messages. Up to 70 bytes of acknowledged messages are lost: confirmed up to 170, the "
        "log of b ends at 100."
    )
    text = loss_text(STATE, replace(far, nodes=(seen("b"),)), "b")
    assert "nothing is lost" not in text
    assert "a does not answer and may have confirmed more" in text
    assert "nothing is lost" not in loss_text(STATE, Topology(), "b")
    alone = replace(STATE, in_sync=(("b", "d"),))
    degraded = replace(PICTURE, replication="sync-degrade")
    assert loss_text(alone, degraded, "b").endswith("no other disk has what was acknowledged last.")
