"""Every kind of damage at open: what is said of it, what is cut, and that nothing else is lost."""

import errno
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from fakes.batches import Put, batch_of
from fakes.stores import CONFIG, DIRECTORY, Bench
from storage.config import ConfirmSource, FlushMode
from storage.errors import (
    CorruptStoreError,
    DiskFullError,
    StoreBusyError,
    StoreLayoutError,
)
from storage.reads import GetStatus
from storage.recovery_report import RecoveryReport
from storage.tools.recover import plan, recover
from storage.tools.verify import verify
from tandemlog.format.producer_mark import ProducerMark

LOG = DIRECTORY / "commitlog"
QUEUE = DIRECTORY / "consumequeue" / "T" / "0"


def full(batches: int = 20, **settings: object) -> tuple[Bench, list[int]]:
    """A store of several files, persisted, not closed; and where each batch starts."""
    bench = Bench(replace(CONFIG, **settings))  # type: ignore[arg-type]
    starts = [
        bench.put(10, queue_id=number % 2, size=40).segments[0].physical_offset
        for number in range(batches)
    ]
    bench.settle()
    bench.store.persist()
    return bench, starts


def log_byte(offset: int) -> tuple[Path, int]:
    size = CONFIG.commit_log_file_size
    return LOG / f"{offset - offset % size:020d}", offset % size


def flip(bench: Bench, path: Path, position: int) -> None:
    bench.files.content(path)[position] ^= 0x10


def everything(bench: Bench) -> list[bytes]:
    return bench.bodies(queue_id=0) + bench.bodies(queue_id=1)


def assert_whole(bench: Bench) -> None:
    """The store holds what its log says, and goes on."""
    bench.put(3)
    bench.settle()
    before = everything(bench)
    bench.store.close()
    report = verify(bench.config, bench.files)
    assert [str(fault) for fault in report.faults] == []
    bench.open()
    assert everything(bench) == before


def text(report: RecoveryReport) -> str:
    return "\n".join(report.lines())


# ---- bounded by what changed


def test_a_kill_costs_what_was_not_yet_persisted() -> None:
    bench, _ = full()
    end = bench.store.log.wrote.value
    bench.put(3)
    bench.kill()
    report = bench.store.recovery
    assert not report.clean_stop
    assert (report.scanned_from, report.scanned_records, report.dispatched) == (end, 3, 3)
    assert report.queues_cut == []
    assert len(everything(bench)) == 203
    assert_whole(bench)


def test_units_beyond_the_recovery_point_are_made_again() -> None:
    bench, _ = full()
    bench.put(30)
    bench.settle()
    bench.store.queues.flush()
    bench.kill()
    assert bench.store.recovery.dispatched == 30
    assert len(everything(bench)) == 230
    assert_whole(bench)


def test_a_power_cut_loses_only_what_was_not_flushed() -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.put(5)
    bench.crash()
    assert everything(bench) == kept
    assert_whole(bench)


def test_dispatch_may_be_ahead_of_what_a_power_cut_left() -> None:
    bench, _ = full()
    kept = everything(bench)
    for number in range(30):
        bench.put(10, queue_id=number % 2)
    bench.store.reput.run_to()
    bench.store.persist()
    bench.crash()
    assert bench.store.log.wrote.value < bench.store.log.row.end
    assert everything(bench) == kept
    assert_whole(bench)


def test_opening_twice_changes_nothing() -> None:
    bench, _ = full()
    bench.put(5)
    bench.kill()
    first = everything(bench)
    bench.kill()
    assert bench.store.recovery.dispatched == 0
    assert everything(bench) == first


# ---- the log


@pytest.mark.parametrize("lost", [1, 9, 30, 100, 139])
def test_a_torn_tail_is_cut_and_said(lost: int) -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.put(1, size=40)
    bench.store.flush()
    path, end = log_byte(bench.store.log.wrote.value)
    bench.files.content(path)[end - lost : end] = bytes(lost)
    bench.kill()
    report = bench.store.recovery
    assert report.cut_bytes > 0
    assert "cut" in text(report)
    assert everything(bench) == kept
    assert_whole(bench)


def test_records_behind_a_bad_one_above_what_was_durable_are_cut_and_kept_aside() -> None:
    bench, _ = full()
    kept = everything(bench)
    start = bench.put(5).segments[0].physical_offset
    bench.put(5)
    bench.store.flush()
    path, position = log_byte(start)
    flip(bench, path, position + 90)
    bench.kill()
    report = bench.store.recovery
    assert report.log_end == start
    assert report.cut_saved
    assert len(bench.files.content(Path(report.cut_saved))) == report.cut_bytes
    assert everything(bench) == kept
    assert_whole(bench)


