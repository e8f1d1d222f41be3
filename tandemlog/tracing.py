"""OpenTelemetry traces: the producer's span travels in a property of its message.

    send     span "send orders"   ─▶ property traceparent (and tracestate) ─▶ log ─▶ slaves
    receive  span "process orders", linked to that of the producer

The property is W3C's trace context, as text, under its own name, so that consumers in other
languages can read it from the user properties of a message. Nodes and RocketMQ's tools see a user
property like any other.

OpenTelemetry's API is an optional dependency (`pip install 'tandemlog[otel]'`), which is imported
when tracing is first used. Which spans are kept, and where they go, is set up by the program with
OpenTelemetry's SDK; without an SDK nothing is recorded and no property is added.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

from .errors import InvalidArgumentError
from .message import Message, SendManyResult, SendResult

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer

SYSTEM = "tandemlog"
TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"
MAX_LINKS = 128
"""Of the span of a batch: what an SDK keeps by default."""


class Outcome(Protocol):
    """The future of a send."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None: ...


class _Api:
    """The modules of OpenTelemetry's API."""

    def __init__(self) -> None:
        try:
            self.trace: Any = importlib.import_module("opentelemetry.trace")
            self.context: Any = importlib.import_module("opentelemetry.context")
            w3c = importlib.import_module("opentelemetry.trace.propagation.tracecontext")
        except ModuleNotFoundError:
            raise InvalidArgumentError(
                "traces need OpenTelemetry, which is not installed: "
                "pip install 'tandemlog[otel]', or leave tracing off",
                field="trace",
            ) from None
        self.propagator: Any = w3c.TraceContextTextMapPropagator()

    @property
    def tracer(self) -> "Tracer":
        # asked for each time: the program may set its provider up later
        made: Tracer = self.trace.get_tracer("tandemlog")
        return made


@cache
def _api() -> _Api:
    return _Api()


class ProducerTracing:
    """The spans of one producer. Raises InvalidArgumentError where OpenTelemetry is missing."""

    def __init__(self) -> None:
        self._api = _api()

    def start(self, message: Message) -> tuple["Span", Message]:
        """A span for sending `message`, and the message with its context. A context that the
        message has already stays."""
        span = self._span(message.topic)
        span.set_attribute("messaging.message.body.size", len(message.body))
        properties = message.properties or {}
        carried = {} if TRACEPARENT in properties else self.carried(span)
        return span, replace(message, properties={**properties, **carried}) if carried else message

    def start_many(self, topic: str | None) -> "Span":
        """One span for all messages of a send_many."""
        return self._span(topic)

    def carried(self, span: "Span") -> dict[str, str]:
        """The properties by which a message carries the context of `span`."""
        properties: dict[str, str] = {}
        self._api.propagator.inject(properties, self._api.trace.set_span_in_context(span))
        return properties

    def end_with(self, span: "Span", outcome: Outcome) -> None:
        """End the span when the send has its outcome."""
        outcome.add_done_callback(lambda done: self._end(span, done))

    def fail(self, span: "Span", problem: BaseException) -> None:
        """End the span of a send that has failed."""
        trace = self._api.trace
        span.set_attribute("error.type", type(problem).__name__)
        span.record_exception(problem)
        span.set_status(trace.Status(trace.StatusCode.ERROR, str(problem)))
        span.end()

    def _span(self, topic: str | None) -> "Span":
        attributes = _attributes("send", "send", topic)
        name = f"send {topic}" if topic else "send"
        return self._api.tracer.start_span(
            name, kind=self._api.trace.SpanKind.PRODUCER, attributes=attributes
        )

    def _end(self, span: "Span", done: Any) -> None:
        if done.cancelled():  # the caller no longer waits; the message may be sent
            span.end()
            return
        problem = done.exception()
        if problem is not None:
            self.fail(span, problem)
            return
        result: SendResult = done.result()
        span.set_attribute("messaging.destination.partition.id", str(result.queue_id))
        span.set_attribute("messaging.message.id", result.msg_id)
        span.end()


class SendingMany:
    """What a send_many does for its span. `carried` are the properties of all its messages."""

    def __init__(
        self, span: "Span | None" = None, carried: Mapping[str, str] | None = None
    ) -> None:
        self._span = span
        self.carried = carried

    def noted(self, result: SendManyResult) -> SendManyResult:
        """`result`, noted in the span."""
        if self._span is not None:
            self._span.set_attribute("messaging.batch.message_count", result.count)
        return result


@contextmanager
def sending_many(tracing: ProducerTracing | None, topic: str | None) -> Iterator[SendingMany]:
    """Around one send_many; without tracing it does nothing."""
    if tracing is None:
        yield SendingMany()
        return
    span = tracing.start_many(topic)
    try:
        yield SendingMany(span, tracing.carried(span))
    except BaseException as error:
        tracing.fail(span, error)
        raise
    span.end()


@contextmanager
def processing(
    topic: str, carriers: Iterable[Mapping[str, str]], count: int, group: str | None
) -> Iterator["Span"]:
    """A current span for the processing of `count` received messages, linked to the spans whose
    contexts `carriers` (properties of messages) hold. An exception inside is recorded."""
    api = _api()
    attributes = _attributes("process", "process", topic)
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    if count > 1:
        attributes["messaging.batch.message_count"] = count
    with api.tracer.start_as_current_span(
        f"process {topic}",
        kind=api.trace.SpanKind.CONSUMER,
        attributes=attributes,
        links=_links(api, carriers),
    ) as span:
        yield span


def context_of(properties: Mapping[str, str]) -> "Context":
    """The producer's context that a message carries, for a caller that makes its own spans; an
    empty one if it carries none."""
    api = _api()
    context: Context = api.propagator.extract(properties, api.context.Context())
    return context


def _links(api: _Api, carriers: Iterable[Mapping[str, str]]) -> "list[Link]":
    """One for each context, though many messages may carry the same."""
    links: dict[str, Link] = {}
    for carrier in carriers:
        text = carrier.get(TRACEPARENT)
        if text is None or text in links:
            continue
        context = api.trace.get_current_span(context_of(carrier)).get_span_context()
        if context.is_valid:
            links[text] = api.trace.Link(context)
        if len(links) == MAX_LINKS:
            break
    return list(links.values())


def _attributes(name: str, kind: str, topic: str | None) -> dict[str, str | int]:
    """OpenTelemetry's semantic conventions for messaging."""
    attributes: dict[str, str | int] = {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
    }
    if topic:
        attributes["messaging.destination.name"] = topic
    return attributes
