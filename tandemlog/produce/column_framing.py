"""Columns into requests: the arrays between what a caller has and what goes over the wire.

    bodies ByteColumn[n], keys, tags, queues      ── cut where a request is full ──▶ encode_columns

No Python statement runs for each message, except the CRC inside encode_columns.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidArgumentError, InvalidMessageError
from ..format.arrays.byte_column import ByteColumn
from ..format.arrays.java_hash_columns import java_hashes
from ..format.columns.encode import encode_columns
from ..format.constants import KEYS, MAX_TABLE, SHARDING_KEY, TAGS, UNIQ_KEY
from ..format.delay.framing import PLACE_OF_TIMERS
from ..format.errors import FormatError
from ..format.record.batch import RecordBatch
from ..format.record.message_id import MAX_IDS_AT_ONCE
from ..format.record.properties import encode_properties
from ..v1 import broker_pb2
from .columns_input import TopicColumn, byte_column, constant_column, integer_column, topic_column
from .framing import (
    RESERVED_PROPERTIES,
    USER_PROPERTIES_LIMIT,
    Framer,
    compressed,
    too_large_body,
    too_large_properties,
)
from .put_batch import OpenBatch, PutBatch, Sink
from .routes import SPREAD_BYTES, Route, shard, unknown_queue

assert SHARDING_KEY in RESERVED_PROPERTIES

_FIXED: Final = 91 + 24
"""Bytes of a record without its body, topic and properties, at most."""
_QUEUES: Final = 1 << 32
"""More than a topic can have."""
_UNIQ_SIZE: Final = len(UNIQ_KEY) + 2 + 56


@dataclass(frozen=True, slots=True)
class Columns:
    """What one send_many was given, n rows each; `queues` i8[n], or one for all, or None.
    `topics` None: all rows have the same topic, which is not in here."""

    bodies: ByteColumn
    keys: ByteColumn | None
    tags: ByteColumn | None
    queues: NDArray[np.int64] | int | None
    sharding_keys: ByteColumn | None
    topics: TopicColumn | None = None

    @classmethod
    def of(
        cls,
        bodies: Any,
        keys: Any,
        tags: Any,
        queues: Any,
        sharding_keys: Any,
        topics: Any = None,
    ) -> Self:
        """Raises InvalidArgumentError naming the column that does not fit."""
        body = byte_column(bodies, "body")
        if body.valid is not None and not body.valid.all():
            raise InvalidArgumentError("body: a message without a body (null)", field="body")
        count = len(body)
        if queues is not None and not isinstance(queues, int):
            queues = integer_column(queues, "queue")
            _same_length("queue", len(queues), count)
        named = None if topics is None else topic_column(topics)
        if named is not None:
            _same_length("topics", len(named.codes), count)
        return cls(
            body,
            _property_column(keys, "keys", count),
            _property_column(tags, "tags", count),
            queues,
            _property_column(sharding_keys, "sharding_keys", count),
            named,
        )

    def __len__(self) -> int:
        return len(self.bodies)

    def rows(self, start: int, stop: int) -> "Columns":
        def part(column: ByteColumn | None) -> ByteColumn | None:
            return None if column is None else column.rows(start, stop)

        queues = self.queues
        return Columns(
            self.bodies.rows(start, stop),
            part(self.keys),
            part(self.tags),
            queues[start:stop] if isinstance(queues, np.ndarray) else queues,
            part(self.sharding_keys),
            None if self.topics is None else self.topics.rows(start, stop),
        )


def _property_column(values: Any, name: str, count: int) -> ByteColumn | None:
    if values is None:
        return None
    if isinstance(values, str | bytes):
        return constant_column(values, count)
    column = byte_column(values, name)
    _same_length(name, len(column), count)
    return column


def _same_length(name: str, actual: int, count: int) -> None:
    if actual != count:
        raise InvalidArgumentError(
            f"column {name} has {actual} rows, body has {count}",
            field=name,
            limit=count,
            actual=actual,
        )


@dataclass(frozen=True, slots=True)
class FramedColumns:
    """Records of one request, not yet the producer's."""

    batch: RecordBatch

    @property
    def count(self) -> int:
        return self.batch.count

    def put_batch(
        self,
        durability: broker_pb2.Durability.ValueType,
        sink: Sink,
        deadline: float,
        checksum: int | None = None,
    ) -> PutBatch:
        """`checksum` as in PutBatch."""
        batch = self.batch
        records = memoryview(batch.records)
        sizes = array("I", batch.sizes.tobytes())
        return PutBatch(
            first=bytes(records[: sizes[0]]),
            rest=records[sizes[0] :],
            sizes=sizes,
            queue_indexes=array("H", batch.queue_indexes.tobytes()),
            topics=batch.topics,
            queue_topics=batch.queue_topics.tolist(),
            queue_ids=batch.queue_ids.tolist(),
            durability=durability,
            sink=sink,
            deadline=deadline,
            checksum=checksum,
        )


