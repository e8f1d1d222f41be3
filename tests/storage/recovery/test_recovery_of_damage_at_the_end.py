"""Damage in the very last record, and a last log file that is gone: nothing is given twice."""

from dataclasses import replace

import pytest

from fakes.crashed_stores import LOG, everything, flip, full, log_byte
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.storage.config import ConfirmSource, FlushMode
from tandemlog_server.storage.errors import StoreError, StoreLayoutError
from tandemlog_server.storage.tools.recover import plan, recover

HEAD = [*range(8), 12, 13, *range(28, 36)]
"""Size, magic, the bytes of the queue id that make it one that cannot be, and physical offset."""


def closed(count: int = 10, **settings: object) -> tuple[Bench, list[int]]:
    bench = Bench(replace(CONFIG, **settings))  # type: ignore[arg-type]
    if bench.config.confirm is ConfirmSource.REPLICATION:
        bench.store.become_master(1)
    starts = [bench.put(size=40).segments[0].physical_offset for _ in range(count)]
    bench.store.flush()
    bench.store.advance_confirmed(1 << 40)
    bench.settle()
    bench.store.close()
    return bench, starts


@pytest.mark.parametrize("field", HEAD)
@pytest.mark.parametrize("again", ["closed", "killed", "recovered"])
def test_damage_in_the_last_record_is_passed_over(field: int, again: str) -> None:
    bench, starts = closed()
    path, position = log_byte(starts[-1])
    flip(bench, path, position + field)
    bench.open()
    with pytest.raises(StoreError, match="being rebuilt"):
        bench.bodies()
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 9
    assert bench.store.recovery.log_end > starts[-1]
    assert [each.start for each in bench.store.damages] == [starts[-1]]
    assert bench.put(size=40).segments[0].queue_offsets.tolist() == [10]
    bench.settle()
    for number in range(11, 14):
        assert len(bench.bodies()) == number - 1
        assert bench.store.failure is None
        if again == "killed":
            bench.store.persist()
            bench.kill()
        else:
            bench.store.close()
            if again == "recovered":
                recover(bench.config, bench.files, bench.clock)
            bench.open()
        assert bench.put(size=40).segments[0].queue_offsets.tolist() == [number]
        bench.settle()


@pytest.mark.parametrize("field", HEAD)
@pytest.mark.parametrize("confirm", list(ConfirmSource))
@pytest.mark.parametrize("point", ["there", "lost"])
def test_damage_in_the_last_record_is_found_by_a_scan(
    field: int, confirm: ConfirmSource, point: str
) -> None:
    """The log is looked at from before it: after a kill, or where the recovery point is lost."""
    bench, starts = closed(confirm=confirm)
    path, position = log_byte(starts[-1])
    flip(bench, path, position + field)
    if point == "lost":
        bench.files.unlink(DIRECTORY / "tandemlog" / "recovery.json")
    bench.open()
    if confirm is ConfirmSource.REPLICATION:
        bench.store.become_master(2)
    assert bench.put().segments[0].queue_offsets.tolist() == [10]
    bench.store.flush()
    bench.store.advance_confirmed(1 << 40)
    bench.store.reput.run_to()
    if point == "lost":
        (damage,) = bench.store.recovery.damages
        assert damage.start == starts[-1]
    bench.reopen()
    assert bench.store.failure is None


@pytest.mark.parametrize("field", [0, 2, 4, 30, 90])
def test_damage_in_the_last_flushed_record_is_passed_over_after_a_kill(field: int) -> None:
    bench = Bench(CONFIG)
    for _ in range(5):
        bench.put(size=40)
    bench.settle()
    bench.store.persist()
    last = bench.put(size=40).segments[0].physical_offset
    bench.settle()
    monkey = bench.store.queues.flush
    bench.store.queues.flush = lambda: replace(  # type: ignore[method-assign]
        monkey(), log_offset=last, ends={"T": {0: 5}}
    )
    bench.store.persist()
    end = bench.store.log.wrote.value
    path, position = log_byte(last)
    flip(bench, path, position + field)
    bench.kill()
    report = bench.store.recovery
    assert (report.log_end, report.cut_bytes) == (end, 0)
    assert [damage.start for damage in report.damages] == [last]
    assert bench.put().segments[0].physical_offset == end
    bench.settle()
    assert bench.store.failure is None
    assert bench.store.queues.max_offset(0) == 7


