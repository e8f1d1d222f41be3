"""Open, serve, close: one process at a time, and a clean stop leaves nothing to do."""

from dataclasses import replace

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog_server.storage.config import FlushMode, StoreConfig
from tandemlog_server.storage.errors import StoreClosedError, StoreError, StoreLockedError
from tandemlog_server.storage.message_store import MessageStore


def test_a_clean_stop_leaves_nothing_to_do() -> None:
    bench = Bench()
    bench.put(40)
    bench.put(5, queue_id=2)
    before = bench.store
    bench.reopen()
    report = bench.store.recovery
    assert report.clean_stop
    assert not report.foreign
    assert (report.scanned_records, report.dispatched, report.queues_rebuilt) == (0, 0, {})
    assert report.log_end == before.log.wrote.value
    assert len(bench.bodies()) == 40
    assert bench.put().segments[0].queue_offsets.tolist() == [40]
    assert bench.put(queue_id=2).segments[0].queue_offsets.tolist() == [5]


def test_the_abort_file_stands_while_the_store_is_open() -> None:
    bench = Bench()
    assert bench.files.status(DIRECTORY / "abort") is not None
    bench.store.close()
    assert bench.files.status(DIRECTORY / "abort") is None
    bench.store.close()


@pytest.mark.parametrize("name", ["index", "consumequeue"])
def test_a_part_that_cannot_be_closed_leaves_the_others_closed(name: str) -> None:
    bench = Bench()
    bench.put()
    bench.settle()
    bench.store.persist()
    before = bench.files.open_handles
    bench.files.fail("close", name=f"/store/{name}")
    with pytest.raises(StoreError, match=f"/store/{name}"):
        bench.store._parts.close()
    lock, stuck = 1, 1
    assert before > lock + stuck == bench.files.open_handles
    with pytest.raises(StoreClosedError):
        bench.store.log.append_raw(0, b"")


@pytest.mark.parametrize("call", ["map", "pread", "unlink", "fdatasync", "preallocate"])
def test_an_open_that_fails_leaves_nothing_open(call: str) -> None:
    bench = Bench()
    bench.put(20)
    bench.settle()
    bench._abandon()
    bench.files.kill()
    bench.files.fail(call)
    with pytest.raises(StoreError):
        bench.open()
    assert (bench.files.open_handles, bench.files.locks_held) == (0, 0)


def test_a_second_opener_is_told_who_has_the_store() -> None:
    bench = Bench()
    with pytest.raises(StoreLockedError, match="this process"):
        MessageStore.open(bench.config, files=bench.files, clock=bench.clock)
    assert bench.store.writable


def test_a_closed_store_says_so() -> None:
    bench = Bench()
    bench.store.close()
    with pytest.raises(StoreClosedError):
        bench.put()
    assert bench.store.read_only_reason == "it is closed"


def test_sizes_of_the_files_win_over_the_settings() -> None:
    bench = Bench()
    bench.put(3)
    bench.reopen(commit_log_file_size=1 << 16, queue_file_size=2000)
    assert bench.store.log.file_size == 8192
    assert bench.store.queues.file_size == 400
    assert len(bench.store.recovery.notes) == 2


def test_without_an_index_all_but_keys_is_served() -> None:
    bench = Bench(replace(CONFIG, index_enabled=False))
    bench.put(3)
    bench.settle()
    assert len(bench.bodies()) == 3
    assert bench.store.reader.query_key("T", "a").records == ()
    bench.reopen(index_enabled=True)
    assert bench.store.index is not None
    assert bench.store.index.next_offset == bench.store.log.wrote.value


def test_store_times_never_fall() -> None:
    bench = Bench()
    now = bench.clock.now_ms()
    first = bench.store.put(batch_of([Put("T")]), now_ms=now + 500)
    second = bench.store.put(batch_of([Put("T")]), now_ms=now)
    assert second.store_timestamp == first.store_timestamp
    bench.kill()
    third = bench.store.put(batch_of([Put("T")]), now_ms=now)
    assert third.store_timestamp > first.store_timestamp


def test_the_numbers_count() -> None:
    bench = Bench()
    bench.put(3)
    bench.settle()
    bench.bodies()
    values = bench.store.stats.values(bench.clock.monotonic())
    assert values["puts_total"] == 3
    assert values["put_batches_total"] == 1
    assert values["get_messages_total"] == 3
    assert values["put_bytes_total"] == bench.store.log.wrote.value


def test_threads_do_the_same() -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.store.start()
    touched: list[list[int]] = []
    stop = bench.store.on_dispatch(lambda queues: touched.append(queues.tolist()))
    result = bench.put(5)
    assert bench.store.confirmed.wait(result.end_offset, 10)
    assert bench.store.reputed.wait(result.end_offset, 10)
    assert len(bench.bodies()) == 5
    assert touched == [[0]]
    stop()
    bench.reopen()
    assert bench.store.recovery.clean_stop


def test_the_config_is_the_one_of_the_files() -> None:
    config = StoreConfig(directory=DIRECTORY, commit_log_file_size=4096)
    bench = Bench(config)
    assert bench.store.config.commit_log_file_size == 4096
    assert bench.store.directory == DIRECTORY
