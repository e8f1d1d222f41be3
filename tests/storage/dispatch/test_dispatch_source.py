import pytest

from fakes.memory_log import MemoryLog
from tandemlog_server.storage.dispatch.dispatch_source import DispatchSource
from tandemlog_server.storage.errors import CorruptStoreError, OffsetOutOfRangeError

QUEUE_ID = 12  # where a record has it


def log_of(records: int, *, file_size: int = 1000, body: bytes = b"x") -> MemoryLog:
    log = MemoryLog(file_size)
    for _ in range(records):
        log.put("T", body=body)
    return log


def starts(log: MemoryLog) -> list[int]:
    return sorted(log.times)


def batches(source: DispatchSource, start: int, limit: int, size: int) -> list[list[int]]:
    found: list[list[int]] = []
    while True:
        batch = source.batch(start, limit, size)
        assert batch.start == start
        if batch.end == start:
            return found
        if batch.columns.count:
            found.append(batch.columns.physical_offset.tolist())
        start = batch.end


@pytest.mark.parametrize("size", [1, 93, 94, 200, 5000])
def test_all_records_come_in_order_whatever_the_window(size: int) -> None:
    log = log_of(40)
    found = batches(DispatchSource(log), 0, log.end, size)
    assert [each for batch in found for each in batch] == starts(log)


def test_a_batch_ends_with_its_file() -> None:
    log = log_of(15)
    size = starts(log)[1]
    batch = DispatchSource(log).batch(0, log.end)
    assert batch.columns.count == (1000 - 8) // size
    assert batch.end == 1000
    assert DispatchSource(log).batch(1000, log.end).columns.count == 15 - batch.columns.count


@pytest.mark.parametrize("short", [1, 50, 90])
def test_nothing_goes_beyond_the_limit(short: int) -> None:
    log = log_of(5)
    limit = log.end - short
    source = DispatchSource(log)
    assert [each for batch in batches(source, 0, limit, 5000) for each in batch] == starts(log)[:4]
    last = source.batch(0, limit).end
    assert last == starts(log)[4]
    assert source.batch(last, limit).end == last
    assert source.batch(last, limit).columns.count == 0


def test_a_blank_is_passed_when_all_of_it_may_be_read() -> None:
    log = log_of(15)
    end_of_records = starts(log)[9] + starts(log)[1]
    source = DispatchSource(log)
    assert source.batch(0, end_of_records).end == end_of_records
    assert source.batch(0, end_of_records + 8).end == end_of_records
    assert source.batch(0, 1000).end == 1000


def test_a_log_may_begin_anywhere() -> None:
    log = MemoryLog(1000, start=3000)
    for _ in range(15):
        log.put("T")
    found = batches(DispatchSource(log), 3000, log.end, 300)
    assert [each for batch in found for each in batch] == starts(log)
    with pytest.raises(OffsetOutOfRangeError):
        DispatchSource(log).batch(2000, log.end)


@pytest.mark.parametrize("what", ["magic", "size", "zeros", "offset"])
def test_bytes_that_are_no_record_end_it_with_their_position(what: str) -> None:
    log = log_of(15)
    bad = starts(log)[12]
    if what == "magic":
        log.data[bad + 4] ^= 1
    elif what == "size":
        log.data[bad : bad + 4] = (90).to_bytes(4)
    elif what == "offset":
        log.data[bad + 35] ^= 1
    else:
        log.data[bad : bad + 93] = bytes(93)
    source = DispatchSource(log)
    # what stands before it is still dispatched
    assert source.batch(1000, log.end).end == bad
    with pytest.raises(CorruptStoreError, match=f"no record at log offset {bad}") as caught:
        source.batch(bad, log.end)
    assert caught.value.file == f"commitlog/{1000:020d}"
    assert caught.value.position == bad - 1000


@pytest.mark.parametrize("topic", ["/rders", "o/ders", "..", "or\0ers"])
def test_a_topic_that_names_no_folder_is_damage(topic: str) -> None:
    log = MemoryLog(10_000)
    for name in ("orders", "orders", topic, "orders"):
        log.put(name)
    bad = starts(log)[2]
    source = DispatchSource(log)
    before = source.batch(0, log.end)
    assert (before.end, before.columns.count) == (bad, 2)
    with pytest.raises(
        CorruptStoreError, match=f"log offset {bad}: topic: .* is not a valid folder name"
    ):
        source.batch(bad, log.end)


@pytest.mark.parametrize("queue_id", [-1, 1 << 20, -(1 << 31), (1 << 31) - 1])
def test_a_queue_id_that_cannot_be_is_damage(queue_id: int) -> None:
    log = log_of(4, file_size=10_000)
    bad = starts(log)[2]
    log.data[bad + QUEUE_ID : bad + QUEUE_ID + 4] = queue_id.to_bytes(4, signed=True)
    source = DispatchSource(log)
    before = source.batch(0, log.end)
    assert (before.end, before.columns.count) == (bad, 2)
    with pytest.raises(CorruptStoreError, match=f"log offset {bad}: queue_id: {queue_id} is not"):
        source.batch(bad, log.end)


def test_a_record_larger_than_a_batch_is_read_whole() -> None:
    log = log_of(3, file_size=10_000, body=b"y" * 3000)
    for size in (1, 100):
        found = batches(DispatchSource(log), 0, log.end, size)
        assert [len(batch) for batch in found] == [1, 1, 1]


def test_index_entries_are_made_as_asked_for() -> None:
    log = MemoryLog()
    log.put("T", properties={"UNIQ_KEY": "u", "KEYS": "a b", "TAGS": "t"})
    source = DispatchSource(log, index_tags=False)
    assert len(source.batch(0, log.end).columns.key_hash) == 3
    assert len(source.batch(0, log.end, index_tags=True).columns.key_hash) == 4
    assert len(source.batch(0, log.end, index=False).columns.key_hash) == 0


def test_records_are_counted() -> None:
    log = log_of(25)
    source = DispatchSource(log)
    begins = starts(log)
    assert source.count_records(0, log.end)[0] == 25
    assert source.count_records(begins[3], begins[14]) == (11, log.time_of(begins[13]))
    assert source.count_records(5, 5) == (0, 0)
    assert DispatchSource(MemoryLog(1000, start=2000)).count_records(93, 2000) == (0, 0)
