"""The coordinator's data are replaced by an older copy, on real processes: nothing is lost, and no
epoch has two leaders, as docs/operations.md has it."""

import json
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.running import NodeProcess, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.lane("brokers")]

STEADY_LEASE_S = 20
"""Nobody is elected here because the machine stood still: the epochs are counted."""


class Backed(Elected):
    """A cluster whose coordinator can be taken back to how it was."""

    def __enter__(self) -> Self:
        for node in self.nodes:
            node.settings["coordinator"]["lease_ttl_s"] = STEADY_LEASE_S
        super().__enter__()
        return self

    def back_up(self) -> None:
        self.coordinator.stop()
        shutil.copytree(self.coordinator.data, self._copy)
        self.coordinator.start().wait_ready()
        self.wait_heard()

    def restore(self) -> None:
        self.coordinator.kill()
        shutil.rmtree(self.coordinator.data)
        shutil.copytree(self._copy, self.coordinator.data)
        self.coordinator.start().wait_ready()
        self.wait_said("went back", 3, "topology")

    def wait_said(self, words: str, code: int, *command: str) -> str:
        """What it says, once it says and ends so: a node may have to reconnect to the coordinator
        first."""
        said = ""

        def told() -> bool:
            nonlocal said
            done = self.run(*command)
            said = done.stdout + done.stderr
            return done.returncode == code and words in said

        wait_until(lambda: f"{command} to say {words!r}, not {said}", told, 60)
        return said

    def wait_heard(self) -> None:
        """Until the nodes reach the coordinator again."""
        wait_until("check to be well", lambda: self.run("check").returncode in (0, 1), 60)
        wait_until("topology to answer", lambda: self.run("topology").returncode == 0, 60)

    def in_sync(self) -> list[str]:
        """By the coordinator's record."""
        said = self.wait_said("members_in_sync", 0, "topology", "--format", "jsonl")
        return list(json.loads(said.splitlines()[-1])["members_in_sync"])

    def put(self, first: int, count: int) -> None:
        with tandemlog.Producer(self.endpoints) as producer:
            producer.send_many("t", [b"%d" % each for each in range(first, first + count)])

    def found_again(self) -> None:
        """As the page has it for data that are lost or too old."""
        for node in self.nodes:
            node.stop()
        self.coordinator.kill()
        shutil.rmtree(self.coordinator.data)
        self.coordinator.start().wait_ready()
        for node in self.nodes:
            path = node.store / "tandemlog" / "replication.json"
            document = json.loads(path.read_text())
            path.write_text(json.dumps({**document, "cluster_uuid": ""}))
        for node in self.nodes:
            node.start()

    def leaders(self) -> dict[int, set[str]]:
        """Who has ever led each epoch, by the nodes' own logs."""
        found: dict[int, set[str]] = defaultdict(set)
        for node in self.nodes:
            for line in node.tail(10_000_000).splitlines():
                if " master: cluster=" in line or "master: cluster=test" in line:
                    epoch = int(line.split(" epoch=")[1].split()[0])
                    found[epoch].add(node.node_id)
        return found

    @property
    def _copy(self) -> Path:
        return self.coordinator.data.with_name("copy")


def bodies(node: NodeProcess) -> list[bytes]:
    return [record.body for record in node.read_queue("t", 0)]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % each for each in range(count)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Backed]:
    """Three nodes in sync, with messages 0..49."""
    with Backed(tmp_path) as running:
        running.wait_in_sync(count=3)
        with tandemlog.Admin(running.endpoints) as admin:
            admin.create_topic("t", queues=1)
        running.put(0, 50)
        yield running


def test_a_copy_of_an_earlier_epoch_is_not_followed(cluster: Backed) -> None:
    first = cluster.the_master()
    cluster.back_up()
    cluster.tandemlog("switchover", "--yes")
    master = cluster.the_master()
    assert master is not first
    cluster.wait_in_sync(count=3)
    cluster.put(50, 50)
    cluster.restore()
    cluster.put(100, 50)
    cluster.wait_led_by(master)
    slave = next(node for node in cluster.nodes if node is not master)
    slave.stop()
    slave.start()
    wait_until(
        "a restarted node to report it",
        lambda: "its data was restored from an older backup" in slave.tail(50_000),
        60,
    )
    cluster.wait_led_by(master)
    cluster.found_again()
    cluster.the_master()
    cluster.wait_in_sync(count=3)
    cluster.wait_caught_up()
    assert [bodies(node) for node in cluster.nodes] == [numbers(150)] * 3
    assert all(len(names) == 1 for names in cluster.leaders().values())
    assert max(cluster.leaders()) == 3, "the new epoch is above all that the nodes know"


def test_a_copy_of_this_epoch_is_refused_by_the_nodes_that_run(cluster: Backed) -> None:
    """One that is started believes it, also the old in-sync set: it follows the same master."""
    master = cluster.the_master()
    last = next(node for node in cluster.nodes if node is not master)
    cluster.back_up()
    last.kill()
    cluster.put(50, 50)
    wait_until("the set to shrink", lambda: last.node_id not in cluster.in_sync(), 60)
    cluster.restore()
    cluster.put(100, 50)
    last.start()
    cluster.put(150, 50)
    wait_until("the started node to follow", lambda: bodies(last) == numbers(200), 60)
    cluster.wait_said("has not heard from the coordinator", 1, "check")
    cluster.wait_led_by(master)
    cluster.found_again()
    cluster.the_master()
    cluster.wait_in_sync(count=3)
    cluster.wait_caught_up()
    assert [bodies(node) for node in cluster.nodes] == [numbers(200)] * 3
    assert all(len(names) == 1 for names in cluster.leaders().values())
