"""What is put is read back, by queue, key, tag and time; what cannot be put is refused."""

from dataclasses import replace
from unittest.mock import patch

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, Bench, records_of
from tandemlog.format.record.record import decode_record
from tandemlog_server.storage.config import FlushMode
from tandemlog_server.storage.errors import BatchRefusedError, StoreClosedError
from tandemlog_server.storage.metadata.topics import MetadataError, TopicConfig
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.reads.results import GetStatus, NoRecordError
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.verify import verify


def test_what_is_put_is_read_back() -> None:
    bench = Bench()
    result = bench.put(3)
    assert result.segments[0].queue_offsets.tolist() == [0]
    bench.settle()
    assert bench.bodies() == [b"0-0.....", b"0-1.....", b"0-2....."]
    found = bench.store.reader.get("T", 0, 1, 1, 4096)
    (record,) = records_of(found)
    assert (record.queue_offset, record.topic, record.store_host) == (1, "T", "127.0.0.1:10911")
    assert record.store_timestamp == result.store_timestamp
    assert bench.store.reader.record_at(record.physical_offset) == found.records


def test_nothing_is_seen_before_it_is_confirmed() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(2)
    bench.store.reput.run_to()
    assert bench.bodies() == []
    bench.store.flush()
    assert bench.store.confirmed.value == bench.store.log.wrote.value
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 2


def test_a_closed_store_is_not_cut_or_set_aside() -> None:
    """Its lock is released: another process may have it by now."""
    bench = Bench()
    bench.put(2)
    bench.store.close()
    for change in (bench.store.truncate, bench.store.reset):
        with pytest.raises(StoreClosedError):
            change(0)


def test_each_fsync_of_the_log_is_timed() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(2)
    bench.store.flush()
    bench.store.flush()  # nothing to do: no fsync
    bench.put(1)
    bench.store.flush()
    assert bench.store.stats.flush_latency.count == 2


def test_async_flush_confirms_what_is_written() -> None:
    bench = Bench()
    bench.put(2)
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 2


def test_the_statuses_are_rocketmqs() -> None:
    bench = Bench()
    get = bench.store.reader.get
    assert get("nobody", 0, 0, 1, 100).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    assert get("T", 0, 0, 1, 100).status is GetStatus.NO_MATCHED_LOGIC_QUEUE
    bench.put(5)
    assert get("T", 0, 7, 1, 100).status is GetStatus.NO_MESSAGE_IN_QUEUE
    bench.settle()
    for offset, status, following in (
        (-1, GetStatus.OFFSET_TOO_SMALL, 0),
        (0, GetStatus.FOUND, 1),
        (5, GetStatus.OFFSET_OVERFLOW_ONE, 5),
        (9, GetStatus.OFFSET_OVERFLOW_BADLY, 5),
    ):
        result = get("T", 0, offset, 1, 100)
        assert (result.status, result.next_offset) == (status, following)
        assert (result.min_offset, result.max_offset) == (0, 5)


def test_a_get_ends_with_its_queue_file() -> None:
    bench = Bench()
    bench.put(25)
    bench.settle()
    result = bench.store.reader.get("T", 0, 15, 0, 1 << 20)
    assert (result.count, result.next_offset) == (5, 20)
    missed = bench.store.reader.get("T", 0, 15, 0, 1 << 20, {12345})
    assert (missed.status, missed.next_offset) == (GetStatus.NO_MATCHED_MESSAGE, 20)


@pytest.mark.parametrize("max_bytes", [1, 100_000, 4 << 20])
def test_a_get_takes_what_fits_whatever_the_sizes(max_bytes: int) -> None:
    """It looks at as many units as the first ones let expect, and sizes change on the way."""
    bench = Bench(replace(CONFIG, queue_file_size=200_000, commit_log_file_size=1 << 22))
    bodies = [b"%d" % n + bytes(2_000 if 1_000 <= n < 2_000 else 10) for n in range(4_000)]
    for first in range(0, len(bodies), 500):
        bench.store.put(batch_of([Put("T", 0, body) for body in bodies[first : first + 500]]))
    bench.settle()
    read: list[bytes] = []
    while len(read) < len(bodies):
        result = bench.store.reader.get("T", 0, len(read), 0, max_bytes)
        assert result.status is GetStatus.FOUND
        assert result.next_offset == len(read) + result.count
        assert len(result.records) == result.sizes.sum()
        assert result.count == 1 or len(result.records) <= max_bytes
        read += [record.body for record in records_of(result)]
        if max_bytes == 1 and len(read) == 20:
            return
    assert read == bodies


