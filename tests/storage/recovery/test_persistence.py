"""What is written says no more than what is durable, whatever fails or goes out in between."""

import contextlib
import errno
from dataclasses import replace

import pytest

from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.files.checkpoint import Checkpoint, decode_checkpoint
from tandemlog_server.storage.config import ConfirmSource, FlushMode
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.state_files.recovery_point import RecoveryPoint, decode


def point(bench: Bench) -> RecoveryPoint:
    return decode(bench.files.durable_content(DIRECTORY / "tandemlog" / "recovery.json"))


def checkpoint(bench: Bench) -> Checkpoint:
    return decode_checkpoint(bench.files.durable_content(DIRECTORY / "checkpoint"))


def test_the_point_and_the_checkpoint_say_what_is_durable() -> None:
    bench = Bench()
    time = bench.put(5).store_timestamp
    bench.settle()
    bench.store.persist()
    end = bench.store.log.wrote.value
    found = point(bench)
    assert (found.dispatched, found.flushed, found.confirmed) == (end, end, end)
    assert found.queues == {"T": {0: 5}}
    said = checkpoint(bench)
    assert (said.physic_msg_timestamp, said.logics_msg_timestamp) == (time, time)
    assert said.index_msg_timestamp == time
    assert (said.confirm_phy_offset, said.logics_physical_offset) == (end, end)


def test_times_and_positions_of_what_is_not_flushed_are_left_out() -> None:
    bench = Bench()
    time = bench.put(5).store_timestamp
    bench.settle()
    end = bench.store.log.flushed.value
    bench.put(5)
    bench.store.reput.run_to()
    bench.store.persist()
    found, said = point(bench), checkpoint(bench)
    assert found.flushed == said.confirm_phy_offset == end < found.dispatched
    assert said.physic_msg_timestamp == time
    assert said.logics_msg_timestamp <= time
    assert said.logics_physical_offset == end


def test_what_is_dispatched_counts_as_confirmed_though_it_is_not_flushed() -> None:
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION))
    bench.store.become_master(1)
    first = bench.put(5).end_offset
    bench.put(5)
    bench.store.advance_confirmed(first)
    bench.store.reput.run_to()
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.persist()
    found = point(bench)
    assert found.flushed < found.confirmed == found.dispatched == first


@pytest.mark.parametrize("name", ["consumequeue", "index/", "tandemlog/producers"])
def test_a_step_that_fails_ends_the_row(name: str) -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    bench.put(3)
    bench.settle()
    bench.store.persist()
    before = point(bench), checkpoint(bench)
    bench.put(3)
    bench.settle()
    bench.files.fail("fdatasync", errno.EIO, name=name)
    bench.files.fail("sync_all", errno.EIO)
    with pytest.raises(StoreError, match=name):
        bench.store.persist()
    assert (point(bench), checkpoint(bench)) == before
    bench.files.heal()
    bench.crash()
    assert len(bench.bodies()) == 6


@pytest.mark.parametrize("skip", range(0, 12, 2))
def test_power_may_go_out_anywhere_in_it(skip: int) -> None:
    bench = Bench(replace(CONFIG, flush=FlushMode.SYNC))
    for number in range(10):
        bench.put(3, queue_id=number % 3)
    bench.settle()
    bench.files.fail("fdatasync", errno.EIO, skip=skip)
    bench.files.fail("rename", errno.EIO, skip=skip // 3)
    with contextlib.suppress(StoreError, OSError):
        bench.store.persist()
    bench.files.heal()
    bench.crash()
    assert [len(bench.bodies(queue_id=each)) for each in range(3)] == [12, 9, 9]
