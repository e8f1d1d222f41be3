"""A replica is its master's equal, takes over from it, and gives up what it must."""

from dataclasses import replace

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.errors import FormatError
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.errors import StoreError, StoreReadOnlyError

MARK = ProducerMark("p1", 0, 0, 0, 3)


def replica(bench: Bench) -> Bench:
    return Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())


def copy_log(source: Bench, target: Bench, step: int = 1000, end: int | None = None) -> None:
    log = source.store.log
    position = target.store.log.wrote.value
    end = log.committed.value if end is None else end
    while position < end:
        piece = bytes(log.read(position, min(step, end - position)))
        target.store.append_raw(position, piece)
        position += len(piece)
    target.store.flush()


def test_a_replica_is_equal_byte_for_byte() -> None:
    master = Bench()
    for number in range(30):
        master.put(7, queue_id=number % 3)
    master.put_marked(MARK, 3)
    master.settle()
    slave = replica(master)
    copy_log(master, slave)
    assert slave.bodies() == []
    slave.store.advance_confirmed(master.store.confirmed.value)
    slave.store.reput.run_to()
    for queue_id in range(3):
        assert slave.bodies(queue_id=queue_id) == master.bodies(queue_id=queue_id)
    assert slave.store.producers.describe("p1") == master.store.producers.describe("p1")
    for folder in ("commitlog", "consumequeue/T/0"):
        names = master.files.listdir(DIRECTORY / folder)
        assert slave.files.listdir(DIRECTORY / folder) == names
    with pytest.raises(StoreReadOnlyError, match="slave"):
        slave.put()


def test_a_replica_shows_no_more_than_is_confirmed_even_after_a_restart() -> None:
    master = Bench()
    master.put(10)
    half = master.store.log.wrote.value
    master.put(10)
    slave = replica(master)
    copy_log(master, slave)
    slave.store.advance_confirmed(half)
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 10
    slave.store.persist()
    slave.kill()
    assert slave.store.confirmed.value == half
    assert len(slave.bodies()) == 10
    slave.store.advance_confirmed(1 << 40)
    assert slave.store.confirmed.value == slave.store.log.wrote.value
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 20


def test_a_slave_becomes_master_and_goes_on_behind_what_is_not_confirmed() -> None:
    master = Bench()
    master.put(10)
    half = master.store.log.wrote.value
    master.put_marked(MARK, 3)
    slave = replica(master)
    copy_log(master, slave)
    slave.store.advance_confirmed(half)
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    slave.store.become_master(4)
    assert slave.store.epochs.table.last == EpochEntry(4, master.store.log.wrote.value)
    assert slave.put_marked(MARK, 3).duplicate
    assert slave.put(1).segments[0].queue_offsets.tolist() == [13]
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 10
    slave.store.advance_confirmed(slave.store.log.wrote.value)
    slave.store.reput.run_to()
    assert len(slave.bodies()) == 14
    slave.store.become_slave()
    with pytest.raises(StoreReadOnlyError):
        slave.put(1)
    with pytest.raises(FormatError):
        slave.store.become_master(3)


def test_a_new_master_cuts_a_record_that_came_in_part() -> None:
    master = Bench()
    master.put(10)
    slave = replica(master)
    whole = master.store.log.wrote.value
    copy_log(master, slave, end=whole - 5)
    slave.store.advance_confirmed(whole - 5)
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    slave.store.become_master(2)
    assert slave.store.log.wrote.value < whole - 5
    assert slave.put(1).segments[0].queue_offsets.tolist() == [9]


def test_a_take_over_between_queues_and_producers_passes_no_request_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    bench.store.become_master(1)
    bench.put_marked(MARK, 3)
    bench.kill()
    store = bench.store
    store.advance_confirmed(store.log.wrote.value)
    # the dispatching thread has given a batch to the queues, and is about to give it the producers
    monkeypatch.setattr(store.reput, "_apply", lambda folds, batch: None)
    monkeypatch.setattr(store.reput, "_catch_up", lambda: 0)
    store.become_master(2)
    assert store.queues.next_offset == store.log.wrote.value
    assert bench.put_marked(MARK, 3).duplicate


def test_truncation_takes_everything_back() -> None:
    master = Bench()
    master.put(10)
    half = master.store.log.wrote.value
    master.put_marked(MARK, 3)
    master.put(10, queue_id=1)
    slave = replica(master)
    slave.store.epochs.append(EpochEntry(1, 0))
    slave.store.epochs.append(EpochEntry(2, half))
    copy_log(master, slave)
    slave.store.advance_confirmed(master.store.log.wrote.value)
    slave.store.reput.run_to()
    slave.store.consumer_offsets.commit("G", "T", 0, 12)
    slave.store.consumer_offsets.commit("G", "T", 1, 3)
    slave.store.truncate(half)
    store = slave.store
    assert store.log.wrote.value == store.confirmed.value == store.reputed.value == half
    assert len(slave.bodies()) == 10
    assert slave.bodies(queue_id=1) == []
    assert store.epochs.table.entries == (EpochEntry(1, 0),)
    assert store.producers.describe("p1") is None
    assert store.consumer_offsets.offset("G", "T", 0) == 10
    assert store.consumer_offsets.offset("G", "T", 1) == 0
    slave.crash()
    assert slave.store.log.wrote.value == half
    assert len(slave.bodies()) == 10
    copy_log(master, slave)
    slave.store.advance_confirmed(master.store.log.wrote.value)
    slave.store.reput.run_to()
    assert (
        slave.bodies(queue_id=1) == master.bodies(queue_id=1) or len(slave.bodies(queue_id=1)) == 10
    )


