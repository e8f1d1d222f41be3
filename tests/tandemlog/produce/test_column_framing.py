from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog import errors
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.record.sys_flag import decompress_body
from tandemlog.produce.column_framing import ColumnFramer, Columns, FramedColumns, cuts
from tandemlog.produce.framing import Framer
from tandemlog.produce.routes import Route, shard


def framed(
    columns: Columns,
    framer: Framer | None = None,
    properties: dict[str, str] | None = None,
    max_bytes: int = 1 << 20,
    queues: int = 4,
) -> list[FramedColumns]:
    generation = iter(range(1000))
    return list(
        ColumnFramer(framer or Framer(), properties or {}).frame(
            columns, [Route("t", queues, 0)], lambda: next(generation), max_bytes
        )
    )


def records(parts: list[FramedColumns]) -> list[Record]:
    found = []
    for part in parts:
        buffer = bytes(part.batch.records)
        position = 0
        for size in part.batch.sizes.tolist():
            found.append(decode_record(buffer, position, limit=position + size))
            position += size
        assert position == len(buffer)
    return found


@given(
    st.lists(
        st.tuples(st.binary(max_size=60), st.sampled_from([None, "", "k", "key key2", "ä"])),
        min_size=1,
        max_size=50,
    ),
    st.integers(200, 2000),
)
def test_columns_become_the_records_of_the_messages(
    rows: list[tuple[bytes, str | None]], max_bytes: int
) -> None:
    bodies = [body for body, _ in rows]
    keys = [key for _, key in rows]
    queues = [index % 3 for index in range(len(rows))]
    parts = framed(
        Columns.of(bodies, keys, "tag", queues, None), properties={"u": "v"}, max_bytes=max_bytes
    )
    assert all(part.count == 1 or len(part.batch.records) <= max_bytes for part in parts)
    found = records(parts)
    assert [record.body for record in found] == bodies
    assert [record.keys for record in found] == [key or None for key in keys]
    assert [record.queue_id for record in found] == queues
    assert {(record.tags, record.properties["u"]) for record in found} == {("tag", "v")}
    assert len({record.uniq_key for record in found}) == len(rows)


def test_each_request_has_a_queue_of_its_own_without_a_column() -> None:
    parts = framed(Columns.of([b"x" * 100] * 10, None, None, None, None), max_bytes=600)
    queues = [sorted({record.queue_id for record in records([part])}) for part in parts]
    assert len(parts) > 2
    assert all(len(each) == 1 for each in queues)
    assert queues[:3] == [[1], [2], [3]]


def test_one_queue_for_all() -> None:
    found = records(framed(Columns.of([b"a", b"b"], None, None, 2, None)))
    assert {record.queue_id for record in found} == {2}


def test_sharding_keys_choose_as_single_sends_do() -> None:
    keys = ["a", "order-17", "ä", "polygenelubricants"]
    found = records(framed(Columns.of([b""] * 4, None, None, None, keys), queues=7))
    assert [record.queue_id for record in found] == [shard(key, 7) for key in keys]
    assert [record.properties["__SHARDINGKEY"] for record in found] == keys


def test_large_bodies_are_compressed() -> None:
    bodies = [b"abc" * 100, b"x", bytes(range(256))]
    found = records(framed(Columns.of(bodies, None, None, 0, None), Framer(compress_above=100)))
    assert [decompress_body(record.sys_flag, record.body) for record in found] == bodies
    assert [bool(record.sys_flag & 1) for record in found] == [True, False, False]


def test_no_messages_are_no_requests() -> None:
    assert framed(Columns.of([], None, None, None, None)) == []


def test_columns_that_do_not_fit_are_named() -> None:
    with pytest.raises(errors.InvalidArgumentError, match="keys has 1 rows, body has 2"):
        Columns.of([b"a", b"b"], ["k"], None, None, None)
    with pytest.raises(errors.InvalidArgumentError, match="queue has 1 rows"):
        Columns.of([b"a", b"b"], None, None, [0], None)
    with pytest.raises(errors.InvalidArgumentError, match="body"):
        Columns.of([b"a", None], None, None, None, None)


