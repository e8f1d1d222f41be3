"""`tandemlog dlq`, `group policy`, and what `group describe` says of a work queue."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster
from helpers.cli_node import objects, program
from tandemlog import AsyncConsumer, AsyncProducer, Message, WorkOptions
from tandemlog.format.lease.policy import Backoff, GroupPolicy, Ordering

Ran = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Four orders: the first is done by "billing", two are dead letters, the last one waits."""
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 1)
        async with AsyncProducer(cluster.endpoints) as producer:
            bodies = (b"paid", b"malformed", b"unknown", b"late")
            messages = [Message("orders", body, keys=[body.decode()]) for body in bodies]
            await producer.send_many(None, messages)
        options = WorkOptions(linger_ms=0)
        async with (
            AsyncConsumer(cluster.endpoints, group="billing") as consumer,
            consumer.work("orders", max_attempts=5, backoff=60, options=options) as work,
        ):
            for _ in range(4):
                delivery = await work.poll(10_000)
                assert delivery is not None
                if delivery.body == b"paid":
                    await delivery.ack()
                elif delivery.body == b"late":
                    await delivery.retry(error="not yet")
                else:
                    await delivery.reject(f"{delivery.body.decode()} order")
        yield cluster


@pytest.fixture
def ran(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Ran:
    """The program in a thread: the cluster's loop is that of the test."""
    run = program(cluster.endpoints[0], monkeypatch, capfd)

    async def call(*arguments: str) -> tuple[int, str, str]:
        return await asyncio.to_thread(run, *arguments)

    return call


async def rows(ran: Ran, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = await ran(*arguments, "--format", "jsonl")
    assert code == 0, err
    return objects(out)


async def test_dead_letters_are_listed_and_shown(ran: Ran) -> None:
    first, second = await rows(ran, "dlq", "list", "billing")
    assert (first["queue_offset"], first["origin_topic"], first["attempts"]) == (0, "orders", 1)
    assert [first["last_error"], second["last_error"]] == ["malformed order", "unknown order"]
    assert await rows(ran, "dlq", "list", "billing", "--first", "1") == [second]
    assert await rows(ran, "dlq", "list", "billing", "--max", "1") == [first]
    code, out, _ = await ran("dlq", "list", "billing")
    assert code == 0
    assert "unknown order" in out
    assert (await ran("dlq", "show", "billing", "1", "--format", "raw"))[1] == "unknown"
    [shown] = await rows(ran, "dlq", "show", "billing", "1")
    assert shown["keys"] == "unknown"
    code, _, err = await ran("dlq", "show", "billing", "9")
    assert (code, "dead letter 9" in err) == (4, True)
    assert (await ran("dlq", "list", "missing"))[0] == 4


async def test_dead_letters_are_sent_again(cluster: FakeCluster, ran: Ran) -> None:
    code, out, err = await ran("dlq", "resend", "billing", "--all", "--dry-run")
    assert code == 0
    assert "orders" in out
    assert "nothing was sent" in err
    assert len(cluster.log.bodies("orders")) == 4
    [sent] = await rows(ran, "dlq", "resend", "billing", "1")
    assert sent == {"queue_offset": 1, "topic": "orders", "refusal": None}
    assert cluster.log.bodies("orders")[4:] == [b"unknown"]
    for arguments in ((), ("1", "--all")):
        code, _, err = await ran("dlq", "resend", "billing", *arguments)
        assert code == 2
        assert "numbers of dead letters, or --all" in err


async def test_dead_letters_are_forgotten_when_that_was_confirmed(ran: Ran) -> None:
    code, _, err = await ran("dlq", "purge", "billing", "--before", "1", "--dry-run")
    assert (code, "1 dead letters; nothing was changed" in err) == (0, True)
    [purged] = await rows(ran, "dlq", "purge", "billing", "--before", "1", "--yes")
    assert purged == {"group": "billing", "count": 1, "purged": True}
    assert [each["queue_offset"] for each in await rows(ran, "dlq", "list", "billing")] == [1]
    assert (await ran("dlq", "purge", "billing"))[0] != 0  # no terminal to answer the question
    assert "1 dead letters forgotten" in (await ran("dlq", "purge", "billing", "-y"))[1]


async def test_the_policy_is_shown_and_changed(cluster: FakeCluster, ran: Ran) -> None:
    [shown] = await rows(ran, "group", "policy", "billing")
    assert shown == {
        "group": "billing",
        "max_attempts": 5,
        "backoff": "60",
        "ordered": "none",
        "start": "earliest",
    }
    change = ("--max-attempts", "3", "--backoff", "1,2.5", "--ordered", "key")
    before, after = await rows(ran, "group", "policy", "billing", *change, "--dry-run")
    assert (before["policy"], before["backoff"]) == ("before", "60")
    assert (after["policy"], after["backoff"], after["ordered"]) == ("after", "1,2.5", "key")
    assert cluster.work.group("billing").policy.max_attempts == 5
    assert (await ran("group", "policy", "billing", *change))[0] == 0
    changed = GroupPolicy(3, Backoff((1_000, 2_500)), Ordering.KEY)
    assert cluster.work.group("billing").policy == changed
    code, _, err = await ran("group", "policy", "billing", "--backoff", "soon")
    assert (code, "must be seconds" in err) == (2, True)
    code, _, err = await ran("group", "policy", "billing", "--backoff", "1e9")
    assert (code, "0 to 259200 seconds" in err) == (2, True)
    assert (await ran("group", "policy", "missing"))[0] == 4


async def test_a_work_queue_is_described(ran: Ran) -> None:
    [found] = await rows(ran, "group", "describe", "billing")
    work = found["work"]
    assert (work["waiting_retry"], work["leased"], work["attempts"]) == (1, 0, [1])
    assert (work["dead_letters"], work["max_attempts"]) == (2, 5)


async def test_an_older_node_has_no_work_queues(cluster: FakeCluster, ran: Ran) -> None:
    cluster.log.committed["billing", "orders", 0] = 1
    await cluster.master.stop()
    cluster.master.old = True
    await cluster.master.start()
    [found] = await rows(ran, "group", "describe", "billing")
    assert found["work"] is None
    code, _, err = await ran("dlq", "list", "billing")
    assert code != 0
    assert "too old for work queues" in err
