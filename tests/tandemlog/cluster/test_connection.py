"""Asking one node after the other, in one event loop."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from fakes.fake_cluster import running_cluster
from tandemlog import AsyncAdmin, AsyncConsumer, AsyncProducer, Message, errors
from tandemlog.cluster.connection import QUICK_ATTEMPTS, Connection, ConnectionOptions
from tandemlog.cluster.node import Node
from tandemlog.errors import NodeUnavailableError, NotMasterError, TandemlogError, UnknownTopicError

NODES = [Node.__new__(Node) for _ in range(3)]


class Asked:
    """Nodes in turn; each call ends as `ends` says, the last one for all that follow."""

    def __init__(self, *ends: TandemlogError | str) -> None:
        self.ends = list(ends)
        self.nodes: list[Node] = []
        self.left: list[Node] = []

    async def choose(self) -> Node:
        return NODES[len(self.nodes) % len(NODES)]

    def leave(self, node: Node, _: str) -> None:
        self.left.append(node)

    async def ask(self, node: Node) -> str:
        self.nodes.append(node)
        end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
        if isinstance(end, TandemlogError):
            raise end
        return end

    async def result(self, timeout_ms: int | None = None) -> str:
        connection = Connection("n:1", ConnectionOptions(retry_timeout_ms=30_000))
        return await connection.ask_nodes(self.choose, self.leave, self.ask, timeout_ms)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it wanted to wait; nothing waits."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    return found


async def test_the_first_answer_is_the_result(pauses: list[float]) -> None:
    asked = Asked("yes")
    assert await asked.result() == "yes"
    assert (asked.nodes, asked.left, pauses) == (NODES[:1], [], [])


async def test_another_node_is_asked_after_a_pause(pauses: list[float]) -> None:
    asked = Asked(NodeUnavailableError("gone"), NotMasterError("not I"), "yes")
    assert await asked.result() == "yes"
    assert (asked.nodes, asked.left) == (NODES, NODES[:2])
    assert [0.02 <= pause <= 0.13 for pause in pauses] == [True, True]


async def test_a_long_outage_is_asked_about_less_often(pauses: list[float]) -> None:
    asked = Asked(*(NodeUnavailableError("gone") for _ in range(QUICK_ATTEMPTS + 5)), "yes")
    assert await asked.result() == "yes"
    assert len(pauses) == QUICK_ATTEMPTS + 5
    assert max(pauses[: QUICK_ATTEMPTS - 1]) <= 0.13
    assert min(pauses[-4:]) >= 0.25


async def test_an_error_that_stays_ends_it(pauses: list[float]) -> None:
    asked = Asked(NodeUnavailableError("gone"), UnknownTopicError("none"), "yes")
    with pytest.raises(UnknownTopicError):
        await asked.result()
    assert len(asked.nodes) == 2
    with pytest.raises(UnknownTopicError):
        await Asked(UnknownTopicError("none"), "yes").result()
    assert len(pauses) == 1


@pytest.mark.usefixtures("pauses")
async def test_no_time_is_for_one_attempt() -> None:
    asked = Asked(NodeUnavailableError("gone"))
    with pytest.raises(NodeUnavailableError, match="gone"):
        await asked.result(0)
    assert len(asked.nodes) == 1


@pytest.mark.usefixtures("pauses")
@pytest.mark.parametrize(("took_s", "attempts"), [(20.0, 2), (30.0, 1), (31.0, 1)])
async def test_the_time_of_the_first_attempt_counts(
    took_s: float, attempts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = iter([0.0, took_s])
    clock = SimpleNamespace(monotonic=lambda: next(times))
    monkeypatch.setattr("tandemlog.cluster.connection.time", clock)
    asked = Asked(NodeUnavailableError("gone"), "yes")
    if attempts == 2:
        assert await asked.result() == "yes"
    else:
        with pytest.raises(NodeUnavailableError, match="gone"):
            await asked.result()
    assert len(asked.nodes) == attempts


def test_another_event_loop_is_one_clear_error() -> None:
    with running_cluster() as cluster:
        cluster.call(lambda: cluster.log.create_topic("orders", 2))
        producer = AsyncProducer(cluster.endpoints)
        consumer = AsyncConsumer(cluster.endpoints, group="g")
        admin = AsyncAdmin(cluster.endpoints)
        streams: list[Any] = []

        async def first() -> None:
            await producer.open()
            await admin.topics()
            streams.append(await consumer.follow("orders", queues=[0]))

        loop = asyncio.new_event_loop()
        loop.run_until_complete(first())

        async def second(call: Any) -> None:
            with pytest.raises(errors.EventLoopError, match="another event loop"):
                await call()

        for call in (
            lambda: producer.send(Message("orders", b"x")),
            lambda: producer.send_many("orders", [b"x"]),
            producer.flush,
            admin.topics,
            lambda: consumer.follow("orders", queues=[1]),
            lambda: streams[0].poll(10),
        ):
            asyncio.run(second(call))

        async def close() -> None:
            await producer.close()
            await consumer.close()
            await admin.close()

        loop.run_until_complete(close())
        loop.close()
