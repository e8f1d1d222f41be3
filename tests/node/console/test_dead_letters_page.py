"""Groups with their work, and dead letters: listed, read, sent again and forgotten over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from tandemlog import AsyncWorkAdmin, Message, Security
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.console.pages import dead_letters_page, work_page
from tandemlog_server.node.node import Node

HOSTILE = "<img src=x onerror=alert(1)> no such account"
BODIES = (b"<script>alert(1)</script>", b"\xff\x00", b"third")
OPERATOR = Security(token=token("operator"))
LETTERS = "/api/services/dead-letters/billing"


async def fill(node: Node, topic: str = "orders", group: str = "billing") -> None:
    """A topic with BODIES, which are dead letters of `group`, and a message that it retries."""
    endpoint = node.endpoints.listen
    async with AsyncAdmin(endpoint, security=OPERATOR) as admin:
        await admin.create_topic(topic, 1)
    async with AsyncProducer(endpoint, security=OPERATOR) as producer:
        for body in (*BODIES, b"again"):
            await (await producer.send(Message(topic, body, keys="k")))
    await reject(node, topic, group, len(BODIES), retry=True)
    await dead(node, group, len(BODIES))


async def reject(node: Node, topic: str, group: str, count: int, *, retry: bool = False) -> None:
    """Reject `count` messages; `retry`: one more comes again in an hour."""
    async with (
        AsyncConsumer(node.endpoints.listen, group=group, security=OPERATOR) as consumer,
        consumer.work(topic, start="earliest") as work,
    ):
        done = 0
        async for delivery in work:
            done += 1
            if done <= count:
                await delivery.reject(ValueError(HOSTILE), sync=True)
            else:
                await delivery.retry(error=ValueError("later"), after=timedelta(hours=1), sync=True)
            if done == count + retry:
                break


async def dead(node: Node, group: str, count: int) -> None:
    """Wait until that many letters are listed: they are written behind the consumer's back."""
    endpoint = node.endpoints.listen
    async with AsyncWorkAdmin(endpoint, security=OPERATOR) as admin, asyncio.timeout(20):
        while len(await admin.dead_letters(group)) != count:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


@pytest.fixture
async def filled(tmp_path: Path) -> AsyncIterator[tuple[Node, Browser]]:
    async with open_console(tmp_path) as (node, browser):
        await fill(node)
        yield node, browser


async def test_groups_with_dead_letters_come_first(filled: tuple[Node, Browser]) -> None:
    node, browser = filled
    async with AsyncWorkAdmin(node.endpoints.listen) as admin:
        for group in ("a-idle", "b-idle"):
            await admin.set_policy(group, max_attempts=3)
    found = await browser.json("/api/services/groups")
    [row] = found["groups"]
    assert (row["group"], row["dead_letters"], row["waiting_retry"]) == ("billing", 3, 1)
    assert row["unacked"] == 1
    assert row["oldest_unacked_ms"] > 0
    assert (found["total"], found["others"]) == (1, 2)
    named = await browser.json("/api/services/groups?name=i")
    assert [each["group"] for each in named["groups"]] == ["billing", "a-idle", "b-idle"]
    assert (await browser.json("/api/services/groups?name=%3Cb%3E"))["groups"] == []


