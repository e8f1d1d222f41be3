"""Queues whose records have all expired keep their numbers, also where the records never were."""

from contextlib import suppress

import pytest

from fakes.crashed_stores import flip
from fakes.joined_slaves import REPLICATED, begin, confirm_all, copy, drop_all, joined
from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.errors import FormatError
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.state_files.producer_begins import table_before
from tandemlog_server.storage.state_files.queue_begins import QueueBegins, decode
from tandemlog_server.storage.tools.rebuild import rebuild
from tandemlog_server.storage.tools.recover import recover
from tandemlog_server.storage.tools.verify import verify

BEGINS = DIRECTORY / "tandemlog" / "queue-begins.json"
POINT = DIRECTORY / "tandemlog" / "recovery.json"
IDLE = 37


def expired(idle: int = IDLE) -> Bench:
    """A master whose queue 1 has had `idle` messages, all expired; queue 0 is in use."""
    master = Bench(REPLICATED)
    master.store.become_master(1)
    for _ in range(idle):
        master.put(queue_id=1)
    for _ in range(40):
        master.put(10, size=40)
    confirm_all(master)
    drop_all(master)
    assert master.store.log.min_offset >= CONFIG.commit_log_file_size
    assert master.bodies(queue_id=1) == []
    return master


def next_of(bench: Bench, queue_id: int = 1) -> int:
    (number,) = bench.put(queue_id=queue_id).segments[0].queue_offsets.tolist()
    confirm_all(bench)
    return int(number)


@pytest.mark.parametrize("idle", [1, 19, 20, 21, IDLE, 40, 45])
def test_an_idle_queue_goes_on_where_it_was_on_a_promoted_slave(idle: int) -> None:
    slave = joined(expired(idle))
    dense = slave.store.queue_table.get("T", 1)
    assert slave.store.queues.min_offset(dense) == slave.store.queues.max_offset(dense) == idle
    slave.store.become_master(2)
    assert next_of(slave) == idle
    assert next_of(slave) == idle + 1
    assert len(slave.bodies(queue_id=1)) == 2
    assert slave.store.reader.get("T", 1, idle, 1, 4096).count == 1
    slave.reopen()
    assert len(slave.bodies(queue_id=1)) == 2
    slave.store.close()
    assert [str(fault) for fault in verify(slave.config, slave.files).faults] == []


@pytest.mark.parametrize("end", ["closed", "killed", "power cut"])
@pytest.mark.parametrize("lost", ["", "point", "begins", "queues", "rebuilt", "recovered"])
def test_the_numbers_outlive_what_a_stop_leaves(end: str, lost: str) -> None:
    slave = joined(expired())
    slave.store.persist()
    if end == "closed":
        slave.store.close()
    else:
        slave._abandon()
        slave.files.kill() if end == "killed" else slave.files.crash()
    if lost == "point":
        slave.files.unlink(POINT)
    elif lost == "begins":
        slave.files.unlink(BEGINS)
    elif lost == "queues":
        slave.files.rename(DIRECTORY / "consumequeue", DIRECTORY / "away")
    elif lost == "rebuilt":
        rebuild(slave.config, files=slave.files, clock=slave.clock)
    elif lost == "recovered":
        recover(slave.config, slave.files, slave.clock)
    slave.open(confirm=ConfirmSource.REPLICATION)
    slave.store.become_master(2)
    assert next_of(slave) == IDLE
    assert next_of(slave, 0) == 400


@pytest.mark.parametrize("lost", ["point", "queues", "rebuilt"])
def test_what_expires_on_the_slave_itself_keeps_its_numbers(lost: str) -> None:
    master = expired()
    slave = joined(master)
    assert next_of(master) == IDLE
    for _ in range(40):
        master.put(10, size=40)
    confirm_all(master)
    copy(master, slave)
    drop_all(slave)
    assert slave.bodies(queue_id=1) == []
    slave.store.close()
    if lost == "point":
        slave.files.unlink(POINT)
    elif lost == "queues":
        slave.files.rename(DIRECTORY / "consumequeue", DIRECTORY / "away")
    else:
        rebuild(slave.config, files=slave.files, clock=slave.clock)
    slave.open(confirm=ConfirmSource.REPLICATION)
    slave.store.become_master(2)
    assert next_of(slave) == IDLE + 1


