"""A round of retention that ends in any of its calls leaves a store that is whole."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random

import pytest

from fakes.crashed_stores import LOG, QUEUE, assert_whole
from fakes.mortal_files import DeathError, MortalFiles
from fakes.stores import CONFIG, Bench
from tandemlog.format.files.epochs import EpochEntry
from tandemlog_server.storage.config import RetentionConfig
from tandemlog_server.storage.retention.cleaner import Cleaner

RETENTION = RetentionConfig(reserved_hours=1, delete_hours=tuple(range(24)), delete_batch_max=2)
ENDS: dict[str, Callable[[Bench], object]] = {
    "killed": lambda bench: bench.kill(),
    "power cut": lambda bench: bench.crash(),
    "power cut with survivors": lambda bench: bench.crash(Random(1)),
}


def expired() -> tuple[Bench, MortalFiles]:
    """A store whose log files save the newest are older than retention keeps them."""
    files = MortalFiles()
    bench = Bench(replace(CONFIG, retention=RETENTION), files)
    bench.store.epochs.append(EpochEntry(1, 0))
    bench.store.epochs.append(EpochEntry(2, 100))
    for _ in range(6):
        bench.put(20, size=150)
    clean(bench)
    bench.clock.advance(7200)
    bench.store._parts.seen_time.save()  # as it is once a minute
    bench.put(1)
    bench.settle()
    bench.store.persist()
    return bench, files


def clean(bench: Bench) -> int:
    return Cleaner(bench.store._parts, lambda _: None).run(bench.store._write_lock)


@pytest.mark.parametrize("end", ENDS)
def test_a_crash_in_any_call_of_retention_damages_nothing(end: str) -> None:
    calls, died = 0, True
    while died:
        bench, files = expired()
        before = bench.bodies()
        files.calls_left = calls
        with suppress(DeathError):
            clean(bench)
        died = files.rest()
        ENDS[end](bench)
        report = bench.store.recovery
        assert (report.damages, report.queues_rebuilt, report.queues_cut) == ([], {}, []), calls
        assert (report.cut_bytes, report.offsets_clamped, report.notes) == (0, 0, []), calls
        left = bench.bodies()
        assert left == before[-len(left) :], calls
        clean(bench)
        names = files.listdir(LOG)
        assert names[0] == f"{bench.store.log.min_offset:020d}", calls
        assert len(files.listdir(QUEUE)) < 5, calls
        assert_whole(bench)
        calls += 1
    assert calls > 20
