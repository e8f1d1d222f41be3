"""`tandemlog group`: what it shows, what it moves, and what it refuses while members are there."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from fakes.fake_cluster import FakeCluster
from helpers.cli_node import objects, program
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.v1 import broker_pb2

Ran = Callable[..., Awaitable[tuple[int, str, str]]]


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    """Topics orders, of which "g" has done 4, none, 10 of 10 each, and bills, of which it has done
    one of two."""
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 3)
        cluster.log.create_topic("bills", 1)
        async with AsyncProducer(cluster.endpoints) as producer:
            orders = [Message("orders", b"%d" % n, queue_id=n % 3) for n in range(30)]
            bills = [Message("bills", b"%d" % n, queue_id=0) for n in range(2)]
            await producer.send_many(None, [*orders, *bills])
        cluster.log.committed["g", "orders", 0] = 4
        cluster.log.committed["g", "orders", 2] = 10
        cluster.log.committed["g", "bills", 0] = 1
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


async def join(cluster: FakeCluster, group: str, *topics: str) -> None:
    request = broker_pb2.GroupHeartbeatRequest(
        group=group, member_id="m1", client_id="worker-1", number=1, topics=topics
    )
    await cluster.groups.heartbeat(request, lambda: None)


async def rows(ran: Ran, *arguments: str) -> list[dict[str, Any]]:
    code, out, err = await ran(*arguments, "--format", "jsonl")
    assert code == 0, err
    return objects(out)


async def test_groups_are_listed(cluster: FakeCluster, ran: Ran) -> None:
    cluster.log.committed["other", "bills", 0] = 2
    first, second = await rows(ran, "group", "list")
    assert first.pop("lag_seconds") >= 0
    assert first == {
        "group": "g",
        "kind": "",
        "state": "empty",
        "members": 0,
        "topics": "bills orders",
        "lag": 17,
    }
    assert (second["group"], second["lag"], second["lag_seconds"]) == ("other", 0, 0)
    assert "bills orders" in (await ran("group", "list"))[1]


async def test_a_group_is_described(cluster: FakeCluster, ran: Ran) -> None:
    await join(cluster, "g", "orders")
    (found,) = await rows(ran, "group", "describe", "g")
    assert (found["state"], found["members"][0]["client_id"]) == ("stable", "worker-1")
    assert found["members"][0]["host"] == "127.0.0.1"
    assert found["members"][0]["assigned"] == "orders 0-2"
    queues = {(each["topic"], each["queue_id"]): each for each in found["queues"]}
    assert queues["orders", 1]["client_id"] == "worker-1"
    assert queues["orders", 1]["committed_offset"] is None
    assert (queues["orders", 1]["lag"], queues["orders", 0]["lag"]) == (10, 6)
    assert (queues["orders", 0]["committed_offset"], queues["orders", 0]["max_offset"]) == (4, 10)
    code, out, _ = await ran("group", "describe", "g")
    assert code == 0
    assert [part.split()[0] for part in out.split("\n\n")] == ["group", "client_id", "topic"]


async def test_a_reset_shows_before_and_after(cluster: FakeCluster, ran: Ran) -> None:
    before = dict(cluster.log.committed)

    async def moves(*options: str) -> list[tuple[str, int, int | None, int]]:
        found = await rows(ran, "group", "reset", "g", *options)
        return [(each["topic"], each["queue_id"], each["before"], each["after"]) for each in found]

    planned = await moves("--to-earliest", "--dry-run")
    assert planned == [
        ("bills", 0, 1, 0),
        ("orders", 0, 4, 0),
        ("orders", 1, None, 0),
        ("orders", 2, 10, 0),
    ]
    assert cluster.log.committed == before
    assert await moves("--to-latest", "--topic", "bills", "--dry-run") == [("bills", 0, 1, 2)]
    only = ("--topic", "orders", "--queue", "0", "--dry-run")
    assert await moves("--to-time", "1", *only) == [("orders", 0, 4, 0)]
    assert await moves("--shift-by", "-3", *only) == [("orders", 0, 4, 1)]
    assert await moves("--to-offset", "7", *only) == [("orders", 0, 4, 7)]
    assert await moves("--to-offset", "99", *only) == [("orders", 0, 4, 10)]
    assert cluster.log.committed == before
    assert await moves("--shift-by", "2", *only[:-1]) == [("orders", 0, 4, 6)]
    assert cluster.log.committed == {**before, ("g", "orders", 0): 6}
    code, out, err = await ran("group", "reset", "g", "--to-earliest", "--dry-run")
    assert (code, err) == (0, "g: nothing was changed\n")
    assert out.splitlines()[0].split() == ["topic", "queue_id", "before", "after", "shift"]
    assert await moves("--to-earliest") == [("bills", 0, 1, 0), ("orders", 0, 6, 0), *planned[2:]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give exactly one of --to-earliest"),
        (("--to-earliest", "--shift-by", "1"), "give exactly one of --to-earliest"),
        (("--to-offset", "1"), "--to-offset needs --topic"),
        (("--to-time", "noon"), "not a time: 'noon'"),
    ],
)
async def test_a_reset_that_says_too_much_or_too_little(
    ran: Ran, options: tuple[str, ...], said: str
) -> None:
    code, out, err = await ran("group", "reset", "g", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


async def test_members_keep_a_reset_and_a_deletion_out(cluster: FakeCluster, ran: Ran) -> None:
    await join(cluster, "g", "orders")
    before = dict(cluster.log.committed)
    for command in (("reset", "g", "--to-latest"), ("delete", "g")):
        for dry_run in ((), ("--dry-run",)):
            code, out, err = await ran("group", *command, *dry_run)
            assert (code, out, err.count("\n")) == (5, "", 1), err
    assert cluster.log.committed == before
    cluster.groups.expire("g", "m1")
    assert await ran("group", "delete", "g", "--dry-run") == (0, "", "g: nothing was changed\n")
    assert cluster.log.committed == before
    assert await ran("group", "delete", "g") == (0, "g: deleted\n", "")
    assert not [each for each in cluster.log.committed if each[0] == "g"]


async def test_what_is_not_there(ran: Ran) -> None:
    for command in (
        ("group", "describe", "nosuch"),
        ("group", "reset", "nosuch", "--to-latest"),
        ("group", "delete", "nosuch"),
        ("offsets", "orders", "--group", "nosuch"),
    ):
        code, out, err = await ran(*command)
        assert (code, out, err.count("\n")) == (4, "", 1), command
        assert "nosuch" in err
        assert "`tandemlog group list` shows the groups" in err
    code, _, err = await ran("group", "reset", "g", "--to-latest", "--topic", "nosuch")
    assert code == 4
    assert "`tandemlog topic list` shows the topics" in err
    only = ("--topic", "orders", "--queue", "9")
    assert (await ran("group", "reset", "g", "--to-latest", *only))[0] == 4


async def test_a_queue_without_a_commit_has_its_messages_as_lag(ran: Ran) -> None:
    found = await rows(ran, "offsets", "orders", "--group", "g")
    assert [(each["committed_offset"], each["lag"]) for each in found] == [
        (4, 6),
        (None, 10),
        (10, 0),
    ]