def test_a_slave_of_a_slave_has_them_too() -> None:
    first = joined(expired())
    first.store.become_master(2)
    second = joined(first)
    second.store.become_master(3)
    assert next_of(second) == IDLE
    drop_all(second)
    third = joined(second)
    third.store.become_master(4)
    assert next_of(third) == IDLE + 1


def test_a_second_resync_takes_them_anew() -> None:
    master = expired()
    slave = joined(master)
    assert next_of(master) == IDLE
    for _ in range(40):
        master.put(10, size=40)
    confirm_all(master)
    drop_all(master)
    slave.store.reset(master.store.log.min_offset)
    assert slave.files.status(BEGINS) is None
    slave.kill()
    joined(master, slave)
    slave.store.become_master(2)
    assert next_of(slave) == IDLE + 1


@pytest.mark.parametrize("stop", range(1, 60, 4))
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
    if slave.store.log.wrote.value == slave.store.log.min_offset:
        begin(master, slave)
    copy(master, slave)
    slave.store.become_master(2)
    assert next_of(slave) == IDLE


def test_an_old_master_that_comes_back_shows_new_records_of_an_idle_queue() -> None:
    """A slave of before had no numbers and began at 0: the old one's units are of deleted files."""
    old = expired()
    promoted = Bench(REPLICATED, topics=())
    promoted.store.reset(old.store.log.min_offset)
    promoted.store.topics.replace_from_json(old.store.topics.to_json())
    copy(old, promoted)
    promoted.store.become_master(2)
    assert next_of(promoted) == 0
    for _ in range(4):
        next_of(promoted)
    copy(promoted, old)
    assert old.bodies(queue_id=1) == promoted.bodies(queue_id=1)
    assert len(old.bodies(queue_id=1)) == 5


def test_a_number_that_the_log_contradicts_gives_way() -> None:
    master = expired()
    slave = Bench(REPLICATED, topics=())
    slave.store.reset(master.store.log.min_offset)
    wrong = QueueBegins(master.store.log.min_offset, {"T": {0: 1000, 1: IDLE, 2: 5}})
    numbers = wrong.encode()
    slave.store.take_prologue(
        len(numbers).to_bytes(8, "big") + numbers + table_before(master.store.producers, 0)
    )
    copy(master, slave)
    assert slave.bodies() == master.bodies()
    slave.reopen()
    assert slave.bodies() == master.bodies()


def test_a_truncation_does_not_lower_them() -> None:
    master = expired()
    slave = joined(master)
    end = slave.store.log.wrote.value
    next_of(master)
    copy(master, slave)
    slave.store.truncate(end)
    dense = slave.store.queue_table.get("T", 1)
    assert slave.store.queues.max_offset(dense) == IDLE
    slave.kill()
    slave.store.become_master(2)
    assert next_of(slave) == IDLE


def test_a_damaged_file_is_said_and_the_rest_goes_on() -> None:
    slave = joined(expired())
    slave.store.persist()
    flip(slave, BEGINS, 30)
    slave.kill()
    assert any("queue-begins.json is damaged" in note for note in slave.store.recovery.notes)
    slave.store.become_master(2)
    assert next_of(slave) == IDLE


@pytest.mark.parametrize(
    "begins", [{"../x": {0: 1}}, {"T": {-1: 1}}, {"T": {1 << 20: 1}}, {"T": {0: -1}}, {"T": 3}]
)
def test_what_cannot_be_is_refused(begins: dict[str, dict[int, int]]) -> None:
    with pytest.raises((FormatError, TypeError)):
        decode(QueueBegins(0, begins).encode())
