"""What a node without its master shows as a memory, and does not count as of now."""

from pathlib import Path
from typing import Any

from helpers.console_node import open_console
from tandemlog.v1 import common_pb2
from tandemlog.v1.common_pb2 import MASTER, SLAVE, NodeStatus
from tandemlog_server.ha.master.node_status import merged
from tandemlog_server.node.console.sampler import Sampler
from tandemlog_server.node.console.standing import (
    heard_now,
    lost_master,
    measured_lags,
    reached_master,
)

TOLD = (
    NodeStatus(node_id="n2", role=MASTER, state="running", in_sync=True, wrote_offset=900),
    NodeStatus(node_id="n1", role=SLAVE, state="in-sync", in_sync=True, wrote_offset=900),
    NodeStatus(node_id="n0", role=SLAVE, state="in-sync", in_sync=True, wrote_offset=800,
               lag_bytes=100),
)  # fmt: skip
"""By the master n2, to the slave n0."""


def seen_by_n0(lost: str = "") -> list[common_pb2.NodeStatus]:
    own = NodeStatus(node_id="n0", role=SLAVE, state="no-master" if lost else "in-sync")
    own.wrote_offset = 800
    return merged(TOLD, own, lost)


def test_with_a_master_all_is_of_now() -> None:
    rows = seen_by_n0()
    assert (reached_master(rows), lost_master(rows)) == (rows[0], None)
    assert heard_now(rows, "n0") == measured_lags(rows, "n0") == {"n0", "n1", "n2"}


def test_what_a_lost_master_told_is_a_memory() -> None:
    rows = seen_by_n0("no answer")
    assert (reached_master(rows), lost_master(rows)) == (None, rows[0])
    assert heard_now(rows, "n0") == {"n0"}
    assert not measured_lags(rows, "n0")


def test_a_slave_that_the_master_does_not_hear() -> None:
    rows = [
        NodeStatus(node_id="n0", role=MASTER, state="running"),
        NodeStatus(node_id="n1", role=SLAVE, state="unreachable", in_sync=True),
    ]
    assert reached_master(rows) is rows[0]
    assert heard_now(rows, "n0") == measured_lags(rows, "n0") == {"n0"}


def test_a_new_master_is_the_master_beside_a_lost_one() -> None:
    rows = [
        NodeStatus(node_id="n2", role=MASTER, state="unreachable"),
        NodeStatus(node_id="n0", role=MASTER, state="running"),
    ]
    assert (reached_master(rows), lost_master(rows)) == (rows[1], None)


async def test_the_page_and_the_plots_of_a_lost_master(tmp_path: Path, monkeypatch: Any) -> None:
    async with open_console(tmp_path) as (node, browser):
        before = await browser.json("/api/cluster")
        assert (before["master"], before["lost_master"]) == ("n0", "")
        rows = seen_by_n0("no answer")
        monkeypatch.setattr(node, "members", lambda: rows)
        found = await browser.json("/api/cluster")
        assert (found["master"], found["lost_master"]) == ("", "n2")
        assert [each["node"] for each in found["nodes"] if each["heard"]] == ["n0"]
        assert not any(each["lag_measured"] for each in found["nodes"])
        assert (await browser.json("/api/topics"))["master"] == ""
        # the lag of its own row is the one that the master told last
        assert next(each for each in rows if each.node_id == "n0").lag_bytes == 100
        assert Sampler(node)._look().members == {"n0": (800, None)}