def test_cut_bytes_never_come_back() -> None:
    bench, _ = full()
    start = bench.put(2).segments[0].physical_offset
    bench.put(5)
    bench.store.flush()
    path, position = log_byte(start)
    flip(bench, path, position + 90)
    bench.kill()
    bench.put(2)
    bench.crash()
    bench.kill()
    assert bench.store.recovery.log_end <= start + 2 * 200
    assert_whole(bench)


@pytest.mark.parametrize("field", [0, 5, 30, 90])
def test_a_flipped_bit_below_the_recovery_point_cuts_nothing(field: int) -> None:
    bench, starts = full()
    kept = everything(bench)
    path, position = log_byte(starts[4])
    flip(bench, path, position + field)
    bench.kill()
    report = bench.store.recovery
    assert report.damages == []
    assert report.log_end == bench.store.log.wrote.value > starts[-1]
    assert len(kept) == 200
    assert bench.put().segments[0].queue_offsets.tolist() == [100]
    bench.settle()
    bench.store.close()
    found = verify(bench.config, bench.files)
    assert str(starts[4]) in str(found.faults[0])
    assert str(path) in str(found.faults[0])


@pytest.mark.parametrize("field", [0, 5, 30])
def test_a_flipped_bit_between_dispatched_and_flushed_is_damage_and_no_end(field: int) -> None:
    bench, _ = full(confirm=ConfirmSource.REPLICATION, batches=0)
    bench.store.become_master(1)
    starts = [bench.put(4).segments[0].physical_offset for _ in range(10)]
    bench.store.advance_confirmed(starts[3])
    bench.settle()
    bench.store.persist()
    path, position = log_byte(starts[6])
    flip(bench, path, position + field)
    bench.kill()
    report = bench.store.recovery
    assert report.log_end > starts[9]
    (damage,) = report.damages
    assert damage.start == starts[6]
    assert "kept" in text(report)
    bench.store.become_master(2)
    assert bench.put().segments[0].queue_offsets.tolist() == [40]
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()
    # 41 numbers, one of which points nowhere
    assert len(bench.bodies()) == 40


def test_damage_below_is_passed_over_when_the_queues_are_made_again() -> None:
    bench, starts = full()
    kept = everything(bench)
    path, position = log_byte(starts[4])
    flip(bench, path, position)
    for name in bench.files.listdir(QUEUE):
        bench.files.unlink(QUEUE / name)
    bench.kill()
    report = bench.store.recovery
    assert "T/0" in report.queues_rebuilt
    assert report.damages[0].start == starts[4]
    found = everything(bench)
    assert len(found) == len(kept) - 1
    assert [body for body in kept if body in set(found)] == found
    assert bench.put().segments[0].queue_offsets.tolist() == [100]


def test_a_missing_log_file_is_named() -> None:
    bench, _ = full(40)
    names = bench.files.listdir(LOG)
    assert len(names) > 3
    bench.store.close()
    bench.files.unlink(LOG / names[1])
    with pytest.raises(StoreLayoutError, match=names[1]):
        bench.open()


def test_the_last_log_files_missing_is_said_and_the_rest_served() -> None:
    bench, _ = full(40)
    names = bench.files.listdir(LOG)
    bench.store.close()
    for name in names[2:]:
        bench.files.unlink(LOG / name)
    bench.open()
    report = bench.store.recovery
    assert any("files are missing" in note for note in report.notes)
    assert 0 < len(everything(bench)) < 400
    assert_whole(bench)


def test_an_empty_newest_file_is_no_obstacle() -> None:
    bench, _ = full()
    end = bench.store.log.row.end
    bench.store.close()
    bench.files.atomic_replace(LOG / f"{end:020d}", b"")
    bench.open()
    assert len(everything(bench)) == 200


# ---- queues


def queue_file(bench: Bench) -> Path:
    return QUEUE / bench.files.listdir(QUEUE)[-1]


def test_a_missing_queue_directory_is_made_again() -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.store.close()
    for name in bench.files.listdir(QUEUE):
        bench.files.unlink(QUEUE / name)
    bench.files.remove_directory(QUEUE)
    bench.open()
    assert "directory is missing" in bench.store.recovery.queues_rebuilt["T/0"]
    assert everything(bench) == kept
    assert_whole(bench)


def test_all_queues_missing_are_made_again() -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.store.close()
    for queue_id in ("0", "1"):
        for name in bench.files.listdir(QUEUE.parent / queue_id):
            bench.files.unlink(QUEUE.parent / queue_id / name)
    bench.open()
    assert set(bench.store.recovery.queues_rebuilt) == {"T/0", "T/1"}
    assert everything(bench) == kept
    assert_whole(bench)


