"""Dispatch by columns equals dispatch by the plain decoder, record by record."""

from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fakes.plain_format import encode_unit
from helpers.record_strategies import LogPiece, log_of, log_pieces
from tandemlog.format.columns.dispatch import (
    DispatchColumns,
    dispatch_columns,
    group_by_queue,
    unit_columns,
)
from tandemlog.format.columns.faults import walk_strict
from tandemlog.format.columns.light_queues import light_queues
from tandemlog.format.constants import (
    DELAY,
    MULTI_DISPATCH,
    MULTI_QUEUE_OFFSET,
    PRODUCER_MARK,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
)
from tandemlog.format.errors import CorruptRecordError
from tandemlog.format.files.index_layout import key_hash, tag_key
from tandemlog.format.files.queue_unit import DEFAULT_LEVELS, DelayLevels, tags_code
from tandemlog.format.java_hash import java_hash
from tandemlog.format.record.properties import split_keys
from tandemlog.format.record.record import Record
from tandemlog.format.record.sys_flag import INNER_BATCH, transaction_type

NONE, PREPARED, COMMIT, ROLLBACK = 0, 4, 8, 12


def index_texts(record: Record, *, tags: bool) -> list[str]:
    """The keys a record is found by, in RocketMQ's order."""
    if transaction_type(record.sys_flag) == ROLLBACK:
        return []
    texts = [record.uniq_key] if record.uniq_key else []
    texts += split_keys(record.keys or "")
    return texts + ([tag_key(record.tags)] if tags and record.tags else [])


def code_of(record: Record, levels: DelayLevels = DEFAULT_LEVELS) -> int:
    delay = record.properties.get(DELAY)
    return tags_code(record.topic, record.tags, delay, record.store_timestamp, levels)


def check(log: LogPiece, *, index_tags: bool = True) -> DispatchColumns:
    columns = dispatch_columns(
        log.buffer, log.positions, log.sizes, log.base_offset, index_tags=index_tags
    )
    records = log.records()
    assert [columns.topics[each] for each in columns.topic_index] == [
        record.topic for record in records
    ]
    assert list(columns.topics) == list(dict.fromkeys(record.topic for record in records))
    for name in ("queue_id", "queue_offset", "physical_offset", "size", "store_timestamp"):
        assert getattr(columns, name).tolist() == [getattr(each, name) for each in records], name
    types = [transaction_type(record.sys_flag) for record in records]
    assert columns.transaction_type.tolist() == types
    assert columns.dispatch_mask.tolist() == [
        each in (NONE, COMMIT) and not record.sys_flag & INNER_BATCH
        for each, record in zip(types, records, strict=True)
    ]
    assert columns.light == [
        (row, *queue)
        for row, record in enumerate(records)
        if columns.dispatch_mask[row]
        for queue in light_queues(
            record.topic,
            record.queue_id,
            record.properties.get(MULTI_DISPATCH, ""),
            record.properties.get(MULTI_QUEUE_OFFSET, ""),
            record.properties.get(REAL_TOPIC, ""),
        )
    ]
    assert columns.tags_code.tolist() == [code_of(record) for record in records]
    assert columns.units.tobytes() == b"".join(
        encode_unit(record.physical_offset, record.size, code_of(record)) for record in records
    )
    entries = list(zip(columns.entry_record.tolist(), columns.key_hash.tolist(), strict=True))
    assert entries == [
        (row, key_hash(record.topic, text))
        for row, record in enumerate(records)
        for text in index_texts(record, tags=index_tags)
    ]
    assert [(row, mark.decode("utf-8", "replace")) for row, mark in columns.producer_marks] == [
        (row, record.properties[PRODUCER_MARK])
        for row, record in enumerate(records)
        if PRODUCER_MARK in record.properties
    ]
    return columns


@settings(max_examples=300)
@given(log_pieces(), st.booleans())
@example(log_of([]), True)
def test_equal_to_the_plain_decoder(log: LogPiece, index_tags: bool) -> None:
    columns = check(log, index_tags=index_tags)
    check_groups(columns)


def check_groups(columns: DispatchColumns) -> None:
    expected: dict[tuple[str, int], list[tuple[int, bytes]]] = defaultdict(list)
    for row in range(columns.count):
        number, unit = int(columns.queue_offset[row]), columns.units[row].tobytes()
        topic, queue_id = columns.topics[columns.topic_index[row]], int(columns.queue_id[row])
        if columns.dispatch_mask[row]:
            expected[topic, queue_id].append((number, unit))
        for record, name, light_id, light_number in columns.light:
            if record == row:
                expected[name, light_id].append((light_number, unit))
    found = unit_columns(columns)
    groups = group_by_queue(found)
    bounds = groups.bounds.tolist()
    assert groups.count == len(expected)
    for number, (queue, wanted) in enumerate(expected.items()):
        topic = found.topics[groups.topic_index[number]]
        assert (topic, int(groups.queue_id[number])) == queue
        rows = groups.order[bounds[number] : bounds[number + 1]]
        offsets, units = found.queue_offset[rows].tolist(), found.units[rows]
        assert list(zip(offsets, (each.tobytes() for each in units), strict=True)) == wanted


