"""What an operator does with a cluster that elects its master: each command, on real processes."""

import json
import re
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.running import NodeProcess, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]


def rows(cluster: Elected, *command: str) -> list[dict[str, object]]:
    """Asks again where the coordinator takes longer than the program waits for it."""
    found = [cluster.run(*command, "--format", "jsonl")]

    def answered() -> bool:
        if found[0].returncode:
            found[0] = cluster.run(*command, "--format", "jsonl")
        return found[0].returncode == 0

    wait_until(lambda: f"{command} to answer: {found[0].stderr}", answered, 60)
    return [json.loads(line) for line in found[0].stdout.splitlines()]


def wait_said(cluster: Elected, words: str, code: int, *command: str) -> None:
    """Until it says so and ends so: a node that stood still with the machine, or has to reconnect,
    says something else for a moment."""
    said = ""

    def told() -> bool:
        nonlocal said
        done = cluster.run(*command)
        said = f"{done.returncode}: {done.stdout}{done.stderr}"
        return done.returncode == code and words in said

    wait_until(lambda: f"{command} to say {words!r}, not {said}", told, 60)


def put(cluster: Elected, count: int) -> None:
    with tandemlog.Producer(cluster.endpoints) as producer:
        producer.send_many("t", [b"%d" % each for each in range(count)])


