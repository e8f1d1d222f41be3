"""What takes too long for the node's loop is looked at in a thread."""

import asyncio
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from helpers.console_node import open_console
from tandemlog_server.node.console import sampler
from tandemlog_server.node.console.history import TopicHistory
from tandemlog_server.node.console.pages import cluster_page


async def test_topics_and_the_disk_are_looked_at_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[int]] = {"topics": set(), "disk": set()}
    put, usage, seen = TopicHistory.put, shutil.disk_usage, threading.Event()

    def put_topics(self: TopicHistory, now: float, topics: Mapping[str, Sequence[float]]) -> None:
        threads["topics"].add(threading.get_ident())
        put(self, now, topics)
        seen.set()

    def use(path: Any) -> Any:
        threads["disk"].add(threading.get_ident())
        return usage(path)

    monkeypatch.setattr(TopicHistory, "put", put_topics)
    # of this module alone: the store asks the disk too
    monkeypatch.setattr(sampler, "shutil", SimpleNamespace(disk_usage=use))
    async with open_console(tmp_path) as (_, browser):
        assert await asyncio.to_thread(seen.wait, 60)
        for path in ("/api/cluster", "/api/store"):
            disk = (await browser.json(path))["disk"]
            assert 0 < disk["free_bytes"] < disk["size_bytes"]
    own = threading.get_ident()
    assert threads["topics"]
    assert threads["disk"]
    assert own not in threads["topics"] | threads["disk"]


def test_a_page_gets_the_newest_terms_alone() -> None:
    terms = [{"epoch": each} for each in range(1, 41)]
    newest = cluster_page._newest(terms)
    assert [each["epoch"] for each in newest] == [*range(29, 41)]
