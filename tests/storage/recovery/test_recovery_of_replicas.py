"""Recovery of a store whose confirm offset another sets: what is confirmed, cut, dispatched."""

from contextlib import suppress
from dataclasses import replace

import pytest

from fakes.crashed_stores import flip, full, log_byte, text
from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.tools.recover import recover


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


def dispatched_and_not_flushed() -> tuple[Bench, int]:
    """A replicated store whose queues are durable further than its log, and how far that is."""
    bench, _ = full(confirm=ConfirmSource.REPLICATION, batches=0)
    bench.store.become_master(1)
    bench.put(20)
    flushed = bench.store.flush()
    bench.put(20)
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()
    bench.put(20)
    bench.store.persist()
    return bench, flushed


def test_a_killed_process_has_nothing_of_its_queues_cut() -> None:
    bench, _ = dispatched_and_not_flushed()
    bodies = bench.bodies()
    dispatched = bench.store.reputed.value
    bench.kill()
    report = bench.store.recovery
    assert (report.queues_cut, report.index, report.dispatched) == ([], [], 0)
    assert bench.store.confirmed.value == dispatched
    assert bench.bodies() == bodies
    bench.store.become_master(2)
    assert bench.put().segments[0].queue_offsets.tolist() == [60]
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 61


def test_queues_that_outlive_their_log_are_cut_to_its_end() -> None:
    bench, flushed = dispatched_and_not_flushed()
    bench.crash()
    assert bench.store.log.wrote.value == bench.store.confirmed.value == flushed
    assert len(bench.bodies()) == 20
    bench.store.become_master(2)
    assert bench.put().segments[0].queue_offsets.tolist() == [20]


@pytest.mark.parametrize("end", ["closed", "killed", "power cut"])
@pytest.mark.parametrize("also", ["", "checkpoint", "consumequeue"])
def test_a_lost_recovery_point_confirms_nothing(end: str, also: str) -> None:
    """Consumers would see what may be cut yet, and the master hear that it must not be cut."""
    bench, _ = dispatched_and_not_flushed()
    bodies, confirmed = bench.bodies(), bench.store.confirmed.value
    bench.store.flush()
    if end == "closed":
        bench.store.close()
    else:
        bench._abandon()
        bench.files.kill() if end == "killed" else bench.files.crash()
    bench.files.unlink(DIRECTORY / "tandemlog" / "recovery.json")
    if also == "checkpoint":
        bench.files.atomic_replace(DIRECTORY / also, bytes(4096))
    elif also:
        bench.files.rename(DIRECTORY / also, DIRECTORY / "away")
    bench.open()
    assert bench.store.confirmed.value <= confirmed
    assert bench.bodies() == bodies[: len(bench.bodies())]
    if not also:
        assert bench.bodies() == bodies
    bench.store.become_master(2)
    assert bench.put(1).segments[0].queue_offsets.tolist() == [60]
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 61


def test_the_first_put_after_a_crash_does_not_wait_for_what_it_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench, _ = full(confirm=ConfirmSource.REPLICATION, batches=0, max_reput_lag_bytes=1000)
    bench.store.become_master(1)
    bench.put(60)
    bench.kill()
    store = bench.store
    store.become_master(2)
    store.advance_confirmed(store.log.wrote.value)
    assert store.confirmed.value - store.reputed.value > 1000
    waited: list[int] = []

    def wait(value: int, timeout_s: float) -> bool:
        waited.append(value)
        return True

    monkeypatch.setattr(store.reputed, "wait", wait)
    monkeypatch.setattr(store, "_started", True)
    bench.put(60)
    assert not waited
    store.advance_confirmed(store.log.wrote.value)
    bench.put()
    assert waited


@pytest.mark.parametrize("lost", [False, True])
def test_recovering_a_replica_offline_confirms_nothing(lost: bool) -> None:
    bench, _ = full(confirm=ConfirmSource.REPLICATION, batches=0)
    bench.store.become_master(1)
    starts = [bench.put(4).segments[0].physical_offset for _ in range(10)]
    bench.store.advance_confirmed(starts[3])
    bench.settle()
    bench.store.close()
    if lost:
        bench.files.unlink(DIRECTORY / "tandemlog" / "recovery.json")
    recover(bench.config, bench.files, bench.clock)
    bench.open(confirm=ConfirmSource.REPLICATION)
    assert bench.store.confirmed.value == starts[3]
    assert len(bench.bodies()) == 12
    bench.store.advance_confirmed(1 << 40)
    bench.store.reput.run_to()
    assert len(bench.bodies()) == 40


def test_recovering_a_replica_offline_confirms_nothing_wherever_it_is_killed() -> None:
    calls, died = 0, True
    while died:
        files = MortalFiles()
        bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), files)
        bench.store.become_master(1)
        confirmed = bench.put(1).end_offset
        bench.store.flush()
        bench.store.advance_confirmed(confirmed)
        bench.settle()
        bench.put(1)
        bench.store.flush()
        bench.store.persist()
        bench._abandon()
        files.kill()
        files.calls_left = calls
        with suppress(DeathError):
            recover(bench.config, files, bench.clock)
        died = files.rest()
        files.kill()
        bench.open()
        assert bench.store.confirmed.value <= confirmed, calls
        calls += 1
    assert calls > 20
    assert bench.store.confirmed.value == confirmed
