"""A cluster goes from the last release to this program and back, node by node, under load.

previous.txt names the commit of the last release. Its program comes from the history of this
checkout and runs as processes of its own, beside those of this program: old master with new
slaves, new master with old slaves, and the other way round on the way back. At the end each node
has each acknowledged message once, where it was acknowledged. docs/upgrading.md has the order.
"""

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tandemlog
from helpers.elected import Elected
from helpers.elected_nodes import SETTLE_S, Account
from helpers.needs import cannot_run
from helpers.running import ROOT, NodeProcess, wait_until
from tandemlog_server.ha.protocol.versions import SILENT, VERSION

pytestmark = [pytest.mark.cluster, pytest.mark.lane("brokers")]

PREVIOUS = (Path(__file__).parent / "previous.txt").read_text().strip()
PACKAGES = ("ha", "node", "storage", "tandemlog")


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the last release's program."""
    packed = subprocess.run(
        ["git", "archive", PREVIOUS, *PACKAGES], cwd=ROOT, capture_output=True, check=False
    )
    if packed.returncode != 0:
        cannot_run(f"the last release, {PREVIOUS[:12]}, is not in the history of this checkout")
    folder = tmp_path_factory.mktemp("previous")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed.stdout, check=True)
    # its program is called `python -m node`; the tests start `python -m tandemlog`
    started = folder / "tandemlog" / "__main__.py"
    started.write_text("from node.__main__ import main\n\nmain()\n")
    return folder


class Walk:
    """The cluster, with what runs where."""

    def __init__(self, cluster: Elected, account: Account, previous: Path) -> None:
        self.cluster = cluster
        self.previous = previous
        self._account = account
        self.old = {node.node_id for node in cluster.nodes}

    def move(self, node: NodeProcess, program: Path) -> None:
        """Stop `node` cleanly and start it as `program`, as an operator does with one node."""
        assert node.stop() == 0, node.tail()
        node.program = program
        node.start()
        (self.old.discard if program == ROOT else self.old.add)(node.node_id)
        self.settle()

    def slaves(self, wanted: Callable[[str], bool] = lambda _: True) -> list[NodeProcess]:
        master = self.cluster.the_master()
        return [n for n in self.cluster.nodes if n is not master and wanted(n.node_id)]

    def switch(self, to: NodeProcess) -> None:
        """As an operator does: a master that has just dropped the restarted slave from its in-sync
        set, which the slave does not know yet, refuses; the switch is asked for again then."""
        said = ""

        def switched() -> bool:
            nonlocal said
            done = self.cluster.run("switchover", "--to", to.node_id, "--yes")
            said = done.stdout + done.stderr
            assert done.returncode == 0 or f"{to.node_id} is not in sync" in said, said
            return done.returncode == 0

        wait_until(lambda: f"a switch to {to.node_id}: {said}", switched, SETTLE_S)
        self.settle()
        assert self.cluster.the_master() is to

    def settle(self) -> None:
        """All in sync, puts are acknowledged, and each node is shown with its version."""
        self.cluster.wait_master()
        self.cluster.wait_all_in_sync()
        self._account.wait_more(time.monotonic())
        expected = {
            node.node_id: SILENT if node.node_id in self.old else VERSION
            for node in self.cluster.nodes
        }
        # the master shows what its slaves told it of themselves, which may take a moment
        wait_until(
            lambda: f"the versions {expected}, shown are {self._shown()}",
            lambda: self._shown() == expected,
            SETTLE_S,
        )

    def _shown(self) -> dict[str, str]:
        with tandemlog.Admin(self.cluster.endpoints) as admin:
            return {node.node_id: node.version for node in admin.cluster().nodes}


def test_nodes_go_to_this_version_and_back_one_by_one(previous: Path, tmp_path: Path) -> None:
    cluster = Elected(tmp_path)
    for each in (cluster.coordinator, *cluster.nodes):
        each.program = previous
    for node in cluster.nodes:
        # loopback needs no word for it, and the last release does not know the key
        node.settings.pop("insecure", None)
        # a master that stands still for some seconds is to stay the one that was switched to
        node.settings["coordinator"]["lease_ttl_s"] = 20
    with cluster:
        cluster.wait_all_in_sync()
        with Account(cluster.endpoints) as account:
            walk = Walk(cluster, account, previous)
            first, second = walk.slaves()
            old_master = cluster.the_master()

            # there: slaves, a switch, the old master, last the coordinator
            walk.move(first, ROOT)
            walk.move(second, ROOT)
            walk.switch(first)
            walk.move(old_master, ROOT)
            cluster.coordinator.stop()
            cluster.coordinator.program = ROOT
            cluster.coordinator.start().wait_ready()
            walk.settle()

            # back, in the same order: an old slave follows a new master, and then leads new slaves
            walk.move(second, previous)
            walk.switch(second)
            assert walk.old == {second.node_id}
        account.check(cluster)
        assert not account.failed