def test_the_message_that_is_wrong_is_named() -> None:
    with pytest.raises(errors.MessageTooLargeError) as body:
        framed(Columns.of([b"a", b"bb"], None, None, None, None), Framer(max_body=1))
    assert (body.value.record_index, body.value.limit, body.value.actual) == (1, 1, 2)
    with pytest.raises(errors.UnknownQueueError) as queue:
        framed(Columns.of([b"a", b"b"], None, None, [0, 4], None))
    assert (queue.value.record_index, queue.value.actual) == (1, 4)
    with pytest.raises(errors.PropertiesTooLargeError) as properties:
        framed(Columns.of([b"a", b"b"], ["", "x" * 33_000], None, None, None))
    assert properties.value.record_index == 1
    with pytest.raises(errors.InvalidMessageError, match="0x02"):
        framed(Columns.of([b"a"], ["x\x02y"], None, None, None))
    with pytest.raises(errors.InvalidMessageError, match="empty"):
        framed(Columns.of([b"a"], None, None, None, None), properties={"a": ""})
    with pytest.raises(errors.InvalidMessageError, match="sharding_key"):
        framed(Columns.of([b"a"], None, None, None, [""]))


@given(st.lists(st.integers(1, 50), max_size=40), st.integers(1, 120), st.integers(1, 7))
def test_cuts_are_full_and_never_too_large(sizes: list[int], limit: int, count: int) -> None:
    ranges = list(cuts(np.array(sizes, np.int64), limit, count))
    assert [row for start, stop in ranges for row in range(start, stop)] == list(range(len(sizes)))
    for start, stop in ranges:
        assert stop - start <= count
        assert sum(sizes[start:stop]) <= limit or stop - start == 1
        if stop < len(sizes) and stop - start < count:
            assert sum(sizes[start : stop + 1]) > limit


ROUTES = [Route("a", 4, 0), Route("bb", 2, 0)]


@pytest.mark.parametrize(
    "topics",
    [
        ["bb", "a", "bb", "a", "a"],
        np.array(["bb", "a", "bb", "a", "a"]),
        pa.array(["bb", "a", "bb", "a", "a"]),
        pa.chunked_array([["bb", "a"], ["bb", "a", "a"]]),
        pa.array(["bb", "a", "bb", "a", "a"]).dictionary_encode(),
    ],
)
def test_each_row_goes_to_its_topic(topics: Any) -> None:
    columns = Columns.of(
        [b"%d" % row for row in range(5)], None, None, [1, 3, 0, 1, 2], None, topics
    )
    assert columns.topics is not None
    routes = [
        next(route for route in ROUTES if route.topic == name) for name in columns.topics.names
    ]
    parts = list(ColumnFramer(Framer(), {}).frame(columns, routes, lambda: 1, 250))
    assert len(parts) > 1
    found = records(parts)
    assert [(each.topic, each.queue_id) for each in found] == [
        ("bb", 1), ("a", 3), ("bb", 0), ("a", 1), ("a", 2)
    ]  # fmt: skip
    assert [each.body for each in found] == [b"0", b"1", b"2", b"3", b"4"]
    for part in parts:
        batch = part.batch
        chosen = batch.queue_indexes.tolist()
        assert set(chosen) == set(range(len(batch.queue_ids))), "no entry without a record"
        assert {batch.topics[topic] for topic in batch.queue_topics} == set(batch.topics)


def test_a_queue_is_held_against_the_topic_of_its_row() -> None:
    columns = Columns.of([b"1", b"2", b"3"], None, None, [3, 1, 3], None, ["a", "bb", "bb"])
    with pytest.raises(errors.UnknownQueueError, match="'bb' has the queues") as caught:
        list(ColumnFramer(Framer(), {}).frame(columns, ROUTES, lambda: 1, 1 << 20))
    assert caught.value.record_index == 2


def test_queues_of_several_topics_are_chosen_by_key_or_for_a_request() -> None:
    topics = ["a", "bb", "a", "bb"]
    by_key = Columns.of([b""] * 4, None, None, None, ["k", "k", "l", "l"], topics)
    found = records(list(ColumnFramer(Framer(), {}).frame(by_key, ROUTES, lambda: 1, 1 << 20)))
    assert [each.queue_id for each in found] == [
        shard("k", 4), shard("k", 2), shard("l", 4), shard("l", 2)
    ]  # fmt: skip
    free = Columns.of([b""] * 4, None, None, None, None, topics)
    found = records(list(ColumnFramer(Framer(), {}).frame(free, ROUTES, lambda: 1, 1 << 20)))
    assert [each.topic for each in found] == topics
    assert len({(each.topic, each.queue_id) for each in found}) == 2


@pytest.mark.parametrize("topics", ["a", [1, 2], pa.array(["a", None]), ["a"]])
def test_a_column_that_is_none_of_topics_is_refused(topics: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="topics"):
        Columns.of([b"", b""], None, None, None, None, topics)
