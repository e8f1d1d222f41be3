"""What the master does with transactions by itself, step by step."""

from dataclasses import replace

import pytest

from fakes.halves import half_put, put_halves, ready_desk
from fakes.stores import CONFIG, Bench
from tandemlog_server.node.settings.sections import TransactionsSection
from tandemlog_server.node.transactions.transaction_work import TransactionWork
from tandemlog_server.storage.errors import DiskFullError

LIMITS = TransactionsSection(check_after_ms=1000, check_interval_ms=1000, max_checks=1)


def bench_of() -> Bench:
    return Bench(replace(CONFIG, commit_log_file_size=1 << 19, queue_file_size=20 * 1000))


def steps(bench: Bench, work: TransactionWork, count: int) -> None:
    for _ in range(count):
        work._step()
        bench.settle()
        bench.clock.advance(1.5)


def open_ones(bench: Bench) -> list[str]:
    return [name for name, _ in bench.store.transactions.transactions()]


def test_on_a_full_disk_transactions_in_old_files_end() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a", "old"))
    end = bench.store.log.wrote.value
    put_halves(bench, half_put("b", "new"))
    work = TransactionWork(bench.store, ready_desk(bench), LIMITS)
    steps(bench, work, 2)
    cleaner = bench.store._cleaner
    cleaner.disk_full, cleaner.waits_for = DiskFullError("90 % full"), end
    with pytest.raises(DiskFullError):
        steps(bench, work, 3)
    bench.settle()
    assert open_ones(bench) == ["new"]
    cleaner.disk_full = None
    steps(bench, work, 2)
    assert not open_ones(bench)
    work.close()


def test_what_waits_for_an_operator_goes_with_its_file_and_by_no_clock() -> None:
    bench = bench_of()
    put_halves(bench, half_put("a"))
    limits = LIMITS.model_copy(update={"undecided": "keep"})
    work = TransactionWork(bench.store, ready_desk(bench), limits)
    steps(bench, work, 4)
    bench.store.close()
    bench.clock.jump(100 * 86_400)
    work.close()
    work = TransactionWork(bench.open(), ready_desk(bench), limits)
    steps(bench, work, 4)
    assert open_ones(bench) == ["tx"]
    bench.store._cleaner.waits_for = bench.store.log.wrote.value
    steps(bench, work, 2)
    assert open_ones(bench) == []
    work.close()
