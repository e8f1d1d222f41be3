"""Small files that are lost or damaged: what they said is found again, or the error says how."""

import errno

import pytest

from fakes.crashed_stores import QUEUE, assert_whole, everything, flip, full, log_byte
from fakes.stores import DIRECTORY
from tandemlog.format.files.epochs import EpochEntry
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import CorruptStoreError, StoreReadOnlyError
from tandemlog_server.storage.metadata.topics import TopicConfig


@pytest.mark.parametrize("length", [None, 0, 8, 100])
def test_without_a_checkpoint_it_recovers_by_its_own_point(length: int | None) -> None:
    bench, _ = full()
    path = DIRECTORY / "checkpoint"
    if length is None:
        bench.files.unlink(path)
    else:
        bench.files.atomic_replace(path, bytes(length))
    bench.put(5)
    bench.kill()
    report = bench.store.recovery
    assert report.scanned_records == 5
    assert any("checkpoint" in note for note in report.notes)
    assert len(bench.files.content(path)) == 4096
    assert_whole(bench)


def test_no_message_gets_its_store_time_from_a_damaged_checkpoint() -> None:
    # its times have no checksum, and what is stored later never gets an earlier time again
    bench, _ = full()
    bench.store.close()
    flip(bench, DIRECTORY / "checkpoint", 0)
    bench.open()
    assert bench.put(1).store_timestamp < 1 << 48
    assert_whole(bench)


def test_without_a_recovery_point_everything_is_looked_at() -> None:
    bench, _ = full()
    flip(bench, DIRECTORY / "tandemlog" / "recovery.json", 30)
    bench.put(5)
    bench.kill()
    report = bench.store.recovery
    assert report.foreign
    assert report.scanned_records == 205
    assert any("damaged" in note for note in report.notes)
    assert len(everything(bench)) == 205
    assert_whole(bench)


def test_a_lost_queue_is_found_without_a_recovery_point_too() -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.store.close()
    bench.files.unlink(DIRECTORY / "tandemlog" / "recovery.json")
    for name in bench.files.listdir(QUEUE):
        bench.files.unlink(QUEUE / name)
    bench.files.remove_directory(QUEUE)
    bench.open()
    assert everything(bench) == kept
    assert_whole(bench)


def test_a_damaged_producer_table_is_made_again() -> None:
    bench, _ = full(3)
    mark = ProducerMark("p", 0, 0, 0, 2)
    bench.put_marked(mark, 2)
    bench.settle()
    bench.store.persist()
    flip(bench, DIRECTORY / "tandemlog" / "producers", 25)
    bench.kill()
    assert any("producers is damaged" in note for note in bench.store.recovery.notes)
    assert bench.put_marked(mark, 2).duplicate


def test_consumer_offsets_are_clamped_to_what_is_left() -> None:
    bench, _ = full()
    bench.store.consumer_offsets.commit("G", "T", 0, 100)
    bench.put(10)
    bench.settle()
    bench.store.consumer_offsets.commit("G", "T", 0, 110)
    bench.store.consumer_offsets.save(1)
    start = bench.store.log.wrote.value
    path, position = log_byte(start)
    bench.files.content(path)[position - 300 : position] = bytes(300)
    bench.kill()
    assert bench.store.recovery.offsets_clamped == 1
    limit = bench.store.queues.max_offset(bench.store.queue_table.get("T", 0))
    assert bench.store.consumer_offsets.offset("G", "T", 0) == limit < 110


def test_a_damaged_topic_table_without_backup_is_an_error() -> None:
    bench, _ = full(1)
    bench.store.close()
    path = DIRECTORY / "config" / "topics.json"
    bench.files.atomic_replace(path, b"{")
    bench.files.unlink(path.with_name("topics.json.bak"))
    with pytest.raises(CorruptStoreError, match=r"topics\.json"):
        bench.open()
    bench.files.unlink(path)
    bench.open()
    assert len(everything(bench)) == 10


@pytest.mark.parametrize("name", ["config/topics.json", "epochFileCheckpoint"])
def test_a_table_that_was_read_from_its_backup_is_said(name: str) -> None:
    bench, _ = full(1)
    for number in range(2):
        bench.store.topics.create(TopicConfig(f"U{number}"), 1)
        bench.store.epochs.append(EpochEntry(number, number))
    bench.store.close()
    bench.files.atomic_replace(DIRECTORY / name, b"{")
    bench.open()
    note = bench.store.recovery.notes[0]  # a topic that it lacks may be made again after it
    assert name.rpartition("/")[2] in note
    assert ".bak" in note


def test_an_open_that_fails_gives_the_lock_up() -> None:
    bench, _ = full(1)
    bench.store.close()
    bench.files.fail("rename", errno.EIO, name="recovery.json")
    with pytest.raises(StoreReadOnlyError, match=r"recovery\.json cannot be written"):
        bench.open()
    bench.files.heal()
    bench.open()
