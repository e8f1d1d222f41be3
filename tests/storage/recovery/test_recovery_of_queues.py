"""Consume queues that are lost, short or damaged are made again from the log."""

from contextlib import suppress
from pathlib import Path

import pytest

from fakes.crashed_stores import QUEUE, assert_whole, everything, full, log_byte
from fakes.stores import Bench
from tandemlog_server.storage.errors import StoreBusyError
from tandemlog_server.storage.reads.results import GetStatus


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
    missed = bench.store.reader.get("T", 0, 20, 1, 100)
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


@pytest.mark.parametrize("length", [0, 200])
@pytest.mark.parametrize("number", [0, 1, -1])
@pytest.mark.parametrize("clean", [True, False])
def test_a_queue_file_that_was_cut_short_is_noticed_and_made_again(
    clean: bool, number: int, length: int
) -> None:
    bench, _ = full(40)
    kept = everything(bench)
    if clean:
        bench.store.close()
    del bench.files.content(QUEUE / bench.files.listdir(QUEUE)[number])[length:]
    bench.open() if clean else bench.kill()
    with suppress(StoreBusyError):
        everything(bench)
    bench.store.reput.run_to()
    assert everything(bench) == kept
    assert_whole(bench)


def test_a_queue_file_that_is_gone_while_the_store_is_open_is_made_again() -> None:
    bench, _ = full(40)
    kept = everything(bench)
    bench.store.queues.close()
    bench.files.unlink(QUEUE / bench.files.listdir(QUEUE)[1])
    with pytest.raises(StoreBusyError, match="missing"):
        everything(bench)
    bench.put(1)
    bench.settle()
    assert set(kept) < set(everything(bench))
    assert_whole(bench)


@pytest.mark.parametrize("bit", [1, 5, 12, 20, 31, 45, 62])
@pytest.mark.parametrize("which", [0, 2])
def test_a_flipped_bit_in_the_number_of_a_record_costs_that_record_alone(
    bit: int, which: int
) -> None:
    """The number has no checksum. It came to the queue's rebuild, which left out what followed,
    and filled the queue up to it."""
    bench, _ = full(batches=4)
    before = bench.bodies(queue_id=0)
    log = bench.store.log.wrote.value
    bench.put(3)
    bench.store.flush()
    bench._abandon()
    bench.files.kill()
    size = (bench.store.log.wrote.value - log) // 3
    path, position = log_byte(log + which * size)
    bench.files.content(path)[position + 20 + 7 - bit // 8] ^= 1 << bit % 8
    used = sum(len(bench.files.content(QUEUE / name)) for name in bench.files.listdir(QUEUE))
    bench.open()
    bench.settle()
    bodies = bench.bodies(queue_id=0)
    assert bodies[: len(before)] == before
    assert len(bodies) >= len(before) + 2
    bench.put()
    bench.settle()
    assert len(bench.bodies(queue_id=0)) == len(bodies) + 1
    held = sum(len(bench.files.content(QUEUE / name)) for name in bench.files.listdir(QUEUE))
    assert held <= used + bench.config.queue_file_size