@pytest.mark.parametrize("max_messages", [1, 3, 32, 799])
def test_gets_of_few_messages_find_all_of_them(max_messages: int) -> None:
    """They read few units, and more when a queue's next ones have no records."""
    bench = Bench(replace(CONFIG, queue_file_size=20_000))
    first = bench.store.put(batch_of([Put("T", 0, b"old")] * 400)).end_offset
    bench.store.put(batch_of([Put("T", 0, b"new %d" % n) for n in range(900)]))
    bench.settle()
    log = bench.store.log
    with patch.object(type(log), "min_offset", first):  # its head has expired this very moment
        found = bench.store.reader.get("T", 0, 0, max_messages, 1 << 20)
        assert [record.body for record in records_of(found)] == [
            b"new %d" % n for n in range(min(max_messages, 400))
        ]
        assert found.next_offset == 400 + found.count
    read: list[bytes] = []
    while len(read) < 1300:
        found = bench.store.reader.get("T", 0, len(read), max_messages, 1 << 20)
        read += [record.body for record in records_of(found)]
    assert read == [b"old"] * 400 + [b"new %d" % n for n in range(900)]


def test_a_get_goes_over_log_files() -> None:
    bench = Bench()
    bench.put(20, size=900)
    bench.settle()
    assert len(bench.store.log.files) > 2
    result = bench.store.reader.get("T", 0, 0, 0, 1 << 20)
    assert [record.queue_offset for record in records_of(result)] == list(range(20))


def test_many_queues_in_one_batch() -> None:
    bench = Bench(topics=("A", "B"))
    puts = [Put("AB"[n % 2], n % 3, b"%d" % n) for n in range(300)]
    bench.store.put(batch_of(puts))
    bench.settle()
    for topic in "AB":
        for queue_id in range(3):
            expected = [put.body for put in puts if (put.topic, put.queue_id) == (topic, queue_id)]
            assert bench.bodies(topic, queue_id) == expected
    ranges = bench.store.reader.ranges(["B"])
    assert [(each.queue_id, each.max_offset) for each in ranges] == [(0, 50), (1, 50), (2, 50)]


def test_queries_by_key_tag_and_time() -> None:
    bench = Bench()
    bench.store.put(batch_of([Put(properties=b"KEYS\x01a b\x02TAGS\x01x\x02", topic="T")]))
    bench.clock.advance(1)
    bench.store.put(batch_of([Put(properties=b"KEYS\x01b\x02UNIQ_KEY\x01u\x02", topic="T")]))
    bench.settle()
    query = bench.store.reader.query_key
    first, second = query("T", "b").physical_offsets
    assert query("T", "a").physical_offsets == (first,)
    assert query("T", "u").physical_offsets == (second,)
    assert query("T", "x").physical_offsets == ()
    assert query("T", "x", tags=True).physical_offsets == (first,)
    assert query("other", "b").physical_offsets == ()
    assert query("T", "b", max_messages=1).physical_offsets == (second,)
    time = decode_record(bench.store.reader.record_at(second)).store_timestamp
    assert query("T", "b", begin_timestamp=time).physical_offsets == (second,)
    assert query("T", "b", end_timestamp=time - 1).physical_offsets == (first,)
    search = bench.store.reader.search_offset
    assert search("T", 0, time, Boundary.LOWER) == 1
    assert search("T", 0, time - 1, Boundary.UPPER) == 0


def test_a_position_inside_a_record_is_no_record() -> None:
    bench = Bench()
    bench.put(2)
    bench.settle()
    with pytest.raises(NoRecordError, match="offset 4"):
        bench.store.reader.record_at(4)