def text_over_http(node: NodeProcess, path: str) -> str:
    with urllib.request.urlopen(f"{node.http}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def over_http(node: NodeProcess, path: str) -> Any:
    return json.loads(text_over_http(node, path))


def wait_read(cluster: Elected, node: NodeProcess, count: int) -> None:
    """`count` messages are read: they are dispatched a moment after their acknowledgement."""
    bodies: list[bytes] = []

    def all_read() -> bool:
        bodies[:] = [record.body for record in cluster.node(node.node_id).read_queue("t", 0)]
        return len(bodies) >= count

    wait_until(f"{count} messages to be read", all_read, 10)
    assert len(bodies) == count


def test_switches_pauses_and_history(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        first = cluster.the_master().node_id
        cluster.wait_in_sync(count=3)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic("t", queues=1)
        put(cluster, 50)
        said = cluster.tandemlog("topology")
        assert f"{first} leads epoch 1: first start" in said
        assert "(embedded), revision " in said
        assert "no failover of the coordinator itself" in cluster.tandemlog("list")
        wait_said(cluster, "no failover of the coordinator itself", 0, "check")

        target = next(node.node_id for node in cluster.nodes if node.node_id != first)
        planned = cluster.tandemlog("switchover", "--to", target, "--dry-run")
        assert f"{target} will be the master in place of {first}, in epoch 2" in planned
        assert cluster.the_master().node_id == first
        cluster.tandemlog("switchover", "--to", target, code=2)  # no terminal, and no --yes
        said = cluster.tandemlog("switchover", "--to", target, "--yes")
        assert f"{target} is the master, epoch 2, after " in said
        assert cluster.the_master().node_id == target
        put(cluster, 50)
        said = cluster.tandemlog("switchover", "--to", target, "--yes", code=5)
        assert f"{target} leads already" in said
        cluster.tandemlog("failover", "--to", first, code=2)
        said = cluster.tandemlog("failover", "--to", first, "--force", "--yes", code=5)
        assert f"{target} is the master and answers" in said

        cluster.tandemlog("pause")
        wait_said(cluster, "WARNING: failover is paused", 1, "check")
        cluster.node(target).kill()
        wait_until(
            "the lease to end",
            lambda: not rows(cluster, "topology")[-1]["leader_present"],
            60,
        )
        wait_said(cluster, "CRITICAL: no reachable node is the master", 2, "check")
        assert not cluster.masters()
        said = cluster.tandemlog("switchover", "--yes", code=5)
        assert "there is no master now" in said
        cluster.tandemlog("resume")
        master = cluster.the_master()
        assert master.node_id != target
        terms = rows(cluster, "history")
        assert [term["leader"] for term in terms] == [first, target, master.node_id]
        assert not any(term["unclean"] for term in terms)
        put(cluster, 50)
        wait_read(cluster, master, 150)
        told = over_http(master, "/cluster")
        assert told["elections"]["leader"] == master.node_id
        assert told["elections"]["coordinator"] == [cluster.coordinator.endpoint]
        assert [term["epoch"] for term in over_http(master, "/history")["terms"]] == [1, 2, 3]
        metrics = text_over_http(master, "/metrics")
        assert f'tandemlog_paused{{cluster="test",node="{master.node_id}"}} 0.0' in metrics
        won = re.search(r"tandemlog_elections_total\{.*\} ([\d.]+)", metrics)
        assert won is not None
        assert float(won[1]) == sum(term["leader"] == master.node_id for term in terms)
        wait_until("some of the lease to be left", lambda: lease_remaining_s(master) > 0, 60)


def lease_remaining_s(master: NodeProcess) -> float:
    """What the master's /metrics says of its lease: 0 while a renewal is late."""
    metrics = text_over_http(master, "/metrics")
    left = re.search(r"tandemlog_leader_lease_remaining_seconds\{.*\} ([\d.]+)", metrics)
    assert left is not None
    return float(left[1])


def test_a_forced_failover_and_a_removed_member(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        first = cluster.the_master()
        cluster.wait_in_sync(count=3)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic("t", queues=1)
        second, last = (node for node in cluster.nodes if node is not first)
        assert "is up: stop it first" in cluster.tandemlog("member", "remove", last.node_id, code=5)
        last.kill()
        put(cluster, 50)  # the set shrinks to two: `last` lacks these
        wait_until(
            "the set to shrink",
            lambda: last.node_id not in rows(cluster, "topology")[-1]["members_in_sync"],  # type: ignore[operator]
            60,
        )
        second.kill()
        first.kill()
        last.start()
        said = cluster.tandemlog("failover", "--to", last.node_id, "--dry-run")
        assert f"{last.node_id} is not in sync" in said
        assert f"{first.node_id} does not answer and may have confirmed more" in said
        said = cluster.tandemlog("failover", "--to", last.node_id, "--force", "--yes")
        assert f"{last.node_id} is the master, epoch 2" in said
        newest = rows(cluster, "history")[-1]
        assert (newest["leader"], newest["unclean"]) == (last.node_id, True)
        assert "UNCLEAN" in cluster.tandemlog("history")

        said = cluster.tandemlog("member", "remove", last.node_id, code=5)
        assert "is the master" in said
        cluster.tandemlog("member", "remove", second.node_id)
        assert "was removed already" in cluster.tandemlog("member", "remove", second.node_id)

        def states() -> dict[object, object]:
            return {row["node"]: row["state"] for row in rows(cluster, "member", "list")}

        # who was killed is down when its own lease ends
        expected = {first.node_id: "down", second.node_id: "removed", last.node_id: "up"}
        wait_until(lambda: f"{expected}, not {states()}", lambda: states() == expected, 60)
        second.start()
        first.start()
        cluster.wait_in_sync(count=2)
        put(cluster, 50)
        why = {row.get("node"): row.get("why") for row in rows(cluster, "topology")}
        assert "removed" in str(why[second.node_id])
        cluster.tandemlog("member", "add", second.node_id)
        cluster.wait_in_sync(count=3)
        assert cluster.the_master() is last


def test_a_coordinator_that_is_away(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        master = cluster.the_master()
        cluster.wait_in_sync(count=3)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic("t", queues=1)
        cluster.coordinator.kill()
        put(cluster, 50)
        said = cluster.tandemlog("topology", code=3)
        assert "the coordinator is unavailable" in said
        wait_until("the silence to be noticed", lambda: cluster.run("check").returncode == 1, 60)
        wait_said(cluster, "has not heard from the coordinator", 1, "check")
        cluster.coordinator.start()
        cluster.coordinator.wait_ready()
        wait_until("check to be well again", lambda: cluster.run("check").returncode == 0, 60)
        cluster.wait_led_by(master)


def test_a_coordinator_that_has_lost_its_data(tmp_path: Path) -> None:
    """As docs/operations.md has it: the cluster is founded again, and nothing is lost."""
    with Elected(tmp_path) as cluster:
        master = cluster.the_master()
        cluster.wait_in_sync(count=3)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic("t", queues=1)
        put(cluster, 50)
        cluster.coordinator.kill()
        shutil.rmtree(cluster.coordinator.data)
        cluster.coordinator.start()
        cluster.coordinator.wait_ready()
        wait_said(cluster, "this client has talked to cluster", 3, "topology")
        slave = next(node for node in cluster.nodes if node is not master)
        slave.stop()
        slave.start()
        wait_until(
            "a restarted node to report it",
            lambda: "has lost the record" in slave.tail(20_000),
            60,
        )
        cluster.wait_led_by(master)
        for node in cluster.nodes:
            node.stop()
            path = node.store / "tandemlog" / "replication.json"
            document = json.loads(path.read_text())
            path.write_text(json.dumps({**document, "cluster_uuid": ""}))
        for node in cluster.nodes:
            node.start()
        founded = cluster.the_master()
        cluster.wait_in_sync(count=3)
        assert rows(cluster, "history")[-1]["epoch"] == 2
        put(cluster, 50)
        wait_read(cluster, founded, 100)
