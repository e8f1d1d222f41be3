import pytest

from fakes.clock import FakeClock
from tandemlog_server.storage.housekeeping import LONGEST_REST_S, REST_PER_WORK, StoreKeeper, Task


def test_each_task_runs_at_its_interval() -> None:
    clock, ran = FakeClock(), []
    keeper = StoreKeeper(
        [
            Task("fast", 1.0, lambda: ran.append("fast")),
            Task("slow", 3.0, lambda: ran.append("slow")),
        ],
        clock,
    )
    assert keeper.run_due() == 1.0
    for _ in range(6):
        clock.advance(1.0)
        keeper.run_due()
    assert ran.count("fast") == 6
    assert ran.count("slow") == 2


def test_a_task_that_works_much_rests_in_proportion() -> None:
    clock, work = FakeClock(), [0.1]
    keeper = StoreKeeper([Task("checkpoint", 1.0, lambda: clock.work(work[0]))], clock)
    clock.advance(1.0)
    assert keeper.run_due() == pytest.approx(REST_PER_WORK * 0.1)
    work[0] = 10.0
    clock.advance(REST_PER_WORK * 0.1)
    assert keeper.run_due() == pytest.approx(LONGEST_REST_S)
    keeper.tasks[0].longest_rest_s = 2 * LONGEST_REST_S
    clock.advance(LONGEST_REST_S)
    assert keeper.run_due() == pytest.approx(2 * LONGEST_REST_S)


def test_a_task_that_waits_does_not_rest() -> None:
    clock = FakeClock()
    keeper = StoreKeeper([Task("checkpoint", 1.0, lambda: clock.advance(3.0))], clock)
    clock.advance(1.0)
    assert keeper.run_due() == 1.0


def test_a_failing_task_does_not_end_the_others(caplog: pytest.LogCaptureFixture) -> None:
    clock, ran = FakeClock(), []

    def fail() -> None:
        raise OSError("the disk is full")

    failing = Task("failing", 1.0, fail)
    keeper = StoreKeeper([failing, Task("good", 1.0, lambda: ran.append(1))], clock)
    for _ in range(3):
        clock.advance(1.0)
        keeper.run_due()
    assert len(ran) == 3
    assert failing.failed == "the disk is full"
    assert len(caplog.records) == 1


def test_a_task_that_works_again_is_well() -> None:
    clock = FakeClock()
    broken = [True]

    def turn() -> None:
        if broken:
            raise OSError("no")

    task = Task("sometimes", 1.0, turn)
    keeper = StoreKeeper([task], clock)
    clock.advance(1.0)
    keeper.run_due()
    assert task.failed
    broken.clear()
    clock.advance(1.0)
    keeper.run_due()
    assert not task.failed
