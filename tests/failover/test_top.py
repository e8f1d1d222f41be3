"""`tandemlog top` while the master is killed: it shows who leads next, and continues."""

from pathlib import Path

import pytest

from helpers.elected import Elected
from helpers.pseudo_terminal import PseudoTerminal

pytestmark = [pytest.mark.cluster, pytest.mark.lane("elections")]


def test_it_follows_a_failover(tmp_path: Path) -> None:
    with Elected(tmp_path) as cluster:
        master = cluster.the_master()
        cluster.wait_in_sync(count=3)
        endpoints = ",".join(cluster.endpoints)
        arguments = ["top", "--endpoint", endpoints, "--interval", "0.2"]
        with PseudoTerminal(arguments, columns=120, lines=40) as terminal:
            terminal.wait_shown(
                "the master and the first term",
                lambda text: (
                    f"{master.node_id} is the master, 2 slaves in sync" in text
                    and "epoch  leader" in text
                ),
            )
            master.kill()
            gone = f"{master.node_id} cannot be reached"
            others = [node.node_id for node in cluster.nodes if node is not master]
            shown = terminal.wait_shown(
                "the next master and its term",
                lambda text: (
                    gone in text
                    and any(f"{name} leads epoch 2" in text for name in others)
                    and "    2  n" in text
                    and " no-master " not in text
                ),
                60,
            )
            masters = [line.split()[0] for line in shown.split("\n") if " master " in line]
            assert len(masters) == 1
            assert masters[0] in others
            master.start()
            terminal.wait_shown(
                "the old master as a slave",
                lambda text: "is the master, 2 slaves in sync" in text,
                60,
            )
            terminal.press("q")
            assert terminal.wait_end() == 0
            assert terminal.is_restored
            assert "Traceback" not in terminal.text
