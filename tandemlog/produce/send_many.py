"""Many messages with one answer.

    columns | list | iterator ──▶ requests of about batch_bytes ──▶ accumulator ──▶ master
                                       │ one sink each                                │
                                       └────────── Collector ◀── answers ─────────────┘

Columns and lists of bodies are framed as arrays, a request at a time, with no object per message.
Message objects become columns first, unless they have anything unusual. Requests stand in the
producer's order with everything that it sent before.
"""

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, repeat
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArgumentError, SendManyError, TandemlogError
from ..lazy import HAVE_NUMPY, lazy
from ..message import Bodies, Column, Message, Queues, SendManyResult
from ..put_answer import PutAnswer
from .arrow_shapes import ArrowArray, ArrowTable, is_arrow
from .framing import Framer, check_property_names
from .message_columns import columns_of, message_parts, messages_of
from .producer_core import ProducerCore
from .put_batch import NullSink, OpenBatch, PutBatch, Sink, durability_of
from .routes import SPREAD_BYTES, Route
from .row_framing import RowFramer

if TYPE_CHECKING:
    import tandemlog.put_answer_columns as put_answer_columns

    from . import column_framing, columns_input
else:
    put_answer_columns = lazy("tandemlog.put_answer_columns")
    column_framing = lazy(f"{__package__}.column_framing")
    columns_input = lazy(f"{__package__}.columns_input")

_LIST_PART = 8192
"""Bodies of a list or an iterator that are looked at together."""

Unrouted = tuple[str, ...]
"""Topics whose routes must be loaded."""


class Collector:
    """The answers of one send_many. `done` is called in the event loop once all requests have
    theirs and no more will come; add, stopped and complete belong to the sending side."""

    def __init__(self, done: Callable[[], object]) -> None:
        self._done = done
        self._lock = threading.Lock()
        self._parts: list[PutAnswer | TandemlogError | None] = []
        self._counts: list[int] = []
        self._open = 1
        self._stop: BaseException | None = None

    def sink(self, count: int) -> "ManySink":
        """Of the next request, with `count` messages."""
        with self._lock:
            self._parts.append(None)
            self._counts.append(count)
            self._open += 1
            return ManySink(self, len(self._parts) - 1)

    def withdrawn(self) -> None:
        """The newest request was never taken."""
        with self._lock:
            self._parts.pop()
            self._counts.pop()
            self._open -= 1

    def stopped(self, error: BaseException) -> None:
        """No further request comes, because of `error`."""
        self._stop = error

    def complete(self) -> None:
        """All requests are made."""
        self._one_less()

    def outcome(self, index: int, part: PutAnswer | TandemlogError) -> None:
        self._parts[index] = part
        self._one_less()

    def _one_less(self) -> None:
        with self._lock:
            self._open -= 1
            finished = self._open == 0
        if finished:
            self._done()

    def result(self) -> SendManyResult:
        """Once done: the positions. Raises SendManyError if not all messages were acknowledged, the
        error itself if none were, and what stopped the sending."""
        answers = [part for part in self._parts if isinstance(part, PutAnswer)]
        errors = [part for part in self._parts if isinstance(part, TandemlogError)]
        result = self._assemble(answers)
        problem = self._stop or (errors[0] if errors else None)
        if problem is None:
            return result
        nothing = not answers and len(errors) <= 1
        if nothing or not isinstance(problem, TandemlogError):
            raise problem
        given = sum(self._counts)
        raise SendManyError(
            f"{result.count} of {given} messages were acknowledged, then: {problem}",
            result=result,
            errors=tuple(errors),
        ) from problem

    def _assemble(self, answers: list[PutAnswer]) -> SendManyResult:
        def joined(name: str, kind: str) -> Any:
            parts = [
                getattr(part, name) if isinstance(part, PutAnswer) else count
                for part, count in zip(self._parts, self._counts, strict=True)
            ]
            if HAVE_NUMPY:
                return put_answer_columns.joined(parts, kind)
            return array(
                kind, chain.from_iterable(repeat(-1, p) if isinstance(p, int) else p for p in parts)
            )

        return SendManyResult(
            count=sum(answer.count for answer in answers),
            duplicates=sum(answer.count for answer in answers if answer.duplicate),
            requests=len(self._parts),
            byte_size=sum(answer.byte_size for answer in answers),
            store_host=answers[-1].store_host if answers else "",
            queue_ids=joined("record_queue_ids", "i"),
            queue_offsets=joined("queue_offsets", "q"),
            physical_offsets=joined("physical_offsets", "q"),
        )


