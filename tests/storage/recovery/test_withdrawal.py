"""What was noted of a log's lost tail is not believed when the log has grown again, though the disk
was full at the open in between."""

import errno
from dataclasses import replace

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import DiskFullError, StoreError

LAST = ProducerMark("p", 0, 1, 0, 3)
OWN = DIRECTORY / "tandemlog"


def with_a_lost_tail(bench: Bench) -> int:
    """Everything was noted up to the end, which was not flushed, and then the last request went:
    the log's new end. Of producers less was noted: as if the disk had told a lie."""
    bench.put_marked(replace(LAST, sequence=0), 3)
    bench.store.flush()
    end = bench.store.log.wrote.value
    bench.put_marked(LAST, 3)
    bench.store.reput.run_to()
    bench.store.consumer_offsets.commit("g", "T", 0, 6)
    bench.store.consumer_offsets.save(bench.clock.now_ms())
    bench.store.persist()
    bench.files.atomic_replace(OWN / "producers", bench.store.producers.snapshot().encode())
    bench._abandon()
    bench.files.crash()
    return end


def grow_beyond(bench: Bench, offset: int) -> None:
    """Records of others, in other queues, and a stop in which little can be noted."""
    while bench.store.log.wrote.value <= offset:
        bench.put(2, queue_id=1)
    bench.store.flush()
    bench._abandon()
    bench.files.kill()
    bench.files.heal()


def whole(bench: Bench) -> None:
    """Every record of the log is in its queue, and the lost request is none that was stored."""
    bench.settle()
    held = bench.bodies(queue_id=1)
    assert len(held) == len(set(held)) == bench.store.queues.max_offset(1)
    assert len(bench.bodies()) == 3
    assert not bench.put_marked(LAST, 3).duplicate
    bench.settle()
    assert len(bench.bodies()) == 6
    assert bench.store.producers.describe("p") is not None


@pytest.mark.parametrize("name", ["producers", "index.json", "recovery.json"])
@pytest.mark.parametrize("call", ["atomic_replace", "rename", "pwrite"])
def test_a_note_that_cannot_be_replaced_goes(name: str, call: str) -> None:
    bench = Bench()
    bench.put(1, queue_id=1)
    with_a_lost_tail(bench)
    for times in range(1, 9):
        bench.files.fail(call, errno.ENOSPC, name=f"tandemlog/{name}", times=times)
        try:
            bench.open()
            break
        except StoreError:
            # nothing can be appended behind a note that stays
            bench.files.kill()
            bench.files.heal()
    else:
        bench.open()
    bench.files.fail("atomic_replace", errno.ENOSPC, name="tandemlog/")
    grow_beyond(bench, 5_000)
    bench.open()
    whole(bench)


def test_where_it_cannot_be_lowered_the_store_does_not_open() -> None:
    bench = Bench()
    bench.put(1, queue_id=1)
    with_a_lost_tail(bench)
    bench.files.fail("atomic_replace", errno.ENOSPC, name="recovery.json")
    with pytest.raises(DiskFullError):
        bench.open()


def test_the_note_of_an_index_that_is_not_kept_any_more_goes() -> None:
    bench = Bench()
    bench.put(1, queue_id=1)
    with_a_lost_tail(bench)
    bench.open(index_enabled=False)
    assert bench.files.status(OWN / "index.json") is None
    grow_beyond(bench, 5_000)
    bench.open(index_enabled=True)
    whole(bench)


def test_producers_are_noted_when_the_log_is_durable_up_to_there() -> None:
    bench = Bench()
    path = OWN / "producers"
    before = bench.files.read_file(path)
    first = replace(LAST, sequence=0)
    bench.put_marked(first, 3)
    bench.store.persist()
    assert bench.files.read_file(path) == before
    bench.store.flush()
    bench.put(1)  # not flushed, and not needed for what was taken before
    bench.store.persist()
    assert bench.files.read_file(path) != before
    bench.crash()
    assert bench.put_marked(first, 3).duplicate


def test_a_lost_tail_lowers_consumer_offsets_durably() -> None:
    """Else they might be found below the end of a queue that has grown again."""
    bench = Bench()
    with_a_lost_tail(bench)
    bench.open()
    assert bench.store.recovery.offsets_clamped == 1
    bench.put(9)
    bench.store.flush()
    bench.crash()
    assert bench.store.consumer_offsets.offset("g", "T", 0) == 3


def test_a_table_that_takes_long_to_write_is_written_less_often() -> None:
    bench = Bench(replace(CONFIG, index_enabled=False))
    path = OWN / "producers"
    bench.clock.advance(1)
    replace_file, took = bench.files.atomic_replace, 2.0

    def slowly(target: object, data: bytes) -> None:
        replace_file(target, data)  # type: ignore[arg-type]
        bench.clock.advance(took if target == path else 0)

    bench.files.atomic_replace = slowly  # type: ignore[assignment, method-assign]

    def round_after(seconds: float, sequence: int) -> bool:
        bench.clock.advance(seconds)
        bench.put_marked(ProducerMark("p", 0, sequence, 0, 1), 1)
        bench.store.flush()
        before = bench.files.read_file(path)
        bench.store.persist()
        return bench.files.read_file(path) != before

    assert round_after(0, 0)
    assert not round_after(39, 1)
    assert round_after(1, 2)
    bench.put_marked(ProducerMark("p", 0, 3, 0, 1), 1)
    before = bench.files.read_file(path)
    bench.store.close()
    assert bench.files.read_file(path) != before


@pytest.mark.parametrize("damaged", [True, False], ids=["before", "at the open"])
def test_the_least_end_of_a_damaged_queue_does_not_count_what_is_lost(damaged: bool) -> None:
    """Its next record would leave a gap that the other replicas do not have."""
    bench = Bench()
    bench.put(1, queue_id=1)
    if damaged:
        persist = bench.store.persist

        def after_damage() -> None:
            bench.store.queues.mark_damaged(bench.store.queue_table.get("T", 0), "a test")
            persist()

        bench.store.persist = after_damage  # type: ignore[method-assign]
    with_a_lost_tail(bench)
    if not damaged:
        folder = DIRECTORY / "consumequeue/T/0"
        for name in bench.files.listdir(folder):
            bench.files.unlink(folder / name)
    bench.files.fail("atomic_replace", errno.ENOSPC, name="tandemlog/producers", times=1)
    bench.open()
    assert bench.store.recovery.waits
    point = bench.store._parts.recovery_point.load()
    assert point is not None
    assert (point.queues["T"][0], point.least["T"][0]) == (-1, 3)
    bench._abandon()
    bench.files.kill()
    bench.open()
    assert bench.store.queues.max_offset(0) == 3
