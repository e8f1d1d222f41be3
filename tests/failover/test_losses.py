"""How much an unclean epoch began without: unknown, then known, on real processes."""

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.running import NodeProcess, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

COUNT = 50
BODY = b"x" * 100


def terms(cluster: Elected) -> list[dict[str, Any]]:
    """Asks again where the coordinator takes longer than the program waits for it."""
    found = [cluster.run("history", "--format", "jsonl")]

    def answered() -> bool:
        if found[0].returncode:
            found[0] = cluster.run("history", "--format", "jsonl")
        return found[0].returncode == 0

    wait_until(lambda: f"the history: {found[0].stderr}", answered, 60)
    return [json.loads(line) for line in found[0].stdout.splitlines()]


def put(cluster: Elected) -> None:
    with tandemlog.Producer(cluster.endpoints) as producer:
        producer.send_many("t", [BODY] * COUNT)


def held(node: NodeProcess) -> int:
    return len(node.read_queue("t", 0))


def begun(cluster: Elected) -> tuple[NodeProcess, NodeProcess, NodeProcess]:
    """The master and its slaves, which are all in sync."""
    master = cluster.the_master()
    cluster.wait_in_sync(count=3)
    with tandemlog.Admin(cluster.endpoints) as admin:
        admin.create_topic("t", queues=1)
    put(cluster)
    second, last = (node for node in cluster.nodes if node is not master)
    return master, second, last


def test_async_replication_tells_what_a_failover_has_cost(tmp_path: Path) -> None:
    slaves_stay = {"mode": "async", "replica_lag_time_ms": 120_000}
    with Elected(tmp_path, min_in_sync=1, replication=slaves_stay) as cluster:
        master, *slaves = begun(cluster)
        cluster.wait_caught_up()
        assert "lost" not in cluster.tandemlog("history")
        for slave in slaves:
            slave.kill()
        put(cluster)  # acknowledged by the master alone
        master.kill()
        for slave in slaves:
            slave.start()
        leading = cluster.the_master()
        assert (terms(cluster)[-1]["unclean"], terms(cluster)[-1]["lost_bytes"]) == (True, None)
        assert " unknown " in cluster.tandemlog("history")
        assert "how many is known once the master before" in cluster.tandemlog("topology")
        assert held(leading) == COUNT
        master.start()
        wait_until("the size", lambda: terms(cluster)[-1]["lost_bytes"] is not None, 60)
        lost = terms(cluster)[-1]["lost_bytes"]
        assert COUNT * len(BODY) < lost < 5 * COUNT * len(BODY)
        assert f"at most {lost:,} B" in cluster.tandemlog("history")
        assert f"at most {lost:,} bytes of acknowledged" in cluster.tandemlog("topology")
        assert f"began without {lost} bytes of its log" in leading.tail(100_000)
        with urllib.request.urlopen(f"{leading.http}/history", timeout=30) as answer:
            assert json.loads(answer.read())["terms"][-1]["lost_bytes"] == lost
        cluster.wait_in_sync(count=3)
        cluster.wait_caught_up()
        assert {held(node) for node in cluster.nodes} == {COUNT}


def test_a_forced_failover_tells_what_it_has_cost(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        master, second, last = begun(cluster)
        last.kill()
        put(cluster)
        second.kill()
        master.kill()
        last.start()
        said = cluster.tandemlog("failover", "--to", last.node_id, "--force", "--yes")
        assert "is unclean: acknowledged messages may be missing since; how many" in said
        second.start()
        cluster.wait_in_sync(count=2)
        assert terms(cluster)[-1]["lost_bytes"] is None, "a slave may have had less"
        master.start()
        wait_until("the size", lambda: terms(cluster)[-1]["lost_bytes"] is not None, 60)
        lost = terms(cluster)[-1]["lost_bytes"]
        assert COUNT * len(BODY) < lost < 5 * COUNT * len(BODY)
        cluster.wait_in_sync(count=3)
        cluster.wait_caught_up()
        assert {held(node) for node in cluster.nodes} == {COUNT}
