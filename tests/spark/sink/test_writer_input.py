"""A cut input is told from a complete one."""

import io
import os
from collections.abc import Iterator

import pytest

from tandemlog.spark.cluster.cluster_errors import SinkError
from tandemlog.spark.sink.writer import complete, input_of_task


@pytest.fixture
def pipe() -> Iterator[tuple[io.BufferedReader, io.FileIO]]:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream, os.fdopen(writing, "wb", 0) as end:
        yield stream, end


def test_the_mark_behind_the_rows(pipe: tuple[io.BufferedReader, io.FileIO]) -> None:
    stream, end = pipe
    end.write(b"\xff\xff\xff\xfc")
    assert list(complete(iter([1, 2]), lambda: stream)) == [1, 2]
    assert stream.peek(4)[:4] == b"\xff\xff\xff\xfc"


def test_rows_that_stop_coming_have_no_end(pipe: tuple[io.BufferedReader, io.FileIO]) -> None:
    stream, end = pipe
    end.close()
    rows = complete(iter([1, 2]), lambda: stream)
    assert [next(rows), next(rows)] == [1, 2]
    with pytest.raises(SinkError, match="stopped coming"):
        next(rows)


def test_without_spark_there_is_no_end_to_see() -> None:
    assert input_of_task() is None
    with pytest.raises(SinkError, match="at_least_once"):
        list(complete(iter([1]), input_of_task))