def test_many_records_alike() -> None:
    log = log_of(
        [
            {
                "topic": f"topic-{row % 7}",
                "body": b"x" * 100,
                "properties": {
                    "UNIQ_KEY": f"{row:032X}",
                    "KEYS": f"order-{row}",
                    "TAGS": f"Tag{row % 3}",
                },
                "queue_id": row % 4,
                "queue_offset": row,
            }
            for row in range(3_000)
        ]
    )
    columns = check(log)
    check_groups(columns)
    assert len(columns.key_hash) == 9_000


@pytest.mark.parametrize(
    "odd",
    [
        {"KEYS": "k 12", "TAGS": "a", "UNIQ_KEY": "u"},
        {"KEYS": "k012", "TAGS": " ", "UNIQ_KEY": "u"},
        {"KEYS": "k012", "TAGS": "a", "UNIQ_KEY": "u", "X": "a b"},
        {"KEYS": "k\N{LATIN SMALL LETTER E WITH ACUTE}1", "TAGS": "a", "UNIQ_KEY": "u"},
        {"TAGS": "k012", "KEYS": "a", "UNIQ_KEY": "u"},
        {"KEYS": "k0012345", "TAGS": "a"},
        {"UNIQ_KEY": "u"},
        {},
    ],
)
def test_an_odd_one_among_many_alike(odd: dict[str, str]) -> None:
    properties = [{"KEYS": f"k{n:03}", "TAGS": "b", "UNIQ_KEY": "v"} for n in range(100)]
    alike: list[dict[str, Any]] = [
        {"topic": "Topic", "body": b"b", "properties": each} for each in properties
    ]
    different = {"topic": "Topic", "body": b"b", "properties": odd}
    check(log_of([*alike[:40], different, *alike[40:]]))
    check(log_of([different, *alike]))
    check(log_of([different] * 40 + alike))
    for record, state in zip(alike[30:50], [ROLLBACK, PREPARED] * 10, strict=True):
        record["sys_flag"] = state
    check(log_of([*alike[:40], different, *alike[40:]]))


def test_several_keys_with_double_spaces() -> None:
    texts = ["k1  k2 ", " ", "one", "  x", "a b c", ""]
    properties = [{"KEYS": text, "TAGS": "t", "UNIQ_KEY": "u"} for text in texts]
    check(log_of([{"topic": "T", "body": b"b", "properties": each} for each in properties]))


@pytest.mark.parametrize("levels", [DelayLevels("1s 5s"), DelayLevels(""), DEFAULT_LEVELS])
def test_delivery_times_in_the_schedule_topic(levels: DelayLevels) -> None:
    log = log_of(
        [
            {
                "topic": topic,
                "body": b"b",
                "properties": b"TAGS\x01t\x02DELAY\x01" + delay,
                "store_timestamp": 1_700_000_000_000,
            }
            for topic in (SCHEDULE_TOPIC, "T")
            for delay in (b"1", b"2", b"3", b"99", b"0", b"-4", b"+2", b"x", b"99999999999", b"")
        ]
    )
    columns = dispatch_columns(log.buffer, log.positions, log.sizes, 0, delay_levels=levels)
    assert columns.tags_code.tolist() == [code_of(record, levels) for record in log.records()]


def test_transaction_types() -> None:
    log = log_of(
        [
            {"topic": "T", "body": b"b", "sys_flag": flag, "properties": {"KEYS": "k"}}
            for flag in (NONE, PREPARED, COMMIT, ROLLBACK, COMMIT | 1)
        ]
    )
    columns = check(log)
    assert columns.dispatch_mask.tolist() == [True, False, True, False, True]
    assert columns.entry_record.tolist() == [0, 1, 2, 4]


def test_a_key_hash_without_an_absolute_value_is_zero() -> None:
    key = "(8'+,4+"
    assert java_hash(f"T#{key}") == -(2**31)
    columns = check(log_of([{"topic": "T", "body": b"b", "properties": {"UNIQ_KEY": key}}]))
    assert columns.key_hash.tolist() == [0]


def test_without_an_index() -> None:
    log = log_of([{"topic": "T", "body": b"b", "properties": {"KEYS": "k", "TAGS": "t"}}])
    columns = dispatch_columns(log.buffer, log.positions, log.sizes, 0, index=False)
    assert len(columns.key_hash) == len(columns.entry_record) == 0
    assert columns.tags_code.tolist() == [code_of(record) for record in log.records()]