def test_a_missing_queue_file_is_made_again() -> None:
    bench, _ = full(40)
    kept = everything(bench)
    bench.store.close()
    names = bench.files.listdir(QUEUE)
    assert len(names) > 2
    bench.files.unlink(QUEUE / names[1])
    bench.open()
    assert "T/0" in bench.store.recovery.queues_rebuilt
    assert everything(bench) == kept
    assert_whole(bench)


def test_a_queue_that_lost_its_last_units_is_made_again() -> None:
    bench, _ = full(19)
    kept = everything(bench)
    bench.store.close()
    content = bench.files.content(queue_file(bench))
    content[:] = bytes(len(content))
    bench.open()
    assert "T/0" in bench.store.recovery.queues_rebuilt
    assert everything(bench) == kept
    assert_whole(bench)


def test_stray_units_behind_the_end_are_cut() -> None:
    bench, _ = full(19)
    bench.put(3)
    bench.settle()
    bench.store.persist()
    kept = everything(bench)
    content = bench.files.content(queue_file(bench))
    used = 103 * 20 % 400
    content[used + 60 : used + 80] = content[used - 20 : used]
    bench.kill()
    assert everything(bench) == kept
    assert_whole(bench)


@pytest.mark.parametrize("byte", [0, 6, 7, 9, 11])
def test_a_flipped_bit_in_a_queue_is_noticed_by_the_reader_and_mended(byte: int) -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.store.close()
    bench.files.content(QUEUE / f"{0:020d}")[20 * 5 + byte] ^= 0x04
    bench.open()
    with pytest.raises(StoreBusyError, match="T/0"):
        bench.bodies()
    bench.store.reput.run_to()
    assert everything(bench) == kept
    assert_whole(bench)


def test_a_record_that_is_lost_while_the_store_is_open_is_passed_over() -> None:
    bench, starts = full()
    kept = everything(bench)
    path, position = log_byte(starts[4])
    bench.files.content(path)[position : position + 4] = b"\xff" * 4
    with pytest.raises(StoreBusyError, match="T/0"):
        bench.bodies()
    bench.store.reput.run_to()
    found = everything(bench)
    assert len(found) == len(kept) - 1
    assert bench.store.failure is None
    missed = bench.store.get("T", 0, 20, 1, 100)
    assert (missed.status, missed.next_offset) == (GetStatus.FOUND, 22)


def test_the_number_of_a_lost_record_is_not_given_again() -> None:
    bench, starts = full()
    path, position = log_byte(starts[18] + 9 * (bench.store.log.wrote.value - starts[19]) // 10)
    assert bench.files.content(path)[position + 4 : position + 8] == b"\xda\xa3\x20\xa7"
    bench.files.content(path)[position : position + 4] = b"\xff" * 4
    for name in bench.files.listdir(QUEUE):
        bench.files.unlink(QUEUE / name)
    bench.kill()
    assert len(bench.bodies()) == 99
    assert bench.put().segments[0].queue_offsets.tolist() == [100]
    bench.settle()
    assert len(bench.bodies()) == 100


# ---- index


def test_a_missing_index_is_made_again() -> None:
    bench, _ = full()
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0).physical_offsets
    assert len(found) == 200
    bench.store.close()
    for name in bench.files.listdir(DIRECTORY / "index"):
        bench.files.unlink(DIRECTORY / "index" / name)
    bench.open()
    assert bench.store.recovery.index
    again = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert again.physical_offsets == found
    assert_whole(bench)


@pytest.mark.parametrize("byte", [3, 11, 19])
def test_garbage_behind_the_durable_end_of_the_index_is_cut(byte: int) -> None:
    bench, _ = full(5)
    newest = DIRECTORY / "index" / bench.files.listdir(DIRECTORY / "index")[-1]
    bench.put(5)
    bench.settle()
    assert bench.store.index is not None
    bench.store.index.flush()
    content = bench.files.content(newest)
    position = len(content) - 20 + byte
    content[position] ^= 0x40
    bench.kill()
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert len(found.physical_offsets) == 55


def test_a_damaged_index_state_is_left_out() -> None:
    bench, _ = full()
    path = DIRECTORY / "tandemlog" / "index.json"
    flip(bench, path, 20)
    bench.kill()
    assert any("damaged" in note for note in bench.store.recovery.index)
    found = bench.store.reader.query_key("T", "TagA", tags=True, max_messages=0)
    assert len(found.physical_offsets) == 200
    assert_whole(bench)


