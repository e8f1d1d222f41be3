import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.spark.sink.sink_chunks import chunks, content_sizes

ROWS = st.lists(st.binary(max_size=30), max_size=60)


def batches(bodies: list[bytes], cuts: list[int]) -> list[pa.RecordBatch]:
    """The same rows as Spark might cut them."""
    whole = pa.record_batch({"body": pa.array(bodies, pa.binary())})
    places = sorted({0, len(bodies), *(cut % (len(bodies) + 1) for cut in cuts)})
    return [whole.slice(a, b - a) for a, b in itertools.pairwise(places)]


def as_lists(found: list[pa.RecordBatch]) -> list[list[bytes]]:
    return [chunk.column("body").to_pylist() for chunk in found]


@given(ROWS, st.lists(st.integers(0, 100)), st.integers(1, 9), st.integers(1, 80))
def test_chunks_depend_on_the_rows_alone(
    bodies: list[bytes], cuts: list[int], rows: int, size: int
) -> None:
    found = as_lists(list(chunks(batches(bodies, cuts), max_rows=rows, max_bytes=size)))
    assert [body for chunk in found for body in chunk] == bodies
    assert found == as_lists(list(chunks(batches(bodies, []), max_rows=rows, max_bytes=size)))
    for chunk in found:
        assert 1 <= len(chunk) <= rows
        assert len(chunk) == 1 or sum(map(len, chunk)) <= size


@given(ROWS, st.integers(1, 9), st.integers(1, 80))
def test_chunks_are_as_full_as_they_may_be(bodies: list[bytes], rows: int, size: int) -> None:
    found = as_lists(list(chunks(batches(bodies, []), max_rows=rows, max_bytes=size)))
    for chunk, following in itertools.pairwise(found):
        full = len(chunk) == rows or sum(map(len, chunk)) + len(following[0]) > size
        assert full


def test_a_row_above_the_limit_is_alone() -> None:
    found = as_lists(list(chunks(batches([b"a", b"b" * 99, b"c"], []), max_rows=9, max_bytes=10)))
    assert found == [[b"a"], [b"b" * 99], [b"c"]]


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()])
def test_sizes_of_text_and_bytes(kind: pa.DataType) -> None:
    batch = pa.record_batch({"body": pa.array(["a", None, "bcd"]).cast(kind)}).slice(1)
    assert content_sizes(batch).tolist() == [0, 3]


def test_sizes_of_maps_and_what_does_not_count() -> None:
    maps = pa.array(
        [[("a", "b")], None, [("cc", "d"), ("e", None)]], pa.map_(pa.string(), pa.string())
    )
    batch = pa.record_batch({"body": ["x", "y", "z"], "properties": maps, "queue_id": [1, 2, 3]})
    assert content_sizes(batch).tolist() == [3, 1, 5]
    assert content_sizes(batch.slice(2)).tolist() == [5]


def test_no_rows_are_no_chunks() -> None:
    assert list(chunks([], max_rows=1, max_bytes=1)) == []
    assert list(chunks(batches([], []), max_rows=1, max_bytes=1)) == []
