"""Messages that come later, where something else goes wrong besides."""

from dataclasses import replace

from fakes.batches import batch_of
from fakes.stores import CONFIG, Bench
from fakes.waiting import come, put_waiting, ready_desk, waiting_put

MIDDLE = CONFIG.commit_log_file_size * 64


def bench_of(**settings: object) -> Bench:
    config = replace(CONFIG, commit_log_file_size=MIDDLE, queue_file_size=20 * 1000)
    return Bench(replace(config, **settings))  # type: ignore[arg-type]


# ---- what a broker has delivered, in one batch of dispatch


def test_a_message_that_a_broker_lets_wait_again_comes_again() -> None:
    """A consumer that fails twice: the second wait begins behind the first delivery."""
    bench = bench_of()
    retry = waiting_put(bench, "a", level=1)
    put_waiting(bench, retry)
    bench.store.put_own(lambda: batch_of([replace(retry, topic="T", queue_id=0)]))
    put_waiting(bench, retry)
    desk = ready_desk(bench)
    assert len(bench.store.delays.rows) == 1
    bench.clock.advance(10)
    assert come(bench, desk) == [b"a", b"a"]


# ---- files of the log that are gone


def without_first_file(bench: Bench) -> None:
    bench.put(60, size=200)
    put_waiting(bench, waiting_put(bench, "here", delay_ms=10))
    bench.settle()
    bench.store.close()
    bench.files.unlink(bench.store.directory / "commitlog" / f"{0:020d}")
    bench.open()


def test_records_that_are_gone_do_not_stop_the_others() -> None:
    bench = bench_of(commit_log_file_size=8192)
    put_waiting(bench, waiting_put(bench, "gone", delay_ms=10))
    without_first_file(bench)
    desk = ready_desk(bench)
    assert bench.store.log.min_offset == 8192
    bench.clock.advance(1)
    before = len(bench.bodies())
    assert come(bench, desk)[before:] == [b"here"]


def test_records_that_are_gone_are_given_up_when_retention_waits() -> None:
    bench = bench_of(commit_log_file_size=8192)
    put_waiting(bench, waiting_put(bench, "gone", delay_ms=10**7))
    without_first_file(bench)
    desk = ready_desk(bench)
    assert desk.roll(8192) == 1
    bench.settle()
    assert len(bench.store.delays.rows) == 1
