import numpy as np
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
            "t", columns, Route("t", queues, 0), lambda: next(generation), max_bytes
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
