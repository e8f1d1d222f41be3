"""`tandemlog reinit`, on real processes: which nodes may start over, and what they hold then."""

import json
from pathlib import Path

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.elected_nodes import Account
from helpers.running import NodeProcess, wait_until
from tandemlog.format.files.epochs import EpochTable

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]


def incarnation(node: NodeProcess) -> str:
    document = json.loads((node.store / "tandemlog" / "replication.json").read_text())
    return str(document["incarnation"])


def set_aside(node: NodeProcess) -> int:
    """How many logs this node has set aside."""
    return len([each for each in node.store.iterdir() if each.name.startswith("resync-")])


def slaves_of(cluster: Elected) -> list[NodeProcess]:
    master = cluster.the_master()
    return [node for node in cluster.nodes if node is not master]


def wait_served(node: NodeProcess, count: int) -> None:
    """A node that is in sync holds all messages, and serves them once it has dispatched them."""
    expected = [b"%d" % n for n in range(count)]

    def bodies() -> list[bytes]:
        return [each.body for each in node.read_queue("t", 0)]

    wait_until(f"{count} messages, each once", lambda: bodies() == expected, 60)


def test_a_slave_starts_over_under_load_and_no_put_fails(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        cluster.wait_in_sync(count=3)
        master, (slave, _) = cluster.the_master(), slaves_of(cluster)
        before = incarnation(slave)
        with Account(cluster.endpoints) as account:
            said = cluster.tandemlog("reinit", slave.node_id, "--dry-run")
            assert f"{slave.node_id} sets its log aside (" in said
            assert incarnation(slave) == before
            cluster.tandemlog("reinit", slave.node_id, code=2)  # no terminal, and no --yes
            assert "never the master" in cluster.tandemlog(
                "reinit", master.node_id, "--force", "--yes", code=5
            )
            said = cluster.tandemlog("reinit", slave.node_id, "--yes")
            assert f"{slave.node_id} is in sync again, its log ends at " in said
        assert (incarnation(slave) != before, set_aside(slave)) == (True, 1)
        assert cluster.the_master() is master
        assert not account.failed
        account.check(cluster)


def test_a_resync_that_min_in_sync_does_not_allow_has_to_be_forced(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        cluster.wait_in_sync(count=3)
        slave, other = slaves_of(cluster)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic("t", queues=1)
            other.stop()
            wait_until(
                "the set to shrink",
                lambda: other.node_id not in [each for each, _ in admin.coordination().in_sync],
                60,
            )
        with tandemlog.Producer(cluster.endpoints) as producer:
            producer.send_many("t", [b"%d" % each for each in range(50)])
        before = incarnation(slave)
        said = cluster.tandemlog("reinit", slave.node_id, "--yes", code=5)
        assert "min_in_sync is 2" in said
        assert incarnation(slave) == before
        cluster.tandemlog("reinit", slave.node_id, "--yes", "--force")
        assert incarnation(slave) != before
        with tandemlog.Producer(cluster.endpoints) as producer:
            producer.send_many("t", [b"%d" % each for each in range(50, 100)])
        cluster.the_master().kill()
        wait_until("the one that started over to lead", lambda: cluster.masters() == [slave], 60)
        wait_served(slave, 100)


def test_a_slave_that_is_refused_starts_over(tmp_path: Path) -> None:
    """Its epoch table was damaged: by it, the two logs have nothing in common."""
    with Elected(tmp_path) as cluster:
        cluster.wait_in_sync(count=3)
        slave, _ = slaves_of(cluster)
        with tandemlog.Admin(cluster.endpoints) as admin:
            admin.create_topic("t", queues=1)
        with tandemlog.Producer(cluster.endpoints) as producer:
            producer.send_many("t", [b"%d" % each for each in range(50)])
        slave.stop()
        table = EpochTable().append(1, 17)
        (slave.store / "epochFileCheckpoint").write_bytes(table.encode())
        slave.start()
        wait_until("the alarm", lambda: cluster.run("check").returncode == 2, 60)
        said = cluster.tandemlog("reinit", slave.node_id, "--yes", code=5)
        assert "may hold acknowledged messages that the master lacks" in said
        said = cluster.tandemlog("reinit", slave.node_id, "--yes", "--force")
        assert f"{slave.node_id} is in sync again" in said
        wait_until("check to be well", lambda: cluster.run("check").returncode == 0, 60)
        wait_served(slave, 50)