@pytest.mark.parametrize(
    ("puts", "code"),
    [
        ([Put("nobody")], "UNKNOWN_TOPIC"),
        ([Put("T"), Put("nobody")], "UNKNOWN_TOPIC"),
        ([Put("T", 4)], "UNKNOWN_QUEUE"),
        ([Put("RMQ_SYS_TRANS_OP_HALF_TOPIC")], "INVALID_TOPIC_NAME"),
        ([Put("RMQ_SYS_TRANS_HALF_TOPIC")], "BAD_RECORD"),
        ([Put("SCHEDULE_TOPIC_XXXX")], "BAD_RECORD"),
        ([Put("no way")], "INVALID_TOPIC_NAME"),
    ],
)
def test_puts_to_what_is_not_there_are_refused(puts: list[Put], code: str) -> None:
    bench = Bench()
    with pytest.raises(BatchRefusedError) as refused:
        bench.store.put(batch_of(puts))
    assert refused.value.code == code
    assert refused.value.record_index == len(puts) - 1
    assert bench.store.log.wrote.value == 0
    assert bench.store.stats.put_refused == 1


def test_a_deleted_or_closed_topic_takes_no_puts_and_stays_readable() -> None:
    bench = Bench()
    bench.put()
    bench.settle()
    bench.store.topics.create(TopicConfig("T", 4, 4, perm=4), 1, update=True)
    with pytest.raises(BatchRefusedError, match="is not writable"):
        bench.put()
    bench.store.topics.delete("T", 1)
    with pytest.raises(BatchRefusedError, match="there is no topic"):
        bench.put()
    bench.reopen()
    assert len(bench.bodies()) == 1
    bench.store.topics.create(TopicConfig("T", 1, 1), 1)
    assert bench.put().segments[0].queue_offsets.tolist() == [1]


def test_a_topic_of_batch_queues_takes_no_puts() -> None:
    bench = Bench()
    attributes = {"queue.type": "BatchCQ"}
    bench.store.topics.create(TopicConfig("T", 4, 4, attributes=attributes), 1, update=True)
    with pytest.raises(BatchRefusedError, match="batch queues") as refused:
        bench.put()
    assert refused.value.code == "INVALID_ARGUMENT"


def test_ordinary_records_of_a_topic_of_batch_queues_are_in_no_queue() -> None:
    """A broker does not start beside files of another kind of queue."""
    bench = Bench(topics=("T", "U"))
    bench.put(3)
    bench.put(2, topic="U")
    bench.settle()
    bench.store.persist()
    attributes = {"queue.type": "BatchCQ"}
    bench.store.topics.create(TopicConfig("T", 4, 4, attributes=attributes), 1, update=True)
    queues = bench.store.directory / "consumequeue"
    assert not verify(bench.config, bench.files).holds
    for open_again in (bench.reopen, bench.kill):
        store = open_again()
        assert bench.files.listdir(queues) == ["U"]
        assert (bench.bodies(), len(bench.bodies("U"))) == ([], 2)
        store.close()
        assert verify(bench.config, bench.files).holds
        store = bench.open()
    store.close()
    rebuild(bench.config, files=bench.files)
    assert bench.files.listdir(queues) == ["U"]


@pytest.mark.parametrize("dispatched", [True, False])
def test_a_queue_with_messages_is_not_taken_from_a_topic(dispatched: bool) -> None:
    """They would stay in the log, and nobody could pull them."""
    bench = Bench()
    bench.put(2, queue_id=2)
    if dispatched:
        bench.settle()
    with pytest.raises(MetadataError, match=r"queue 2 holds 2 .* 2 queues; keep 3") as fault:
        bench.store.create_topic(TopicConfig("T", 2, 2), update=True)
    assert (fault.value.code, fault.value.field) == ("QUEUES_NOT_EMPTY", "read_queues")
    assert bench.store.topics.table["T"].read_queues == 4
    assert bench.store.create_topic(TopicConfig("T", 3, 1), update=True).read_queues == 3
    assert bench.store.create_topic(TopicConfig("U", 1, 1)).name == "U"
    with pytest.raises(MetadataError, match="exists"):
        bench.store.create_topic(TopicConfig("T", 1, 1))


def test_a_topic_can_grow() -> None:
    bench = Bench()
    with pytest.raises(BatchRefusedError):
        bench.put(queue_id=9)
    bench.store.topics.create(TopicConfig("T", 10, 10), 1, update=True)
    bench.put(queue_id=9)
    bench.settle()
    assert len(bench.bodies(queue_id=9)) == 1
