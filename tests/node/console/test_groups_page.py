"""The groups page: members, lag, a reset that is planned first, and what is refused."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from fakes.inner_node import until
from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from helpers.console_topics import add_topics, join, put
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.group.group_admin import GroupDescription
from tandemlog.errors import NoMasterError
from tandemlog_server.node.console import queue_sums, reset_plan
from tandemlog_server.node.console.pages.groups_page import AT_ONCE
from tandemlog_server.node.console.table_pages import ROWS
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import TopicConfig

RESET: Mapping[str, Any] = {"group": "g", "topic": "", "confirm": "g"}
"""Without the plan."""


@pytest.fixture
async def opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[Node, Browser]]:
    """Of orders, which has two queues of 4 messages, "g" has read 1 of queue 0; of bills it has
    read all. Sums are not cut short, however slow the machine is."""
    monkeypatch.setattr(queue_sums, "READ_S", 60.0)
    async with open_console(tmp_path) as (node, browser):
        add_topics(node, TopicConfig("orders", 2, 2), TopicConfig("bills", 1, 1))
        await put(node, [("orders", 0), ("orders", 1)] * 4 + [("bills", 0)])
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.commit("g", {("orders", 0): 1, ("bills", 0): 1})
            await admin.commit("other", {("bills", 0): 0})
        yield node, browser


async def test_groups_are_listed_filtered_and_sorted(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    await join(node, "other", "bills")
    found = await browser.json("/api/groups")
    first, second = found["groups"]
    assert first == {
        "group": "g",
        "kind": "",
        "state": "empty",
        "members": 0,
        "heard_ms_ago": None,
        "topics": 2,
        "lag": 7,
    }
    assert second.pop("heard_ms_ago") >= 0
    assert second == {
        "group": "other",
        "kind": "own",
        "state": "stable",
        "members": 1,
        "topics": 1,
        "lag": 1,
    }
    assert (found["fault"], found["partial"]) == ("", False)
    found = await browser.json("/api/groups?text=OTH")
    assert [each["group"] for each in found["groups"]] == ["other"]
    async with AsyncAdmin(node.endpoints.listen) as admin:
        lags = {group: await admin.lag(group) for group in ("g", "other")}
    assert [sum(each.messages for each in lags[group]) for group in ("g", "other")] == [7, 1]
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.commit("zero", {("bills", 0): 1})
        await admin.commit("z", {("orders", 0): 0})
    found = await browser.json("/api/groups?sort=lag")
    assert [(each["group"], each["lag"]) for each in found["groups"]] == [
        ("z", 8),
        ("g", 7),
        ("other", 1),
        ("zero", 0),
    ]


async def test_a_work_queue_counts_from_what_is_done(opened: tuple[Node, Browser]) -> None:
    """Of orders 0 messages 0 and 2 are done and 1 is not, of orders 1 none."""
    node, browser = opened
    async with (
        AsyncConsumer(node.endpoints.listen, group="jobs") as consumer,
        consumer.work("orders", start="earliest") as work,
    ):
        seen = 0
        async for delivery in work:
            seen += 1
            message = delivery.message
            if message.queue_id == 0 and message.queue_offset in (0, 2):
                await delivery.ack(sync=True)
            if seen == 8:
                break
    await until(lambda: _done(node, "jobs") == 2)
    row = next(
        each for each in (await browser.json("/api/groups"))["groups"] if each["group"] == "jobs"
    )
    assert (row["topics"], row["lag"]) == (1, 6)
    [first, *_] = (await browser.json("/api/groups?sort=lag"))["groups"]
    assert first["lag"] == 7
    found = await browser.json("/api/group?name=jobs")
    assert (found["lag"], found["works"]) == (6, True)
    assert found["topics"] == [{"topic": "orders", "queues": 2, "lag": 6}]
    assert [(each["committed"], each["lag"]) for each in found["queues"]] == [(None, 2), (None, 4)]
    assert found["queues"][0]["since"] == node.store.reader.time_at("orders", 0, 1)
    assert (await browser.json("/api/group?name=g"))["works"] is False
    topic = await browser.json("/api/topic?name=orders")
    assert topic["groups"] == [{"group": "g", "lag": 7}, {"group": "jobs", "lag": 6}]
    assert topic["group_count"] == 2


def _done(node: Node, group: str) -> int:
    """How many messages of queue 0 are done, by the log."""
    states = [each for each in node.store.leases.of_group(group) if each.queue_id == 0]
    done = [int((each.ended_ends - each.ended_starts).sum()) for each in states]
    return sum(each.floor or 0 for each in states) + sum(done)


async def test_a_list_of_groups_is_paged(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    for number in range(ROWS):
        node.store.consumer_offsets.commit(f"group-{number:03}", "bills", 0, 0)
    found = await browser.json("/api/groups?first=100")
    assert (found["first"], found["total"]) == (ROWS, ROWS + 2)
    assert [each["group"] for each in found["groups"]] == [f"group-{ROWS - 1:03}", "other"]


async def test_lags_that_take_too_long_are_left_out_and_the_page_is_told(
    opened: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, browser = opened
    monkeypatch.setattr(queue_sums, "READ_S", -1.0)
    for sort in ("name", "lag"):
        found = await browser.json(f"/api/groups?sort={sort}")
        assert found["partial"] is True
        assert [each["lag"] for each in found["groups"]] == [None, None]
    assert {each["messages"] for each in (await browser.json("/api/topics"))["topics"]} == {None}


async def test_a_group_shows_members_and_the_lag_of_each_queue(
    opened: tuple[Node, Browser],
) -> None:
    node, browser = opened
    await join(node, "g", "orders")
    found = await browser.json("/api/group?name=g")
    [member] = found["member_rows"]
    assert (member["client_id"], member["assigned"], member["queues"]) == (
        "worker-1",
        "orders 0-1",
        2,
    )
    assert (found["lag"], found["behind"], found["queue_count"]) == (7, 2, 3)
    assert found["topics"] == [
        {"topic": "orders", "queues": 2, "lag": 7},
        {"topic": "bills", "queues": 1, "lag": 0},
    ]
    rows = [
        (each["topic"], each["queue_id"], each["committed"], each["end"], each["lag"])
        for each in found["queues"]
    ]
    assert rows == [("bills", 0, 1, 1, 0), ("orders", 0, 1, 4, 3), ("orders", 1, None, 4, 4)]
    assert [each["owner"] for each in found["queues"]] == [None, "worker-1", "worker-1"]
    reader = node.store.reader
    assert [each["since"] for each in found["queues"]] == [
        None,
        reader.time_at("orders", 0, 1),
        reader.time_at("orders", 1, 0),
    ]
    async with AsyncAdmin(node.endpoints.listen) as admin:
        assert rows == [
            (each.topic, each.queue_id, each.committed, each.end, each.messages)
            for each in await admin.lag("g")
        ]
    only = await browser.json("/api/group?name=g&topic=bills")
    assert [each["topic"] for each in only["queues"]] == ["bills"]
    assert only["lag"] == 7


async def test_topics_that_members_follow_count_from_their_beginning(
    opened: tuple[Node, Browser],
) -> None:
    node, browser = opened
    await join(node, "new", "orders")
    found = await browser.json("/api/group?name=new")
    assert (found["lag"], found["queue_count"]) == (8, 2)
    assert {each["committed"] for each in found["queues"]} == {None}


async def test_the_queues_of_a_deleted_topic_are_gone(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.delete_topic("orders")
    found = await browser.json("/api/group?name=g")
    assert [each["topic"] for each in found["queues"]] == ["bills"]
    assert (await browser.json("/api/groups"))["groups"][0]["lag"] == 0


async def test_a_reset_is_planned_then_done(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    before = node.store.consumer_offsets.fetch("g")
    planned = await browser.json("/api/groups/reset?name=g&to=latest")
    assert node.store.consumer_offsets.fetch("g") == before
    plan = planned.pop("plan")
    assert plan == {"bills": [[0, 1, 1]], "orders": [[0, 1, 4], [1, None, 4]]}
    assert planned == {
        "group": "g",
        "queues": 3,
        "moved": 2,
        "skipped": 3,
        "again": 0,
        "changes": [
            {"topic": "orders", "queue_id": 0, "before": 1, "after": 4, "shift": 3},
            {"topic": "orders", "queue_id": 1, "before": None, "after": 4, "shift": None},
        ],
    }
    done = await browser.post("/api/groups/reset", {**RESET, "plan": plan})
    assert await done.json() == planned
    assert (await browser.json("/api/group?name=g"))["lag"] == 0
    again = await browser.json("/api/groups/reset?name=g&to=earliest&topic=orders")
    assert (again["queues"], again["moved"], again["again"], again["skipped"]) == (2, 2, 8, 0)
    time_ms = node.store.reader.time_at("orders", 0, 0)
    timed = await browser.json(f"/api/groups/reset?name=g&to=time&time={time_ms}&topic=orders")
    assert timed["again"] == 8
    after = await browser.json(f"/api/groups/reset?name=g&to=time&time={time_ms + 10**9}")
    assert (after["moved"], after["changes"]) == (0, [])


async def test_a_reset_moves_to_what_was_shown_though_messages_came_since(
    opened: tuple[Node, Browser],
) -> None:
    node, browser = opened
    planned = await browser.json("/api/groups/reset?name=g&to=latest&topic=orders")
    await put(node, [("orders", 0), ("orders", 1)] * 2)
    body = {**RESET, "topic": "orders", "plan": planned["plan"]}
    assert (await browser.post("/api/groups/reset", body)).status == 200
    assert node.store.consumer_offsets.of_pair("orders", "g") == {0: 4, 1: 4}


@pytest.mark.parametrize(
    ("topic", "queue"),
    [
        ("", ("orders", 0)),  # shown with another offset
        ("", ("orders", 1)),  # shown without an offset
        ("", ("bills", 0)),  # shown as one that does not move
        ("", ("new", 0)),  # not shown
        ("orders", ("orders", 0)),
    ],
)
async def test_a_reset_is_refused_when_the_group_has_committed_since_it_was_shown(
    opened: tuple[Node, Browser], topic: str, queue: tuple[str, int]
) -> None:
    node, browser = opened
    add_topics(node, *node.store.topics.table.values(), TopicConfig("new", 1, 1))
    planned = await browser.json(f"/api/groups/reset?name=g&to=latest&topic={topic}")
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.commit("g", {queue: 2 if queue[0] == "orders" else 0})
    before = node.store.consumer_offsets.fetch("g")
    body = {**RESET, "topic": topic, "plan": planned["plan"]}
    answer = await browser.post("/api/groups/reset", body)
    assert answer.status == 409
    assert "the group has committed since" in (await answer.json())["error"]
    assert node.store.consumer_offsets.fetch("g") == before


async def test_a_reset_is_refused_when_its_topic_has_got_queues(
    opened: tuple[Node, Browser],
) -> None:
    node, browser = opened
    planned = await browser.json("/api/groups/reset?name=g&to=latest")
    before = node.store.consumer_offsets.fetch("g")
    async with AsyncAdmin(node.endpoints.listen) as admin:
        await admin.create_topic("orders", 3, update=True)
    answer = await browser.post("/api/groups/reset", {**RESET, "plan": planned["plan"]})
    assert answer.status == 409
    assert "look again" in (await answer.json())["error"]
    assert node.store.consumer_offsets.fetch("g") == before


async def test_a_plan_that_is_too_large_asks_for_one_topic(
    opened: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, browser = opened
    monkeypatch.setattr(reset_plan, "PLAN_CHARACTERS", 30)
    answer = await browser.get("/api/groups/reset?name=g&to=latest")
    assert answer.status == 400
    assert "choose one topic" in (await answer.json())["error"]
    await browser.json("/api/groups/reset?name=g&to=latest&topic=bills")


async def test_members_keep_a_group_from_being_reset_or_deleted(
    opened: tuple[Node, Browser],
) -> None:
    node, browser = opened
    await join(node, "g", "orders")
    before = node.store.consumer_offsets.fetch("g")
    answers = [
        await browser.get("/api/groups/reset?name=g&to=earliest"),
        await browser.post("/api/groups/reset", {**RESET, "plan": {"orders": [[0, 1, 0]]}}),
        await browser.post("/api/groups/delete", {"group": "g", "confirm": "g"}),
    ]
    for answer in answers:
        assert answer.status == 409
        assert "stop the members first" in (await answer.json())["error"]
    assert node.store.consumer_offsets.fetch("g") == before


async def test_a_group_is_deleted(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    answer = await browser.post("/api/groups/delete", {"group": "g", "confirm": "g"})
    assert answer.status == 200
    assert (await browser.get("/api/group?name=g")).status == 404
    assert node.store.consumer_offsets.groups() == ["other"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/api/group", "name: it is missing"),
        ("/api/group?name=g&first=-1", "first"),
        ("/api/groups?sort=members", "give one of name, lag"),
        ("/api/groups/reset?to=latest", "name: it is missing"),
        ("/api/groups/reset?name=g", "give one of earliest, latest, time"),
        ("/api/groups/reset?name=g&to=shift", "give one of earliest, latest, time"),
        ("/api/groups/reset?name=g&to=time", "time"),
        ("/api/groups/reset?name=g&to=time&time=yesterday", "time"),
    ],
)
async def test_wrong_parameters_are_named(
    opened: tuple[Node, Browser], path: str, text: str
) -> None:
    _, browser = opened
    answer = await browser.get(path)
    assert answer.status == 400
    assert text in (await answer.json())["error"]


@pytest.mark.parametrize(
    "name", ["nothing", "<img%20src=x>", "%00", "..", "a%2Fb", "x" * 2000, "%ff"]
)
async def test_a_name_that_is_no_group_is_not_found(
    opened: tuple[Node, Browser], name: str
) -> None:
    _, browser = opened
    for path in (f"/api/group?name={name}", f"/api/groups/reset?to=latest&name={name}"):
        answer = await browser.get(path)
        assert answer.status in (400, 404)
        assert (await answer.json())["error"]
    unknown = await browser.get(f"/api/groups/reset?to=latest&name=g&topic={name}")
    assert unknown.status in (400, 404)


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        ("reset", {"group": "g", "plan": {}}, "confirm"),
        ("reset", {**RESET, "plan": {}, "confirm": "other"}, "confirm"),
        ("reset", RESET, "plan"),
        ("reset", {**RESET, "plan": []}, "plan"),
        ("reset", {**RESET, "plan": {}}, "plan"),
        ("reset", {**RESET, "plan": {"orders": 1}}, "plan"),
        ("reset", {**RESET, "plan": {"orders": [[0, 1]]}}, "plan"),
        ("reset", {**RESET, "plan": {"orders": [[0, 1, None]]}}, "plan"),
        ("reset", {**RESET, "plan": {"orders": [[0, 1, -1]]}}, "plan"),
        ("reset", {**RESET, "plan": {"orders": [[0, True, 1]]}}, "plan"),
        ("reset", {**RESET, "plan": {"orders": [[0, 1, 1 << 80]]}}, "plan"),
        ("reset", {**RESET, "plan": {"orders": [[0, 1, 4]]}, "topic": 1}, "topic"),
        ("delete", {"group": "g"}, "confirm"),
        ("delete", {"confirm": "g"}, "group"),
    ],
)
async def test_a_wrong_change_is_refused_and_named(
    opened: tuple[Node, Browser], path: str, body: dict[str, Any], text: str
) -> None:
    node, browser = opened
    before = node.store.consumer_offsets.to_json()
    answer = await browser.post(f"/api/groups/{path}", body)
    assert answer.status == 400
    assert text in (await answer.json())["error"]
    assert node.store.consumer_offsets.to_json() == before


async def test_a_caller_sees_its_own_groups_and_of_them_its_own_topics(tmp_path: Path) -> None:
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        add_topics(node, TopicConfig("orders", 1, 1), TopicConfig("secret", 1, 1))
        for group, topic in (
            ("billing", "orders"),
            ("billing", "secret"),
            ("hidden", "orders"),
        ):
            node.store.consumer_offsets.commit(group, topic, 0, 0)
        assert (await browser.log_in(token("orders"))).status == 200
        [row] = (await browser.json("/api/groups"))["groups"]
        assert (row["group"], row["topics"]) == ("billing", 1)
        found = await browser.get("/api/group?name=billing")
        assert "secret" not in await found.text()
        assert [each["topic"] for each in (await found.json())["topics"]] == ["orders"]
        assert (await browser.get("/api/group?name=billing&topic=secret")).status == 200
        hidden, missing = [
            await browser.get(f"/api/group?name={name}") for name in ("hidden", "no")
        ]
        assert hidden.status == missing.status == 403
        plan = await browser.get("/api/groups/reset?name=hidden&to=latest")
        assert plan.status == 403


async def test_without_a_master_the_list_has_no_members_and_says_why(
    opened: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, browser = opened
    for number in range(50):
        node.store.consumer_offsets.commit(f"group-{number}", "bills", 0, 0)
    asked = []

    async def describe(self: AsyncAdmin, group: str) -> GroupDescription:
        asked.append(group)
        await asyncio.sleep(0)
        raise NoMasterError("no node leads")

    monkeypatch.setattr(AsyncAdmin, "describe_group", describe)
    found = await browser.json("/api/groups")
    assert found["fault"] == "the members are not known: no node leads"
    assert {each["members"] for each in found["groups"]} == {None}
    assert found["groups"][0]["lag"] == 7
    assert len(asked) <= AT_ONCE  # each of them waits for a master
