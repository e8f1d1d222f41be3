"""Tasks that read, against a cluster in memory over real sockets."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fakes.fake_cluster import ThreadedCluster, running_cluster
from fakes.live_topics import cluster_options, produce
from tandemlog import Producer, ProducerOptions
from tandemlog.cluster.topology import ReadFrom
from tandemlog.consume.reading.span_progress import QueueSpan
from tandemlog.consume.received.received_batch import ReceivedBatch
from tandemlog.errors import BadRecordError
from tandemlog.format.record.record import encode_record
from tandemlog.format.record.sys_flag import ZLIB, with_compression
from tandemlog.logs.view_columns import Columns, arrow_schema
from tandemlog.spark.cluster.cluster_errors import ClusterError, DataLossError
from tandemlog.spark.cluster.live_cluster import Cluster
from tandemlog.spark.cluster.live_options import ClusterOptions, ReadOptions, Selection
from tandemlog.spark.cluster.resolve_offsets import NOTHING
from tandemlog.spark.live.live_schema import LIVE
from tandemlog.spark.live.partition_read import decode, read_spans
from tandemlog.sync.loop_thread import LoopThread


@pytest.fixture
def running() -> Iterator[ThreadedCluster]:
    with running_cluster(slaves=1) as cluster:
        cluster.log.create_topic("t", 2)
        cluster.log.create_topic("u", 1)
        yield cluster


def pulling(running: ThreadedCluster, **changes: object) -> ReadOptions:
    plain = ReadOptions(
        cluster=cluster_options(running),
        selection=Selection(topics=("t",)),
        read_from=ReadFrom.SLAVE,
        pull_bytes=2_000,
        pull_timeout_ms=5_000,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def rows(pulled: ReadOptions, *spans: QueueSpan, columns: Columns = LIVE) -> pa.Table:
    return pa.Table.from_batches(list(read_spans(pulled, columns, spans)), arrow_schema(columns))


def bodies(pulled: ReadOptions, *spans: QueueSpan) -> list[bytes]:
    return rows(pulled, *spans).column("body").to_pylist()  # type: ignore[no-any-return]


def texts(count: int, start: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(start, start + count)]


def test_spans_of_several_queues_are_read_to_their_ends(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(100))
    produce(running, "t", 1, texts(50, 1_000))
    found = rows(pulling(running), QueueSpan("t", 0, 10, 90), QueueSpan("t", 1, 0, 50))
    by_queue: dict[int, list[bytes]] = {0: [], 1: []}
    for queue_id, body in zip(
        found["queue_id"].to_pylist(), found["body"].to_pylist(), strict=True
    ):
        by_queue[queue_id].append(body)
    assert by_queue == {0: texts(80, 10), 1: texts(50, 1_000)}
    assert running.cluster.nodes["n1"].pulls > 3
    assert running.cluster.master.pulls == 0


def offsets_in_order(pulled: ReadOptions, *spans: QueueSpan) -> list[tuple[str, int, int]]:
    found = rows(pulled, *spans)
    columns = ("topic", "queue_id", "queue_offset")
    return list(zip(*(found[name].to_pylist() for name in columns), strict=True))


@pytest.mark.parametrize("pull_bytes", [1, 700, 5_000, 1 << 20])
@pytest.mark.parametrize("behind", [None, 0, 30, 90])
def test_the_order_of_a_partition_is_that_of_its_spans(
    running: ThreadedCluster, pull_bytes: int, behind: int | None
) -> None:
    """Whatever an answer has room for, and however far the slave is."""
    for start in range(0, 100, 25):
        produce(running, "t", 0, texts(10, start))
        produce(running, "t", 1, texts(10, start + 10))
        produce(running, "u", 0, texts(5, start + 20))
    running.call(lambda: setattr(running.cluster.nodes["n1"], "visible", behind))
    spans = [QueueSpan("t", 0, 3, 40), QueueSpan("t", 1, 0, 38), QueueSpan("u", 0, 0, 20)]
    expected = [
        (each.topic, each.queue_id, offset)
        for each in spans
        for offset in range(each.start, each.end)
    ]
    assert offsets_in_order(pulling(running, pull_bytes=pull_bytes), *spans) == expected


def test_every_column_comes_back(running: ThreadedCluster) -> None:
    produce(running, "t", 1, [b"a"], tags="x", keys="k1 k2", properties={"p": "v"})
    [row] = rows(pulling(running), QueueSpan("t", 1, 0, 1)).to_pylist()
    assert (row["topic"], row["queue_id"], row["queue_offset"]) == ("t", 1, 0)
    assert (row["body"], row["tags"], row["keys"]) == (b"a", "x", "k1 k2")
    assert dict(row["properties"])["p"] == "v"
    assert row["store_timestamp"] is not None
    assert row["msg_id"] == running.log.decoded()[0].msg_id


def test_chosen_columns_alone(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(3))
    chosen = {"body": "binary", "queue_offset": "long"}
    found = rows(pulling(running), QueueSpan("t", 0, 0, 3), columns=chosen)
    assert found.column_names == ["body", "queue_offset"]


def test_tags_are_held_exactly(running: ThreadedCluster) -> None:
    # "Aa" and "BB" have one Java hash: the node cannot tell them apart.
    for number, tag in enumerate(["Aa", "BB", "x", "Aa"]):
        produce(running, "t", 0, [b"%d" % number], tags=tag)
    span = QueueSpan("t", 0, 0, 4)
    assert bodies(pulling(running, tags="Aa"), span) == [b"0", b"3"]
    assert bodies(pulling(running, tags="Aa || x"), span) == [b"0", b"2", b"3"]
    assert bodies(pulling(running, tags="none"), span) == []


def test_a_filter_selects_at_the_node(running: ThreadedCluster) -> None:
    for number in range(6):
        produce(running, "t", 0, [b"%d" % number], properties={"amount": str(number)})
    span = QueueSpan("t", 0, 0, 6)
    assert bodies(pulling(running, where="amount BETWEEN 2 AND 3"), span) == [b"2", b"3"]
    assert bodies(pulling(running, where="amount IS NULL"), span) == []


def test_a_slave_that_is_behind_is_waited_for_or_left(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(20))
    running.call(lambda: setattr(running.cluster.nodes["n1"], "visible", 5))
    assert bodies(pulling(running), QueueSpan("t", 0, 0, 20)) == texts(20)
    assert running.cluster.master.pulls > 0


def test_a_slave_that_is_gone_costs_nothing_but_time(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(50))
    reading = read_spans(pulling(running, pull_bytes=500), LIVE, [QueueSpan("t", 0, 0, 50)])
    first = next(reading)
    running.call(running.cluster.nodes["n1"].stop)
    rest = pa.Table.from_batches([first, *reading])
    assert rest.column("body").to_pylist() == texts(50)


def test_messages_that_are_gone(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(20))
    running.call(lambda: running.log.removed.update({("t", 0): 5}))
    with pytest.raises(DataLossError, match=r"t/0: the messages 0\.\.5 are gone"):
        bodies(pulling(running), QueueSpan("t", 0, 0, 20))
    lenient = pulling(running, fail_on_data_loss=False)
    assert bodies(lenient, QueueSpan("t", 0, 0, 20)) == texts(15, 5)


def test_what_is_damaged_on_one_node_is_read_from_another(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(20))
    running.cluster.nodes["n1"].damaged.add(("t", 0, 7))
    assert bodies(pulling(running), QueueSpan("t", 0, 0, 20)) == texts(20)
    running.cluster.master.damaged.add(("t", 0, 7))
    with pytest.raises(DataLossError, match="t/0 offset 7: the body is not the one"):
        bodies(pulling(running), QueueSpan("t", 0, 0, 20))
    found = bodies(pulling(running, fail_on_data_loss=False), QueueSpan("t", 0, 0, 20))
    assert found == texts(7) + texts(12, 8)
    as_it_is = bodies(pulling(running, verify_crc=False), QueueSpan("t", 0, 0, 20))
    assert as_it_is[7] == b"message 6"


def test_what_one_node_deleted_is_read_from_another(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(20))
    slave = running.cluster.nodes["n1"]
    running.call(lambda: slave.removed.update({("t", 0): 5}))
    running.call(lambda: slave.holes.add(("t", 0, 12)))
    assert bodies(pulling(running), QueueSpan("t", 0, 0, 20)) == texts(20)


@pytest.mark.parametrize("fail", [True, False])
def test_slaves_that_lack_messages_lose_none_without_a_master(
    running: ThreadedCluster, fail: bool
) -> None:
    produce(running, "t", 0, texts(20))
    slave, master = running.cluster.nodes["n1"], running.cluster.master
    running.call(master.stop)
    quick = cluster_options(running, retry_timeout_ms=300)
    short = pulling(running, cluster=quick, pull_timeout_ms=200, fail_on_data_loss=fail)
    running.call(lambda: setattr(slave, "visible", 15))
    with pytest.raises(ClusterError, match=r"t/0 at 15 of 20; the nodes that answer are behind"):
        bodies(short, QueueSpan("t", 0, 0, 20))
    running.call(lambda: slave.removed.update({("t", 0): 5}))
    with pytest.raises(ClusterError, match=r"t/0 at 0 of 20; the nodes that answer"):
        bodies(short, QueueSpan("t", 0, 0, 20))
    running.call(master.start)
    patient = pulling(running, fail_on_data_loss=fail)  # a connection takes a while to come back
    assert bodies(patient, QueueSpan("t", 0, 0, 20)) == texts(20)


def test_a_slave_that_has_not_heard_of_a_topic(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(20))
    running.call(lambda: running.cluster.nodes["n1"].unheard_topics.add("t"))
    assert bodies(pulling(running), QueueSpan("t", 0, 0, 20)) == texts(20)


def test_where_queues_end_is_the_masters_to_say(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(20))
    running.call(lambda: setattr(running.cluster.nodes["n1"], "visible", 5))
    quick = cluster_options(running, retry_timeout_ms=300)
    cluster = Cluster(quick, Selection(topics=("t",)))
    assert (cluster.held()["t", 0].end, cluster.sure) == (20, True)
    running.call(running.cluster.master.stop)
    assert (cluster.held()["t", 0].end, cluster.sure) == (5, False)


def test_an_end_that_nobody_reaches(running: ThreadedCluster) -> None:
    produce(running, "t", 0, texts(5))
    short = pulling(running, pull_timeout_ms=200)
    with pytest.raises(DataLossError, match=r"200 ms \(pullTimeoutMs\): t/0 at 5 of 9"):
        bodies(short, QueueSpan("t", 0, 0, 9))
    assert bodies(replace(short, fail_on_data_loss=False), QueueSpan("t", 0, 0, 9)) == texts(5)


def test_a_topic_that_is_not_there(running: ThreadedCluster) -> None:
    with pytest.raises(ClusterError, match="nope"):
        bodies(pulling(running), QueueSpan("nope", 0, 0, 1))


def pulls_under_way() -> "set[asyncio.Task[Any]]":
    """The tasks that ask a node, in the loop of this process; called there."""
    return {
        task
        for task in asyncio.all_tasks()
        if getattr(task.get_coro(), "__qualname__", "") == "SpanReader.next_batches"
    }


def test_stopping_early_leaves_nothing_behind(
    running: ThreadedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next answer is asked for while the rows of the last one are used."""

    async def found() -> "set[asyncio.Task[Any]]":
        return pulls_under_way()

    async def ended(tasks: "set[asyncio.Task[Any]]") -> list[bool]:
        await asyncio.wait(tasks)
        return [task.cancelled() for task in tasks]

    monkeypatch.setattr("tandemlog.consume.reading.span_reader._LONG_POLL_MS", 60_000)
    produce(running, "t", 0, texts(20))
    reading = read_spans(pulling(running, pull_bytes=1 << 20), LIVE, [QueueSpan("t", 0, 0, 100)])
    assert len(next(reading)) == 20
    loop = LoopThread.of_process()
    asked = loop.run(found())
    assert len(asked) == 1
    reading.close()  # type: ignore[attr-defined]
    assert loop.run(ended(asked)) == [True]
    assert not loop.run(found())


