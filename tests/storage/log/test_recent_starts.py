"""Hints about where records begin: right ones save the walk, wrong ones change nothing."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fakes.memory_log import MemoryLog
from fakes.stores import Bench
from tandemlog.format.columns.walk import walk
from tandemlog_server.storage.log import recent_starts
from tandemlog_server.storage.log.recent_starts import RecentStarts


def starts(*offsets: int) -> NDArray[np.int64]:
    return np.array(offsets, np.int64)


def test_it_answers_what_it_was_told_and_forgets_what_lies_before() -> None:
    ring = RecentStarts()
    for first in range(0, 60, 20):
        ring.add(starts(first, first + 10))
    assert ring.between(0, 31).tolist() == [0, 10, 20, 30]
    assert ring.between(30, 100).tolist() == [30, 40, 50]
    assert ring.between(0, 100).tolist() == [20, 30, 40, 50], "an array is forgotten whole"
    assert ring.between(100, 200).tolist() == []
    ring.add(starts(60))
    ring.clear()
    assert ring.between(0, 100).tolist() == []


def test_it_does_not_grow_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent_starts, "MOST_STARTS", 5)
    ring = RecentStarts()
    for first in range(0, 100, 10):
        ring.add(starts(first, first + 5))
    assert ring.between(0, 100).tolist() == [80, 85, 90, 95]


def sound_log() -> bytes:
    log = MemoryLog()
    for number in range(20):
        log.put("T", body=b"x" * (number % 7))
    return bytes(log.read(0, log.end))


@given(st.lists(st.integers(0, 4000), max_size=25))
def test_no_guess_changes_what_a_walk_finds(guess: Sequence[int]) -> None:
    data = sound_log()
    plain = walk(data)
    right = plain.positions.tolist()
    for each in (guess, right[: len(guess)] + list(guess), right):
        found = walk(data, guess=starts(*each))
        assert found.positions.tolist() == right
        assert found.sizes.tolist() == plain.sizes.tolist()
        assert (found.end, found.stop) == (plain.end, plain.stop)


def test_dispatch_is_told_where_appended_records_begin() -> None:
    """Across the ends of log files too, and not of a log that was cut."""
    bench = Bench()
    for count in (1, 30, 2, 90, 7):
        bench.put(count)
    log = bench.store.log
    assert log.wrote.value > log.file_size
    told, found = log.starts.between(0, log.wrote.value).tolist(), []
    for base in range(0, log.wrote.value, log.file_size):
        records = walk(log.read(base, log.file_size))
        found += (records.positions + base).tolist()
    assert told == found
    bench.settle()
    assert len(bench.bodies()) == 130
    log.truncate(found[40])
    assert log.starts.between(0, log.wrote.value).tolist() == []
