"""Traces: the producer's span travels in a property, and the consumer's span is linked to it."""

import asyncio
import importlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import tandemlog
from tandemlog import tracing
from tandemlog.admin import AsyncAdmin
from tandemlog.consume.consumer import AsyncConsumer
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.errors import InvalidArgumentError, InvalidMessageError
from tandemlog.message import Message
from tandemlog.produce.producer import AsyncProducer
from tandemlog.produce.producer_options import ProducerOptions
from tandemlog_server.node.node import Node
from tandemlog_server.node.settings.node_config import NodeConfig
from tandemlog_server.node.settings.sections import StoreSection

TRACED = ProducerOptions(trace=True, linger_ms=0)


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """What is recorded, by a provider that is there for one test."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    provider.shutdown()


@pytest.fixture
async def endpoint(tmp_path: Path) -> AsyncIterator[str]:
    store = StoreSection(
        directory=tmp_path / "n0",
        commit_log_file_size=1 << 20,
        queue_file_size=8_000,
        index_slots=500,
        index_entries=2_000,
        max_message_size=100_000,
    )
    node = Node(NodeConfig(listen="127.0.0.1:0", http_listen="", store=store))
    await node.start()
    try:
        async with AsyncAdmin(node.endpoints.listen) as admin:
            await admin.create_topic("t", 1)
        yield node.endpoints.listen
    finally:
        await node.stop()


async def pulled(endpoint: str, count: int) -> ReceivedBatch:
    async with AsyncConsumer(endpoint) as consumer, asyncio.timeout(10):
        while True:
            batch = await consumer.pull("t", 0, 0, wait_ms=5_000)
            if len(batch) >= count:
                return batch


def parent_of(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


async def test_a_message_carries_its_span_to_the_consumer(
    endpoint: str, spans: InMemorySpanExporter
) -> None:
    async with AsyncProducer(endpoint, TRACED) as producer:
        result = await (await producer.send(Message("t", b"body", properties={"a": "b"})))
    await asyncio.sleep(0)
    (sent,) = spans.get_finished_spans()
    assert (sent.name, sent.kind) == ("send t", SpanKind.PRODUCER)
    assert dict(sent.attributes or {}) == {
        "messaging.system": "tandemlog",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "t",
        "messaging.destination.partition.id": "0",
        "messaging.message.body.size": 4,
        "messaging.message.id": result.msg_id,
    }
    (message,) = await pulled(endpoint, 1)
    assert message.properties["traceparent"] == parent_of(sent)
    assert message.properties["a"] == "b"
    with message.span(group="g") as span:
        assert trace.get_current_span() is span
    processed = spans.get_finished_spans()[-1]
    assert (processed.name, processed.kind) == ("process t", SpanKind.CONSUMER)
    (link,) = processed.links
    origin = sent.get_span_context()
    assert origin is not None
    assert link.context.span_id == origin.span_id
    assert link.context.trace_id == origin.trace_id
    assert (processed.attributes or {})["messaging.consumer.group.name"] == "g"
    extracted = trace.get_current_span(tracing.context_of(message.properties))
    assert extracted.get_span_context().span_id == origin.span_id


async def test_a_send_is_part_of_the_callers_trace(
    endpoint: str, spans: InMemorySpanExporter
) -> None:
    async with AsyncProducer(endpoint, TRACED) as producer:
        with trace.get_tracer("test").start_as_current_span("request") as request:
            await (await producer.send(Message("t", b"body")))
    sent = next(each for each in spans.get_finished_spans() if each.name == "send t")
    assert sent.parent is not None
    assert sent.parent.span_id == request.get_span_context().span_id


async def test_send_many_is_one_span_and_one_link(
    endpoint: str, spans: InMemorySpanExporter
) -> None:
    async with AsyncProducer(endpoint, TRACED) as producer:
        await producer.send_many("t", [b"1", b"2", b"3"], properties={"a": "b"})
        await producer.send_many(None, [Message("t", b"4", properties={"c": "d"})])
    first, second = spans.get_finished_spans()
    assert (first.name, second.name) == ("send t", "send")
    assert (first.attributes or {})["messaging.batch.message_count"] == 3
    batch = await pulled(endpoint, 4)
    carried = [each.properties["traceparent"] for each in batch]
    assert carried == [parent_of(first)] * 3 + [parent_of(second)]
    assert [each.properties.get("a") for each in batch] == ["b"] * 3 + [None]
    assert batch[3].properties["c"] == "d"
    with batch.span():
        pass
    processed = spans.get_finished_spans()[-1]
    assert len(processed.links) == 2
    assert (processed.attributes or {})["messaging.batch.message_count"] == 4


async def test_the_sync_client_does_the_same(endpoint: str, spans: InMemorySpanExporter) -> None:
    def work() -> list[str]:
        with tandemlog.Producer(endpoint, TRACED) as producer:
            producer.send(Message("t", b"1")).result(10)
            producer.send_many("t", [b"2"])
            with pytest.raises(InvalidMessageError):
                producer.send(Message("t", b"3", properties={"KEYS": "reserved"}))
        with tandemlog.Consumer(endpoint) as consumer:
            stream = consumer.follow("t", until_end=True)
            return [message.properties["traceparent"] for message in stream]

    carried = await asyncio.to_thread(work)
    first, second, failed = spans.get_finished_spans()
    assert carried == [parent_of(first), parent_of(second)]
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"]


async def test_a_context_that_is_there_stays(endpoint: str, spans: InMemorySpanExporter) -> None:
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with AsyncProducer(endpoint, TRACED) as producer:
        for properties in ({"traceparent": given}, {"traceparent": "no context"}):
            await (await producer.send(Message("t", b"x", properties=properties)))
        await producer.send_many("t", [b"y"], properties={"traceparent": given})
    batch = await pulled(endpoint, 3)
    assert [each.properties["traceparent"] for each in batch] == [given, "no context", given]
    with batch[1].span():
        pass
    assert spans.get_finished_spans()[-1].links == ()


async def test_without_tracing_and_without_an_sdk_no_property_is_added(endpoint: str) -> None:
    async with AsyncProducer(endpoint) as plain, AsyncProducer(endpoint, TRACED) as traced:
        await (await plain.send(Message("t", b"1")))
        await (await traced.send(Message("t", b"2")))
        await traced.send_many("t", [b"3"])
    for message in await pulled(endpoint, 3):
        assert "traceparent" not in message.properties
        with message.span():
            pass


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    tracing._api.cache_clear()
    monkeypatch.setattr(importlib, "import_module", missing)
    try:
        with pytest.raises(InvalidArgumentError, match=r"pip install 'tandemlog\[otel\]'"):
            tandemlog.Producer("127.0.0.1:1", TRACED)
        with (
            pytest.raises(InvalidArgumentError, match="not installed"),
            tracing.processing("t", [], 1, None),
        ):
            pass
    finally:
        tracing._api.cache_clear()


def test_importing_the_client_does_not_import_opentelemetry() -> None:
    code = "import sys, tandemlog; print(any('opentelemetry' in name for name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
