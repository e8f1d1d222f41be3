"""When a round of dispatch begins after the one before."""

import threading
from pathlib import Path

import pytest

from fakes.derived import Derived
from fakes.memory_log import MemoryLog
from storage.dispatch import gathering, reput
from storage.dispatch.gathering import FEW_BYTES, GATHER_S, MANY_BYTES, gathering_s
from tandemlog.testing.memory_files import MemoryFiles


def test_small_requests_gather_until_the_time_is_over() -> None:
    assert gathering_s(FEW_BYTES, 0, 0.001) == pytest.approx(GATHER_S - 0.001)
    assert gathering_s(FEW_BYTES, MANY_BYTES - 1, 0.0) == GATHER_S
    assert gathering_s(FEW_BYTES, 0, GATHER_S + 1) == 0


def test_a_message_by_itself_does_not_wait() -> None:
    assert gathering_s(FEW_BYTES - 1, 0, 0.0) == 0


def test_dispatch_that_is_behind_does_not_wait() -> None:
    assert gathering_s(FEW_BYTES, MANY_BYTES, 0.0) == 0


def test_the_thread_gathers_and_a_stop_ends_that(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = threading.Event()

    def gathering_long(dispatched: int, left: int, spent_s: float) -> float:
        asked.set()
        return 3_600.0

    monkeypatch.setattr(reput, "gathering_s", gathering_long)
    log = MemoryLog(4096)
    derived = Derived.over(log, MemoryFiles(), Path("/store"))
    log.put("T", 0)
    derived.confirmed.advance(log.end)
    derived.reput.start()
    assert asked.wait(10)
    log.put("T", 0)
    derived.confirmed.advance(log.end)
    derived.reput.stop()
    assert derived.reput.messages == 1
    monkeypatch.setattr(reput, "gathering_s", gathering.gathering_s)
    derived.reput.start()
    assert derived.reput.reputed.wait(log.end, 10)
    derived.reput.stop()
    assert derived.reput.messages == 2
