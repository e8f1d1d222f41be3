"""What /metrics says of a real node in this process, after real puts, pulls and commits."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from helpers.running import free_ports
from tandemlog.admin import AsyncAdmin
from tandemlog.cluster.connection_options import ConnectionOptions
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.errors import UnknownTopicError
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import LimitsSection, StoreSection

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def config(directory: Path, port: int) -> NodeConfig:
    return NodeConfig(
        cluster_id="c",
        listen="127.0.0.1:0",
        http_listen=f"127.0.0.1:{port}",
        limits=LimitsSection(metric_topics=2),
        store=StoreSection(
            directory=directory,
            commit_log_file_size=1 << 20,
            queue_file_size=8_000,
            index_slots=500,
            index_entries=2_000,
            max_message_size=100_000,
        ),
    )


async def scrape(port: int) -> Samples:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"http://127.0.0.1:{port}/metrics") as answer,
    ):
        text = await answer.text()
    return {
        (sample.name, frozenset(sample.labels.items() - {("cluster", "c"), ("node", "n0")})): value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        for value in (sample.value,)
    }


def of(samples: Samples, name: str, **labels: Any) -> float:
    return samples[f"tandemlog_{name}", frozenset(labels.items())]


async def test_a_scrape_of_a_node_that_works(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node = Node(config(tmp_path / "n0", port))
    await node.start()
    try:
        endpoint = node.endpoints.listen
        async with AsyncAdmin(endpoint) as admin, AsyncProducer(endpoint) as producer:
            for topic in ("t", "u", "v", "w"):
                await admin.create_topic(topic, 2)
                for number in range(4):
                    future = await producer.send(Message(topic, b"body", queue_id=number % 2))
                    result = await future
        async with AsyncConsumer(endpoint, group="g") as consumer:
            batch = await consumer.pull("t", 0, 0, wait_ms=5_000)
            await consumer.commit({("t", 0): 1, ("t", 1): 0})
        async with AsyncConsumer(
            endpoint, connection=ConnectionOptions(retry_timeout_ms=200)
        ) as stranger:
            try:
                await stranger.pull("nothing", 0, 0)
            except UnknownTopicError:
                pass
            else:
                raise AssertionError("there is no such topic")
        async with asyncio.timeout(10):
            while node.store.reputed.value < node.store.log.wrote.value:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        before = node.store.clock.now_ms()
        samples = await scrape(port)
        after = node.store.clock.now_ms()
    finally:
        await node.stop()
    assert of(samples, "messages_in_total", topic="t") == 4
    assert of(samples, "messages_in_total", topic="other") == 8
    assert of(samples, "metric_topics_folded") == 2
    assert of(samples, "messages_out_total", topic="t") == len(batch) == 2
    size = of(samples, "bytes_out_total", topic="t")
    assert of(samples, "bytes_in_total", topic="t") == 2 * size
    assert of(samples, "group_messages_out_total", group="g") == 2
    assert of(samples, "group_bytes_out_total", group="g") == size
    assert of(samples, "group_commits_total", group="g") == 1
    assert of(samples, "group_members", group="g") == 1
    assert of(samples, "consumer_lag_messages", group="g", topic="t") == 3
    lag_s = of(samples, "consumer_lag_seconds", group="g", topic="t")
    assert result.store_timestamp > 0
    assert 0 <= lag_s <= (after - batch[0].store_timestamp) / 1000 + 1
    assert lag_s >= (before - result.store_timestamp) / 1000
    assert of(samples, "ack_seconds_count", mode="async-async") == 16
    assert of(samples, "append_seconds_count") == 16
    assert of(samples, "confirm_seconds_count") == of(samples, "acks_total", result="ok")
    assert of(samples, "pull_seconds_count") >= 1
    assert of(samples, "calls_refused_total", code="unknown_topic") >= 1
    assert of(samples, "store_failed") == 0
    assert of(samples, "log_end_offset") == of(samples, "confirm_offset") > 0


async def test_scrapes_at_one_time_share_one_text(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    node = Node(config(tmp_path / "n0", port))
    await node.start()
    asked = []
    original = node.numbers
    node.numbers = lambda: asked.append(1) or original()  # type: ignore[func-returns-value,method-assign]
    try:
        texts = await asyncio.gather(*(scrape(port) for _ in range(8)))
    finally:
        await node.stop()
    assert all(of(each, "role") == 1 for each in texts)
    assert len(asked) < 8