def test_compressed_bodies_come_as_they_were_given(running: ThreadedCluster) -> None:
    given = [b"x" * 4_000, b"short"]
    with Producer(running.endpoints, ProducerOptions(compress_above=100)) as producer:
        producer.send_many("u", given)
    assert bodies(pulling(running), QueueSpan("u", 0, 0, 2)) == given


# What the driver asks.


def test_the_queues_of_a_selection(running: ThreadedCluster) -> None:
    options = cluster_options(running)
    assert Cluster(options, Selection(topics=("t",))).queues() == [("t", 0), ("t", 1)]
    assert Cluster(options, Selection(pattern="[tu]")).queues() == [("t", 0), ("t", 1), ("u", 0)]
    assert Cluster(options, Selection(assigned={"t": (1,)})).queues() == [("t", 1)]


@pytest.mark.parametrize(
    ("selection", "words"),
    [
        (Selection(topics=("nope",)), "nope"),
        (Selection(pattern="x.*"), "no topic matches 'x.*'; there are t, u"),
        (Selection(assigned={"t": (7,)}), "queues 0..1, not 7"),
    ],
)
def test_a_selection_of_nothing(running: ThreadedCluster, selection: Selection, words: str) -> None:
    with pytest.raises(ClusterError, match=words):
        Cluster(cluster_options(running), selection).queues()


