"""Producers whose requests have all expired are known to a slave that never had them."""

from contextlib import suppress

import pytest

from fakes.crashed_stores import flip
from fakes.joined_slaves import REPLICATED, begin, confirm_all, copy, drop_all, joined
from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.errors import FormatError
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.errors import BatchRefusedError
from tandemlog_server.storage.producers.producer_table import ProducerTable
from tandemlog_server.storage.recovery.prologue import prologue
from tandemlog_server.storage.retention.cleaner import Cleaner
from tandemlog_server.storage.state_files.producer_begins import table_before
from tandemlog_server.storage.tools.verify import verify

BEGINS = DIRECTORY / "tandemlog" / "producers-begin"
TABLE = DIRECTORY / "tandemlog" / "producers"
LAST = 9


def mark(sequence: int, count: int = 2, producer: str = "p") -> ProducerMark:
    return ProducerMark(producer, 3, sequence, 0, count)


def expired() -> Bench:
    """A master whose producer p has put ten requests, all expired."""
    master = Bench(REPLICATED)
    master.store.become_master(1)
    for sequence in range(LAST + 1):
        master.put_marked(mark(sequence), 2)
    grow(master)
    assert master.store.log.min_offset >= CONFIG.commit_log_file_size
    return master


def grow(master: Bench) -> None:
    """More messages, and of the files of the log the newest alone stays."""
    for _ in range(40):
        master.put(10, size=40)
    confirm_all(master)
    drop_all(master)


def knows(bench: Bench, last: int = LAST) -> None:
    """The last request, sent again, is stored; the next one is taken, once."""
    end = bench.store.log.wrote.value
    assert bench.put_marked(mark(last), 2).duplicate
    assert bench.put_marked(mark(0), 2).duplicate
    assert bench.store.log.wrote.value == end
    with pytest.raises(BatchRefusedError) as refused:
        bench.put_marked(mark(last, 3), 3)
    assert refused.value.code == "SEQUENCE_CONFLICT"
    assert not bench.put_marked(mark(last + 1), 2).duplicate
    assert bench.put_marked(mark(last + 1), 2).duplicate


def test_a_promoted_slave_knows_them() -> None:
    slave = joined(expired())
    slave.store.become_master(2)
    knows(slave)
    slave.store.close()
    assert [str(fault) for fault in verify(slave.config, slave.files).faults] == []


@pytest.mark.parametrize("end", ["closed", "killed", "power cut"])
@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("lost", ["", "table", "damaged table", "begins"])
def test_they_outlive_what_a_stop_leaves(end: str, saved: bool, lost: str) -> None:
    slave = joined(expired())
    if saved or lost == "begins":
        slave.store.persist()
    if end == "closed":
        slave.store.close()
    else:
        slave._abandon()
        slave.files.kill() if end == "killed" else slave.files.crash()
    if lost == "table":
        slave.files.unlink(TABLE)
    elif lost == "damaged table":
        flip(slave, TABLE, 30)
    elif lost == "begins":
        slave.files.unlink(BEGINS)
    slave.open()
    slave.store.become_master(2)
    knows(slave)


@pytest.mark.parametrize("stop", range(1, 60, 6))
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_while_they_are_taken_asks_for_them_again(stop: int, power: bool) -> None:
    master = expired()
    files = MortalFiles()
    slave = Bench(REPLICATED, files=files, topics=())
    files.calls_left = stop
    with suppress(DeathError):
        joined(master, slave)
    files.rest()
    files.crash() if power else files.kill()
    slave.open()
    if slave.store.needs_prologue:
        begin(master, slave)
    copy(master, slave)
    slave.store.become_master(2)
    knows(slave)


def test_a_slave_of_a_slave_knows_them_too() -> None:
    first = joined(expired())
    first.store.become_master(2)
    grow(first)
    second = joined(first)
    second.store.become_master(3)
    knows(second)


def test_a_second_resync_takes_them_anew() -> None:
    master = expired()
    slave = joined(master)
    master.put_marked(mark(LAST + 1), 2)
    grow(master)
    slave.store.reset(master.store.log.min_offset)
    assert slave.files.status(BEGINS) is None
    assert slave.store.producers.describe("p") is None
    slave.kill()
    joined(master, slave)
    slave.store.become_master(2)
    knows(slave, LAST + 1)


