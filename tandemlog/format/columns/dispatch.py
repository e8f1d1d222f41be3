"""From log bytes to what queues, index and producer table take in: the whole of reput's format.

    records ──headers──▶ topic, queue, offsets, store time, transaction type
       │
       └──properties──▶ TAGS ─────────▶ tags code ──▶ 20-byte units
                        light queues ─────────────▶ a unit more in each (light_queues.py)
                        UNIQ_KEY, KEYS, TAGS ──────▶ index entries, in RocketMQ's order
                        producer mark

A record of transaction type NONE or COMMIT goes to its queue; one of PREPARED does not, but is
found by its keys; one of ROLLBACK is neither. An inner batch, many messages in one record, is found
by its keys too: its queue is one of RocketMQ's batch queues, whose units have another form. In the
schedule topic the tags code is the time of delivery.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ..arrays.grouping import distinct_pairs, distinct_slices, stable_order
from ..arrays.java_hash_columns import HashedStrings, hash_strings, hash_texts
from ..arrays.ragged import Buffer, all_true, byte_array, compact, counting, offsets_of
from ..constants import (
    DELAY,
    KEYS,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    PRODUCER_MARK,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TAGS,
    UNIQ_KEY,
)
from ..files.queue_unit import DEFAULT_LEVELS, UNIT_DTYPE, DelayLevels, tags_code
from ..record.sys_flag import (
    INNER_BATCH,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_NONE,
    TRANSACTION_ROLLBACK,
)
from .faults import find_fault
from .headers import HeaderColumns, gather_headers
from .light_queues import light_queues
from .property_columns import ValueColumn, split_keys_columns
from .property_layouts import HashedProperties, find_properties, hash_properties

_FEW_TOPICS: Final = 32


@dataclass(frozen=True, slots=True)
class DispatchColumns:
    """n records as their dispatchers want them, and m index entries.

    topics            the distinct topics
    topic_index       i8[n]   index into topics
    queue_id          i4[n]
    queue_offset      i8[n]
    physical_offset   i8[n]
    size              i4[n]   bytes
    store_timestamp   i8[n]   ms
    transaction_type  i4[n]   one of sys_flag.TRANSACTION_
    dispatch_mask     bool[n] whether the record has a unit in its own queue
    tags_code         i8[n]
    units             UNIT_DTYPE[n], for every record
    key_hash          i4[m]   stored form (31 bits), in the order in which RocketMQ puts entries
    entry_record      i4[m]   the record of each, ascending
    producer_marks    (record, value as stored) of each record that has one
    light             (record, queue name, queue id, queue offset) of units in light queues
    prepared_transaction_offset   i8[n] which earlier record it names, 0 for none
    """

    topics: tuple[str, ...]
    topic_index: NDArray[np.int64]
    queue_id: NDArray[np.int32]
    queue_offset: NDArray[np.int64]
    physical_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    store_timestamp: NDArray[np.int64]
    transaction_type: NDArray[np.int32]
    dispatch_mask: NDArray[np.bool_]
    tags_code: NDArray[np.int64]
    units: NDArray[np.void]
    key_hash: NDArray[np.int32]
    entry_record: NDArray[np.int32]
    producer_marks: list[tuple[int, bytes]]
    light: list[tuple[int, str, int, int]]
    prepared_transaction_offset: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.queue_id)


@dataclass(frozen=True, slots=True)
class UnitColumns:
    """d queue units in log order: a record has none or one, and one more for each light queue.

    topics        the distinct topics, and the light queues
    topic_index   i8[d]   index into topics
    queue_id      i4[d]
    queue_offset  i8[d]
    units         UNIT_DTYPE[d]
    """

    topics: tuple[str, ...]
    topic_index: NDArray[np.int64]
    queue_id: NDArray[np.int32]
    queue_offset: NDArray[np.int64]
    units: NDArray[np.void]


@dataclass(frozen=True, slots=True)
class QueueGroups:
    """Units queue by queue, the queues by first appearance.

    topic_index, queue_id   i8[g], i4[g]: which queue
    order                   i8[d]: numbers of units; those of queue g, in log order, are
                            order[bounds[g] : bounds[g + 1]]
    bounds                  i8[g + 1]
    """

    topic_index: NDArray[np.int64]
    queue_id: NDArray[np.int32]
    order: NDArray[np.int64]
    bounds: NDArray[np.int64]

    @property
    def count(self) -> int:
        return len(self.queue_id)


def dispatch_columns(
    buffer: Buffer,
    positions: NDArray[np.int64],
    sizes: NDArray[np.integer[Any]],
    base_offset: int,
    *,
    delay_levels: DelayLevels = DEFAULT_LEVELS,
    index: bool = True,
    index_tags: bool = True,
    headers: HeaderColumns | None = None,
) -> DispatchColumns:
    """Takes apart the records at `positions` of `buffer`, whose first byte has the log offset
    `base_offset`.

    `index` False leaves out all index entries, `index_tags` those of tags. `headers`, as
    walk_strict gives them, saves gathering and checking them again; without them a record that
    does not hold together, or is not where it says, raises CorruptRecordError.
    """
    data = byte_array(buffer)
    if headers is None:
        headers = gather_headers(data, positions, sizes)
        fault = find_fault(data, headers, base_offset=base_offset)
        if fault is not None:
            raise fault.error
    topics, topic_index, hashed_topics = _topics(data, headers)
    transaction_type = headers.sys_flag & TRANSACTION_MASK
    found = _properties(data, headers, index)
    # the first that was asked for, and the last two
    tags, marks, light = ((found.starts[name], found.lengths[name]) for name in (0, -2, -1))
    codes = found.hashes[0].view(np.int32).astype(np.int64)
    if SCHEDULE_TOPIC in topics:
        _set_delivery_times(codes, data, headers, topics, topic_index, tags, delay_levels)
    if index:
        indexed = transaction_type != TRANSACTION_ROLLBACK
        key_hash, entry_record = _index_entries(
            data, hashed_topics, topic_index, indexed, found, index_tags
        )
    else:
        key_hash, entry_record = np.empty(0, np.int32), np.empty(0, np.int32)
    return DispatchColumns(
        topics=topics,
        topic_index=topic_index,
        queue_id=headers.queue_id,
        queue_offset=headers.queue_offset,
        physical_offset=headers.physical_offset,
        size=headers.stored_size,
        store_timestamp=headers.store_timestamp,
        transaction_type=transaction_type,
        dispatch_mask=in_own_queue(headers.sys_flag),
        tags_code=codes,
        units=_units(headers, codes),
        key_hash=key_hash,
        entry_record=entry_record,
        producer_marks=_marks(data, marks),
        light=_light(data, headers, topics, topic_index, light),
        prepared_transaction_offset=headers.prepared_transaction_offset,
    )


def without_units(columns: DispatchColumns, topics: Collection[str]) -> DispatchColumns:
    """The same, but the records of these topics have no unit in their own queue: RocketMQ keeps
    them in batch queues, and does not start beside a queue of the usual form."""
    apart = [number for number, topic in enumerate(columns.topics) if topic in topics]
    mask = columns.dispatch_mask & ~np.isin(columns.topic_index, apart)
    return replace(columns, dispatch_mask=mask)


def in_own_queue(sys_flag: NDArray[np.int32]) -> NDArray[np.bool_]:
    """bool[n]: which records have a unit in the queue that they name."""
    kind = sys_flag & (TRANSACTION_MASK | INNER_BATCH)
    own: NDArray[np.bool_] = kind == TRANSACTION_NONE
    if not all_true(own):
        own |= kind == TRANSACTION_COMMIT
    return own


def unit_columns(columns: DispatchColumns) -> UnitColumns:
    """All units of the records, those of light queues behind the record's own."""
    parts = columns.topic_index, columns.queue_id, columns.queue_offset, columns.units
    if not all_true(columns.dispatch_mask):
        rows = columns.dispatch_mask.nonzero()[0]
        parts = parts[0][rows], parts[1][rows], parts[2][rows], parts[3][rows]
    if not columns.light:
        return UnitColumns(columns.topics, *parts)
    return _with_light(columns, UnitColumns(columns.topics, *parts))


