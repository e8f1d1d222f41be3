"""A truncation that ends in any of its calls leaves a store that is whole."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from fakes.crashed_stores import QUEUE, assert_whole
from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, Bench
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.storage.config import ConfirmSource

ENDS: dict[str, Callable[[Bench], object]] = {
    "killed": lambda bench: bench.kill(),
    "power cut": lambda bench: bench.crash(),
    "power cut with survivors": lambda bench: bench.crash(Random(1)),
}


def dispatched() -> tuple[Bench, MortalFiles, int]:
    """A store whose queues and index are durable further than its log, and a place in its log
    that the newest index file has entries from both sides of."""
    files = MortalFiles()
    bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), files)
    bench.store.become_master(1)
    for number in range(6):
        bench.put(3, queue_id=number % 2)
    bench.store.flush()
    cut = bench.put(2).segments[0].physical_offset
    bench.put(3)
    bench.store.advance_confirmed(bench.store.log.wrote.value)
    bench.store.reput.run_to()
    bench.store.persist()
    return bench, files, cut


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_in_any_call_of_a_truncation_is_mended(end: str) -> None:
    calls, died = 0, True
    while died:
        bench, files, cut = dispatched()
        confirmed = bench.store.confirmed.value
        files.calls_left = calls
        with suppress(DeathError):
            bench.store.truncate(cut)
        died = files.rest()
        ENDS[end](bench)
        store = bench.store
        assert store.confirmed.value <= min(confirmed, store.log.wrote.value), calls
        assert store.recovery.damages == [], calls
        store.become_master(2)
        store.advance_confirmed(store.log.wrote.value)
        store.reput.run_to()
        assert len(bench.bodies(queue_id=1)) == 9
        assert 9 <= len(bench.bodies()) <= 14
        store.advance_confirmed(bench.put(3, queue_id=1).end_offset)
        assert_whole(bench)
        calls += 1
    assert calls > 20


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_in_any_call_of_a_truncation_keeps_no_term_that_is_cut(end: str) -> None:
    """The bytes that come next are of another one, and would count as of this."""
    calls, died = 0, True
    while died:
        bench, files, cut = dispatched()
        bench.store.epochs.append(EpochEntry(2, cut))
        files.calls_left = calls
        with suppress(DeathError):
            bench.store.truncate(cut)
        died = files.rest()
        ENDS[end](bench)
        terms = [EpochEntry(1, 0), EpochEntry(2, cut)]
        whole = bench.store.log.wrote.value > cut
        assert list(bench.store.epochs.table.entries) == terms[: 1 + whole], calls
        calls += 1
    assert calls > 20


def test_a_queue_file_that_somebody_has_deleted_is_made_again_after_the_cut() -> None:
    bench, files, cut = dispatched()
    bench.store.queues.close()
    files.unlink(QUEUE / f"{0:020d}")
    bench.store.truncate(cut)
    bench.store.become_master(2)
    assert len(bench.bodies()) == 9
    bench.store.advance_confirmed(bench.put(3).end_offset)
    assert_whole(bench)


def test_a_crash_in_any_call_of_a_recovery_that_cuts_a_partial_record_is_no_damage() -> None:
    master = Bench()
    begin, end = master.put(3).end_offset, master.put(1, size=300).end_offset
    partial = bytes(master.store.log.read(0, end - 50))
    calls, died = 0, True
    while died:
        files = MortalFiles()
        bench = Bench(replace(CONFIG, confirm=ConfirmSource.REPLICATION), files)
        bench.store.append_raw(0, partial)
        bench.store.flush()
        bench.store.persist()
        files.rest()
        files.kill()
        files.calls_left = calls
        with suppress(DeathError):
            bench.open()
        died = files.rest()
        files.kill()
        bench.open()
        assert bench.store.recovery.damages == [], calls
        assert bench.store.log.wrote.value == begin
        calls += 1
    assert calls > 20
