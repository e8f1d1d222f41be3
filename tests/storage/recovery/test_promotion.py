"""What a slave that becomes master makes of its log's end: the judgement of recovery."""

from dataclasses import replace

import pytest

from fakes.crashed_stores import flip, log_byte
from fakes.stores import CONFIG, Bench
from tandemlog.format.constants import FIXED_SIZE
from tandemlog_server.storage.config import ConfirmSource, StoreConfig
from tandemlog_server.storage.errors import CorruptStoreError

REPLICATED = replace(CONFIG, confirm=ConfirmSource.REPLICATION)
SIZE, QUEUE_OFFSET, PHYSICAL = 0, 20, 28


def following(master: Bench, config: StoreConfig = REPLICATED) -> Bench:
    slave = Bench(config, topics=())
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    return slave


def copy(master: Bench, slave: Bench, end: int | None = None, step: int = 700) -> None:
    """The master's bytes, as they come over the stream; all of it is fsynced."""
    log, position = master.store.log, slave.store.log.wrote.value
    end = log.committed.value if end is None else end
    while position < end:
        piece = bytes(log.read(position, min(step, end - position)))
        slave.store.append_raw(position, piece)
        position += len(piece)
    slave.store.flush()


def lead(bench: Bench, epoch: int) -> None:
    bench.store.become_master(epoch)


def confirm_all(bench: Bench) -> None:
    bench.store.flush()
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()


def filled(count: int = 40) -> tuple[Bench, list[int]]:
    """A master, and where each of its messages lies."""
    master = Bench(REPLICATED)
    lead(master, 1)
    starts = [
        master.put(queue_id=number % 2, size=100).segments[0].physical_offset
        for number in range(count)
    ]
    confirm_all(master)
    return master, starts


@pytest.mark.parametrize("field", [SIZE, SIZE + 2, 5, PHYSICAL + 3, FIXED_SIZE + 4])
@pytest.mark.parametrize("known", ["nothing", "a part", "all"])
def test_one_turned_bit_cuts_nothing_behind_it(field: int, known: str) -> None:
    master, starts = filled()
    slave = following(master)
    copy(master, slave)
    if known != "nothing":
        slave.store.advance_confirmed(starts[10] if known == "a part" else 1 << 40)
    path, position = log_byte(starts[20])
    flip(slave, path, position + field)
    lead(slave, 2)
    store = slave.store
    assert store.log.wrote.value == master.store.log.wrote.value
    if field != FIXED_SIZE + 4 or known == "nothing":
        assert [damage.start for damage in store.damages] == [starts[20]]
    assert slave.put(queue_id=0).segments[0].queue_offsets.tolist() == [20]
    assert slave.put(queue_id=1).segments[0].queue_offsets.tolist() == [20]
    confirm_all(slave)
    assert slave.bodies(queue_id=1)[:20] == master.bodies(queue_id=1)
    assert store.failure is None
    if field > PHYSICAL + 8:
        return  # whoever reads it finds that its body is another
    left = slave.bodies(queue_id=0)
    assert left[:-1] == [each for n, each in enumerate(master.bodies()) if n != 10]
    slave.reopen()
    assert slave.bodies(queue_id=0) == left


@pytest.mark.parametrize("field", [SIZE, SIZE + 2, 5, PHYSICAL + 3])
@pytest.mark.parametrize("confirmed", [False, True])
def test_damage_in_the_last_record_leaves_the_log_as_long_as_the_other_replicas_have_it(
    field: int, confirmed: bool
) -> None:
    master, starts = filled()
    slave = following(master)
    copy(master, slave)
    path, position = log_byte(starts[-1])
    flip(slave, path, position + field)
    if confirmed:
        slave.store.advance_confirmed(1 << 40)
    end = master.store.log.wrote.value
    lead(slave, 2)
    assert slave.store.log.wrote.value == end
    assert [damage.start for damage in slave.store.damages] == [starts[-1]]
    assert slave.put().segments[0].physical_offset == end
    confirm_all(slave)
    assert slave.store.failure is None
    assert slave.bodies(queue_id=0)[:20] == master.bodies(queue_id=0)
    slave.kill()
    lead(slave, 3)
    assert slave.store.log.wrote.value > end
    assert slave.put().segments[0].queue_offsets.tolist() == [21]
    # of the damaged record its head alone is bad, so its number is known
    assert slave.put(queue_id=1).segments[0].queue_offsets.tolist() == [20]
    confirm_all(slave)
    assert len(slave.bodies(queue_id=1)) == 20