async def test_an_order_without_time_is_told(
    filled: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, browser = filled
    monkeypatch.setattr(work_page, "RANK_S", 60.0)
    assert (await browser.json("/api/services/groups"))["partial"] is False
    monkeypatch.setattr(work_page, "RANK_S", -1.0)
    found = await browser.json("/api/services/groups")
    assert found["partial"] is True
    # nothing is missing: it stands where groups with dead letters stand
    assert [each["group"] for each in found["groups"]] == ["billing"]


async def test_groups_are_paged(
    filled: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, browser = filled
    monkeypatch.setattr(work_page, "ROWS", 2)
    async with AsyncWorkAdmin(node.endpoints.listen) as admin:
        for number in range(3):
            await admin.set_policy(f"billing{number}", max_attempts=3)
    pages = [
        await browser.json(f"/api/services/groups?name=billing&first={first}")
        for first in (0, 2, 4)
    ]
    assert [[each["group"] for each in page["groups"]] for page in pages] == [
        ["billing", "billing0"], ["billing1", "billing2"], [],
    ]  # fmt: skip
    assert {page["total"] for page in pages} == {4}


async def test_the_work_of_a_group_by_queue(filled: tuple[Node, Browser]) -> None:
    _, browser = filled
    found = await browser.json("/api/services/groups/billing")
    [queue] = found["queues"]
    assert (queue["topic"], queue["queue_id"], queue["floor"]) == ("orders", 0, 3)
    assert (queue["unacked"], queue["waiting_retry"], queue["leased"]) == (1, 1, 0)
    assert found["attempts"] == [1]
    assert found["policy"]["max_attempts"] == 17
    assert found["policy"]["levels_ms"][0] == 10_000
    assert (await browser.json("/api/services/groups/billing?first=1"))["queues"] == []


async def test_letters_are_listed_by_page_and_read(
    filled: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, browser = filled
    monkeypatch.setattr(dead_letters_page, "ROWS", 2)
    first = await browser.json(LETTERS)
    assert [each["queue_offset"] for each in first["letters"]] == [0, 1]
    assert (first["left"], first["next"], first["end"]) == (3, 2, 3)
    rest = await browser.json(f"{LETTERS}?first=2")
    [last] = rest["letters"]
    assert rest["next"] is None
    assert last["last_error"] == f"ValueError: {HOSTILE}"
    assert (last["origin_topic"], last["origin_queue_id"], last["origin_queue_offset"]) == (
        "orders", 0, 2,
    )  # fmt: skip
    letters = [await browser.json(f"{LETTERS}/{number}") for number in range(3)]
    assert [each["body"]["text"] for each in letters] == [BODIES[0].decode(), None, "third"]
    assert letters[1]["body"]["hex"] == "ff 00"
    assert ["KEYS", "k"] in letters[0]["properties"]
    assert letters[0]["attempts"] == 1


async def test_one_or_all_are_sent_again(
    filled: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, browser = filled
    monkeypatch.setattr(dead_letters_page, "RESENT", 1)
    answer = await browser.post(f"{LETTERS}/resend", {"numbers": [1], "confirm": "billing"})
    assert await answer.json() == {"sent": 1, "refused": [], "next": None}
    again = await browser.post(f"{LETTERS}/resend", {"numbers": [1], "confirm": "billing"})
    refused = await again.json()
    assert refused["sent"] == 0
    assert "sent again or purged" in refused["refused"][0]["reason"]
    body = {"first": 0, "before": 3, "confirm": "billing"}
    first = await (await browser.post(f"{LETTERS}/resend", body)).json()
    assert (first["sent"], first["next"]) == (1, 2)
    rest = await browser.post(f"{LETTERS}/resend", {**body, "first": 2})
    assert (await rest.json())["next"] is None
    assert (await browser.json(LETTERS))["left"] == 0
    async with AsyncConsumer(node.endpoints.listen) as consumer:
        sent = await consumer.pull("orders", 0, 4, max_messages=10)
    assert [each.body for each in sent] == [BODIES[1], BODIES[0], BODIES[2]]


async def test_letters_that_come_back_are_not_sent_again(
    filled: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that rejects all of them again, between the parts of a resend of all."""
    node, browser = filled
    monkeypatch.setattr(dead_letters_page, "RESENT", 1)
    end = (await browser.json(LETTERS))["end"]
    following, sent = 0, 0
    while following is not None and sent < 10:
        body = {"first": following, "before": end, "confirm": "billing"}
        answer = await (await browser.post(f"{LETTERS}/resend", body)).json()
        sent, following = sent + answer["sent"], answer["next"]
        await reject(node, "orders", "billing", answer["sent"])
        await dead(node, "billing", len(BODIES))
    assert sent == len(BODIES)
    found = await browser.json(LETTERS)
    assert [each["queue_offset"] for each in found["letters"]] == [3, 4, 5]
    assert (found["left"], found["end"]) == (3, 6)


async def test_a_part_ends_before_the_end_that_was_shown(filled: tuple[Node, Browser]) -> None:
    _, browser = filled
    body = {"first": 0, "before": 2, "confirm": "billing"}
    answer = await (await browser.post(f"{LETTERS}/resend", body)).json()
    assert (answer["sent"], answer["next"]) == (2, None)
    assert [each["queue_offset"] for each in (await browser.json(LETTERS))["letters"]] == [2]


async def test_letters_below_the_end_that_was_shown_are_forgotten(
    filled: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    node, browser = filled
    monkeypatch.setattr(dead_letters_page, "ROWS", 1)
    shown = await browser.json(LETTERS)
    async with AsyncProducer(node.endpoints.listen) as producer:
        await (await producer.send(Message("orders", b"came since")))
    await reject(node, "orders", "billing", 1)
    await dead(node, "billing", len(BODIES) + 1)
    answer = await browser.post(f"{LETTERS}/purge", {"before": shown["end"], "confirm": "billing"})
    assert await answer.json() == {"purged": len(BODIES)}
    left = await browser.json(LETTERS)
    assert [each["queue_offset"] for each in left["letters"]] == [3]
    answer = await browser.post(f"{LETTERS}/purge", {"before": left["end"], "confirm": "billing"})
    assert await answer.json() == {"purged": 1}
    assert (await browser.json(LETTERS))["left"] == 0


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/api/services/groups?first=x", 400, "'x' is not a whole number"),
        ("/api/services/groups?first=-1", 400, "not in 0.."),
        ("/api/services/groups/unknown", 404, "no group 'unknown'"),
        (f"/api/services/groups/{quote('<b>', safe='')}", 400, "character '<'"),
        ("/api/services/dead-letters/unknown", 404, "no group 'unknown'"),
        ("/api/services/dead-letters/%2e%2e%2fx", 400, "character '.'"),
        (f"{LETTERS}?first=1e3", 400, "'1e3' is not a whole number"),
        (f"{LETTERS}/x", 400, "'x' is not a number"),
        (f"{LETTERS}/%D9%A3", 400, "is not a number"),
        (f"{LETTERS}/99", 409, "has no dead letter 99"),
    ],
)
async def test_wrong_questions_have_clear_answers(
    filled: tuple[Node, Browser], path: str, status: int, text: str
) -> None:
    _, browser = filled
    answer = await browser.get(path)
    assert answer.status == status, await answer.text()
    assert text in (await answer.json())["error"]


@pytest.mark.parametrize(
    ("call", "body", "text"),
    [
        ("resend", {}, "repeat the name"),
        ("purge", {"confirm": "orders"}, "repeat the name"),
        ("resend", {"confirm": "billing", "numbers": []}, "whole numbers"),
        ("resend", {"confirm": "billing", "numbers": [True]}, "whole numbers"),
        ("resend", {"confirm": "billing", "numbers": [-1]}, "whole numbers"),
        ("resend", {"confirm": "billing", "numbers": "0"}, "whole numbers"),
        ("resend", {"confirm": "billing", "first": "0", "before": 3}, "first: give a whole number"),
        ("resend", {"confirm": "billing", "first": 0}, "before: give a whole number"),
        ("resend", {"confirm": "billing", "before": "3"}, "before: give a whole number"),
        ("purge", {"confirm": "billing"}, "before: give a whole number"),
        ("purge", {"confirm": "billing", "before": None}, "before: give a whole number"),
        ("purge", {"confirm": "billing", "before": -1}, "before: give a whole number"),
    ],
)
async def test_wrong_changes_change_nothing(
    filled: tuple[Node, Browser], call: str, body: dict[str, object], text: str
) -> None:
    _, browser = filled
    answer = await browser.post(f"{LETTERS}/{call}", body)
    assert answer.status == 400, await answer.text()
    assert text in (await answer.json())["error"]
    assert (await browser.json(LETTERS))["left"] == 3


async def test_a_caller_sees_and_changes_what_it_may(tmp_path: Path) -> None:
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        await fill(node)
        await fill(node, "secrets", "payroll")
        await browser.log_in(token("orders"))
        found = await browser.json("/api/services/groups?name=a")
        assert [each["group"] for each in found["groups"]] == []
        found = await browser.json("/api/services/groups")
        assert [each["group"] for each in found["groups"]] == ["billing"]
        assert (await browser.json(f"{LETTERS}/0"))["body"]["text"] == BODIES[0].decode()
        for path in ("groups/payroll", "dead-letters/payroll", "dead-letters/payroll/0"):
            answer = await browser.get(f"/api/services/{path}")
            assert answer.status == 403, path
            assert "secrets" not in await answer.text()
        refused = await browser.post(f"{LETTERS}/purge", {"before": 3, "confirm": "billing"})
        assert refused.status == 403
        await browser.log_in(token("nothing"))
        assert (await browser.json("/api/services/groups"))["groups"] == []
        assert (await browser.get(f"{LETTERS}/0")).status == 403
