"""What stops one thing of the writer's stops nothing else: acknowledgements reach the log."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from fakes.batches import Put, batch_of
from fakes.inner_node import config, running, until
from tandemlog_server.node.access.caller import Caller
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.sections import WorkSection
from tandemlog_server.node.work import progress_writer
from tandemlog_server.node.work.progress_writer import ProgressWriter
from tandemlog_server.node.work.work_requests import ReceiveRequest, ReceiveResult
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.metadata.topics import TopicConfig

GROUP = "billing"
RECEIVE = ReceiveRequest(GROUP, ("orders",), 1, 30_000)
NO_ROOM = {"max_topics": 1}
"""For the topic of dead letters."""


@pytest.fixture
async def node(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Node]:
    store = getattr(request, "param", {})
    work = WorkSection(grace_ms=0, write_interval_ms=5)
    async with running(config(tmp_path / "store", work=work, store=store)) as node:
        node.store.create_topic(TopicConfig("orders", 2, 2))
        yield node


def writer_of(node: Node) -> ProgressWriter:
    assert node.work.term is not None
    return node.work.term.writer


async def put(node: Node, queue_id: int, *bodies: bytes) -> None:
    puts = [Put("orders", queue_id, body, store_host="127.0.0.1:0") for body in bodies]
    end = node.store.put(batch_of(puts)).end_offset
    await until(lambda: node.store.reputed.value >= end)
    await asyncio.sleep(0)


async def receive(node: Node, queue_id: int = 0) -> ReceiveResult:
    async with asyncio.timeout(10):
        return await node.work.receive(
            replace(RECEIVE, queues=frozenset({queue_id})), Caller("test:1")
        )


def handles(result: ReceiveResult) -> bytes:
    return b"".join(each.handles for each in result.messages)


async def reject(node: Node, queue_id: int = 0) -> None:
    await node.work.reject(GROUP, handles(await receive(node, queue_id)), error="poison")


async def acknowledge(node: Node, queue_id: int = 0) -> None:
    """In the log on return."""
    async with asyncio.timeout(5):
        await node.work.ack(GROUP, handles(await receive(node, queue_id)), sync=True)


@pytest.mark.parametrize("node", [NO_ROOM], indirect=True)
async def test_dead_letters_without_a_topic_hold_up_no_acknowledgement(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    await put(node, 0, b"0", b"1")
    await reject(node)
    await until(lambda: "max_topics" in caplog.text)
    await acknowledge(node)
    assert node.store.topics.get("%DLQ%billing") is None


async def test_a_message_that_cannot_be_read_holds_up_no_other_dead_letter(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await put(node, 0, b"0", b"1")
    await put(node, 1, b"2", b"3")
    letters = node.work.term.letters  # type: ignore[union-attr]
    record = letters._record

    def bad(topic: str, queue_id: int, queue_offset: int) -> object:
        if (queue_id, queue_offset) == (0, 0):
            raise StoreError("bytes cannot be read")
        return record(topic, queue_id, queue_offset)

    with monkeypatch.context() as patched:
        patched.setattr(letters, "_record", bad)
        patched.setattr(progress_writer, "FAILED_S", 0.01)
        await reject(node)
        await until(lambda: "of orders/0 at queue offset 0: bytes cannot be read" in caplog.text)
        await reject(node)
        await reject(node, 1)
        await acknowledge(node, 1)
        await until(lambda: letters.end(GROUP) == 2)
    await until(lambda: letters.end(GROUP) == 3)


async def test_a_dead_letter_that_cannot_be_stored_slows_no_acknowledgement(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again once in a while, and the log gets what is new meanwhile."""
    await put(node, 0, b"0", b"1", b"2")
    letters = node.work.term.letters if node.work.term else None
    assert letters is not None
    tries = 0

    def none(_: object) -> list[int]:
        nonlocal tries
        tries += 1
        return []

    monkeypatch.setattr(letters, "bury", none)
    monkeypatch.setattr(progress_writer, "FAILED_S", 60.0)
    await reject(node)
    await until(lambda: tries)
    await acknowledge(node)
    await acknowledge(node)
    assert tries == 1


async def test_a_fault_that_nobody_thought_of_does_not_end_the_writer(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await put(node, 0, b"0", b"1")
    monkeypatch.setattr(progress_writer, "FAILED_S", 0.01)
    with monkeypatch.context() as patched:

        def broken(_: object) -> int:
            raise ValueError("a defect")

        patched.setattr(node.work.term.desk, "put_progress", broken)  # type: ignore[union-attr]
        await node.work.ack(GROUP, handles(await receive(node)))
        await until(lambda: "ValueError('a defect')" in caplog.text)
    assert await writer_of(node).synced(5)
    await until(lambda: node.store.leases.next_offset >= node.store.log.wrote.value)
    [said] = [each for each in node.store.leases.of_group(GROUP) if each.queue_id == 0]
    assert said.floor == 1