def check_bodies(bodies: ByteColumn, limit: int) -> None:
    """Raises MessageTooLargeError for the first body of more than `limit` bytes."""
    lengths = bodies.lengths
    if len(lengths) and int(lengths.max()) > limit:
        index = int(np.argmax(lengths > limit))
        raise too_large_body(int(lengths[index]), limit, index)


def framed_columns(
    framer: Framer,
    *,
    bodies: ByteColumn,
    topics: Sequence[str],
    waiting: bool = False,
    **columns: Any,
) -> FramedColumns:
    """encode_columns with the identity of `framer`, and unique ids if it gives them. `waiting`:
    the topic in which messages wait for their time may be among `topics`. Raises FormatError,
    InvalidTopicNameError."""
    for topic in topics:
        if not (waiting and topic == PLACE_OF_TIMERS[0]):
            framer.topic_frame(topic)
    return FramedColumns(
        encode_columns(
            bodies=bodies,
            topics=topics,
            uniq_keys=framer.unique_id_column(len(bodies)) if framer.unique_ids else None,
            born_host=framer.born_host,
            store_ipv6=framer.store_ipv6,
            **{"born_timestamp": framer.now_ms(), **columns},
        )
    )


def framed_rows(framer: Framer, batch: OpenBatch) -> tuple[memoryview, "array[int]"]:
    """The records of what an OpenBatch has collected as rows (Framer.row), and their sizes."""
    made = framed_columns(
        framer,
        bodies=_joined(batch.records),
        topics=tuple(batch.topics),
        queue_topics=np.array(batch.queue_topics, np.uint32),
        queue_ids=np.array(batch.queue_ids, np.uint32),
        queue_indexes=np.array(batch.queue_indexes, np.uint16),
        own_properties=_joined(batch.own) if any(batch.own) else None,
        born_timestamp=(np.array(batch.born) * 1000).astype(np.int64),
    ).batch
    return memoryview(made.records), array("I", made.sizes.tobytes())


def _joined(values: list[bytes]) -> ByteColumn:
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    return ByteColumn.of_lengths(b"".join(values), lengths)


