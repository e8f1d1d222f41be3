"""A log that is set aside is here or there, whatever call ends it: no alarm, and a slave again."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

import pytest

from fakes.crashed_stores import LOG
from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.files.epochs import EpochEntry, EpochTable
from tandemlog_server.storage.config import ConfirmSource
from tandemlog_server.storage.tools.verify import verify

SIZE = CONFIG.commit_log_file_size
BEGIN = 2 * SIZE
ENDS: dict[str, Callable[[Bench], object]] = {
    "killed": lambda bench: bench.kill(),
    "power cut": lambda bench: bench.crash(),
    "power cut with survivors": lambda bench: bench.crash(Random(1)),
}


def master(size: int) -> Bench:
    """A log of several files, with bodies of `size` bytes."""
    bench = Bench()
    for number in range(12):
        bench.put(5, queue_id=number % 2, size=size)
    bench.settle()
    assert len(bench.store.log.files) > 3
    return bench


OLD, NEW = master(400), master(500)


class Slave:
    """A slave that has followed OLD, of which the end is not confirmed, and shall follow NEW."""

    def __init__(self) -> None:
        self.files = MortalFiles()
        self.bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), self.files, ())
        store = self.bench.store
        store.epochs.append(EpochEntry(1, 0))
        copy(OLD, self.bench, 0)
        self.confirmed = OLD.store.log.files[-1].base
        store.advance_confirmed(self.confirmed)
        store.reput.run_to()
        store.consumer_offsets.commit("G", "T", 0, 20)
        store.consumer_offsets.save(1)
        store.persist()
        self.end = store.log.wrote.value
        self.log = self.files_of(LOG)
        self.bodies = self.bench.bodies()

    def files_of(self, directory: Path) -> dict[str, bytes]:
        names = self.files.listdir(directory)
        return {name: bytes(self.files.read_file(directory / name)) for name in names}

    def half_aside(self) -> None:
        """Die with the log's newest files in their new place."""
        died = self.files._failing

        def failing(call: str, path: Path) -> object:
            if call == "rename" and path == LOG / f"{2 * SIZE:020d}":
                self.files.calls_left = 0
            return died(call, path)

        with patch.object(self.files, "_failing", failing):
            self.bench.store.reset(BEGIN)

    @property
    def aside(self) -> list[str]:
        names = self.files.listdir(DIRECTORY)
        return [name for name in names if name.startswith("resync-")]

    def assert_here_or_aside(self, when: object) -> bool:
        """No alarm and no halves; whether the log is aside."""
        store, report = self.bench.store, self.bench.store.recovery
        assert (report.damages, report.queues_rebuilt, report.queues_cut) == ([], {}, []), when
        assert (report.cut_bytes, report.offsets_clamped, report.foreign) == (0, 0, False), when
        assert report.index == [], when
        assert not any("missing" in note or "lost" in note for note in report.notes), when
        assert store.consumer_offsets.offset("G", "T", 0) == 20, when
        assert store.confirmed.value <= self.confirmed, when
        assert store.log.flushed.value == store.log.wrote.value, when
        if not self.aside:
            assert report.notes == [], when
            assert self.files_of(LOG) == self.log, when
            assert store.log.wrote.value == self.end, when
            assert self.bench.bodies() == self.bodies, when
            return False
        (aside,) = self.aside
        assert self.files_of(LOG) == {}, when
        assert self.files_of(DIRECTORY / aside / "commitlog") == self.log, when
        assert self.files.listdir(DIRECTORY / aside / "consumequeue" / "T") == ["0", "1"], when
        assert self.files.listdir(DIRECTORY / aside / "index"), when
        assert self.files.listdir(DIRECTORY / "consumequeue") == [], when
        assert self.files.listdir(DIRECTORY / "index") == [], when
        assert store.log.wrote.value == store.confirmed.value == store.reputed.value == 0, when
        assert self.bench.bodies() == [], when
        return True

    def assert_follows(self) -> None:
        """It sets aside what it has, and becomes NEW's equal from BEGIN on."""
        bench = self.bench
        store = bench.store
        self.bench.clock.advance(1)
        store.reset(BEGIN)
        store.epochs.replace(EpochTable(()))
        copy(NEW, bench, BEGIN)
        store.advance_confirmed(store.log.wrote.value)
        store.reput.run_to()
        expected = [NEW.bodies(queue_id=queue_id) for queue_id in (0, 1)]
        for queue_id, bodies in enumerate(expected):
            held = bench.bodies(queue_id=queue_id)
            assert len(held) > 10
            assert bodies[-len(held) :] == held
        store.close()
        assert [str(each) for each in verify(bench.config, bench.files).faults] == []
        assert self.files_of(DIRECTORY / self.aside[0] / "commitlog") == self.log


