"""The topics page: what it lists for whom, what its pages hold, and what it changes."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from helpers.console_topics import add_topics, put
from tandemlog.admin import AsyncAdmin
from tandemlog_server.node.console import queue_sums
from tandemlog_server.node.console.sampler import Sampler
from tandemlog_server.node.console.table_pages import ROWS
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import TopicConfig


@pytest.fixture
async def opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Node, Browser]]:
    """Sums are not cut short, however slow the machine is."""
    monkeypatch.setattr(queue_sums, "READ_S", 60.0)
    async with open_console(tmp_path) as pair:
        yield pair


def names(found: dict[str, list[dict[str, str]]]) -> list[str]:
    return [each["topic"] for each in found["topics"]]


async def test_a_list_is_filtered_and_paged(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    add_topics(node, *(TopicConfig(f"topic-{number:03}") for number in range(2 * ROWS + 1)))
    found = await browser.json("/api/topics")
    assert (found["first"], found["rows"], found["total"]) == (0, ROWS, 2 * ROWS + 1)
    assert names(found) == [f"topic-{number:03}" for number in range(ROWS)]
    assert found["master"] == node.config.node_id
    last = await browser.json("/api/topics?first=200")
    assert names(last) == [f"topic-{2 * ROWS:03}"]
    assert await browser.json("/api/topics?first=999") == last
    assert names(await browser.json("/api/topics?text=TOPIC-12&first=0")) == [
        f"topic-12{digit}" for digit in range(10)
    ]
    nothing = await browser.json("/api/topics?text=none")
    assert (nothing["total"], nothing["first"], nothing["topics"]) == (0, 0, [])


async def test_topics_of_the_store_and_of_groups_are_hidden(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    own = ["%DLQ%g", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_things"]
    add_topics(node, *(TopicConfig(name, 1, 1) for name in ("orders", *own)))
    found = await browser.json("/api/topics")
    assert names(found) == ["orders"]
    assert found["hidden"] >= len(own)
    every = await browser.json("/api/topics?system=1")
    assert every["hidden"] == 0
    assert {"orders", *own} <= set(names(every))
    assert every["total"] == 1 + found["hidden"]


async def test_the_busiest_topic_comes_first_when_sorted_by_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samplers = []

    async def run(self: Sampler) -> None:
        samplers.append(self)
        await asyncio.Event().wait()

    monkeypatch.setattr(Sampler, "run", run)
    async with open_console(tmp_path) as (node, browser):
        add_topics(node, *(TopicConfig(name, 1, 1) for name in ("a", "b", "c", "d")))
        [sampler] = samplers
        for now, grown in ((0, 0), (5, 10)):
            counts = {"b": (grown, 0, 0, 0), "c": (grown, 50 * grown, 2 * grown, 0), "d": (0,) * 4}
            sampler.topics.put(now, counts)
        found = await browser.json("/api/topics?sort=rate")
        assert names(found) == ["c", "b", "a", "d"]
        assert [each["rates"] for each in found["topics"]] == [
            [2, 100, 4, 0],
            [2, 0, 0, 0],
            None,
            [0, 0, 0, 0],
        ]
        # the plots of those with traffic alone: in and out
        assert [each["plots"] and len(each["plots"]) for each in found["topics"]] == [
            2,
            2,
            None,
            None,
        ]
        assert names(await browser.json("/api/topics")) == ["a", "b", "c", "d"]


async def test_a_topic_shows_its_queues_and_groups(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    add_topics(node, TopicConfig("orders", 3, 3, perm=4 | 2), TopicConfig("other", 1, 1, perm=4))
    await put(node, [("orders", 0), ("orders", 0), ("orders", 2)])
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.commit("billing", {("orders", 0): 2})
        await admin.commit("shipping", {("orders", 0): 1, ("other", 0): 0})
        await admin.commit("elsewhere", {("other", 0): 0})
    found = await browser.json("/api/topic?name=orders")
    assert (found["messages"], found["read_queues"], found["write_queues"]) == (3, 3, 3)
    assert found["readable"]
    assert found["writable"]
    rows = [(each["queue_id"], each["min_offset"], each["max_offset"]) for each in found["queues"]]
    assert rows == [(0, 0, 2), (1, 0, 0), (2, 0, 1)]
    assert found["queues"][1]["oldest"] == -1
    assert found["queues"][0]["oldest"] <= found["queues"][0]["newest"] <= found["newest"]
    assert found["groups"] == [
        {"group": "shipping", "lag": 2},
        {"group": "billing", "lag": 1},
    ]
    [listed, other] = (await browser.json("/api/topics"))["topics"]
    assert listed["messages"] == 3
    assert (other["readable"], other["writable"]) == (True, False)


async def test_lags_of_a_topic_end_after_a_while_also_within_many_queues(
    opened: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, browser = opened
    add_topics(node, TopicConfig("wide", 450, 450))
    for group in ("a", "b"):
        node.store.consumer_offsets.commit(group, "wide", 0, 0)
    found = await browser.json("/api/topic?name=wide")
    assert (found["partial"], found["groups"]) == (
        False,
        [{"group": "a", "lag": 0}, {"group": "b", "lag": 0}],
    )
    # a clock on which each look takes a second: a group has 450 queues
    looks = itertools.count()
    monkeypatch.setattr(queue_sums, "time", SimpleNamespace(monotonic=lambda: float(next(looks))))
    found = await browser.json("/api/topic?name=wide")
    assert (found["partial"], found["groups"]) == (
        True,
        [{"group": "a", "lag": None}, {"group": "b", "lag": None}],
    )
    assert next(looks) < 100


async def test_queues_of_a_wide_topic_are_paged(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    add_topics(node, TopicConfig("wide", 450, 450))
    found = await browser.json("/api/topic?name=wide&first=400")
    assert (found["first"], found["rows"], found["total"]) == (400, 200, 450)
    assert [each["queue_id"] for each in found["queues"]] == list(range(400, 450))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/api/topics?first=-1", "first"),
        ("/api/topics?first=1e3", "first"),
        ("/api/topics?sort=size", "give one of name, rate"),
        ("/api/topics?system=yes", "system"),
        (f"/api/topics?text={'x' * 256}", "255"),
        ("/api/topic", "name: it is missing"),
        ("/api/topic?name=orders&first=x", "first"),
    ],
)
async def test_wrong_parameters_are_named(
    opened: tuple[Node, Browser], path: str, text: str
) -> None:
    node, browser = opened
    add_topics(node, TopicConfig("orders", 1, 1))
    answer = await browser.get(path)
    assert answer.status == 400
    assert text in (await answer.json())["error"]


@pytest.mark.parametrize(
    "name", ["nothing", "<img%20src=x>", "%00", "..", "a%2Fb", "x" * 2000, "%ff", "%25s"]
)
async def test_a_name_that_is_no_topic_is_not_found(
    opened: tuple[Node, Browser], name: str
) -> None:
    _, browser = opened
    answer = await browser.get(f"/api/topic?name={name}")
    assert answer.status in (400, 404)
    assert (await answer.json())["error"]


async def test_a_topic_is_created_widened_and_deleted(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    made = await browser.post(
        "/api/topics/create", {"topic": "orders", "queues": 2, "confirm": "orders"}
    )
    assert made.status == 200
    again = await browser.post(
        "/api/topics/create", {"topic": "orders", "queues": 2, "confirm": "orders"}
    )
    assert again.status == 409
    assert "orders" in (await again.json())["error"]
    wider = await browser.post(
        "/api/topics/queues", {"topic": "orders", "queues": 5, "confirm": "orders"}
    )
    assert (await wider.json())["write_queues"] == 5
    await put(node, [("orders", 4)])
    narrower = await browser.post(
        "/api/topics/queues", {"topic": "orders", "queues": 4, "confirm": "orders"}
    )
    assert narrower.status == 409
    assert "message" in (await narrower.json())["error"]
    assert node.store.topics.table["orders"].read_queues == 5
    gone = await browser.post("/api/topics/delete", {"topic": "orders", "confirm": "orders"})
    assert gone.status == 200
    assert (await browser.get("/api/topic?name=orders")).status == 404
    missing = await browser.post("/api/topics/delete", {"topic": "orders", "confirm": "orders"})
    assert missing.status == 404


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("create", {"topic": "t", "queues": 1}, "confirm"),
        ("create", {"topic": "t", "queues": 1, "confirm": "T"}, "confirm"),
        ("create", {"topic": "t", "queues": 0, "confirm": "t"}, "queues"),
        ("create", {"topic": "t", "queues": 1 << 40, "confirm": "t"}, "at most 65536"),
        ("create", {"topic": "t", "queues": True, "confirm": "t"}, "queues"),
        ("create", {"topic": "<b>", "queues": 1, "confirm": "<b>"}, "<b>"),
        ("create", {"topic": "", "queues": 1, "confirm": ""}, "empty"),
        ("create", {"topic": ["t"], "queues": 1, "confirm": ["t"]}, "topic"),
        ("queues", {"topic": "t", "confirm": "t"}, "queues"),
        ("delete", {"topic": "t"}, "confirm"),
        ("delete", {"topic": "SCHEDULE_TOPIC_XXXX", "confirm": "SCHEDULE_TOPIC_XXXX"}, "own"),
    ],
)
async def test_a_wrong_change_is_refused_and_named(
    opened: tuple[Node, Browser], path: str, body: dict[str, object], text: str
) -> None:
    node, browser = opened
    before = dict(node.store.topics.table)
    answer = await browser.post(f"/api/topics/{path}", body)
    assert answer.status == 400
    assert text in (await answer.json())["error"]
    assert dict(node.store.topics.table) == before


async def test_a_caller_sees_its_own_topics_and_groups_alone(tmp_path: Path) -> None:
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        add_topics(node, TopicConfig("orders", 1, 1), TopicConfig("secret", 1, 1))
        for group in ("billing", "hidden"):
            node.store.consumer_offsets.commit(group, "orders", 0, 0)
        assert (await browser.log_in(token("orders"))).status == 200
        found = await browser.json("/api/topics?system=1")
        assert names(found) == ["orders"]
        assert (found["total"], found["hidden"]) == (1, 0)
        topic = await browser.json("/api/topic?name=orders")
        assert [each["group"] for each in topic["groups"]] == ["billing"]
        assert topic["group_count"] == 1
        hidden, missing = [
            await browser.get(f"/api/topic?name={name}") for name in ("secret", "missing")
        ]
        assert hidden.status == missing.status == 403
        assert (await hidden.text()).replace("secret", "missing") == await missing.text()
        assert (await browser.log_in(token("nothing"))).status == 200
        assert (await browser.json("/api/topics"))["topics"] == []
