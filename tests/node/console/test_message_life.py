"""What the console tells of a message's life: what there is evidence of, and what is not known."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fakes.inner_node import until
from fakes.secured_node import access_text, token
from helpers.console_node import Browser, browser_of, console_node, open_console
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.work.work_admin import AsyncWorkAdmin
from tandemlog.message import Message, SendResult
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog_server.node.console import message_life
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import TopicConfig, new_group
from tandemlog_server.storage.services.send_back import send_back


@dataclass
class Lives:
    """A node with the topic `orders` of one queue."""

    node: Node
    browser: Browser

    @property
    def endpoint(self) -> str:
        return self.node.endpoints.listen

    async def told(self, offset: int = 0, topic: str = "orders", queue: int = 0) -> Any:
        place = urlencode({"topic": topic, "queue": queue, "offset": offset})
        return await self.browser.json(f"/api/messages/life?{place}")

    async def texts(self, offset: int = 0, topic: str = "orders") -> list[str]:
        return [each["text"] for each in (await self.told(offset, topic))["events"]]

    async def until(self, holds: Callable[[list[str]], bool], offset: int = 0) -> list[str]:
        """What is told once it `holds`: a node folds what the log says a moment after it."""
        texts: list[str] = []
        async with asyncio.timeout(20):
            while not texts or not holds(texts):
                await asyncio.sleep(0.02)
                texts = await self.texts(offset)
        return texts

    async def send(self, *bodies: bytes, **fields: Any) -> list[SendResult]:
        options = ProducerOptions(linger_ms=0, unique_ids=fields.pop("unique_ids", True))
        async with AsyncProducer(self.endpoint, options) as producer:
            sent = [
                await (await producer.send(Message("orders", body, queue_id=0), **fields))
                for body in bodies
            ]
        store = self.node.store
        await until(lambda: store.reputed.value >= store.log.wrote.value)
        return sent


@pytest.fixture
async def lives(tmp_path: Path) -> AsyncIterator[Lives]:
    async with open_console(tmp_path) as (node, browser):
        node.store.create_topic(TopicConfig("orders", 1, 1))
        yield Lives(node, browser)


def held(node: Node) -> int:
    """How many messages have come to the queue of `orders`."""
    dense = node.store.queue_table.get("orders", 0)
    return node.store.queues.max_offset(dense) if dense >= 0 else 0


def has(texts: list[str], *words: str) -> bool:
    """Whether one of the texts has all these words."""
    return any(all(word in text for word in words) for text in texts)


async def test_stored_and_confirmed_and_read_by_no_group(lives: Lives) -> None:
    [sent] = await lives.send(b"one")
    found = await lives.told()
    created, stored, confirmed, groups = found["events"]
    assert created["text"].startswith("A producer at")
    assert stored["at"] == sent.store_timestamp
    assert f"log offset {sent.physical_offset}, in epoch 1" in stored["text"]
    assert (confirmed["at"], confirmed["text"][:15]) == (None, "It is confirmed")
    assert groups["text"].startswith("No consumer group")
    assert found["not_known"] == []


async def test_a_group_that_reads_in_order_has_passed_it_or_not(lives: Lives) -> None:
    await lives.send(b"0", b"1", b"2")
    async with AsyncAdmin(lives.endpoint) as admin:
        await admin.commit("billing", {("orders", 0): 2})
    assert has(await lives.texts(1), "billing has passed it", "offset is 2, 1 beyond", "not known")
    assert has(await lives.texts(2), "billing has not passed it", "0 messages come before")


async def test_what_a_work_queue_did(lives: Lives) -> None:
    await lives.send(b"ack", b"reject", b"fail", b"wait")
    async with (
        AsyncConsumer(lives.endpoint, group="workers") as consumer,
        consumer.work("orders", backoff=3_600, lease=60, prefetch=1, ordered=False) as work,
    ):
        deliveries = aiter(work)
        ack, reject, fail = [await anext(deliveries) for _ in range(3)]
        await ack.ack()
        await reject.reject("poison <b>")
        await fail.retry()
        await lives.until(lambda texts: has(texts, "workers is done with it"), 0)
        dead = await lives.until(lambda texts: has(texts, "dead letter", "poison <b>"), 1)
        assert has(dead, "workers: first attempt")
        assert has(dead, "after 1 attempt:")
        tried = await lives.until(lambda texts: has(texts, "1 attempt", "1 wait for"), 2)
        assert has(tried, "given it for the first time")
        assert has(tried, "not known to be done")

    [event] = [each for each in (await lives.told(1))["events"] if each.get("place")]
    assert event["place"] == {"topic": "%DLQ%workers", "queue_id": 0, "queue_offset": 0}
    copy = (await lives.told(0, "%DLQ%workers"))["events"]
    [origin] = [each for each in copy if each.get("place")]
    assert origin["place"] == {"topic": "orders", "queue_id": 0, "queue_offset": 1}
    assert origin["text"].startswith("It is the dead letter of the message")

    async with AsyncWorkAdmin(lives.endpoint) as admin:
        await admin.purge_dead_letters("workers")
    await lives.until(lambda texts: has(texts, "no dead letter of group workers any more"), 1)


async def test_what_a_work_queue_was_not_given_yet(lives: Lives) -> None:
    await lives.send(*(b"%d" % number for number in range(5)))
    async with (
        AsyncConsumer(lives.endpoint, group="workers") as consumer,
        consumer.work("orders", prefetch=1, ordered=True, lease=60) as work,
    ):
        await (await anext(aiter(work))).ack()
        await lives.until(lambda texts: has(texts, "not known to have been given it", "before"), 4)


async def test_what_was_tried_is_known_to_the_next_master(tmp_path: Path) -> None:
    """Its memory is new, and the log says what was tried."""
    async with open_console(tmp_path) as (node, browser):
        node.store.create_topic(TopicConfig("orders", 1, 1))
        lives = Lives(node, browser)
        await lives.send(b"fails", b"done")
        async with (
            AsyncConsumer(lives.endpoint, group="workers") as consumer,
            consumer.work("orders", backoff=3_600, prefetch=1, ordered=False) as work,
        ):
            deliveries = aiter(work)
            await (await anext(deliveries)).retry()
            await (await anext(deliveries)).ack()
            await lives.until(lambda texts: has(texts, "1 attempt"), 0)
            await lives.until(lambda texts: has(texts, "is done with it"), 1)
    async with open_console(tmp_path) as (node, browser):
        lives = Lives(node, browser)
        tried = await lives.texts(0)
        assert has(tried, "given it for the first time")
        assert has(tried, "was given it and is not known to be done", "1 attempt")
        assert has(await lives.texts(1), "is done with it")


async def test_a_retry_of_a_consumer_of_rocketmq(lives: Lives) -> None:
    [sent] = await lives.send(b"one")
    store = lives.node.store
    store.groups.take_rows({"classic": new_group("classic")}, (), 1)
    await asyncio.to_thread(send_back, store, "classic", sent.physical_offset, delay_level=1)
    waiting = await lives.until(lambda texts: has(texts, "classic"))
    assert has(waiting, "comes again at the time") or has(waiting, "had sent it back: retry 1")
    came = await lives.until(lambda texts: has(texts, "had sent it back: retry 1"))
    assert not has(came, "comes again")
    [copy] = [each for each in (await lives.told())["events"] if each.get("place")]
    assert copy["place"]["topic"] == "%RETRY%classic"
    assert has(await lives.texts(0, "%RETRY%classic"), "It is a retry of the message", sent.msg_id)
    await asyncio.to_thread(send_back, store, "classic", sent.physical_offset, delay_level=-1)
    await lives.until(lambda texts: has(texts, "dead letter of group classic"))


async def test_where_a_message_waited_before(lives: Lives) -> None:
    await lives.send(b"later", delay=timedelta(milliseconds=50))
    await until(lambda: held(lives.node) == 1)
    assert has(await lives.texts(), "It waited for its time", "rmq_sys_wheel_timer")

    async with AsyncProducer(lives.endpoint) as producer, producer.transaction() as transaction:
        await transaction.send(Message("orders", b"tx", queue_id=0))
    assert has(await lives.texts(1), "A transaction held it back")


async def test_a_message_without_a_unique_id(lives: Lives) -> None:
    await lives.send(b"one", unique_ids=False)
    assert "no unique id" in (await lives.told())["not_known"][0]


async def test_groups_that_are_left_out_are_counted(
    lives: Lives, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lives.send(b"one")
    lives.node.store.create_topic(TopicConfig("other", 1, 1))
    async with AsyncAdmin(lives.endpoint) as admin:
        await admin.commit("z-reads-it", {("orders", 0): 1})
        for name in ("a", "b"):
            await admin.commit(name, {("other", 0): 0})
    monkeypatch.setattr(message_life, "MOST_GROUPS", 1)
    found = await lives.told()
    assert has([each["text"] for each in found["events"]], "z-reads-it has passed it")
    assert found["not_known"] == ["2 more groups were not asked."]


async def test_only_what_the_caller_may_know(tmp_path: Path) -> None:
    access = access_text(
        operator={"admin": True},
        reader={"read": ["orders"], "consume": ["mine"]},
    )
    async with console_node(tmp_path, access=access) as node, browser_of(node) as browser:
        lives = Lives(node, browser)
        store = node.store
        store.create_topic(TopicConfig("orders", 1, 1))
        await browser.log_in(token("operator"))
        message = {"topic": "orders", "confirm": "orders", "body": "x", "keys": "", "tags": ""}
        assert (await browser.post("/api/messages/send", message)).status == 200
        assert (await browser.post("/api/messages/send", {**message, "delay_ms": 50})).status == 200
        for group in ("mine", "theirs"):
            store.consumer_offsets.commit(group, "orders", 0, 1)
        store.create_topic(TopicConfig("%DLQ%mine", 1, 1))
        assert has(await lives.texts(), "theirs")
        await browser.log_in(token("reader"))
        found = await lives.told()
        texts = [each["text"] for each in found["events"]]
        assert has(texts, "mine has passed it")
        assert "theirs" not in str(found)
        assert found["not_known"] == [
            "Whether %DLQ%mine has copies of it: you may not read that topic."
        ]
        await until(lambda: held(node) == 2)
        assert "right to read every topic" in (await lives.told(1))["not_known"][0]
