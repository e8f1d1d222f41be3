"""Tasks that write, against a cluster in memory over real sockets."""

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster
from fakes.fake_log import RefusedError
from fakes.fake_node import Fault
from fakes.live_topics import cluster_options
from tandemlog.format.record.producer_mark import parse_producer_mark
from tandemlog.spark.cluster.cluster_errors import ClusterError, RepeatMismatchError, SinkError
from tandemlog.spark.cluster.live_options import ClusterOptions, WriteOptions
from tandemlog.spark.sink.writer import LiveWriter, Written, check_topic, write_partition
from tandemlog.spark.sink.writer_name import WriterName
from tandemlog.v1 import common_pb2

NAME = WriterName("query:3", 7, 3)


@pytest.fixture
def running() -> Iterator[ThreadedCluster]:
    with running_cluster(slaves=1) as cluster:
        cluster.log.create_topic("t", 2)
        cluster.log.create_topic("u", 1)
        yield cluster


def options(running: ThreadedCluster, **changes: Any) -> WriteOptions:
    plain = WriteOptions(cluster_options(running), topic="t", batch_messages=4)
    return replace(plain, **changes)


def texts(count: int, start: int = 0) -> list[str]:
    return [f"row {number}" for number in range(start, start + count)]


def write(
    running: ThreadedCluster,
    rows: Sequence[str],
    name: WriterName = NAME,
    columns: dict[str, Any] | None = None,
    **changes: Any,
) -> Written:
    batch = pa.record_batch({"body": pa.array(rows, pa.string())} | (columns or {}))
    halves = [batch.slice(0, 3), batch.slice(3)] if len(rows) > 3 else [batch]
    return write_partition(options(running, **changes), name, iter(halves))


def stored(running: ThreadedCluster, topic: str = "t") -> list[str]:
    return [body.decode() for body in running.log.bodies(topic)]


def test_rows_are_stored_in_order_a_request_for_each_chunk(running: ThreadedCluster) -> None:
    written = write(running, texts(10))
    assert (written.rows, written.requests, written.duplicates) == (10, 3, 0)
    assert written.bytes == sum(map(len, running.log.records))
    assert stored(running) == texts(10)
    marks = [
        parse_producer_mark(record.properties["__TL_SEQ"])
        for record in running.log.decoded()
        if "__TL_SEQ" in record.properties
    ]
    assert [(m.producer_id, m.epoch, m.sequence, m.count) for m in marks] == [
        ("query:3", 7, 0, 4),
        ("query:3", 7, 1, 4),
        ("query:3", 7, 2, 2),
    ]


def test_a_task_that_runs_twice_is_stored_once(running: ThreadedCluster) -> None:
    write(running, texts(10))
    again = write(running, texts(10))
    assert (again.rows, again.requests, again.duplicates) == (10, 3, 3)
    assert stored(running) == texts(10)


def test_an_attempt_that_came_half_way_is_completed(running: ThreadedCluster) -> None:
    running.call(lambda: running.cluster.master.faults.extend([None, refused("BAD_RECORD")]))
    with pytest.raises(SinkError, match=r"partition 3, writer query:3"):
        write(running, texts(10))
    assert stored(running) == texts(4)
    assert write(running, texts(10)).duplicates == 1
    assert stored(running) == texts(10)


def refused(code: str) -> RefusedError:
    return RefusedError(common_pb2.ErrorCode.Value(code))


def test_the_next_batch_is_another_epoch(running: ThreadedCluster) -> None:
    write(running, texts(5))
    write(running, texts(5, 100), replace(NAME, epoch=8))
    assert stored(running) == texts(5) + texts(5, 100)
    with pytest.raises(SinkError, match=r"epoch|FENCED"):
        write(running, texts(6))


def test_many_chunks_more_than_a_master_remembers(running: ThreadedCluster) -> None:
    write(running, texts(300), batch_messages=2)
    again = write(running, texts(300), batch_messages=2)
    assert again.duplicates == 150
    assert stored(running) == texts(300)


@pytest.mark.parametrize(
    "fault", [Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.UNKNOWN, Fault.ANSWER_TWICE]
)
def test_a_stream_that_breaks_costs_no_row(running: ThreadedCluster, fault: Fault) -> None:
    running.call(lambda: running.cluster.master.faults.extend([None, fault]))
    write(running, texts(10))
    assert stored(running) == texts(10)


@pytest.mark.parametrize("code", ["BUSY", "NOT_MASTER", "NOT_IN_SYNC"])
def test_a_refusal_that_passes(running: ThreadedCluster, code: str) -> None:
    running.call(lambda: running.cluster.master.faults.extend([None, refused(code)]))
    write(running, texts(10))
    assert stored(running) == texts(10)


def test_another_master_knows_what_is_stored(running: ThreadedCluster) -> None:
    write(running, texts(6))
    running.call(lambda: running.cluster.promote("n1"))
    assert write(running, texts(6)).duplicates == 2
    assert stored(running) == texts(6)


