"""Producers that are not closed, and what the client sets for gRPC."""

import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator

import pytest

from fakes.fake_cluster import FakeCluster
from tandemlog import (
    Message,
    ProducerOptions,
)
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