def test_what_the_master_has_above_the_begin_comes_from_the_log_alone() -> None:
    """A slave that is promoted before it had those requests stores them."""
    master = expired()
    end = master.store.log.wrote.value
    for sequence in range(LAST + 1, LAST + 80):
        master.put_marked(mark(sequence), 2)
    for sequence in range(80):
        master.put_marked(mark(sequence, producer="q"), 2)
    master.store.flush()
    master.store.advance_confirmed(master.store.log.wrote.value)
    assert master.store.log.min_offset <= end
    slave = Bench(REPLICATED, topics=())
    begin(master, slave)
    copy(master, slave, end)
    assert slave.store.producers.describe("q") is None
    slave.store.become_master(2)
    assert not slave.put_marked(mark(0, producer="q"), 2).duplicate


def test_a_request_that_lies_across_the_begin_goes_on_there() -> None:
    master = Bench(REPLICATED)
    master.store.become_master(1)
    size = CONFIG.commit_log_file_size
    while master.store.log.wrote.value < size - 1000:
        master.put(size=10)
    master.put_marked(mark(0, 30), 30)
    assert master.store.log.min_offset < size < master.store.log.wrote.value
    confirm_all(master)
    Cleaner(master.store._parts, sleep=lambda _: None).drop_before(size)
    assert master.store.log.min_offset == size
    slave = joined(master)
    slave.store.become_master(2)
    end = slave.store.log.wrote.value
    assert slave.put_marked(mark(0, 30), 30).duplicate
    assert slave.store.log.wrote.value == end


def test_a_truncation_does_not_touch_them() -> None:
    master = expired()
    slave = joined(master)
    end = slave.store.log.wrote.value
    master.put_marked(mark(LAST + 1), 2)
    copy(master, slave)
    slave.store.truncate(end)
    slave.kill()
    slave.store.become_master(2)
    knows(slave)


def test_a_slave_that_has_lost_its_table_asks_again() -> None:
    master = expired()
    slave = joined(master)
    slave.store.close()
    for path in (TABLE, BEGINS, BEGINS.with_name("queue-begins.json")):
        slave.files.unlink(path)
    slave.open()
    assert slave.store.needs_prologue
    slave.store.take_prologue(master.store.prologue(master.store.log.min_offset))
    assert not slave.store.needs_prologue
    slave.store.become_master(2)
    knows(slave)


def test_few_requests_of_each_go_along() -> None:
    master = expired()
    begins = prologue(master.store._parts, master.store.log.min_offset)
    for sequence in range(LAST + 1, LAST + 60):
        master.put_marked(mark(sequence), 2)
    grow(master)
    assert len(prologue(master.store._parts, master.store.log.min_offset)) < len(begins) + 100


@pytest.mark.parametrize("room", [0, 1, 3, 8])
def test_where_there_are_too_many_those_that_put_last_go_along(room: int) -> None:
    master = Bench(REPLICATED)
    master.store.become_master(1)
    for number in range(8):
        master.put_marked(mark(0, producer=f"p{number}"), 2)
    grow(master)
    start, table = master.store.log.min_offset, master.store.producers
    whole = table_before(table, start)
    row = len(table.snapshot().rows[0])
    found = ProducerTable()
    found.restore(table_before(table, start, room * row))
    assert len(found) == room
    assert [each for each in range(8) if found.describe(f"p{each}")] == [*range(8 - room, 8)]
    assert room < 8 or table_before(table, start, room * row) == whole


def test_damage_is_said_and_the_table_goes_on() -> None:
    slave = joined(expired())
    slave.store.persist()
    flip(slave, BEGINS, 30)
    slave.kill()
    assert any("producers-begin is damaged" in note for note in slave.store.recovery.notes)
    slave.store.become_master(2)
    knows(slave)


@pytest.mark.parametrize("length", [0, 7, 8, 20])
def test_a_prologue_that_ends_too_soon_is_refused(length: int) -> None:
    master = expired()
    slave = Bench(REPLICATED, topics=())
    data = master.store.prologue(master.store.log.min_offset)
    with pytest.raises(FormatError):
        slave.store.take_prologue(data[:length])