class ManySink:
    """One request of a send_many."""

    divisible = False

    def __init__(self, collector: Collector, index: int) -> None:
        self._collector = collector
        self._index = index

    def acknowledged(self, answer: PutAnswer) -> None:
        self._collector.outcome(self._index, answer)

    def failed(self, error: TandemlogError) -> None:
        self._collector.outcome(self._index, error)

    def without(self, kept: Sequence[int], dropped: Sequence[int], error: TandemlogError) -> Sink:
        raise AssertionError("a request of send_many fails as a whole")


class ManySender:
    """Turns what one send_many was given into requests. `framer` is the calling thread's."""

    def __init__(
        self,
        core: ProducerCore[Any],
        framer: Framer,
        collector: Collector,
        *,
        properties: dict[str, str] | None,
        wait: bool,
        carried: Mapping[str, str] | None = None,
        on_send: Callable[[Message], Message] | None = None,
    ) -> None:
        """`carried` are properties that this client adds to every message that has them not,
        `on_send` is what each Message passes first."""
        self._on_send = on_send
        check_property_names(list(properties or ()))
        self._carried = carried or {}
        self._core = core
        self._framer = framer
        self._collector = collector
        self._properties = properties or {}
        self._durability = durability_of(wait)
        self._rows = RowFramer(framer)
        if HAVE_NUMPY:
            common = {**self._carried, **self._properties}
            self._columns = column_framing.ColumnFramer(framer, common)

    def batches(
        self,
        topic: str | None,
        bodies: Bodies,
        *,
        keys: Column,
        tags: Column,
        queues: Queues,
        sharding_keys: Column,
        topics: Column = None,
    ) -> Iterator[PutBatch | Unrouted]:
        """The requests, one after the other as they are taken; Unrouted topics are
        loaded before the next step. Raises InvalidMessageError and its kinds."""
        if isinstance(bodies, ArrowTable) and not isinstance(bodies, ArrowArray):
            names = bodies.column_names
            keys = bodies.column("keys") if "keys" in names and keys is None else keys
            tags = bodies.column("tags") if "tags" in names and tags is None else tags
            queues = bodies.column("queue") if "queue" in names and queues is None else queues
            if "topic" in names and topics is None and topic is None:
                topics = bodies.column("topic")
            if "body" not in names:
                raise InvalidArgumentError(
                    f"the table has no column body, only {', '.join(names)}", field="body"
                )
            bodies = bodies.column("body")
        if topics is not None and topic is not None:
            raise InvalidArgumentError(
                f"both topic {topic!r} and a column of topics: one of them is None", field="topics"
            )
        extra = (keys, tags, queues, sharding_keys)
        if is_arrow(bodies) or (HAVE_NUMPY and columns_input.is_column(bodies)):
            columns = column_framing.Columns.of(bodies, *extra, topics)
            yield from self._column_batches(topic, columns)
            return
        iterator = iter(bodies)
        first = next(iterator, None)
        if first is None:
            return
        if isinstance(first, Message):
            if any(each is not None for each in (*extra, topics)) or self._properties:
                raise InvalidArgumentError(
                    "Message objects carry their own topic, keys, tags, queue and properties",
                    field="messages",
                )
            messages: Iterator[Message] = chain([first], iterator)
            if self._on_send is not None:
                messages = map(self._on_send, messages)
            yield from self._message_batches(topic, messages)
        elif isinstance(bodies, Sequence) and not HAVE_NUMPY:
            yield from self._plain_batches(topic, bodies, extra, topics)
        elif isinstance(bodies, Sequence):
            columns = column_framing.Columns.of(list(bodies), *extra, topics)
            yield from self._column_batches(topic, columns)
        elif topics is not None:
            raise InvalidArgumentError(
                "with an iterator of bodies all go to one topic: give a list", field="topics"
            )
        else:
            yield from self._iterator_batches(self._topic(topic), chain([first], iterator), extra)

    def _iterator_batches(
        self, topic: str, bodies: Iterable[bytes], extra: tuple[Any, ...]
    ) -> Iterator[PutBatch | Unrouted]:
        """Bodies that come one by one; other columns cannot be matched but by one value."""
        if any(each is not None and not isinstance(each, str | bytes | int) for each in extra):
            raise InvalidArgumentError(
                "with an iterator of bodies keys, tags and queues are one value for all",
                field="keys",
            )
        iterator = iter(bodies)
        while part := list(islice(iterator, _LIST_PART)):
            if HAVE_NUMPY:
                columns = column_framing.Columns.of(part, *extra)
                yield from self._column_batches(topic, columns)
            else:
                yield from self._plain_batches(topic, part, extra, None)

    def _plain_batches(
        self, topic: str | None, bodies: Sequence[Any], extra: tuple[Any, ...], topics: Column
    ) -> Iterator[PutBatch | Unrouted]:
        """Without numpy: as Message objects."""
        named = self._topic(topic) if topics is None else topics
        keys, tags, queues, sharding_keys = extra
        yield from self._message_batches(
            None, messages_of(bodies, named, keys, tags, queues, sharding_keys, self._properties)
        )

    def _column_batches(
        self, topic: str | None, columns: "column_framing.Columns"
    ) -> Iterator[PutBatch | Unrouted]:
        topics = columns.topics
        names = [self._topic(topic)] if topics is None else topics.names
        if not len(columns):
            return
        routes: list[Route] = []
        while len(routes) < len(names):
            if missing := [name for name in names if self._core.routes.get(name) is None]:
                yield tuple(missing)
            routes = [route for name in names if (route := self._core.routes.get(name))]
        if outdated := column_framing.outdated(columns, routes):
            yield tuple(outdated)
        routes = [
            self._core.routes.get(name) or old for name, old in zip(names, routes, strict=True)
        ]
        for framed in self._columns.frame(
            columns, routes, lambda: self._core.accumulator.generation, self._core.max_batch_bytes
        ):
            yield framed.put_batch(
                self._durability,
                self._collector.sink(framed.count),
                self._core.new_deadline(),
            )

    def _message_batches(
        self, topic: str | None, messages: Iterable[Message]
    ) -> Iterator[PutBatch | Unrouted]:
        for part in message_parts(messages, self._core.max_batch_bytes):
            if topic is not None:
                _check_topics(topic, part)
            columns = columns_of(part) if HAVE_NUMPY else None
            if columns is None:
                yield from self._row_batches(part)
            else:
                yield from self._column_batches(None, columns)

    def _row_batches(self, messages: Iterable[Message]) -> Iterator[PutBatch | Unrouted]:
        batch: OpenBatch | None = None
        limit = self._core.max_batch_bytes
        born, spread = 0.0, 0
        for message in messages:
            route = self._core.routes.get(message.topic)
            while route is None:
                yield (message.topic,)
                route = self._core.routes.get(message.topic)
            if message.queue_id is not None and message.queue_id >= route.queues:
                yield (message.topic,)
                route = self._core.routes.get(message.topic) or route
            record, own, size, queue_id = self._row(message, route, spread // SPREAD_BYTES)
            spread += size
            if batch is not None and not batch.has_room(size, limit):
                yield self._sealed(batch)
                batch = None
            if batch is None:
                batch = OpenBatch(self._durability, NullSink(), self._core.now())
                born = self._framer.now_ms() / 1000
            batch.add(record, message.topic, queue_id, own, size, born)
        if batch is not None:
            yield self._sealed(batch)

    def _row(
        self, message: Message, route: Route, turn: int
    ) -> tuple[bytes, bytes | None, int, int]:
        """As Framer.row, and the queue."""
        generation = self._core.accumulator.generation + turn
        queue_id = route.queue_for(message.queue_id, message.sharding_key, generation)
        if self._carried:
            properties = {**self._carried, **(message.properties or {})}
            message = replace(message, properties=properties)
        return *self._framer.row(message, queue_id), queue_id

    def _sealed(self, batch: OpenBatch) -> PutBatch:
        batch.sink = self._collector.sink(len(batch.records))
        return batch.seal(self._core.accumulator.delivery_seconds, self._rows)

    @staticmethod
    def _topic(topic: str | None) -> str:
        if topic is None:
            raise InvalidArgumentError("bodies need a topic, or a column of topics", field="topic")
        return topic


def _check_topics(topic: str, part: Sequence[Message]) -> None:
    for message in part:
        if message.topic != topic:
            raise InvalidArgumentError(
                f"a message for topic {message.topic!r} in a send_many to {topic!r}: give "
                "None for messages of several topics",
                field="topic",
            )
