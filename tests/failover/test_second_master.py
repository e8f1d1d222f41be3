"""A node of an elected cluster is started as if it were none: it refuses; where it was made to
start all the same, no put goes to it and nobody can miss it. Puts go on meanwhile."""

import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tandemlog
from helpers import forked
from helpers.coordinators import EmbeddedProcess
from helpers.elected import Elected
from helpers.elected_nodes import Account
from helpers.running import NodeProcess, wait_until
from tandemlog.v1 import common_pb2

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]

REFUSED = "this store belongs to a cluster that elects its master"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Elected]:
    running = Elected(tmp_path / "cluster", min_in_sync=1, replication={"mode": "sync"})
    for node in running.nodes:  # it keeps its master and epoch, also where the machine stands still
        node.settings["coordinator"]["lease_ttl_s"] = 20
    with running as made:
        made.wait_in_sync(count=3)
        yield made


def changed(node: NodeProcess, **settings: Any) -> dict[str, Any]:
    """Its settings, as somebody has left them: a key that is None is not there."""
    found = {**copy.deepcopy(node.settings), **settings}
    return {name: value for name, value in found.items() if value is not None}


def program(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return forked.run(*arguments, timeout_s=60)


def a_slave(cluster: Elected) -> NodeProcess:
    master = cluster.the_master()
    return next(node for node in cluster.nodes if node is not master)


def test_each_piece_of_configuration_that_may_be_missing(cluster: Elected) -> None:
    """The check and the node itself say the same, and the cluster does not notice."""
    slave = a_slave(cluster)
    good, others = slave.settings, [n.endpoint for n in cluster.nodes if n is not slave]
    master = cluster.the_master()
    epoch = cluster.epoch(master)
    members = good["coordinator"]["members"]
    wrong = {
        "no section": (changed(slave, coordinator=None), REFUSED),
        "no endpoints": (
            changed(slave, coordinator={"members": members, "lease_ttl_s": 6}),
            "coordinator: endpoints is missing, and lease_ttl_s, members given",
        ),
        "empty endpoints": (changed(slave, coordinator={"endpoints": []}), REFUSED),
        "master": (changed(slave, coordinator=None, role="master"), REFUSED),
        "slave": (changed(slave, coordinator=None, role="slave", master=others[0]), REFUSED),
        "follows": (changed(slave, coordinator=None, follow="rocketmq://127.0.0.1:1"), REFUSED),
        "both": (changed(slave, role="master"), "with coordinator.endpoints the cluster elects"),
        "cluster": (changed(slave, cluster_id="other", coordinator=None), "belongs to cluster"),
    }
    with Account(cluster.endpoints) as account:
        slave.stop()
        for settings, text in wrong.values():
            slave.settings = settings
            slave.start(wait=False)
            assert slave.process is not None
            assert slave.process.wait(60) != 0
            assert text in slave.tail(3_000), slave.tail()
            checked = program("node", "--check", "--config", str(slave.folder / "node.toml"))
            assert checked.returncode != 0
            assert text in checked.stderr
        slave.settings = good
        slave.start()
        cluster.wait_in_sync(count=3)
        account.wait_more(time.monotonic())
    assert not account.failed
    assert (cluster.the_master(), cluster.epoch(master)) == (master, epoch)
    account.check(cluster)


def test_up_on_such_a_folder_does_not_end_its_elections(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text(
        json.dumps(
            {
                "cluster_id": "local", "slaves": 2, "store": "", "flush": "async",
                "replication": "sync", "min_in_sync": 2, "coordinator": "embedded",
                "sizes": {
                    "commit_log_file_size": 65536, "queue_file_size": 6000,
                    "index_slots": 5, "index_entries": 9,
                },
            }
        )
    )  # fmt: skip
    for option in ("--no-election", "--etcd"):
        done = program("up", option, "--dir", str(tmp_path))
        assert done.returncode != 0
        assert "elects its master (coordinator: embedded)" in done.stderr


def test_a_wrong_coordinator_gives_no_role_and_doubts_no_disk(
    cluster: Elected, tmp_path: Path
) -> None:
    """An empty one, as after a wiped etcd or with a wrong address; then that of another cluster,
    with the same name and nodes of the same names that have started more often."""
    slave = a_slave(cluster)
    good = slave.settings
    path = slave.store / "tandemlog" / "replication.json"
    with Elected(tmp_path, nodes=3, min_in_sync=1) as other, Account(cluster.endpoints) as account:
        other.wait_in_sync(count=3)
        for node in other.nodes:
            node.stop()
            node.start()
        incarnation = json.loads(path.read_text())["incarnation"]
        for endpoint, text in (
            (empty_coordinator(tmp_path / "empty"), "correct coordinator.endpoints"),
            (other.coordinator, "correct the endpoints of the coordinator"),
        ):
            slave.stop()
            there = {"endpoints": [endpoint.endpoint], "members": good["coordinator"]["members"]}
            slave.settings = changed(slave, coordinator=there)
            slave.start()
            wait_until(
                "the wrong coordinator to be reported",
                lambda text=text: text in detail(slave),  # type: ignore[misc]
                60,
            )
            wait_until("no role", lambda: slave.http_status("/master") == 503)
        members = other.run("member", "list").stdout
        assert slave.endpoint not in members
        slave.stop()
        slave.settings = good
        slave.start()
        cluster.wait_in_sync(count=3)
        assert json.loads(path.read_text())["incarnation"] == incarnation
    assert not account.failed
    account.check(cluster)


def empty_coordinator(folder: Path) -> EmbeddedProcess:
    made = EmbeddedProcess(folder)
    made.start()
    made.wait_ready()
    return made


def test_a_second_master_gets_no_put_and_is_named_everywhere(cluster: Elected) -> None:
    """Somebody took the cluster_uuid out, and the section: it does start, in a higher epoch."""
    slave, master = a_slave(cluster), cluster.the_master()
    good = slave.settings
    epoch = cluster.epoch(master)
    with Account(cluster.endpoints) as account:
        slave.stop()
        path = slave.store / "tandemlog" / "replication.json"
        document = json.loads(path.read_text())
        path.write_text(json.dumps({**document, "cluster_uuid": ""}))
        slave.settings = changed(
            slave, coordinator=None, replication={"mode": "sync", "min_in_sync": 1}
        )
        slave.start()
        wait_until("the second master", lambda: slave.http_status("/master") == 200, 60)
        began = time.monotonic()
        ends = {slave.endpoint: log_end(slave)}
        # a client that has seen nobody yet, and one that knows only some of the nodes
        for endpoints in (cluster.endpoints, [slave.endpoint, master.endpoint]):
            with tandemlog.Producer(endpoints) as producer:
                producer.send(tandemlog.Message("drill", b"fresh")).result(60)
        account.wait_more(began)
        assert log_end(slave) == ends[slave.endpoint]

        said = cluster.tandemlog("check", code=2)
        assert f"{slave.node_id}: it is a master (epoch {epoch + 1}) by its configuration" in said
        assert "ALARM" in cluster.tandemlog("list")
        assert "second master" in cluster.tandemlog("list")
        assert "second master" in cluster.tandemlog("topology")

        # with its own file again: it belongs to the cluster, and its epoch does not
        slave.stop()
        document = json.loads(path.read_text())
        uuid = json.loads((master.store / "tandemlog" / "replication.json").read_text())
        path.write_text(json.dumps({**document, "cluster_uuid": uuid["cluster_uuid"]}))
        slave.settings = good
        slave.start()
        wait_until(
            "the way out", lambda: f"(tandemlog reinit {slave.node_id})" in detail(slave), 60
        )
        said = cluster.tandemlog("check", code=2)
        assert f"{slave.node_id}: it has seen epoch {epoch + 1}, but the coordinator" in said
        account.wait_more(time.monotonic())
        cluster.tandemlog("reinit", slave.node_id, "--yes")
        cluster.wait_in_sync(count=3)
        wait_until("check to be well", lambda: cluster.run("check").returncode == 0, 60)
    assert not account.failed
    assert (cluster.the_master(), cluster.epoch(master)) == (master, epoch)
    with tandemlog.Admin(cluster.endpoints) as admin:
        assert admin.cluster().contradictions == {}
    cluster.wait_caught_up()  # who has started over may be in sync and not have dispatched yet
    for node in cluster.nodes:
        bodies = [r.body for q in range(4) for r in node.read_queue("drill", q)]
        assert bodies.count(b"fresh") == 2


def log_end(node: NodeProcess) -> int:
    found: list[common_pb2.NodeStatus] = []

    def answered() -> bool:
        found.extend([status] if (status := node.status()) is not None else [])
        return bool(found)

    wait_until(f"{node.node_id} to answer", answered)
    assert found[0].role == common_pb2.MASTER
    return found[0].wrote_offset


def detail(node: NodeProcess) -> str:
    status = node.status()
    return "" if status is None else status.detail