def test_what_the_selected_queues_hold(running: ThreadedCluster) -> None:
    produce(running, "t", 1, texts(3))
    produce(running, "u", 0, texts(2))
    options = cluster_options(running)
    found = Cluster(options, Selection(topics=("t",))).held([("t", 0)])
    assert found["t", 0] == NOTHING
    assert (found["t", 1].first, found["t", 1].end) == (0, 3)
    assert ("u", 0) not in found
    assert list(Cluster(options, Selection(pattern="u")).held()) == [("u", 0)]
    assert list(Cluster(options, Selection(assigned={"t": (1,)})).held()) == [("t", 1)]


def test_groups_times_and_sizes(running: ThreadedCluster) -> None:
    produce(running, "t", 0, [b"x" * 100] * 4)
    cluster = Cluster(cluster_options(running), Selection(topics=("t",)))
    assert cluster.committed("g", [("t", 0)]) == {}
    cluster.commit("g", {("t", 0): 3})
    assert cluster.committed("g", [("t", 0), ("t", 1)]) == {("t", 0): 3}
    assert cluster.at_time([("t", 0)], 1) == {("t", 0): 0}
    assert 200 < cluster.mean_sizes({("t", 0): 0})["t", 0] < 300


def test_an_unreachable_cluster_is_named() -> None:
    nowhere = ClusterOptions(("127.0.0.1:1",), retry_timeout_ms=200)
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:1 \(connection refused\)"):
        Cluster(nowhere, Selection(topics=("t",))).queues()


