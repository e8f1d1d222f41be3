"""The store of a node over HTTP: positions for all, the rest for administrators."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from fakes.inner_node import until
from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from tandemlog import Message
from tandemlog.admin import AsyncAdmin
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.console.pages import store_page
from tandemlog_server.node.node import Node
from tandemlog_server.storage.scrub.scrub_plan import OpenBlock

STORE = "/api/store"


async def fill(node: Node, count: int, size: int) -> None:
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.create_topic("orders", 2)
    async with AsyncProducer(node.endpoints.listen) as producer:
        for number in range(count):
            await (await producer.send(Message("orders", bytes(size), keys=f"k{number}")))
    log, store = node.store.log, node.store
    node.store.flush()
    await until(lambda: log.wrote.value == log.flushed.value == store.reputed.value)


async def test_positions_files_and_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_console(tmp_path) as (node, browser):
        await fill(node, 30, 100_000)
        found = await browser.json(STORE)
        end = node.store.log.wrote.value
        assert found["positions"] == {
            "min_offset": 0, "wrote_offset": end, "committed_offset": end, "flushed_offset": end,
            "confirm_offset": end, "reput_offset": end,
        }  # fmt: skip
        details = found["details"]
        assert details["log"]["files"] == -(-end // (1 << 20)) == 3
        assert details["log"]["file_bytes"] == 3 << 20
        assert details["queues"]["numbered"] >= 30
        assert details["index"]["entries"] >= 30
        assert details["retention"]["reserved_hours"] == 72
        assert details["retention"]["delete_hours"] == [4]
        assert details["archive"] is None
        assert details["scrub"]["on"] is True
        assert details["scrub"]["log_end"] == end
        files = await browser.json(f"{STORE}/log-files")
        rows = [(each["first_offset"], each["end_offset"]) for each in files["files"]]
        assert rows == [(2 << 20, end), (1 << 20, 2 << 20), (0, 1 << 20)]
        used = [each["used_bytes"] for each in files["files"]]
        assert used == [end - (2 << 20), 1 << 20, 1 << 20]
        monkeypatch.setattr(store_page, "ROWS", 2)
        pages = [await browser.json(f"{STORE}/log-files?first={first}") for first in (0, 2, 4)]
        assert [[each["first_offset"] for each in page["files"]] for page in pages] == [
            [2 << 20, 1 << 20], [0], [],
        ]  # fmt: skip
        [index] = (await browser.json(f"{STORE}/index-files"))["files"]
        assert index["entries"] == details["index"]["entries"]
        assert 0 < index["begin_ms"] <= index["end_ms"] <= time.time() * 1000 + 60_000


@pytest.mark.parametrize(
    "path", ["log-files?first=x", "index-files?first=-1", "log-files?first=1."]
)
async def test_wrong_pages_have_clear_answers(tmp_path: Path, path: str) -> None:
    async with open_console(tmp_path) as (_, browser):
        answer = await browser.get(f"{STORE}/{path}")
        assert answer.status == 400
        assert "first:" in (await answer.json())["error"]


async def test_an_archive_is_told_with_what_it_lacks(tmp_path: Path) -> None:
    async with open_console(tmp_path, archive=str(tmp_path / "archive")) as (node, browser):
        await fill(node, 3, 1_000)

        def archived() -> bool:
            newest = node.archive.service.archiver.newest  # type: ignore[union-attr]
            return newest is not None and newest[1].end >= node.store.confirmed.value

        await until(archived)
        found = (await browser.json(STORE))["details"]["archive"]
        assert found["working"] is True
        assert found["newest"]["end"] == found["archived_end"] == node.store.confirmed.value
        assert found["newest"]["segments"] >= 1
        assert found["newest"]["spans"] == 1
        assert found["behind_bytes"] == 0
        assert found["faults"] == []
        assert found["url"].endswith("archive")


async def test_a_scrub_is_begun_and_its_bad_places_are_named(tmp_path: Path) -> None:
    async with open_console(tmp_path) as (node, browser):
        await fill(node, 3, 1_000)
        name = node.config.node_id
        wrong = await browser.post(f"{STORE}/scrub", {"confirm": "all"})
        assert wrong.status == 400
        rounds = await scrub_of(browser)
        answer = await browser.post(f"{STORE}/scrub", {"confirm": name})
        assert (await answer.json())["node"] == name
        await until(lambda: node.scrub.description().rounds > rounds["rounds"])
        assert (await scrub_of(browser))["open_blocks"] == []
        await asyncio.to_thread(node.scrub.stop)  # or it settles the place at once
        reason = "damaged, and no whole copy was found <b>"
        node.scrub.scrubber.plan.open[0] = OpenBlock(0, 10, True, reason, 5, 6)
        found = await scrub_of(browser)
        assert found["open"] == 1
        assert found["open_blocks"] == [
            {"start": 0, "end": 10, "lost": True, "reason": reason, "since_ms": 5}
        ]


async def scrub_of(browser: Browser) -> Any:
    return (await browser.json(STORE))["details"]["scrub"]


async def test_details_need_the_right_to_administer(tmp_path: Path) -> None:
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        await browser.log_in(token("orders"))
        answer = await browser.get(STORE)
        found = await answer.json()
        assert found["positions"]["wrote_offset"] == node.store.log.wrote.value
        assert found["details"] is None
        assert "right to administer" in found["missing"]
        assert str(node.store.directory) not in await answer.text()
        for path in ("log-files", "index-files"):
            refused = await browser.get(f"{STORE}/{path}")
            assert refused.status == 403
            assert "right to administer" in (await refused.json())["error"]
        refused = await browser.post(f"{STORE}/scrub", {"confirm": node.config.node_id})
        assert refused.status == 403
        await browser.log_in(token("operator"))
        assert (await browser.json(STORE))["details"]["directory"] == str(node.store.directory)
