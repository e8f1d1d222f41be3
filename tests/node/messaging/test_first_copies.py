"""Sends that come again while the first one is on its way, or whose client is gone."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fakes.messaging_client import a_node
from tandemlog_server.node.messaging.first_copies import Copy, FirstCopies
from tandemlog_server.node.node import Node
from tandemlog_server.node.puts.stored_copies import StoredCopies


class Sends:
    """What is stored, whatever becomes of who asks, and answered once `go` is set."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.begun = asyncio.Event()
        self.stored: list[Copy] = []

    async def store(self) -> Copy:
        copy = Copy(100, len(self.stored))
        self.stored.append(copy)
        self.begun.set()
        await self.go.wait()
        return copy


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with a_node(tmp_path) as node:
        yield node


@pytest.fixture
async def copies(node: Node) -> FirstCopies:
    return FirstCopies(node.store, node.terms, node.waiters, lambda: 1.0, lambda _: "")


async def test_a_send_whose_client_is_gone_is_known_when_it_comes_again(
    copies: FirstCopies,
) -> None:
    sends = Sends()
    first = asyncio.create_task(copies.once("T", "ID", b"1", sends.store, repeated=False))
    await sends.begun.wait()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    again = asyncio.create_task(copies.once("T", "ID", b"1", sends.store, repeated=False))
    sends.go.set()
    assert (await again).queue_offset == 0
    assert len(sends.stored) == 1


async def test_who_waits_for_a_send_that_is_not_stored_stores_it(
    copies: FirstCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first client goes away while its message is looked for in the log."""
    looking, sends = asyncio.Event(), Sends()
    sends.go.set()

    async def finds_for_ever(*_: object) -> None:
        looking.set()
        await asyncio.Event().wait()

    with monkeypatch.context() as patch:
        patch.setattr(StoredCopies, "find", finds_for_ever)
        first = asyncio.create_task(copies.once("T", "ID", b"1", sends.store, repeated=True))
        await looking.wait()
    second = asyncio.create_task(copies.once("T", "ID", b"1", sends.store, repeated=True))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).queue_offset == 0
    assert len(sends.stored) == 1
