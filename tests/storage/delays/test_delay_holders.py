"""Whose messages wait, without a memory that grows with what has come."""

import numpy as np

from tandemlog_server.storage.delays.delay_holders import FEWEST_RUNS, DelayHolders
from tandemlog_server.storage.folds.delay_fold import DelayFold
from tandemlog_server.storage.folds.waiting_rows import NewRows


def put(fold: DelayFold, holders: DelayHolders, holder: str, offset: int) -> None:
    at = np.array([offset])
    fold.rows.append(NewRows(at, at, at, np.array([10], np.int32), np.array([False])))
    fold.next_offset = offset + 10
    holders.appended(holder, offset, offset + 10, 1)


def test_holders_that_take_turns_leave_no_run_for_each_message() -> None:
    fold = DelayFold()
    holders = DelayHolders(fold, 1 << 40)
    alive: list[int] = []
    for number in range(10 * FEWEST_RUNS):
        put(fold, holders, "ab"[number % 2], 10 * number)
        alive.append(10 * number)
        if len(alive) > 50:
            fold.rows.end(np.array([alive.pop(0)]))
    assert len(holders._runs) <= FEWEST_RUNS
    assert holders.of("a") + holders.of("b") <= FEWEST_RUNS


def test_runs_of_what_still_waits_stay() -> None:
    fold = DelayFold()
    holders = DelayHolders(fold, 1 << 40)
    count = 3 * FEWEST_RUNS
    for number in range(count):
        put(fold, holders, "ab"[number % 2], 10 * number)
    assert holders.of("a") == holders.of("b") == count // 2
