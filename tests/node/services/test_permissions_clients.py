"""The client against a node that asks who calls: what it may not fails alone, the rest is done."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from fakes.authority import Authority
from fakes.secured_node import access_text, running, settings, token, until
from tandemlog import AsyncWorkAdmin, Message, Security
from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import AuthenticationError, PermissionDeniedError
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.node import Node
from tandemlog_server.storage.metadata.topics import TopicConfig

RIGHTS = {"read": ["a*", "r*"], "write": ["a*"], "consume": ["g"]}
LIMITS = {"bytes_per_s": 200_000, "calls_per_s": 50, "streams": 4}
FILE = access_text(some=RIGHTS, slow={**RIGHTS, "limits": LIMITS}, op={"admin": True})

QUICK = ConnectionOptions(retry_timeout_ms=1_000)


def known(name: str) -> Security:
    return Security(token=token(name))


async def test_a_producer_and_a_consumer_with_rights_on_some_topics(tmp_path: Path) -> None:
    """Topics share requests: a message that is denied takes no other one with it."""
    async with running(settings(tmp_path, access=FILE)) as node:
        for topic in ("a1", "a2", "r1", "b"):
            node.store.create_topic(TopicConfig(topic, 1, 1))
        to = node.endpoints.listen
        async with AsyncProducer(to, security=known("some")) as producer:
            sent = [
                (topic, await producer.send(Message(topic, b"%d" % number)))
                for number in range(20)
                for topic in ("a1", "r1", "a2")
            ]
            results = await asyncio.gather(*(each for _, each in sent), return_exceptions=True)
            for (topic, _), result in zip(sent, results, strict=True):
                assert isinstance(result, PermissionDeniedError) is (topic == "r1"), result
                assert isinstance(result, BaseException) is (topic == "r1"), result
            for hidden in ("b", "x"):
                with pytest.raises(PermissionDeniedError, match=hidden):
                    await producer.send(Message(hidden, b"x"))
        async with AsyncConsumer(to, group="g", security=known("some")) as consumer:
            async with await consumer.follow(["a1", "a2"], until_end=True) as stream:
                read = [(each.topic, each.body) async for each in stream]
                await stream.commit()
            for topic in ("a1", "a2"):
                assert [b for t, b in read if t == topic] == [b"%d" % n for n in range(20)]
            assert await consumer.committed("a1") == {("a1", 0): 20}
            with pytest.raises(PermissionDeniedError, match="'b'"):
                await consumer.follow("b")
        async with AsyncConsumer(to, group="other", security=known("some")) as consumer:
            with pytest.raises(PermissionDeniedError, match="'consume' for group 'other'"):
                await consumer.committed("a1")
        async with AsyncAdmin(to, security=known("some")) as admin:
            assert [each.name for each in await admin.topics()] == ["a1", "a2", "r1"]
            with pytest.raises(PermissionDeniedError, match="'admin'"):
                await admin.create_topic("a3")
        for wrong in (Security(token="tl_wrong"), None):
            async with AsyncAdmin(to, connection=QUICK, security=wrong) as admin:
                with pytest.raises(AuthenticationError):
                    await admin.topics()
        assert node.store.queue_table.count == 2


async def test_limits_slow_a_client_down_and_fail_nothing(tmp_path: Path) -> None:
    async with running(settings(tmp_path, access=FILE)) as node:
        node.store.create_topic(TopicConfig("a1", 1, 1))
        to = node.endpoints.listen
        async with AsyncProducer(to, security=known("slow")) as producer:
            sent = [await producer.send(Message("a1", bytes(1_000))) for _ in range(300)]
            await asyncio.gather(*sent)
        async with (
            AsyncConsumer(to, security=known("slow")) as consumer,
            await consumer.follow("a1", until_end=True) as stream,
        ):
            assert len([each async for each in stream]) == 300


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[tuple[Node, Security]]:
    """A node with TLS and topics a1, r1, b; and who "some" is."""
    authority = Authority("test")
    async with running(settings(tmp_path, access=FILE, authority=authority)) as node:
        for topic in ("a1", "r1", "b"):
            node.store.create_topic(TopicConfig(topic, 1, 1))
        yield node, Security(ca_file=str(authority.write(tmp_path)), token=token("some"))


def stored(node: Node, topic: str) -> int:
    dense = node.store.queue_table.get(topic, 0)
    return 0 if dense is None else node.store.queues.max_offset(dense)


async def test_what_comes_later_needs_the_right_to_its_topic(
    secured: tuple[Node, Security],
) -> None:
    node, some = secured
    later = timedelta(hours=1)
    operator = Security(ca_file=some.ca_file, token=token("op"))
    to = node.endpoints.listen
    async with (
        AsyncProducer(to, security=some) as producer,
        AsyncProducer(to, security=operator) as other,
    ):
        mine = await (await producer.send(Message("a1", b"mine"), delay=later))
        for topic in ("r1", "b"):
            with pytest.raises(PermissionDeniedError, match=topic):
                await (await producer.send(Message(topic, b"x"), delay=later))
            theirs = await (await other.send(Message(topic, b"theirs"), delay=later))
            assert theirs.recall_handle is not None
            with pytest.raises(PermissionDeniedError, match=topic):
                await producer.recall(topic, theirs.recall_handle)
            await other.recall(topic, theirs.recall_handle)
        assert mine.recall_handle is not None
        await producer.recall("a1", mine.recall_handle)


async def test_a_transaction_needs_the_right_to_each_of_its_topics(
    secured: tuple[Node, Security],
) -> None:
    node, some = secured
    async with (
        AsyncProducer(node.endpoints.listen, security=some) as producer,
        AsyncAdmin(node.endpoints.listen, security=some) as admin,
    ):
        async with producer.transaction(Message("a1", b"committed")):
            pass
        await until(lambda: stored(node, "a1") == 1)
        with pytest.raises(PermissionDeniedError, match="r1"):
            async with producer.transaction(Message("a1", b"never")) as t:
                await (await t.send(Message("r1", b"never")))
        for offsets, group in (({("a1", 0): 1}, "other"), ({("b", 0): 0}, "g")):
            with pytest.raises(PermissionDeniedError):
                async with producer.transaction(Message("a1", b"never")) as t:
                    t.commit_offsets(offsets, group=group)
        assert await admin.transactions() == [], "what was refused is rolled back"
        assert (stored(node, "a1"), stored(node, "r1")) == (1, 0)
        left = await producer.transaction(Message("a1", b"open")).__aenter__()
        with pytest.raises(PermissionDeniedError, match="'admin'"):
            await admin.decide_transaction(left.transaction_id, commit=True)
        await left.commit()
        await until(lambda: stored(node, "a1") == 2)


async def test_work_needs_the_group_and_a_dead_letter_goes_back_with_a_right_to_write(
    secured: tuple[Node, Security],
) -> None:
    node, some = secured
    to = node.endpoints.listen
    operator = Security(ca_file=some.ca_file, token=token("op"))
    async with AsyncProducer(to, security=operator) as producer:
        for topic in ("a1", "a1", "r1"):
            await (await producer.send(Message(topic, b"work")))
    async with AsyncConsumer(to, group="g", security=some) as consumer:
        async with consumer.work(["a1", "r1"]) as work:
            for number in range(3):
                delivery = await work.poll(10_000)
                assert delivery is not None
                if delivery.topic == "a1" and delivery.queue_offset == 0:
                    await delivery.ack(sync=True)
                else:
                    await delivery.reject(f"no {number}", sync=True)
        async with consumer.work("b") as hidden:
            with pytest.raises(PermissionDeniedError, match="'b'"):
                await hidden.poll(1_000)
    async with (
        AsyncConsumer(to, group="other", security=some) as consumer,
        consumer.work("a1") as foreign,
    ):
        with pytest.raises(PermissionDeniedError, match="'consume' for group 'other'"):
            await foreign.poll(1_000)
    async with AsyncWorkAdmin(to, security=some) as admin:
        letters = {each.origin_topic: each for each in await admin.dead_letters("g")}
        assert letters.keys() == {"a1", "r1"}
        with pytest.raises(PermissionDeniedError, match="'consume' for group 'other'"):
            await admin.dead_letters("other")
        with pytest.raises(PermissionDeniedError, match="r1"):
            await admin.resend_dead_letters("g", [letters["r1"].queue_offset])
        (sent,) = await admin.resend_dead_letters("g", [letters["a1"].queue_offset])
        assert (sent.topic, sent.refusal) == ("a1", "")
    await until(lambda: (stored(node, "a1"), stored(node, "r1")) == (3, 1))