def test_a_master_that_lost_requests_makes_the_task_run_again(running: ThreadedCluster) -> None:
    """A request that the new master never got: what follows must not take its number."""

    def lose() -> None:
        del running.log.producers["query:3"].answers[1]
        del running.log.records[4:], running.log.queues[("t", 0)][:]

    write(running, texts(8))
    running.call(lose)
    running.call(lambda: running.cluster.master.faults.append(Fault.ANSWER_TWICE))
    assert write(running, texts(8)).duplicates == 1
    assert [record.body.decode() for record in running.log.decoded()] == texts(8)


def test_other_rows_the_second_time_are_an_error(running: ThreadedCluster) -> None:
    write(running, texts(8))
    with pytest.raises(RepeatMismatchError, match="sent before with other records"):
        write(running, texts(8, 50))
    assert stored(running) == texts(8)


def properties_of(*rows: dict[str, str]) -> pa.Array:
    return pa.array([list(row.items()) for row in rows], pa.map_(pa.string(), pa.string()))


@pytest.mark.parametrize(
    ("column", "first", "second"),
    [
        ("body", ["a", "b", "c"], ["a", "c", "b"]),
        ("body", ["a", "b", "c"], ["a", "b", "C"]),
        ("topic", ["t", "t", "t"], ["t", "t", "u"]),
        ("topic", ["t", "t", "t"], ["u", "u", "u"]),
        ("keys", ["k", "k", "k"], ["k", "k", "l"]),
        ("keys", [None, None, None], ["k", "k", "k"]),
        ("tags", ["x", "x", None], ["x", "x", "y"]),
        ("queue_id", [0, 0, 0], [0, 0, 1]),
        ("sharding_key", ["s", "s", "s"], ["s", "s", "r"]),
        ("properties", [{}, {"p": "1"}, {}], [{}, {"p": "2"}, {}]),
    ],
)
@pytest.mark.parametrize("chunk", [1, 3])
def test_whatever_differs_the_second_time_is_an_error(
    running: ThreadedCluster, column: str, first: list[Any], second: list[Any], chunk: int
) -> None:
    def rows(values: list[Any]) -> dict[str, Any]:
        kinds = {"queue_id": pa.int32()}
        given = (
            properties_of(*values)
            if column == "properties"
            else pa.array(values, kinds.get(column, pa.string()))
        )
        return {"topic": pa.array(["t", "t", "t"])} | {column: given}

    def write_again(values: list[Any], more: int = 0) -> Written:
        batch = pa.record_batch({"body": pa.array(["1", "2", "3"])} | rows(values))
        batches = [batch, *[batch] * more]
        given = options(running, topic=None, batch_messages=chunk)
        return write_partition(given, NAME, iter(batches))

    write_again(first)
    assert write_again(first).duplicates == 3 // chunk
    before = list(running.log.records)
    # what comes behind the rows that differ must not be stored either
    with pytest.raises(RepeatMismatchError, match="other rows, to another topic"):
        write_again(second, more=2)
    assert running.log.records == before


def test_a_difference_that_the_master_has_forgotten_is_an_error(running: ThreadedCluster) -> None:
    rows = texts(300)
    write(running, rows, batch_messages=2)
    before = list(running.log.records)
    rows[7] = "another"
    with pytest.raises(RepeatMismatchError, match="other rows"):
        write(running, [*rows, *texts(50, 300)], batch_messages=2)
    assert running.log.records == before


def test_an_attempt_that_broke_off_is_not_gone_on_with_by_other_rows(
    running: ThreadedCluster,
) -> None:
    running.call(lambda: running.cluster.master.faults.extend([None, refused("BAD_RECORD")]))
    with pytest.raises(SinkError, match="partition 3"):
        write(running, texts(12))
    with pytest.raises(RepeatMismatchError):
        write(running, texts(12)[::-1])
    assert stored(running) == texts(4)
    write(running, texts(12))
    assert stored(running) == texts(12)


def test_a_topic_that_got_more_queues_meanwhile_is_no_difference(
    running: ThreadedCluster,
) -> None:
    write(running, texts(10))
    running.log.create_topic("t", 7)
    assert write(running, texts(10)).duplicates == 3


def test_no_rows_where_there_were_some_are_an_error(running: ThreadedCluster) -> None:
    assert write(running, []) == Written(0, 0, 0, 0)
    write(running, texts(3))
    with pytest.raises(RepeatMismatchError, match="1 chunks are stored and 0 were"):
        write(running, [])


def test_an_older_batch_is_refused_to_partitions_that_had_no_rows_since(
    running: ThreadedCluster,
) -> None:
    """A checkpoint that was restored, with more partitions than before."""
    write(running, texts(5), WriterName("query:0", 8, 0))
    with pytest.raises(SinkError, match=r"batch 7 is to be written, and batch 8 was written"):
        write(running, texts(5), NAME)
    assert stored(running) == texts(5)


def test_fewer_rows_the_second_time_are_an_error(running: ThreadedCluster) -> None:
    write(running, texts(12))
    with pytest.raises(RepeatMismatchError, match="3 chunks are stored and 2 were to be written"):
        write(running, texts(8))