def test_an_index_file_of_a_wrong_length_is_an_error_with_the_way_out() -> None:
    bench, _ = full()
    bench.store.close()
    with pytest.raises(StoreLayoutError, match="index_slots"):
        bench.open(index_slots=17)
    bench.open(index_slots=16)


# ---- the small files


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
    flip(bench, DIRECTORY / "tandemlog" / "producers.json", 25)
    bench.kill()
    assert any("producers.json is damaged" in note for note in bench.store.recovery.notes)
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
    with pytest.raises(CorruptStoreError, match=r"topics\.json"):
        bench.open()
    bench.files.unlink(path)
    bench.open()
    assert len(everything(bench)) == 10


def test_an_open_that_fails_gives_the_lock_up() -> None:
    bench, _ = full(1)
    bench.store.close()
    bench.files.fail("rename", errno.ENOSPC, name="recovery.json")
    with pytest.raises(DiskFullError, match="/store cannot be opened"):
        bench.open()
    bench.files.heal()
    bench.open()


# ---- the tools


def test_a_dry_run_names_what_recovery_would_do() -> None:
    bench, _ = full()
    start = bench.put(5).segments[0].physical_offset
    bench.store.flush()
    path, position = log_byte(start)
    flip(bench, path, position + 90)
    for name in bench.files.listdir(QUEUE):
        bench.files.unlink(QUEUE / name)
    bench._abandon()
    bench.files.kill()
    report = plan(bench.config, bench.files)
    assert not report.clean_stop
    assert report.log_end == start
    assert report.cut_bytes > 0
    assert set(report.queues_rebuilt) == {"T/0"}
    done = recover(bench.config, bench.files, bench.clock)
    assert (done.log_end, done.cut_bytes) == (report.log_end, report.cut_bytes)
    assert set(done.queues_rebuilt) == {"T/0"}
    assert verify(bench.config, bench.files).holds


def test_recovering_a_replica_offline_confirms_nothing() -> None:
    bench, _ = full(confirm=ConfirmSource.REPLICATION, batches=0)
    bench.store.become_master(1)
    starts = [bench.put(4).segments[0].physical_offset for _ in range(10)]
    bench.store.advance_confirmed(starts[3])
    bench.settle()
    bench.store.close()
    recover(bench.config, bench.files, bench.clock)
    bench.open(confirm=ConfirmSource.REPLICATION)
    assert bench.store.confirmed.value == starts[3]
    assert len(bench.bodies()) == 12
    bench.store.advance_confirmed(1 << 40)
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 40


# ---- at random


def steps(random: Random) -> Iterator[str]:
    for _ in range(random.randrange(5, 30)):
        yield random.choice(["put", "put", "put", "flush", "dispatch", "persist", "mark"])


@pytest.mark.parametrize("seed", range(25))
def test_whatever_a_power_cut_leaves_nothing_flushed_is_lost(seed: int) -> None:
    random = Random(seed)
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC, buffered=seed % 3 == 1))
    acknowledged: list[bytes] = []
    for life in range(4):
        for number, step in enumerate(steps(random)):
            _step(bench, step, random, life * 100 + number)
        durable = bench.store.log.flushed.value
        bench.store.reput.run_to()
        acknowledged = _readable(bench)
        if random.random() < 0.3:
            bench.kill()
        else:
            bench.crash(random)
        _check_life(bench, durable, acknowledged)
    assert_whole(bench)


def _step(bench: Bench, step: str, random: Random, number: int) -> None:
    if step == "put":
        puts = [
            Put("T", random.randrange(4), b"%d-%d" % (number, each) * random.randrange(1, 40))
            for each in range(random.randrange(1, 12))
        ]
        bench.store.append(batch_of(puts))
    elif step == "mark":
        # a producer sends again what it has no answer for, then goes on
        state = bench.store.producers.describe("p")
        last = state.last_sequence if state is not None else -1
        for sequence in range(max(last, 0), last + 2):
            bench.put_marked(ProducerMark("p", 0, sequence, 0, 3), 3)
    elif step == "flush":
        bench.store.flush()
    elif step == "dispatch":
        bench.store.reput.run_to()
    else:
        bench.store.persist()


def _readable(bench: Bench) -> list[bytes]:
    return [body for queue_id in range(4) for body in bench.bodies(queue_id=queue_id)]


def _check_life(bench: Bench, durable: int, acknowledged: list[bytes]) -> None:
    store = bench.store
    assert store.log.wrote.value >= durable
    assert store.recovery.damages == []
    left = _readable(bench)
    for body in set(acknowledged):
        assert left.count(body) >= acknowledged.count(body)
    sequences = [body for body in left if body.startswith(b"p-")]
    assert len(sequences) == len(set(sequences))