class ColumnFramer:
    """Frames columns with the identity and limits of `framer`; `properties` are every
    message's."""

    def __init__(self, framer: Framer, properties: dict[str, str]) -> None:
        self._framer = framer
        if "" in properties or "" in properties.values():
            raise InvalidMessageError(
                "a property with an empty name or value cannot be stored", field="properties"
            )
        try:
            self._common = encode_properties(properties)
        except FormatError as error:
            raise InvalidMessageError(f"properties: {error}", field="properties") from error

    def frame(
        self,
        columns: Columns,
        routes: Sequence[Route],
        generation: Callable[[], int],
        max_bytes: int,
    ) -> Iterator[FramedColumns]:
        """Requests of at most `max_bytes` (one message may have more), in order; `generation`
        is asked for each. `routes` are those of the columns' topics, or of the one topic."""
        self._check(columns)
        queues = self._queues(columns, routes)
        sizes = self._sizes(columns, routes)
        for start, stop in cuts(sizes, max_bytes, MAX_IDS_AT_ONCE):
            part = columns.rows(start, stop)
            given = None if queues is None else queues[start:stop]
            if given is None:
                given = _chosen(part, routes, generation(), sizes[start:stop])
            table, indexes = _table(given)
            yield self._encode(part, routes, table, indexes, start)

    def _check(self, columns: Columns) -> None:
        check_bodies(columns.bodies, self._framer.max_body)
        total = np.full(len(columns), len(self._common) + _UNIQ_SIZE)
        for name, column in self._named(columns):
            total += column.lengths + len(name) + 2
        if len(total) and int(total.max()) > USER_PROPERTIES_LIMIT:
            index = int(np.argmax(total > USER_PROPERTIES_LIMIT))
            raise too_large_properties(int(total[index]), index)

    @staticmethod
    def _named(columns: Columns) -> list[tuple[str, ByteColumn]]:
        named = ((KEYS, columns.keys), (TAGS, columns.tags), (SHARDING_KEY, columns.sharding_keys))
        return [(name, column) for name, column in named if column is not None]

    def _sizes(self, columns: Columns, routes: Sequence[Route]) -> NDArray[np.int64]:
        """Bytes of each record, or a little more."""
        fixed = _FIXED + len(self._common) + _UNIQ_SIZE * self._framer.unique_ids
        fixed += max(len(route.topic) for route in routes)
        sizes = columns.bodies.lengths + fixed
        for name, column in self._named(columns):
            sizes += column.lengths + len(name) + 2
        return sizes

    @staticmethod
    def _queues(columns: Columns, routes: Sequence[Route]) -> NDArray[np.int64] | None:
        """Each row's place (topic and queue, see _place), checked; None: the producer chooses."""
        queues = columns.queues
        topics = 0 if columns.topics is None else columns.topics.codes
        many = np.array([route.queues for route in routes], np.int64)
        limits = np.broadcast_to(many[topics], len(columns))
        if isinstance(queues, int):
            queues = np.full(len(columns), queues, np.int64)
        if queues is not None:
            wrong = (queues < 0) | (queues >= limits)
            if wrong.any():
                index = int(np.argmax(wrong))
                route = routes[_code(columns, index)]
                raise unknown_queue(route.topic, int(queues[index]), route.queues, index)
            return _place(topics, queues)
        keys = columns.sharding_keys
        if keys is None:
            return None
        if len(keys) and not keys.lengths.all():
            shard("", routes[0].queues)
        hashes = java_hashes(keys.data, keys.starts, keys.lengths).astype(np.int64)
        return _place(topics, np.abs(hashes) % limits)

    def _encode(
        self,
        columns: Columns,
        routes: Sequence[Route],
        table: NDArray[np.int64],
        indexes: NDArray[np.uint16],
        start: int,
    ) -> FramedColumns:
        bodies, flags = self._compressed(columns.bodies)
        used, queue_topics = np.unique(table // _QUEUES, return_inverse=True)
        try:
            return framed_columns(
                self._framer,
                bodies=bodies,
                topics=[routes[code].topic for code in used.tolist()],
                queue_topics=queue_topics.astype(np.uint32),
                queue_ids=(table % _QUEUES).astype(np.uint32),
                queue_indexes=indexes,
                keys=columns.keys,
                tags=columns.tags,
                own_properties=_own_properties(columns.sharding_keys),
                common_properties=self._common,
                sys_flag=flags,
            )
        except FormatError as error:
            raise InvalidMessageError(f"messages from {start} on: {error}") from error

    def _compressed(self, bodies: ByteColumn) -> tuple[ByteColumn, NDArray[np.int64] | int]:
        """Bodies as stored, and their system flags; a loop over those that are compressed."""
        above = self._framer.compress_above
        if above is None or not (bodies.lengths >= above).any():
            return bodies, 0
        flags = np.zeros(len(bodies), np.int64)
        stored = []
        for row, (begin, end) in enumerate(
            zip(bodies.offsets[:-1].tolist(), bodies.offsets[1:].tolist(), strict=True)
        ):
            body = bodies.data[begin:end].tobytes()
            if len(body) >= above:
                body, flags[row] = compressed(body)
            stored.append(body)
        return ByteColumn.of(stored), flags


def cuts(sizes: NDArray[np.int64], max_bytes: int, max_count: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that together have at most `max_bytes`, at least one row each."""
    ends = np.cumsum(sizes)
    start, before = 0, 0
    while start < len(sizes):
        stop = int(np.searchsorted(ends, before + max_bytes, side="right"))
        stop = min(max(stop, start + 1), start + max_count)
        yield start, stop
        start, before = stop, int(ends[stop - 1])


def _place(topics: NDArray[np.int64] | int, queues: NDArray[np.int64]) -> NDArray[np.int64]:
    """Topic and queue as one number."""
    return topics * _QUEUES + queues


def _code(columns: Columns, row: int) -> int:
    return 0 if columns.topics is None else int(columns.topics.codes[row])


def outdated(columns: Columns, routes: Sequence[Route]) -> list[str]:
    """Topics of which the caller names queues that their routes do not have."""
    queues = columns.queues
    if queues is None or not len(columns):
        return []
    topics = np.zeros(1, np.int64) if columns.topics is None else columns.topics.codes
    many = np.array([route.queues for route in routes], np.int64)
    beyond = np.broadcast_to(queues >= many[topics], len(columns))
    codes = np.unique(np.broadcast_to(topics, len(columns))[beyond])
    return [routes[code].topic for code in codes.tolist()]


def _chosen(
    columns: Columns, routes: Sequence[Route], generation: int, sizes: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Places of rows whose queues the producer chooses: of each topic another queue every
    SPREAD_BYTES, or one, where there are too many topics for that."""
    turns = (np.cumsum(sizes) - sizes) // SPREAD_BYTES
    count = int(turns[-1]) + 1
    if columns.topics is None:
        route = routes[0]
        return (route.first_of(count, generation) + turns) % route.queues
    codes = columns.topics.codes
    used = np.unique(codes).tolist()
    if sum(min(routes[code].queues, count) for code in used) > MAX_TABLE:
        count, turns = 1, np.zeros_like(turns)
    first, many = np.zeros(len(routes), np.int64), np.ones(len(routes), np.int64)
    for code in used:
        first[code] = routes[code].first_of(count, generation)
        many[code] = routes[code].queues
    return _place(codes, (first[codes] + turns) % many[codes])


def _table(places: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """The distinct places, and each row's index among them."""
    table, indexes = np.unique(places, return_inverse=True)
    if len(table) > MAX_TABLE:
        raise InvalidArgumentError(
            f"{len(table)} queues in one request, {MAX_TABLE} are possible", field="queue"
        )
    return table, indexes.astype(np.uint16)


def _own_properties(sharding_keys: ByteColumn | None) -> ByteColumn | None:
    """Sharding keys as encoded properties."""
    if sharding_keys is None:
        return None
    starts = sharding_keys.offsets.tolist()
    data = sharding_keys.data.tobytes()
    return ByteColumn.of(
        [
            b"%s\x01%s\x02" % (SHARDING_KEY.encode(), data[begin:end])
            for begin, end in pairwise(starts)
        ]
    )
