"""Messages that come later, over HTTP: counted by due time, listed, called back."""

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from tandemlog import Message, Security
from tandemlog.admin import AsyncAdmin
from tandemlog.format.delay.handle import decode_handle
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.node import Node

DELAYED = "/api/services/delayed"
RECALL = f"{DELAYED}/recall"
OPERATOR = Security(token=token("operator"))


async def later(node: Node, topic: str, *hours: float) -> None:
    """A message to a new topic for each of these hours."""
    endpoint = node.endpoints.listen
    async with AsyncAdmin(endpoint, security=OPERATOR) as admin:
        await admin.create_topic(topic, 1)
    async with AsyncProducer(endpoint, security=OPERATOR) as producer:
        for number in hours:
            message = Message(topic, b"later")
            await (await producer.send(message, delay=timedelta(hours=number)))
    # the node's own view, as the bars show it, follows what the clients see
    async with AsyncAdmin(endpoint, security=OPERATOR) as admin:
        await admin.delayed()


@pytest.fixture
async def waiting(tmp_path: Path) -> AsyncIterator[tuple[Node, Browser]]:
    async with open_console(tmp_path) as (node, browser):
        await later(node, "orders", 3, 0.5, 48)
        await later(node, "refunds", 0.5)
        yield node, browser


async def test_messages_by_due_time_and_the_next_of_them(waiting: tuple[Node, Browser]) -> None:
    _, browser = waiting
    found = await browser.json(DELAYED)
    assert {each["label"]: each["count"] for each in found["bars"] if each["count"]} == {
        "within an hour": 2, "within 6 hours": 1, "within a week": 1,
    }  # fmt: skip
    assert found["bars"][-1]["label"] == "later"
    hours = [
        round((each["deliver_at_ms"] - found["now_ms"]) / 3_600_000, 1)
        for each in found["messages"]
    ]
    assert hours == [0.5, 0.5, 3.0, 48.0]
    two = await browser.json(f"{DELAYED}?topic=orders&count=2")
    assert [each["topic"] for each in two["messages"]] == ["orders", "orders"]
    assert sum(each["count"] for each in two["bars"]) == 4


async def test_a_message_is_called_back_once(waiting: tuple[Node, Browser]) -> None:
    _, browser = waiting
    [row] = (await browser.json(f"{DELAYED}?topic=refunds"))["messages"]
    body = {"recall_handle": row["recall_handle"], "confirm": row["unique_key"]}
    wrong = await browser.post(RECALL, {**body, "confirm": "refunds"})
    assert wrong.status == 400
    assert row["unique_key"] in await wrong.text()
    answer = await browser.post(RECALL, body)
    assert await answer.json() == {"topic": "refunds", "unique_key": row["unique_key"]}
    assert (await browser.json(f"{DELAYED}?topic=refunds"))["messages"] == []
    unknown = replace(decode_handle(row["recall_handle"]), key="<b>", log_offset=1)
    body = {"recall_handle": unknown.encode(), "confirm": "<b>"}
    again = await browser.post(RECALL, body)
    assert again.status == 409
    assert (await again.json())["kind"] == "NotWaitingError"


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        (f"{DELAYED}?count=0", 400, "0 is not in 1..200"),
        (f"{DELAYED}?count=201", 400, "201 is not in 1..200"),
        (f"{DELAYED}?count=ten", 400, "'ten' is not a whole number"),
        (f"{DELAYED}?topic=unknown", 404, "unknown"),
        (f"{DELAYED}?topic=%3Cscript%3E", 404, "<script>"),
    ],
)
async def test_wrong_questions_have_clear_answers(
    waiting: tuple[Node, Browser], path: str, status: int, text: str
) -> None:
    _, browser = waiting
    answer = await browser.get(path)
    assert answer.status == status, await answer.text()
    assert text in (await answer.json())["error"]


@pytest.mark.parametrize("handle", ["", "\x00", "x" * 100_000, "ü", "djEg", 7, None])
async def test_what_is_no_handle_calls_nothing_back(
    waiting: tuple[Node, Browser], handle: object
) -> None:
    _, browser = waiting
    answer = await browser.post(RECALL, {"recall_handle": handle, "confirm": ""})
    assert answer.status == 400, await answer.text()
    assert len((await browser.json(DELAYED))["messages"]) == 4


async def test_a_caller_sees_the_topics_that_it_may_see(tmp_path: Path) -> None:
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        await later(node, "orders", 1)
        await later(node, "secrets", 1)
        await browser.log_in(token("orders"))
        found = await browser.json(DELAYED)
        assert [each["topic"] for each in found["messages"]] == ["orders"]
        assert found["bars"] is None
        assert (await browser.get(f"{DELAYED}?topic=secrets")).status == 403
        await browser.log_in(token("operator"))
        found = await browser.json(DELAYED)
        assert [each["topic"] for each in found["messages"]] == ["orders", "secrets"]
        assert sum(each["count"] for each in found["bars"]) == 2
