"""Clients that are not closed, in a second loop, cancelled in the middle, or under greenlets."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest

from fakes.fake_broker import FakeCluster, ThreadedCluster, running_cluster
from tandemlog import (
    AsyncAdmin,
    Consumer,
    FollowOptions,
    Message,
    Producer,
    ProducerOptions,
    errors,
)
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.produce.producer import AsyncProducer


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with FakeCluster() as cluster:
        cluster.log.create_topic("orders", 2)
        yield cluster


async def fill(cluster: FakeCluster, *bodies: bytes) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send_many("orders", list(bodies), queues=0)


async def test_a_producer_that_is_not_closed_says_what_it_loses(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    producer = AsyncProducer(cluster.endpoints, ProducerOptions(linger_ms=60_000))
    await producer.open()
    for number in range(500):
        await producer.send(Message("orders", b"%d" % number))
    with pytest.warns(ResourceWarning, match="500 messages were not sent"):
        del producer
    assert "500 messages were not sent" in caplog.text


async def test_a_producer_that_is_closed_says_nothing(
    cluster: FakeCluster, recwarn: pytest.WarningsRecorder
) -> None:
    async with AsyncProducer(cluster.endpoints) as producer:
        await producer.send(Message("orders", b"x"))
    del producer
    gc.collect()
    assert not [each for each in recwarn if each.category is ResourceWarning]


async def test_a_consumer_that_is_not_closed_leaves_its_group(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    consumer = AsyncConsumer(cluster.endpoints, group="g")
    stream = await consumer.follow("orders")
    del consumer
    gc.collect()
    assert await stream.poll(10) is None
    assert cluster.groups.group("g").members  # the stream still uses it
    with pytest.warns(ResourceWarning, match="leaves group 'g'"):
        del stream
    async with asyncio.timeout(10):
        while cluster.groups.group("g").members:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    assert "leaves group 'g'" in caplog.text


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


@pytest.mark.parametrize("how", ["messages", "stream", "batches"])
async def test_a_step_that_is_cancelled_ends_nothing_and_loses_nothing(
    cluster: FakeCluster, how: str
) -> None:
    async with (
        AsyncConsumer(cluster.endpoints) as consumer,
        await consumer.follow("orders", options=FollowOptions(wait_ms=20)) as stream,
    ):
        steps: Any = {
            "messages": lambda: aiter(stream),
            "stream": lambda: stream,
            "batches": stream.batches,
        }[how]()
        found: list[bytes] = []
        for number in range(20):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(steps), 0.001)
            await fill(cluster, b"%d" % number)
            while len(found) <= number:
                try:
                    step = await asyncio.wait_for(anext(steps), 0.003)
                except TimeoutError:
                    continue
                found += [each.body for each in step] if how == "batches" else [step.body]
        assert found == [b"%d" % number for number in range(20)]


@pytest.fixture
def threaded() -> Any:
    with running_cluster() as cluster:
        yield cluster


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_patched_threads_are_refused_at_once(
    threaded: ThreadedCluster, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    patched = {"threading"}
    module = ModuleType(library)
    module.is_module_patched = patched.__contains__  # type: ignore[attr-defined]
    module.is_monkey_patched = lambda name: "threading" in patched and name == "thread"  # type: ignore[attr-defined]
    name = "gevent.monkey" if library == "gevent" else "eventlet.patcher"
    monkeypatch.setitem(sys.modules, name, module)
    for client in (Producer, Consumer):
        with pytest.raises(errors.MonkeyPatchedError, match=f"{library}'s monkey patching"):
            client(threaded.endpoints)
    patched.clear()
    with Consumer(threaded.endpoints) as consumer:
        assert consumer.ranges() == []


def test_the_system_resolves_names_unless_the_user_says_otherwise() -> None:
    show = "import os, tandemlog; print(os.environ['GRPC_DNS_RESOLVER'])"
    for given, expected in (({}, "native"), ({"GRPC_DNS_RESOLVER": "ares"}, "ares")):
        environment = {k: v for k, v in os.environ.items() if k != "GRPC_DNS_RESOLVER"} | given
        found = subprocess.run(
            [sys.executable, "-c", show],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert found.stdout.strip() == expected