COLUMNS = {"queue_offset": "long", "body": "binary"}


def batch(*records: bytes) -> ReceivedBatch:
    return ReceivedBatch(
        topic="t",
        queue_id=3,
        status="FOUND",
        next_offset=0,
        min_offset=0,
        max_offset=0,
        records=memoryview(b"".join(records)),
        sizes=np.array([len(each) for each in records], np.uint32),
    )


def record(offset: int, body: bytes, sys_flag: int = 0) -> bytes:
    return encode_record(topic="t", body=body, queue_offset=offset, sys_flag=sys_flag)


def test_bytes_that_are_no_record() -> None:
    bad = bytearray(record(7, b"abc"))
    bad[84] ^= 1
    with pytest.raises(BadRecordError, match="t/3 offset 7: the record does not hold together"):
        decode(batch(bytes(bad)), COLUMNS)


def test_a_body_that_cannot_be_decompressed() -> None:
    with pytest.raises(BadRecordError, match="t/3 offset 2: body: not valid zlib"):
        decode(batch(record(2, b"x", with_compression(0, ZLIB))), COLUMNS)
    metadata = decode(
        batch(record(2, b"x", with_compression(0, ZLIB))),
        {"queue_offset": "long"},
    )
    assert metadata.column("queue_offset").to_pylist() == [2]
