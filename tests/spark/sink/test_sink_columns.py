from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.arrays.byte_column import ByteColumn
from tandemlog.format.java_hash import java_hash
from tandemlog.format.record.properties import decode_properties, encode_properties
from tandemlog.spark.cluster.cluster_errors import SinkError
from tandemlog.spark.sink.sink_columns import Rows, rows_of

STRING_MAP = pa.map_(pa.string(), pa.string())
QUEUES = {"a": 4, "b": 3}


def rows(topic: str | None = "a", turn: int = 0, **columns: Any) -> Rows:
    chunk = pa.record_batch(columns)
    return rows_of(chunk, topic, QUEUES.__getitem__, turn)


def values(column: ByteColumn | None) -> list[bytes | None]:
    assert column is not None
    return [
        column.data[begin:end].tobytes()
        for begin, end in zip(
            column.offsets[:-1].tolist(), column.offsets[1:].tolist(), strict=True
        )
    ]


def places(found: Rows) -> list[tuple[str, int]]:
    return [
        (found.topics[int(found.queue_topics[entry])], int(found.queue_ids[entry]))
        for entry in found.entries.tolist()
    ]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()])
def test_bodies_of_every_kind(kind: pa.DataType) -> None:
    found = rows(body=pa.array([b"x", b"", b"yz"]).cast(kind))
    assert values(found.bodies) == [b"x", b"", b"yz"]
    assert (found.tags, found.keys, found.properties) == (None, None, None)


def test_rows_that_do_not_choose_go_where_it_is_the_chunks_turn() -> None:
    assert places(rows(body=["x", "y"], turn=6)) == [("a", 2), ("a", 2)]


def test_rows_that_choose() -> None:
    found = rows(
        body=["1", "2", "3", "4"],
        queue_id=pa.array([3, None, None, 0], pa.int32()),
        sharding_key=["k", "k", None, None],
        turn=1,
    )
    assert places(found) == [("a", 3), ("a", abs(java_hash("k")) % 4), ("a", 1), ("a", 0)]


def test_topics_of_a_column_have_queues_of_their_own() -> None:
    chunk = pa.record_batch({"body": ["1", "2", "3"], "topic": ["b", "a", "b"]})
    found = rows_of(chunk, None, QUEUES.__getitem__, 3)
    assert found.topics == ("b", "a")
    assert places(found) == [("b", 0), ("a", 3), ("b", 0)]
    assert places(rows_of(chunk, "a", QUEUES.__getitem__, 0)) == [("a", 0)] * 3


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"body": ["x", None]}, "row 1 of its chunk: the body is null"),
        ({"body": ["x"], "queue_id": [4]}, r"queue_id 4, but topic 'a' has the queues 0\.\.3"),
        ({"body": ["x"], "queue_id": [-1]}, "queue_id -1"),
    ],
)
def test_rows_that_are_no_messages(columns: dict[str, Any], words: str) -> None:
    with pytest.raises(SinkError, match=words):
        rows(**columns)


def test_a_row_without_a_topic() -> None:
    chunk = pa.record_batch({"body": ["1", "2"], "topic": ["a", None]})
    with pytest.raises(SinkError, match="row 1 of its chunk: the topic is null"):
        rows_of(chunk, None, QUEUES.__getitem__, 0)


NAMES = st.text(st.characters(exclude_characters="\x01\x02", codec="utf-8"), min_size=1, max_size=6)
VALUES = st.none() | st.text(
    st.characters(exclude_characters="\x02", codec="utf-8"), min_size=1, max_size=6
)
MAPS = st.lists(st.none() | st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=8)


@given(MAPS, st.integers(0, 3))
def test_properties_are_encoded_as_one_by_one(
    maps: list[dict[str, str | None] | None], skipped: int
) -> None:
    given_maps = pa.array(
        [None if each is None else list(each.items()) for each in maps], STRING_MAP
    )
    skipped = min(skipped, len(maps) - 1)
    chunk = pa.record_batch({"body": ["x"] * len(maps), "properties": given_maps}).slice(skipped)
    found = rows_of(chunk, "a", QUEUES.__getitem__, 0)
    expected = [
        encode_properties({name: value for name, value in (each or {}).items() if value})
        for each in maps[skipped:]
    ]
    if found.properties is None:
        assert set(expected) == {b""}
    else:
        assert values(found.properties) == expected


def test_what_the_store_keeps_for_itself_is_left_out() -> None:
    kept = {"mine": "1", "KEYS": "k", "__TL_SEQ": "p,1,2,0,3", "__RMQ.TRANSIENT.x": "y"}
    found = rows(body=["x"], properties=pa.array([list(kept.items())], STRING_MAP))
    assert [decode_properties(each or b"") for each in values(found.properties)] == [{"mine": "1"}]


def test_a_property_that_is_null_is_none() -> None:
    pairs = [("mine", "1"), ("theirs", None), ("KEYS", "")]
    found = rows(body=["x"], properties=pa.array([pairs], STRING_MAP))
    assert [decode_properties(each or b"") for each in values(found.properties)] == [{"mine": "1"}]


def test_a_sharding_key_is_a_property_too() -> None:
    found = rows(
        body=["x", "y", "z"],
        sharding_key=["k", None, ""],
        properties=pa.array([[("p", "1")], [("q", "2")], None], STRING_MAP),
    )
    assert [decode_properties(each or b"") for each in values(found.properties)] == [
        {"p": "1", "__SHARDINGKEY": "k"},
        {"q": "2"},
        {},
    ]


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([("", "x")], "row 1 of its chunk: a property has an empty name"),
        ([("a\x01b", "x")], "row 1 .* the character 0x01"),
        ([("ok", "y"), ("a", "x\x02y")], "row 1 of its chunk: a property holds the character 0x02"),
        ([("a\x02", "x")], "0x02"),
        ([("ok", "y"), ("a", "")], "row 1 of its chunk: property 'a' has an empty value"),
    ],
)
def test_properties_that_cannot_be_stored(pairs: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(SinkError, match=words):
        rows(body=["x", "y"], properties=pa.array([[("fine", "1")], pairs], STRING_MAP))