def _with_light(columns: DispatchColumns, own: UnitColumns) -> UnitColumns:
    topics = dict.fromkeys((*own.topics, *(name for _, name, _, _ in columns.light)))
    numbers = {topic: number for number, topic in enumerate(topics)}
    records, names, queue_ids, offsets = zip(*columns.light, strict=True)
    units = columns.units[list(records)]
    topic_index = np.array([numbers[name] for name in names], np.int64)
    physical = np.concatenate((own.units["physical_offset"], units["physical_offset"]))
    order = np.argsort(physical, kind="stable")
    # concatenate alone would answer units in native byte order
    raw = np.dtype((np.void, UNIT_DTYPE.itemsize))
    together = np.concatenate((own.units.view(raw), units.view(raw))).view(UNIT_DTYPE)
    return UnitColumns(
        tuple(topics),
        np.concatenate((own.topic_index, topic_index))[order],
        np.concatenate((own.queue_id, np.array(queue_ids, np.int32)))[order],
        np.concatenate((own.queue_offset, np.array(offsets, np.int64)))[order],
        together[order],
    )


def group_by_queue(found: UnitColumns) -> QueueGroups:
    """The queues that the units go to, and which units go to each."""
    topic_index, queue_id = found.topic_index, found.queue_id
    firsts, group = distinct_pairs(topic_index, queue_id.astype(np.int64))
    return QueueGroups(
        topic_index=topic_index[firsts],
        queue_id=queue_id[firsts],
        order=stable_order(group, len(firsts)),
        bounds=offsets_of(np.bincount(group, minlength=len(firsts))),
    )