def test_chunks_of_another_size_the_second_time_are_an_error(running: ThreadedCluster) -> None:
    write(running, texts(8))
    with pytest.raises(RepeatMismatchError, match="batchMessages"):
        write(running, texts(8), batch_messages=5)


def test_larger_chunks_than_what_is_remembered_are_an_error_too(running: ThreadedCluster) -> None:
    write(running, texts(200), batch_messages=2)
    with pytest.raises(RepeatMismatchError, match="100 chunks are stored and 1"):
        write(running, texts(200), batch_messages=500)


def test_at_least_once_repeats(running: ThreadedCluster) -> None:
    for _ in range(2):
        write(running, texts(5), WriterName(None, 0, 3))
    assert stored(running) == texts(5) * 2


def test_topics_queues_and_properties_of_columns(running: ThreadedCluster) -> None:
    columns = {
        "topic": ["t", "u", "t"],
        "queue_id": pa.array([1, None, 0], pa.int32()),
        "tags": ["a", None, "b"],
        "keys": ["k1 k2", None, None],
        "properties": pa.array(
            [[("p", "1"), ("KEYS", "theirs")], None, []], pa.map_(pa.string(), pa.string())
        ),
    }
    write(running, texts(3), columns=columns, topic=None)
    one, two, three = running.log.decoded()
    assert [(r.topic, r.queue_id, r.tags, r.keys) for r in (one, two, three)] == [
        ("t", 1, "a", "k1 k2"),
        ("u", 0, None, None),
        ("t", 0, "b", None),
    ]
    assert one.properties["p"] == "1"
    assert len({record.uniq_key for record in (one, two, three)}) == 3


def test_a_topic_that_is_not_there(running: ThreadedCluster) -> None:
    with pytest.raises(ClusterError, match="looking at topic nope"):
        write(running, texts(1), topic="nope")


def test_a_body_above_the_limit(running: ThreadedCluster) -> None:
    with pytest.raises(SinkError, match="partition 3, row 1: the body has 2000000 bytes"):
        write(running, ["a", "b" * 2_000_000])


def test_a_request_above_the_limit(running: ThreadedCluster) -> None:
    rows = ["x" * 900_000] * 5
    with pytest.raises(SinkError, match="make batchBytes or batchMessages smaller"):
        write(running, rows, batch_messages=5, batch_bytes=8 << 20)


def test_properties_without_room_for_the_mark(running: ThreadedCluster) -> None:
    with pytest.raises(SinkError, match="row 0: keys, tags and properties"):
        write(running, ["x"], columns={"keys": ["k" * 32_700]})


def test_silence_ends_a_task_after_a_while(running: ThreadedCluster) -> None:
    running.call(lambda: running.cluster.master.faults.extend([Fault.SILENCE] * 9))
    with pytest.raises(SinkError, match="sendTimeoutMs"):
        write(running, texts(2), send_timeout_ms=300)


def test_no_rows_need_no_cluster() -> None:
    nowhere = WriteOptions(ClusterOptions(("127.0.0.1:1",)))
    nobody = WriterName(None, 0, 3)
    assert write_partition(nowhere, nobody, iter([])) == Written(0, 0, 0, 0)


def test_the_driver_looks_at_the_topic_first(running: ThreadedCluster) -> None:
    running.log.create_topic("readonly", 2, perm=4)
    check_topic(options(running))
    check_topic(options(running, topic=None))
    with pytest.raises(ClusterError, match="looking at topic nope"):
        check_topic(options(running, topic="nope"))
    with pytest.raises(ClusterError, match="takes no messages"):
        check_topic(options(running, topic="readonly"))
    with pytest.raises(ClusterError, match="connection refused"):
        check_topic(WriteOptions(ClusterOptions(("127.0.0.1:1",), retry_timeout_ms=100)))


def invoke_udf(work: Callable[[], Any], behind_the_rows: bytes) -> Any:
    """Named as the function of Spark's worker whose frame holds the input."""
    input_data_stream = io.BufferedReader(io.BytesIO(behind_the_rows))
    assert input_data_stream.readable()
    return work()


def test_a_job_that_writes_again(running: ThreadedCluster) -> None:
    writer = LiveWriter(options(running, idempotency_id="nightly"))
    for _ in range(2):
        rows = iter([pa.record_batch({"body": ["a"]})])
        message = invoke_udf(partial(writer.write, rows), b"mark")
        writer.commit([message])
        writer.abort([message, None])
    assert stored(running) == ["a"]


def test_the_last_rows_of_a_cut_input_are_not_sent(running: ThreadedCluster) -> None:
    writer = LiveWriter(options(running))
    rows = [pa.record_batch({"body": texts(6)})]
    with pytest.raises(SinkError, match="stopped coming"):
        invoke_udf(lambda: writer.write(iter(rows)), b"")
    # The full chunk may have gone out, the begun one must not.
    assert "row 4" not in stored(running)
    invoke_udf(lambda: writer.write(iter([*rows, pa.record_batch({"body": texts(2, 6)})])), b"mark")
    assert stored(running) == texts(8)