@pytest.mark.parametrize("at", [0, 4, 6, 7])
@pytest.mark.parametrize("known", [0, 10])
@pytest.mark.parametrize("hit", [20, 21, 38, 39])
def test_a_turned_bit_in_a_number_costs_no_later_message(at: int, known: int, hit: int) -> None:
    """What is not dispatched yet tells the next numbers, and dispatch would doubt those that go on
    behind a false one."""
    master, starts = filled()
    slave = following(master)
    copy(master, slave)
    slave.store.advance_confirmed(starts[known])
    path, position = log_byte(starts[hit])
    flip(slave, path, position + QUEUE_OFFSET + at)
    lead(slave, 2)
    assert slave.store.queue_table.next_queue_offsets[:2].tolist() == [20, 20]
    for _ in range(3):
        slave.put(2, queue_id=0)
        slave.put(2, queue_id=1)
        confirm_all(slave)
    for queue_id in (0, 1):
        missing = queue_id == hit % 2
        assert len(slave.bodies(queue_id=queue_id)) in (26, 26 - missing), queue_id


@pytest.mark.parametrize("missing", [1, 5, 60, 120, 190])
def test_the_beginning_of_a_record_is_cut(missing: int) -> None:
    master, starts = filled()
    slave = following(master)
    copy(master, slave, end=master.store.log.wrote.value - missing)
    slave.store.advance_confirmed(1 << 40)
    lead(slave, 2)
    assert slave.store.log.wrote.value == starts[-1]
    assert slave.store.damages == []
    assert slave.put(queue_id=1).segments[0].queue_offsets.tolist() == [19]


def test_a_log_that_ends_inside_a_blank_is_cut_before_it() -> None:
    master = Bench(REPLICATED)
    lead(master, 1)
    while master.store.log.wrote.value < CONFIG.commit_log_file_size:
        before = master.store.log.wrote.value
        master.put(size=700)
    slave = following(master)
    copy(master, slave, end=before + 20)
    lead(slave, 2)
    assert slave.store.log.wrote.value == before
    assert slave.store.damages == []


def test_a_dispatch_that_has_stopped_at_damage_goes_on() -> None:
    master, starts = filled()
    slave = following(master)
    copy(master, slave)
    path, position = log_byte(starts[20])
    flip(slave, path, position + 5)
    slave.store.advance_confirmed(1 << 40)
    slave.store.start()
    with pytest.raises(CorruptStoreError):  # which the wait raises, once dispatch has met it
        slave.store.reputed.wait(1 << 40, 30)
    lead(slave, 2)
    assert slave.store.reput.failure is None
    slave.put()
    slave.store.close()
    slave.open()
    assert len(slave.bodies(queue_id=1)) == 20


def test_what_recovery_knows_of_the_next_numbers_a_promotion_does_not_undo() -> None:
    """The last record of a queue is damaged, others follow; its queue has to be made again."""
    master, starts = filled(10)
    path, position = log_byte(starts[8])
    flip(master, path, position + 5)
    master.store.close()
    master.files.unlink(CONFIG.directory / "consumequeue" / "T" / "0" / f"{0:020d}")
    for epoch in (2, 3, 4):
        master.open()
        lead(master, epoch)
        assert int(master.store.queue_table.next_queue_offsets[0]) == 5
        master.store.close()
    master.open()
    lead(master, 5)
    assert master.put().segments[0].queue_offsets.tolist() == [5]
    confirm_all(master)
    assert master.bodies(queue_id=0)[4:] == [master.bodies(queue_id=0)[-1]]
    assert len(master.bodies(queue_id=1)) == 5
