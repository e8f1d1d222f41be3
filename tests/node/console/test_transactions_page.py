"""Open transactions over HTTP: listed, committed and rolled back by an operator."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.secured_node import token
from helpers.console_node import ACCESS, Browser, browser_of, console_node, open_console
from tandemlog import Message, Security
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.console.pages import transactions_page
from tandemlog_server.node.node import Node

OPEN = "/api/services/transactions"
DECIDE = f"{OPEN}/decide"
OPERATOR = Security(token=token("operator"))


async def begin(node: Node, producer: AsyncProducer, *topics: str) -> None:
    """A transaction that its producer leaves open; it is there when this returns."""
    messages = [Message(topic, b"half of %s" % topic.encode()) for topic in topics]
    async with AsyncAdmin(node.endpoints.listen, security=OPERATOR) as admin, asyncio.timeout(20):
        before = await messages_in(admin)
        await producer.transaction(messages).__aenter__()
        while await messages_in(admin) < before + len(topics):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.01)


async def messages_in(admin: AsyncAdmin) -> int:
    return sum(each.messages for each in await admin.transactions())


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Node, Browser]]:
    """Two open transactions, the older one with messages to two topics."""
    async with open_console(tmp_path) as (node, browser):
        async with AsyncAdmin(node.endpoints.listen) as admin:
            for topic in ("orders", "refunds"):
                await admin.create_topic(topic, 1)
        async with AsyncProducer(node.endpoints.listen) as producer:
            await begin(node, producer, "orders", "refunds")
            await begin(node, producer, "orders")
            yield node, browser


async def test_open_transactions_are_listed_by_page(
    opened: tuple[Node, Browser], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, browser = opened
    found = await browser.json(OPEN)
    assert [(each["topics"], each["messages"]) for each in found["transactions"]] == [
        (["orders", "refunds"], 2), (["orders"], 1),
    ]  # fmt: skip
    assert all(not each["decided"] for each in found["transactions"])
    assert found["transactions"][0]["begun_ms"] <= found["now_ms"]
    monkeypatch.setattr(transactions_page, "MAX_ROWS", 1)
    monkeypatch.setattr(transactions_page, "MOST_TOPICS", 1)
    [row] = (await browser.json(OPEN))["transactions"]
    assert (row["topics"], row["of"]) == (["orders"], 2)
    second = await browser.json(f"{OPEN}?first=1")
    assert [each["messages"] for each in second["transactions"]] == [1]
    assert second["total"] == 2


async def test_an_operator_ends_them(opened: tuple[Node, Browser]) -> None:
    node, browser = opened
    both, one = [each["transaction_id"] for each in (await browser.json(OPEN))["transactions"]]
    body = {"transaction_id": both, "outcome": "commit", "confirm": both}
    for wrong in ({**body, "confirm": one}, {**body, "outcome": "abort"}, {"outcome": "commit"}):
        assert (await browser.post(DECIDE, wrong)).status == 400
    answer = await browser.post(DECIDE, body)
    assert await answer.json() == {"transaction_id": both, "messages": 2}
    body = {"transaction_id": one, "outcome": "rollback", "confirm": one}
    assert (await browser.post(DECIDE, body)).status == 200
    other = await browser.post(DECIDE, {**body, "outcome": "commit"})
    assert other.status == 409
    assert (await other.json())["kind"] == "TransactionDecidedError"
    hostile = "<script>"
    unknown = {"transaction_id": hostile, "outcome": "commit", "confirm": hostile}
    assert (await browser.post(DECIDE, unknown)).status in (400, 409)
    async with AsyncConsumer(node.endpoints.listen) as consumer:
        read = await consumer.pull("orders", 0, 0, max_messages=10)
    assert [each.body for each in read] == [b"half of orders"]


async def test_a_caller_sees_those_of_its_topics_and_ends_none(tmp_path: Path) -> None:
    async with console_node(tmp_path, access=ACCESS) as node, browser_of(node) as browser:
        endpoint = node.endpoints.listen
        async with AsyncAdmin(endpoint, security=OPERATOR) as admin:
            for topic in ("orders", "secrets"):
                await admin.create_topic(topic, 1)
        async with AsyncProducer(endpoint, security=OPERATOR) as producer:
            await begin(node, producer, "orders")
            await begin(node, producer, "secrets")
            await browser.log_in(token("orders"))
            [row] = (await browser.json(OPEN))["transactions"]
            assert row["topics"] == ["orders"]
            name = row["transaction_id"]
            body = {"transaction_id": name, "outcome": "commit", "confirm": name}
            assert (await browser.post(DECIDE, body)).status == 403
            await browser.log_in(token("operator"))
            assert (await browser.json(OPEN))["total"] == 2
