import pytest

from tandemlog.format.record.producer_mark import producer_id_fault
from tandemlog.spark.cluster.cluster_errors import SinkError
from tandemlog.spark.sink.writer_name import (
    BATCH_ID,
    QUERY_ID,
    WriterName,
    batch_writer_name,
    local_property_of_task,
    partition_of_task,
    stream_writer_name,
)

QUERY = "0e313a5c-f83e-49c2-a2e3-804e6448bbf5"


def test_a_stream_is_named_by_query_and_partition_and_numbered_by_batch() -> None:
    name = stream_writer_name({QUERY_ID: QUERY, BATCH_ID: "12"}.get, 99_999)
    assert name == WriterName(f"{QUERY}:99999", 12, 99_999)
    assert name.producer_id is not None
    assert producer_id_fault(name.producer_id) is None


@pytest.mark.parametrize("told", [{}, {QUERY_ID: QUERY}, {QUERY_ID: QUERY, BATCH_ID: "x"}])
def test_a_stream_that_cannot_be_named_is_not_written_silently(told: dict[str, str]) -> None:
    with pytest.raises(SinkError, match="at_least_once"):
        stream_writer_name(told.get, 0)


def test_a_job_is_named_by_its_id() -> None:
    assert batch_writer_name("nightly", 7, 4) == WriterName("nightly:4", 7, 4)


def test_outside_of_a_task_there_is_no_query() -> None:
    assert partition_of_task() == 0
    assert local_property_of_task()(QUERY_ID) is None
