"""2,000 topics with 10,000 queues: each page asks for little, and its answer is small.

Time depends on the machine; what grows with the store is counted instead: calls and bytes.
"""

import json
from pathlib import Path

from helpers.console_node import Browser, open_console
from helpers.console_topics import add_topics, put
from tandemlog_server.node.console.table_pages import ROWS
from tandemlog_server.node.console.visit import MAX_ROWS
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import TopicConfig

TOPICS = 2_000
QUEUES = 5
MAX_BYTES = 1_000_000


async def asked(node: Node, browser: Browser, path: str, calls: int) -> dict[str, object]:
    """The answer, which took at most `calls` calls to the node, and is not too large."""
    before = node.numbers().calls_total
    answer = await browser.get(path, **{"Accept-Encoding": "identity"})
    body = await answer.read()
    assert answer.status == 200, body[:500]
    assert len(body) < MAX_BYTES, path
    # the client looks at the members of the cluster now and then
    assert node.numbers().calls_total - before <= calls + 3, path
    found: dict[str, object] = json.loads(body)
    return found


async def test_pages_stay_small(tmp_path: Path) -> None:
    names = [f"{'topic-of-a-long-name-' * 5}{number:05}" for number in range(TOPICS)]
    places = [(name, queue_id) for name in names for queue_id in range(QUEUES)]
    async with open_console(tmp_path) as (node, browser):
        add_topics(node, *(TopicConfig(name, QUEUES, QUEUES) for name in names))
        await put(node, places)
        offsets = node.store.consumer_offsets
        for name, queue_id in places:
            offsets.commit("wide", name, queue_id, 0)
        for number, name in enumerate(names):
            offsets.commit(f"group-{number:04}", name, 0, 0)
            offsets.commit(f"group-{number:04}", names[0], 1, 0)
        for sort in ("name", "rate"):
            found = await asked(node, browser, f"/api/topics?sort={sort}&system=1&first=1900", 2)
            assert found["total"] == TOPICS
            assert len(found["topics"]) == ROWS  # type: ignore[arg-type]
        topic = await asked(node, browser, f"/api/topic?name={names[0]}", 5)
        assert topic["group_count"] == TOPICS + 1
        assert len(topic["groups"]) == MAX_ROWS  # type: ignore[arg-type]
        for sort in ("name", "lag"):
            found = await asked(node, browser, f"/api/groups?sort={sort}", ROWS + 1)
            assert found["total"] == TOPICS + 1
            assert len(found["groups"]) == ROWS  # type: ignore[arg-type]
        group = await asked(node, browser, "/api/group?name=wide&first=9800", 1)
        assert (group["queue_count"], group["lag"]) == (len(places), len(places))
        assert len(group["queues"]) == len(group["topics"]) == MAX_ROWS  # type: ignore[arg-type]
        plan = await asked(node, browser, "/api/groups/reset?name=wide&to=latest", 30)
        assert plan["skipped"] == len(places)
        assert len(plan["changes"]) == MAX_ROWS  # type: ignore[arg-type]
        reset = {"group": "wide", "plan": plan["plan"], "confirm": "wide"}
        done = await browser.post("/api/groups/reset", reset)
        assert done.status == 200, await done.text()
        assert (await done.json())["skipped"] == len(places)
