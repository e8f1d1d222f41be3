"""The table of producers on the disk: what has to wait for it, and who has room after an open."""

import errno
from contextlib import nullcontext
from dataclasses import replace

from fakes.crashed_stores import flip
from fakes.stores import CONFIG, DIRECTORY, Bench
from tandemlog.format.record.producer_mark import ProducerMark
from tandemlog_server.storage.producers.producer_table import GRACE_S
from tandemlog_server.storage.retention.cleaner import Cleaner


def test_retention_drops_no_log_that_the_table_on_the_disk_does_not_cover_yet() -> None:
    """A large table is written less often than the recovery point."""
    bench = Bench()
    bench.put_marked(ProducerMark("p", 0, 0, 0, 2), 2)
    bench.settle()
    bench.store.persist()
    bench.put_marked(ProducerMark("p", 0, 1, 0, 2), 2)
    while len(bench.store.log.files) < 4:
        bench.put(10, size=40)
    bench.settle()
    bench.store._parts.producer_file._next = bench.clock.monotonic() + 1000
    bench.store.persist()
    bench.files.capacity = bench.files.disk_usage(DIRECTORY).used + 1000
    cleaner = Cleaner(bench.store._parts, sleep=lambda _: None)
    assert cleaner.run(nullcontext()) == 0
    bench.clock.advance(1000)
    bench.store.persist()
    assert cleaner.run(nullcontext()) > 0
    bench.kill()
    assert bench.put_marked(ProducerMark("p", 0, 1, 0, 2), 2).duplicate


def test_retention_drops_no_log_while_no_table_is_on_the_disk() -> None:
    """It was damaged, and the open could not write the one that it has made of the log."""
    bench = Bench()
    last = ProducerMark("p", 0, 0, 0, 2)
    bench.put_marked(last, 2)
    while len(bench.store.log.files) < 4:
        bench.put(10, size=40)
    bench.settle()
    bench.store.close()
    flip(bench, DIRECTORY / "tandemlog" / "producers", 25)
    bench.files.fail("atomic_replace", errno.ENOSPC, name="tandemlog/producers", times=1)
    bench.open()
    assert bench.store.recovery.waits
    bench.files.capacity = bench.files.disk_usage(DIRECTORY).used + 1000
    cleaner = Cleaner(bench.store._parts, sleep=lambda _: None)
    assert cleaner.run(nullcontext()) == 0
    bench.kill()
    assert bench.put_marked(last, 2).duplicate
    bench.store.persist()
    assert Cleaner(bench.store._parts, sleep=lambda _: None).run(nullcontext()) > 0


def test_a_full_table_takes_new_producers_after_a_restart() -> None:
    bench = Bench(replace(CONFIG, producers_kept=10))
    for number in range(30):
        bench.put_marked(ProducerMark(f"p{number}", 0, 0, 0, 2), 2)
        bench.clock.advance(2 * GRACE_S)
    bench.settle()
    bench.reopen()
    assert not bench.put_marked(ProducerMark("new", 0, 0, 0, 2), 2).duplicate
    assert bench.put_marked(ProducerMark("p29", 0, 0, 0, 2), 2).duplicate
    assert bench.store.producers.forget(1) == 0, "by their times alone nobody is forgotten"
