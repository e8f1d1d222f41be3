"""The cluster page's questions: what this node knows, answered when it changes."""

import asyncio
from pathlib import Path

from helpers.console_node import open_console
from tandemlog_server.node.console.history import COARSE_PLACES, FINE_PLACES


async def test_the_cluster_as_this_node_sees_it(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (node, browser):
        found = await browser.json("/api/cluster")
        [row] = found["nodes"]
        assert (row["node"], row["role"], row["in_sync"]) == ("n0", "master", True)
        assert row["http_endpoint"] == node.endpoints.http
        assert found["answered_by"] == "n0"
        assert found["elections"] is None
        assert 0 < found["disk"]["free_bytes"] < found["disk"]["size_bytes"]


async def test_a_question_waits_for_a_change(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (node, browser):
        seen = (await browser.json("/api/cluster"))["seen"]
        asked = asyncio.create_task(browser.json(f"/api/cluster?seen={seen}"))
        await asyncio.sleep(0.2)
        assert not asked.done()
        # a node that stops tells those who look
        node._stopping = True
        found = await asked
        assert found["seen"] != seen
        assert found["nodes"][0]["state"] == "stopping"
        node._stopping = False


async def test_rates_are_those_of_the_store(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (_, browser):
        fine = (await browser.json("/api/cluster/rates"))["plots"]
        coarse = (await browser.json("/api/cluster/rates?span=hours"))["plots"]
        assert {len(each) for each in fine.values()} == {FINE_PLACES}
        assert {len(each) for each in coarse.values()} == {COARSE_PLACES}
        assert {"put p99", "flush behind", "confirm behind", "reput behind"} <= set(fine)