def test_a_cut_leaves_the_offsets_of_what_is_not_dispatched_yet() -> None:
    """What they are of is in the log, and will be in the queues once it is confirmed."""
    master = Bench()
    confirmed = master.put(5).end_offset
    kept = master.put(5).end_offset
    master.put(10)
    slave = replica(master)
    copy_log(master, slave)
    slave.store.advance_confirmed(confirmed)
    slave.store.reput.run_to()
    slave.store.consumer_offsets.commit("G", "T", 0, 8)
    slave.store.truncate(kept)
    assert slave.store.consumer_offsets.offset("G", "T", 0) == 8


def test_a_new_master_takes_back_offsets_of_what_it_never_got() -> None:
    """Consumers would pass over the messages that get those offsets now."""
    master = Bench()
    master.put(10)
    half = master.store.log.wrote.value
    master.put(10)
    slave = replica(master)
    copy_log(master, slave, end=half)
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    for queue_id, offset in enumerate((20, 5)):
        slave.store.consumer_offsets.commit("G", "T", queue_id, offset)
    slave.store.consumer_offsets.commit("H", "T", 0, 7)
    slave.store.become_master(2)
    held = [slave.store.consumer_offsets.offset("G", "T", queue_id) for queue_id in (0, 1)]
    assert held == [10, 0]
    assert slave.store.consumer_offsets.offset("H", "T", 0) == 7
    assert slave.put(1).segments[0].queue_offsets.tolist() == [10]
    slave.kill()
    assert slave.store.consumer_offsets.offset("G", "T", 0) == 10


def test_reset_sets_everything_aside() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())
    master = Bench()
    master.put(10)
    copy_log(master, bench)
    bench.store.advance_confirmed(1 << 40)
    bench.store.reput.run_to()
    bench.store.persist()
    bench.store.reset(2 * 8192)
    assert bench.store.log.wrote.value == 2 * 8192
    assert bench.store.reputed.value == 2 * 8192
    assert bench.bodies() == []
    (aside,) = (name for name in bench.files.listdir(DIRECTORY) if name.startswith("resync-"))
    assert bench.files.listdir(DIRECTORY / aside) == ["commitlog", "consumequeue", "index"]
    assert bench.files.listdir(DIRECTORY / aside / "commitlog") == [f"{0:020d}"]
    bench.store.append_raw(2 * 8192, b"")
    bench.reopen()
    assert bench.store.log.files == () or bench.store.log.min_offset == 2 * 8192


def test_an_empty_log_takes_another_file_size() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())
    bench.store.adopt_commit_log_file_size(16384)
    assert bench.store.log.file_size == 16384
    bench.store.append_raw(0, b"x" * 100)
    with pytest.raises(StoreError, match=r"0\.\.100"):
        bench.store.adopt_commit_log_file_size(4096)


@pytest.mark.parametrize("buffered", [False, True])
def test_a_slave_whose_flush_ended_inside_a_record_loses_nothing_as_master(buffered: bool) -> None:
    master = Bench()
    for _ in range(10):
        master.put(1, size=100)
    whole = master.store.log.wrote.value
    settings = replace(CONFIG, confirm=ConfirmSource.REPLICATION, buffered=buffered)
    slave = Bench(settings, topics=())
    copy_log(master, slave, end=whole - 50)
    slave.store.append_raw(whole - 50, bytes(master.store.log.read(whole - 50, 50)))
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    slave.store.become_master(2)
    assert slave.put(1).segments[0].queue_offsets.tolist() == [10]
    slave.store.advance_confirmed(whole)
    slave.store.reput.run_to()
    slave.store.persist()
    slave.crash()
    assert slave.store.log.wrote.value == whole
    assert len(slave.bodies()) == 10


def test_a_record_of_which_only_the_beginning_was_flushed_is_cut_after_a_power_cut() -> None:
    master = Bench()
    master.put(3)
    begin = master.store.log.wrote.value
    whole = master.put(1).end_offset
    master.settle()
    slave = replica(master)
    copy_log(master, slave, end=whole - 2)
    slave.store.append_raw(whole - 2, bytes(master.store.log.read(whole - 2, 2)))
    slave.store.persist()
    slave.crash()
    assert slave.store.log.wrote.value == begin
    assert slave.store.recovery.damages == []
    copy_log(master, slave)
    slave.store.advance_confirmed(whole)
    slave.store.reput.run_to()
    assert slave.bodies() == master.bodies()
