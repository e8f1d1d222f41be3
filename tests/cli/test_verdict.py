"""What `check` says of a cluster: one picture, one verdict."""

from dataclasses import replace
from typing import Any

import pytest

from tandemlog.cluster.topology import CoordinatorInfo, NodeInfo, Topology
from tandemlog_server.cli.cluster.verdict import Level, judge


def node(node_id: str, role: str = "slave", **changed: object) -> NodeInfo:
    row = NodeInfo(
        node_id=node_id,
        role=role,
        endpoint=f"{node_id}:1",
        http_endpoint="",
        state="running" if role == "master" else "in-sync",
        epoch=1,
        in_sync=True,
        min_offset=0,
        wrote_offset=100,
        flushed_offset=100,
        confirm_offset=100,
        reput_offset=100,
        lag_bytes=0,
        lag_seconds=0.0,
        detail="",
        store_host="",
        reachable=True,
    )
    return replace(row, **changed)  # type: ignore[arg-type]


COORDINATOR = CoordinatorInfo(("k:1",), "etcd", 9, 0.5, False, "u", 1, 0.5)


def cluster(*nodes: NodeInfo, master_id: str = "a", min_in_sync: int = 2) -> Topology:
    return Topology(
        nodes=nodes,
        asked=("a:1",),
        replication="sync",
        min_in_sync=min_in_sync,
        master_id=master_id,
    )


def told(**changed: object) -> Topology:
    coordinator = replace(COORDINATOR, **changed)  # type: ignore[arg-type]
    nodes = [replace(each, coordinator=coordinator) for each in (MASTER, B, C)]
    return replace(cluster(*nodes), coordinator=coordinator)


MASTER, B, C = node("a", "master"), node("b"), node("c")
ALARMED = node("b", alarm="the master's store was lost", in_sync=False, state="refused")
RELAY = replace(MASTER, state="following", detail="follows broker k:1", lag_bytes=70)
GONE: dict[str, Any] = {"reachable": False, "in_sync": False}


@pytest.mark.parametrize(
    ("seen", "level", "said"),
    [
        (
            cluster(MASTER, B, C),
            Level.OK,
            "a is the master, 2 slaves in sync; roles are configured, so no node takes over",
        ),
        (cluster(MASTER, B, node("c", **GONE)), Level.WARNING, "c cannot be reached"),
        (
            cluster(MASTER, B, node("c", in_sync=False, state="catching-up", lag_bytes=7_000)),
            Level.WARNING,
            "c is catching-up, 7,000 bytes behind",
        ),
        (cluster(MASTER, min_in_sync=1), Level.OK, "a is the master and the only node"),
        (
            cluster(MASTER, replace(B, in_sync=False), min_in_sync=1),
            Level.WARNING,
            "no slave could take over now",
        ),
        (cluster(RELAY), Level.OK, "a follows broker k:1, 70 bytes behind, and has 0 slaves in"),
        (cluster(RELAY, B), Level.OK, "and has 1 slave in sync"),
        (
            cluster(replace(RELAY, state="no-master", detail="k:1 is away")),
            Level.CRITICAL,
            "the master a is no-master: k:1 is away",
        ),
        (
            cluster(MASTER, node("b", reachable=False), min_in_sync=1),
            Level.WARNING,
            "b cannot be reached; no slave could take over now",
        ),
        (
            # a dead member stays in the set: only the master knows that it is not enough
            cluster(replace(MASTER, detail="1 in-sync replicas (a)"), node("b", reachable=False)),
            Level.CRITICAL,
            "the master a acknowledges no puts: 1 in-sync replicas (a)",
        ),
        (cluster(B, C, master_id=""), Level.CRITICAL, "no reachable node is the master"),
        (
            cluster(replace(B, detail="this node does not compete: …"), C, master_id=""),
            Level.CRITICAL,
            "no reachable node is the master; b: this node does not compete",
        ),
        (
            cluster(replace(MASTER, state="read-only", detail="disk full"), B),
            Level.CRITICAL,
            "the master a is read-only: disk full",
        ),
        (cluster(MASTER, ALARMED, C), Level.CRITICAL, "alarm of b: the master's store was lost"),
        (Topology(asked=("a:1",)), Level.UNKNOWN, "no node can be reached: a:1"),
        (told(), Level.OK, "any of them could take over"),
        (told(product="embedded"), Level.OK, "the coordinator is a single process"),
        (told(paused=True), Level.WARNING, "failover is paused"),
        (told(age_seconds=7.2), Level.WARNING, "not heard from the coordinator (k:1) for 7 s"),
        (told(age_seconds=-1.0), Level.WARNING, "a has not reached the coordinator (k:1)"),
        (
            told(accepted_age_s=31.0, refusal="txn is refused: no space"),
            Level.WARNING,
            "the coordinator (k:1) answers b and has accepted no change of it for 31 s, so b "
            "cannot be elected: txn is refused: no space",
        ),
        (told(accepted_age_s=-1.0), Level.WARNING, "no change of it since its start"),
        (told(accepted_age_s=None), Level.OK, "a is the master, 2 slaves in sync"),
        (
            cluster(MASTER, B, replace(C, role="master", epoch=2, contradiction="it is a second")),
            Level.CRITICAL,
            "c: it is a second",
        ),
    ],
)
def test_one_line_says_how_the_cluster_is(seen: Topology, level: Level, said: str) -> None:
    verdict = judge(seen)
    assert verdict.level is level
    assert verdict.line.startswith(f"{level.name}: ")
    assert said in verdict.line
    assert "\n" not in verdict.line


def test_a_take_over_is_promised_only_where_the_coordinator_accepts_changes() -> None:
    assert "take over" in judge(told()).line
    assert "take over" not in judge(told(accepted_age_s=None)).line
