"""A chunk of rows as the columns from which records are framed.

    body topic tags keys queue_id sharding_key properties      Arrow, as Spark has them
      │                             │             │
    ByteColumn ...             a table of the (topic, queue) pairs, and each row's entry in it
                                                  └ name 01 value 02 ... by array operations

A row goes to its queue_id, or to the queue of its sharding key's hash, or to the queue whose turn
it is for this chunk. Properties that the client or the store reserve are left out, so that a copy
may pass on the column `properties` of the source: tags and keys have their own columns. A null
value is left out; an empty one is an error, since a record cannot hold it.

A row that is to come later goes to the topic in which messages wait, with its own topic and queue
among its properties (sink_delays.py).
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.arrays.java_hash_columns import java_hashes
from tandemlog.format.arrays.ragged import offsets_of
from tandemlog.format.constants import NAME_END, PROPERTY_END, SHARDING_KEY
from tandemlog.format.delay.framing import PLACE_OF_TIMERS
from tandemlog.produce.columns_input import byte_column
from tandemlog.produce.framing import RESERVED_PREFIX, RESERVED_PROPERTIES

from ..cluster.cluster_errors import RowError
from .sink_delays import later_rows, waiting_properties

_NAME_END: Final = bytes((NAME_END,))
_PROPERTY_END: Final = bytes((PROPERTY_END,))

QueuesOf = Callable[[str], int]
"""How many queues of a topic can be written."""


@dataclass(frozen=True, slots=True)
class Rows:
    """n rows, ready for framing. `entries` u2[n] are each row's place in the table of queues,
    `queue_topics` and `queue_ids`; `properties` are encoded. `wanted` i8[n] are the queues that
    rows name in queue_id, -1 for a row without; None if no row has one. `waiting`: some rows come
    later."""

    bodies: ByteColumn
    tags: ByteColumn | None
    keys: ByteColumn | None
    properties: ByteColumn | None
    topics: tuple[str, ...]
    queue_topics: NDArray[np.uint32]
    queue_ids: NDArray[np.uint32]
    entries: NDArray[np.uint16]
    wanted: NDArray[np.int64] | None = None
    waiting: bool = False


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def rows_of(
    chunk: pa.RecordBatch,
    topic: str | None,
    queues_of: QueuesOf,
    turn: int,
    now_ms: Callable[[], int] = wall_clock_ms,
) -> Rows:
    """The rows of a chunk; `topic` is the option, `turn` chooses the queue of rows that do not name
    one. Raises RowError for a row that cannot become a message."""
    bodies = byte_column(chunk.column("body"), "body")
    if bodies.valid is not None and not bodies.valid.all():
        raise RowError(int(np.argmin(bodies.valid)), "the body is null")
    topics, topic_of = _topics(chunk, topic)
    counts = np.array([queues_of(each) for each in topics], np.int64)
    sharding = _column(chunk, "sharding_key")
    wanted = _wanted(chunk, topics, counts[topic_of], topic_of)
    queues = _queues(counts[topic_of], sharding, turn)
    if wanted is not None:
        queues = np.where(wanted >= 0, wanted, queues)
    later = later_rows(_column(chunk, "deliver_at"), _column(chunk, "delay"))
    more = None
    if later is not None:
        more = waiting_properties(later, topics, topic_of, queues, now_ms())
        waiting_topic, waiting_queue = PLACE_OF_TIMERS
        topics, topic_of = (*topics, waiting_topic), np.where(later.waits, len(topics), topic_of)
        queues = np.where(later.waits, waiting_queue, queues)
    pairs, entries = np.unique(topic_of << 32 | queues, return_inverse=True)
    return Rows(
        bodies=bodies,
        tags=_byte_column(chunk, "tags"),
        keys=_byte_column(chunk, "keys"),
        properties=_properties(_column(chunk, "properties"), sharding, more),
        topics=topics,
        queue_topics=(pairs >> 32).astype(np.uint32),
        queue_ids=(pairs & 0xFFFFFFFF).astype(np.uint32),
        entries=entries.astype(np.uint16),
        wanted=wanted,
        waiting=later is not None,
    )


def _column(chunk: pa.RecordBatch, name: str) -> Any:
    """The column; None if there is none, or all of it is null."""
    if name not in chunk.schema.names:
        return None
    column = chunk.column(name)
    return None if column.null_count == len(column) else column


def _byte_column(chunk: pa.RecordBatch, name: str) -> ByteColumn | None:
    column = _column(chunk, name)
    return None if column is None else byte_column(column, name)


def _topics(chunk: pa.RecordBatch, topic: str | None) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The distinct topics in the order of their first rows, and each row's."""
    if topic is not None:
        return (topic,), np.zeros(chunk.num_rows, np.int64)
    column = chunk.column("topic")
    if column.null_count:
        row = int(np.argmin(np.asarray(column.is_valid())))
        raise RowError(row, "the topic is null, and no option names one")
    encoded = column.dictionary_encode()
    return tuple(encoded.dictionary.to_pylist()), np.asarray(encoded.indices, np.int64)