def test_headers_of_a_walk_are_taken_as_they_are() -> None:
    log = log_of([{"topic": "T", "body": b"b", "properties": {"KEYS": "k"}}] * 5, 1 << 30)
    found, headers = walk_strict(log.buffer, base_offset=log.base_offset)
    columns = dispatch_columns(
        log.buffer, found.positions, found.sizes, log.base_offset, headers=headers
    )
    assert columns.units.tobytes() == check(log).units.tobytes()


def test_a_wrong_record_is_refused_by_its_offset() -> None:
    log = log_of([{"topic": "T", "body": b"b"}] * 3, 1 << 30)
    buffer = bytearray(log.buffer)
    buffer[int(log.positions[1]) + 35] ^= 1
    with pytest.raises(CorruptRecordError, match="physical_offset") as raised:
        dispatch_columns(buffer, log.positions, log.sizes, 1 << 30)
    assert raised.value.offset == (1 << 30) + int(log.positions[1])


@pytest.mark.parametrize("name", ["topic", "töpic", "top\0ic"])
def test_many_topics(name: str) -> None:
    """They are read as one text where that says the same."""
    check(log_of([{"topic": f"{name}-{row % 70}", "body": b"b"} for row in range(150)]))


@pytest.mark.parametrize("several", [0, 1, 30, 400])
def test_records_with_one_key_and_with_several(several: int) -> None:
    keys = [f"k{row}" if row >= several else f"k{row} l  m{row} " for row in range(400)]
    properties = [{"UNIQ_KEY": f"u{row}", "KEYS": each} for row, each in enumerate(keys)]
    log = log_of([{"topic": "T", "body": b"b", "properties": each} for each in properties])
    check(log)
    for row, each in enumerate(properties):
        each |= {"TAGS": f"t{row % 3}"} if row % 5 else {"name": "with a space"}
    check(log_of([{"topic": "T", "body": b"b", "properties": each} for each in properties]))


def test_topics_that_are_not_utf_8_and_read_the_same() -> None:
    log = log_of([{"topic": name, "body": b"b"} for name in ("ab", "cd", "ab")])
    buffer = bytearray(
        log.buffer.replace(b"\x02ab", b"\x02\xff\xfe").replace(b"\x02cd", b"\x02\xfe\xff")
    )
    columns = dispatch_columns(buffer, log.positions, log.sizes, 0)
    assert columns.topics == ("\ufffd\ufffd",)
    assert columns.topic_index.tolist() == [0, 0, 0]


def test_no_record() -> None:
    nothing = np.empty(0, np.int64)
    columns = dispatch_columns(b"", nothing, nothing, 0)
    assert (columns.count, columns.topics, columns.producer_marks) == (0, (), [])
    assert group_by_queue(unit_columns(columns)).bounds.tolist() == [0]


def test_light_queues_get_units_in_log_order() -> None:
    def record(number: int, names: str, numbers: str, sys_flag: int = 0) -> dict[str, Any]:
        properties = {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": numbers}
        return {
            "topic": "T",
            "body": b"b",
            "properties": properties,
            "queue_id": 3,
            "queue_offset": number,
            "sys_flag": sys_flag,
        }

    log = log_of(
        [
            record(0, "%LMQ%a,%LMQ%b", "5,8"),
            {"topic": "%LMQ%b", "body": b"b", "queue_offset": 9},
            record(1, "%LMQ%b", "10", ROLLBACK),
            record(1, "%LMQ%b,other", "10,2"),
        ]
    )
    columns = check(log)
    check_groups(columns)
    found = unit_columns(columns)
    assert [
        (found.topics[topic], queue_id, number, row)
        for topic, queue_id, number, row in zip(
            found.topic_index.tolist(),
            found.queue_id.tolist(),
            found.queue_offset.tolist(),
            np.searchsorted(log.positions, found.units["physical_offset"]).tolist(),
            strict=True,
        )
    ] == [
        ("T", 3, 0, 0),
        ("%LMQ%a", 0, 5, 0),
        ("%LMQ%b", 0, 8, 0),
        ("%LMQ%b", 0, 9, 1),
        ("T", 3, 1, 3),
        ("%LMQ%b", 0, 10, 3),
        ("other", 3, 2, 3),
    ]
    assert found.units.dtype == columns.units.dtype


def test_an_inner_batch_is_in_no_queue_but_in_the_index() -> None:
    properties = {"KEYS": "k", "INNER_NUM": "3", "INNER_BASE": "7"}
    batch = {"topic": "T", "body": b"b", "properties": properties, "sys_flag": 0xC0}
    columns = check(log_of([batch]))
    assert unit_columns(columns).units.tolist() == []
    assert columns.key_hash.tolist() == [key_hash("T", "k")]
