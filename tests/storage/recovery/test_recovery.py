"""What an open costs and changes: what came after the last recovery point, and nothing else."""

from fakes.crashed_stores import QUEUE, assert_whole, everything, flip, full, log_byte
from tandemlog_server.storage.tools.recover import plan, recover
from tandemlog_server.storage.tools.verify import verify


def test_a_kill_costs_what_was_not_yet_persisted() -> None:
    bench, _ = full()
    end = bench.store.log.wrote.value
    bench.put(3)
    bench.kill()
    report = bench.store.recovery
    assert not report.clean_stop
    assert (report.scanned_from, report.scanned_records, report.dispatched) == (end, 3, 3)
    assert report.queues_cut == []
    assert len(everything(bench)) == 203
    assert_whole(bench)


def test_units_beyond_the_recovery_point_are_made_again() -> None:
    bench, _ = full()
    bench.put(30)
    bench.settle()
    bench.store.queues.flush()
    bench.kill()
    assert bench.store.recovery.dispatched == 30
    assert len(everything(bench)) == 230
    assert_whole(bench)


def test_a_power_cut_loses_only_what_was_not_flushed() -> None:
    bench, _ = full()
    kept = everything(bench)
    bench.put(5)
    bench.crash()
    assert everything(bench) == kept
    assert_whole(bench)


def test_dispatch_may_be_ahead_of_what_a_power_cut_left() -> None:
    bench, _ = full()
    kept = everything(bench)
    for number in range(30):
        bench.put(10, queue_id=number % 2)
    bench.store.reput.run_to()
    bench.store.persist()
    bench.crash()
    assert bench.store.log.wrote.value < bench.store.log.mapped.end
    assert everything(bench) == kept
    assert_whole(bench)


def test_opening_twice_changes_nothing() -> None:
    bench, _ = full()
    bench.put(5)
    bench.kill()
    first = everything(bench)
    bench.kill()
    assert bench.store.recovery.dispatched == 0
    assert everything(bench) == first


def test_a_dry_run_counts_what_recovery_would_dispatch() -> None:
    bench, _ = full()
    bench.put(5)
    bench.store.flush()
    bench._abandon()
    bench.files.kill()
    report = plan(bench.config, bench.files)
    assert report.dispatched == 5
    assert recover(bench.config, bench.files, bench.clock).dispatched == 5


def test_a_dry_run_names_what_recovery_would_do() -> None:
    bench, _ = full()
    start = bench.put(5).segments[0].physical_offset
    bench.store.flush()
    path, position = log_byte(start)
    flip(bench, path, position + 90)
    for name in bench.files.listdir(QUEUE):
        bench.files.unlink(QUEUE / name)
    bench._abandon()
    bench.files.kill()
    report = plan(bench.config, bench.files)
    assert not report.clean_stop
    assert report.log_end == start
    assert report.cut_bytes > 0
    assert set(report.queues_rebuilt) == {"T/0"}
    done = recover(bench.config, bench.files, bench.clock)
    assert (done.log_end, done.cut_bytes) == (report.log_end, report.cut_bytes)
    assert set(done.queues_rebuilt) == {"T/0"}
    assert verify(bench.config, bench.files).holds