def _queues(counts: NDArray[np.int64], sharding: Any, turn: int) -> NDArray[np.int64]:
    """The queue of every row if it does not name one, i8[n]; `counts` are the queues of each row's
    topic."""
    queues = turn % counts
    if sharding is not None:
        keys = byte_column(sharding, "sharding_key")
        hashes = java_hashes(keys.data, keys.starts, keys.lengths).astype(np.int64)
        queues = np.where(keys.lengths > 0, np.abs(hashes) % counts, queues)
    return queues


def _wanted(
    chunk: pa.RecordBatch,
    topics: Sequence[str],
    counts: NDArray[np.int64],
    topic_of: NDArray[np.int64],
) -> NDArray[np.int64] | None:
    """The queues that rows name; see Rows."""
    column = _column(chunk, "queue_id")
    if column is None:
        return None
    valid = np.asarray(column.is_valid())
    wanted = np.asarray(column.fill_null(0), np.int64)
    wrong = valid & ((wanted < 0) | (wanted >= counts))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise RowError(
            row,
            f"queue_id {int(wanted[row])}, but topic {topics[int(topic_of[row])]!r} has the queues "
            f"0..{int(counts[row]) - 1}",
        )
    return np.where(valid, wanted, -1)


def _properties(properties: Any, sharding: Any, more: Any) -> ByteColumn | None:
    """Each row's own properties, encoded: those of the map, then the sharding key, then `more`,
    which are encoded."""
    parts = []
    if properties is not None:
        parts.append(_encoded_map(properties))
    if sharding is not None:
        keys = sharding.cast(pa.binary())
        name = pa.scalar(SHARDING_KEY.encode(), pa.binary())
        # an empty sharding key is like no key
        there = pc.fill_null(pc.greater(pc.binary_length(keys), 0), False)
        parts.append(pc.fill_null(_encoded(name, pc.if_else(there, keys, None)), b""))
    if more is not None:
        parts.append(more)
    if not parts:
        return None
    whole = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, b"")
    return byte_column(whole, "properties")


def _encoded(names: Any, values: Any) -> Any:
    """name 01 value 02 of each."""
    pairs = pc.binary_join_element_wise(names, values, _NAME_END)
    return pc.binary_join_element_wise(pairs, b"", _PROPERTY_END)


def _encoded_map(maps: pa.MapArray) -> pa.Array:
    """The property string of every row."""
    offsets = np.asarray(maps.offsets, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    names = maps.keys.slice(first, last - first).cast(pa.binary())
    values = maps.items.slice(first, last - first).cast(pa.binary())
    row_of = np.repeat(np.arange(len(maps)), np.diff(offsets))
    reserved = pc.or_(
        pc.is_in(names, value_set=_reserved()), pc.starts_with(names, RESERVED_PREFIX)
    )
    used = np.asarray(pc.and_(values.is_valid(), pc.invert(reserved)))
    used &= np.asarray(maps.is_valid())[row_of]
    empty = used & np.asarray(pc.fill_null(pc.equal(pc.binary_length(values), 0), False))
    if empty.any():
        at = int(np.argmax(empty))
        name = names[at].as_py().decode("utf-8", "replace")
        raise RowError(
            int(row_of[at]),
            f"property {name!r} has an empty value, which a record cannot hold (RocketMQ reads it "
            "as none): make it null, or leave it out of the map",
        )
    if not used.all():
        mask = pa.array(used)
        names, values, row_of = names.filter(mask), values.filter(mask), row_of[used]
    encoded = byte_column(_encoded(names, values), "properties")
    _check_properties(encoded, names, row_of)
    ends = offsets_of(np.bincount(row_of, minlength=len(maps)))
    bounds = (encoded.offsets[ends] - encoded.offsets[0]).astype(np.int32)
    data = encoded.data[int(encoded.offsets[0]) : int(encoded.offsets[-1])]
    return pa.Array.from_buffers(
        pa.binary(), len(maps), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )


@cache
def _reserved() -> pa.Array:
    """Created when a task first needs it: the first array that Arrow makes from a Python list
    imports pandas if that is installed, which would slow down every process that Spark starts."""
    return pa.array(sorted(name.encode() for name in RESERVED_PROPERTIES), pa.binary())


def _check_properties(encoded: ByteColumn, names: Any, row_of: NDArray[np.int64]) -> None:
    """Check that no name is empty, and that names and values hold no separator."""
    for wrong, fault in (
        (np.asarray(pc.equal(pc.binary_length(names), 0)), "an empty name"),
        (np.asarray(pc.match_substring(names, _NAME_END)), "a name with the character 0x01"),
    ):
        if wrong.any():
            raise RowError(int(row_of[np.argmax(wrong)]), f"a property has {fault}")
    data = encoded.data[int(encoded.offsets[0]) : int(encoded.offsets[-1])]
    places = np.flatnonzero(data == PROPERTY_END) + int(encoded.offsets[0])
    if len(places) > len(encoded):
        ends = encoded.offsets[1:] - 1
        stray = int(np.setdiff1d(places, ends)[0])
        entry = int(np.searchsorted(encoded.offsets, stray, side="right")) - 1
        raise RowError(int(row_of[entry]), "a property holds the character 0x02")