def copy(source: Bench, target: Bench, begin: int) -> None:
    """The log of `source` from `begin` on, durable."""
    log, position = source.store.log, begin
    while position < log.committed.value:
        piece = bytes(log.read(position, 3000))
        target.store.append_raw(position, piece)
        position += len(piece)
    target.store.flush()


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_in_any_call_leaves_the_log_here_or_aside(end: str) -> None:
    calls, died, outcomes, broken_off = 0, True, [], []
    while died:
        slave = Slave()
        slave.files.calls_left = calls
        with suppress(DeathError):
            slave.bench.store.reset(BEGIN)
        died = slave.files.rest()
        ENDS[end](slave.bench)
        outcomes.append(slave.assert_here_or_aside(calls))
        broken_off.append(bool(slave.bench.store.recovery.notes))
        slave.assert_follows()
        calls += 1
    assert calls > 20
    assert outcomes == sorted(outcomes), "once there it is never here again"
    assert not any(told and not there for told, there in zip(broken_off, outcomes, strict=True))
    assert any(broken_off)
    assert not broken_off[-1]


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_in_any_call_of_the_open_that_ends_it_costs_nothing(end: str) -> None:
    calls, died = 0, True
    while died:
        slave = Slave()
        with pytest.raises(DeathError):
            slave.half_aside()
        slave.files.rest()
        slave.bench._abandon()
        slave.files.kill()
        slave.files.calls_left = calls
        with suppress(DeathError):
            slave.bench.open()
        died = slave.files.rest()
        ENDS[end](slave.bench)
        assert slave.assert_here_or_aside(calls)
        if calls % 8 == 0 or not died:
            slave.assert_follows()
        calls += 1
    assert calls > 20


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("received", [0, 100])
def test_a_crash_before_the_new_log_is_durable_loses_nothing(end: str, received: int) -> None:
    slave = Slave()
    store = slave.bench.store
    store.reset(BEGIN)
    store.append_raw(BEGIN, bytes(NEW.store.log.read(BEGIN, received)))
    store.persist()
    ENDS[end](slave.bench)
    assert slave.bench.store.recovery.notes == []
    assert slave.bench.store.recovery.damages == []
    slave.assert_follows()


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_in_any_call_of_a_change_of_file_size_is_no_alarm(end: str) -> None:
    calls, died = 0, True
    while died:
        files = MortalFiles()
        bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), files, ())
        bench.store.reset(BEGIN)
        bench.store.append_raw(BEGIN, bytes(NEW.store.log.read(BEGIN, 3000)))
        bench.store.flush()
        bench.store.truncate(BEGIN)
        files.calls_left = calls
        with suppress(DeathError):
            bench.store.adopt_commit_log_file_size(2 * SIZE)
        died = files.rest()
        ENDS[end](bench)
        assert bench.store.recovery.notes == [], calls
        assert bench.store.recovery.damages == [], calls
        assert bench.store.log.wrote.value == bench.store.log.min_offset, calls
        bench.store.adopt_commit_log_file_size(2 * SIZE)
        bench.store.append_raw(0, bytes(2 * SIZE))
        calls += 1
    assert calls > 5