@pytest.mark.parametrize("field", [8, 11, 17, 45, 60, 88, 95, 127, -21, -15, -2])
@pytest.mark.parametrize("confirmed", [False, True])
def test_a_last_record_that_only_its_crc_finds_damaged_keeps_its_number(
    field: int, confirmed: bool
) -> None:
    """With property_crc dispatch leaves it out: body CRC, flag, times, body, properties, and that
    CRC itself."""
    bench = Bench(replace(CONFIG, property_crc=True, confirm=ConfirmSource.REPLICATION))
    bench.store.become_master(1)
    bench.put(size=40)
    start = bench.put(size=40).segments[0].physical_offset
    end = bench.store.flush()
    if confirmed:
        bench.store.advance_confirmed(end)
    bench.store.persist()
    path, position = log_byte(start)
    flip(bench, path, position + field if field > 0 else position + end - start + field)
    bench.kill()
    assert [damage.start for damage in bench.store.damages] == [start]
    bench.store.become_master(2)
    assert bench.put().segments[0].queue_offsets.tolist() == [2]


@pytest.mark.parametrize("how", ["missing", "empty"])
@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("point", ["there", "lost"])
def test_a_last_log_file_that_is_gone_is_no_end(how: str, end: str, point: str) -> None:
    bench, _ = full(40)
    kept = everything(bench)
    if end == "closed":
        bench.store.close()
    else:
        bench._abandon()
        bench.files.kill()
    if point == "lost":
        if end == "killed":
            return  # nothing says then what was durable
        bench.files.unlink(DIRECTORY / "tandemlog" / "recovery.json")
    path = LOG / bench.files.listdir(LOG)[-1]
    content = bytes(bench.files.content(path))
    bench.files.unlink(path)
    if how == "empty":
        bench.files.close(bench.files.open(path, create=True))
    for _ in range(2):
        with pytest.raises(StoreLayoutError, match=f"{path} is missing.*Restore that file"):
            bench.open()
        with pytest.raises(StoreLayoutError, match="is missing or empty"):
            plan(bench.config, bench.files)
    if how == "empty":
        bench.files.unlink(path)
    handle = bench.files.open(path, create=True)
    bench.files.pwrite(handle, content, 0)
    bench.files.close(handle)
    bench.open()
    assert everything(bench) == kept


def test_a_replica_that_has_lost_its_last_file_follows_and_does_not_lead() -> None:
    master = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    master.store.become_master(1)
    for _ in range(40):
        master.put(10, size=40)
    master.store.flush()
    slave = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), topics=())
    slave.store.topics.replace_from_json(master.store.topics.to_json())
    _follow(master, slave)
    slave.store.close()
    slave.files.unlink(LOG / slave.files.listdir(LOG)[-1])
    slave.open()
    assert any("missing" in str(damage) for damage in slave.store.recovery.damages)
    for _ in range(2):
        with pytest.raises(StoreError, match="cannot lead"):
            slave.store.become_master(2)
        slave.kill()
    _follow(master, slave, until=master.store.log.wrote.value - 100)
    with pytest.raises(StoreError, match="cannot lead"):
        slave.store.become_master(2)
    _follow(master, slave)
    slave.store.become_master(2)
    assert slave.put().segments[0].queue_offsets.tolist() == [400]


def test_a_replica_that_begins_anew_has_lost_nothing() -> None:
    slave, _ = closed(200, confirm=ConfirmSource.REPLICATION)
    slave.files.unlink(LOG / slave.files.listdir(LOG)[-1])
    slave.open()
    slave.store.reset(0)
    slave.kill()
    slave.store.become_master(2)


def test_an_unflushed_tail_is_lost_with_the_power_and_no_reason_to_refuse() -> None:
    bench, _ = full(0, flush=FlushMode.ASYNC, confirm=ConfirmSource.REPLICATION)
    bench.store.become_master(1)
    flushed = bench.put(5).end_offset
    bench.store.flush()
    for _ in range(100):
        bench.put(20)
    bench.store.advance_confirmed(1 << 40)
    bench.store.reput.run_to()
    bench.store.persist()
    assert bench.store.log.wrote.value > 2 * CONFIG.commit_log_file_size + flushed
    bench.crash()
    assert bench.store.log.wrote.value >= flushed
    bench.store.become_master(2)
    assert bench.put().segments


def _follow(master: Bench, slave: Bench, until: int | None = None) -> None:
    log, position = master.store.log, slave.store.log.wrote.value
    until = log.committed.value if until is None else until
    if not slave.store.epochs.table.entries:
        slave.store.epochs.append(EpochEntry(1, 0))
    while position < until:
        piece = bytes(log.read(position, min(4000, until - position)))
        slave.store.append_raw(position, piece)
        position += len(piece)
    slave.store.flush()
    slave.store.advance_confirmed(1 << 40)
    slave.store.reput.run_to()
