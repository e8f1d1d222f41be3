"""The client against a node that asks who calls: what it may not fails alone, the rest is done."""

import asyncio
from pathlib import Path

import pytest

from fakes.secured_node import access_text, running, settings, token
from tandemlog import Message, Security
from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import AuthenticationError, PermissionDeniedError
from tandemlog.produce.producer import AsyncProducer
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