def _topics(
    data: NDArray[np.uint8], headers: HeaderColumns
) -> tuple[tuple[str, ...], NDArray[np.int64], HashedStrings]:
    """The distinct topics by first appearance, each record's, and their hashes."""
    firsts, numbers = distinct_slices(data, headers.topic_start, headers.topic_length)
    starts, lengths = headers.topic_start[firsts], headers.topic_length[firsts]
    texts = _texts(data, starts, lengths)
    few = len(texts) <= _FEW_TOPICS
    hashed = hash_texts(texts) if few else hash_strings(data, starts, lengths)
    topics = tuple(dict.fromkeys(texts))
    if len(topics) < len(texts):
        # Bytes that are not UTF-8 can differ and yet be read as the same text.
        hashed = hashed.take(np.array([texts.index(topic) for topic in topics], np.int64))
        numbers = np.array([topics.index(text) for text in texts], np.int64)[numbers]
    return topics, numbers, hashed


def _texts(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> list[str]:
    if len(starts) > _FEW_TOPICS:
        # Each with the byte behind it, which becomes a zero: to split there is a loop less.
        flat, offsets = compact(data, starts, lengths + 1)
        flat[offsets[1:] - 1] = 0
        joined = flat.tobytes()
        if joined.isascii():
            texts = joined.decode("ascii").split("\0")
            if len(texts) == len(offsets):  # no topic has a zero of its own
                return texts[:-1]
    return [
        data[start : start + length].tobytes().decode("utf-8", "replace")
        for start, length in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]


def _properties(data: NDArray[np.uint8], headers: HeaderColumns, index: bool) -> HashedProperties:
    """TAGS, and for the index KEYS and UNIQ_KEY, to be hashed; producer mark and light queues."""
    hashed = [TAGS.encode(), KEYS.encode(), UNIQ_KEY.encode()][: 3 if index else 1]
    names = [*hashed, PRODUCER_MARK.encode(), MULTI_DISPATCH.encode()]
    return hash_properties(
        data, headers.properties_start, headers.properties_length, names, len(hashed)
    )


def _set_delivery_times(
    codes: NDArray[np.int64],
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    topics: Sequence[str],
    topic_index: NDArray[np.int64],
    tags: ValueColumn,
    delay_levels: DelayLevels,
) -> None:
    """The tags codes of the schedule topic's records. They are few: a plain loop."""
    rows = (topic_index == topics.index(SCHEDULE_TOPIC)).nonzero()[0]
    ((delay_start, delay_length),) = find_properties(
        data, headers.properties_start[rows], headers.properties_length[rows], [DELAY.encode()]
    )
    for number, row in enumerate(rows.tolist()):
        codes[row] = tags_code(
            SCHEDULE_TOPIC,
            _text(data, tags[0][row], tags[1][row]),
            _text(data, delay_start[number], delay_length[number]),
            int(headers.store_timestamp[row]),
            delay_levels,
        )


def _text(data: NDArray[np.uint8], start: int, length: int) -> str | None:
    if not length:
        return None
    return data[start : start + length].tobytes().decode("utf-8", "replace")


def _index_entries(
    data: NDArray[np.uint8],
    topics: HashedStrings,
    topic_index: NDArray[np.int64],
    indexed: NDArray[np.bool_],
    found: HashedProperties,
    index_tags: bool,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Hash and record of every entry: for each record UNIQ_KEY, the KEYS, the tag."""
    seeds = topics.followed_by("#")[topic_index]
    text_hash = np.empty(found.hashes.shape, np.uint32)
    text_hash[:] = seeds.view(np.uint32)
    text_hash[0] = topics.followed_by("#T#").view(np.uint32)[topic_index]
    text_hash *= found.powers
    text_hash += found.hashes
    has_entry = found.lengths[: len(text_hash)] > 0
    if not all_true(indexed):
        has_entry &= indexed
    split = np.empty(0, np.int64)
    if not all_true(found.spaceless):
        # these may be several keys
        split = (has_entry[1] & ~found.spaceless).nonzero()[0]
        has_entry[1, split] = False
    if not index_tags:
        text_hash, has_entry = text_hash[1:], has_entry[1:]
    # by names they are TAGS, KEYS, UNIQ_KEY; by records the other way round
    width = len(has_entry)
    hashes = text_hash[::-1].T.reshape(-1).view(np.int32)
    if all_true(has_entry):
        records = np.repeat(counting(len(topic_index)).astype(np.int32), width)
    else:
        places = has_entry[::-1].T.reshape(-1).nonzero()[0]
        hashes = hashes[places]
        if len(split):
            piece_of, starts, lengths = split_keys_columns(
                data, found.starts[1, split], found.lengths[1, split]
            )
            owners = split[piece_of]
            pieces = hash_strings(data, starts, lengths).continued(seeds[owners])
            places = np.concatenate((places, owners * width + 1))
            order = stable_order(places, len(topic_index) * width)
            hashes, places = np.concatenate((hashes, pieces))[order], places[order]
        records = (places // width).astype(np.int32)
    # The absolute value of -2**31 has no form in 32 bits; RocketMQ takes 0.
    return np.maximum(np.abs(hashes), 0), records


def _units(headers: HeaderColumns, codes: NDArray[np.int64]) -> NDArray[np.void]:
    units = np.empty(headers.count, UNIT_DTYPE)
    units["physical_offset"] = headers.fixed["physical_offset"]
    units["size"] = headers.fixed["size"]
    units["tags_code"] = codes
    return units


def _marks(data: NDArray[np.uint8], marks: ValueColumn) -> list[tuple[int, bytes]]:
    starts, lengths = marks
    rows = lengths.nonzero()[0]
    return [
        (row, data[start : start + length].tobytes())
        for row, start, length in zip(
            rows.tolist(), starts[rows].tolist(), lengths[rows].tolist(), strict=True
        )
    ]


def _light(
    data: NDArray[np.uint8],
    headers: HeaderColumns,
    topics: Sequence[str],
    topic_index: NDArray[np.int64],
    names: ValueColumn,
) -> list[tuple[int, str, int, int]]:
    """The units in light queues. Few stores have any: a plain loop."""
    rows = names[1].nonzero()[0]
    if not len(rows):
        return []
    numbers, real_topics = find_properties(
        data,
        headers.properties_start[rows],
        headers.properties_length[rows],
        [MULTI_QUEUE_OFFSET.encode(), REAL_TOPIC.encode()],
    )
    in_queue = in_own_queue(headers.sys_flag[rows])
    return [
        (row, *queue)
        for nth, row in enumerate(rows.tolist())
        if in_queue[nth]
        for queue in light_queues(
            topics[int(topic_index[row])],
            int(headers.queue_id[row]),
            _text(data, names[0][row], names[1][row]) or "",
            _text(data, numbers[0][nth], numbers[1][nth]) or "",
            _text(data, real_topics[0][nth], real_topics[1][nth]) or "",
        )
    ]
