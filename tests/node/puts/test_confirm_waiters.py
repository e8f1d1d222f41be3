"""Who waits for a confirmation is settled once, for the right reason, with one wake-up a change."""

import heapq
from collections.abc import Callable
from typing import Any, cast

from tandemlog_server.node.puts.confirm_waiters import RESOLVE_SLICE, ConfirmWaiters, Outcome
from tandemlog_server.storage.errors import FlushFailedError, StoreError
from tandemlog_server.storage.positions import Position


class FakeLoop:
    """An event loop whose time stands still until it is moved."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[[], None]] = []
        self.timers: list[tuple[float, int, FakeTimer]] = []

    def time(self) -> float:
        return self.now

    def call_soon_threadsafe(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    call_soon = call_soon_threadsafe

    def call_at(self, when: float, callback: Callable[[], None]) -> "FakeTimer":
        timer = FakeTimer(when, callback)
        heapq.heappush(self.timers, (when, len(self.timers), timer))
        return timer

    def run(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()

    def advance(self, seconds: float) -> None:
        self.now += seconds
        while self.timers and self.timers[0][0] <= self.now:
            _, _, timer = heapq.heappop(self.timers)
            if not timer.cancelled:
                timer.callback()


class FakeTimer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self._when = when
        self.callback = callback
        self.cancelled = False

    def when(self) -> float:
        return self._when

    def cancel(self) -> None:
        self.cancelled = True


class Put:
    def __init__(self, end_offset: int, epoch: int = 1, deadline: float = 105.0) -> None:
        self.end_offset = end_offset
        self.epoch = epoch
        self.confirm_deadline = deadline
        self.outcomes: list[tuple[Outcome, StoreError | None]] = []

    def resolve(self, outcome: Outcome, failure: StoreError | None) -> None:
        self.outcomes.append((outcome, failure))

    @property
    def outcome(self) -> Outcome | None:
        assert len(self.outcomes) <= 1
        return self.outcomes[0][0] if self.outcomes else None


class Rig:
    def __init__(self) -> None:
        self.confirmed = Position("confirmed")
        self.flushed = Position("flushed")
        self.epoch: int | None = 1
        self.loop = FakeLoop()
        self.waiters = ConfirmWaiters(
            (self.confirmed, self.flushed), lambda: self.epoch, cast("Any", self.loop)
        )

    def add(self, *puts: Put) -> None:
        for put in puts:
            self.waiters.add(put)
        self.waiters.check()


def test_a_put_below_the_confirm_offset_is_confirmed_at_once() -> None:
    rig = Rig()
    rig.confirmed.advance(100)
    put = Put(100)
    rig.add(put)
    assert put.outcome is Outcome.CONFIRMED
    assert len(rig.waiters) == 0


def test_puts_are_confirmed_as_the_offset_moves() -> None:
    rig = Rig()
    first, second, third = Put(100), Put(200), Put(150)
    rig.add(first, second, third)
    rig.confirmed.advance(160)
    rig.loop.run()
    assert (first.outcome, second.outcome, third.outcome) == (
        Outcome.CONFIRMED,
        None,
        Outcome.CONFIRMED,
    )


def test_many_changes_are_one_wake_up() -> None:
    rig = Rig()
    rig.add(Put(100))
    for value in range(1, 50):
        rig.confirmed.advance(value)
    assert len(rig.loop.soon) == 1


def test_without_waiters_a_change_wakes_nobody() -> None:
    rig = Rig()
    rig.confirmed.advance(10)
    assert rig.loop.soon == []


def test_a_put_times_out_and_the_rest_waits_on() -> None:
    rig = Rig()
    early, late = Put(100, deadline=101.0), Put(50, deadline=110.0)
    rig.add(late, early)
    rig.loop.advance(1.0)
    assert (early.outcome, late.outcome) == (Outcome.TIMED_OUT, None)
    rig.confirmed.advance(100)
    rig.loop.run()
    assert (early.outcome, late.outcome) == (Outcome.TIMED_OUT, Outcome.CONFIRMED)


def test_a_put_of_another_epoch_is_not_acknowledged_though_it_is_confirmed() -> None:
    rig = Rig()
    put = Put(100)
    rig.add(put)
    rig.epoch = 2
    rig.confirmed.advance(100)
    rig.loop.run()
    assert put.outcome is Outcome.FENCED


def test_a_node_that_is_no_master_acknowledges_nothing() -> None:
    rig = Rig()
    rig.epoch = None
    put = Put(0)
    rig.add(put)
    assert put.outcome is Outcome.FENCED


def test_a_failed_flush_fails_what_is_not_confirmed() -> None:
    rig = Rig()
    safe, lost = Put(100), Put(200)
    rig.add(safe, lost)
    rig.confirmed.advance(100)
    failure = FlushFailedError("fdatasync: EIO")
    rig.flushed.fail(failure)
    rig.loop.run()
    assert safe.outcome is Outcome.CONFIRMED
    assert lost.outcomes == [(Outcome.FAILED, failure)]


def test_closing_settles_everybody_and_listens_no_more() -> None:
    rig = Rig()
    put = Put(100)
    rig.add(put)
    rig.waiters.close()
    rig.confirmed.advance(100)
    assert put.outcome is Outcome.TIMED_OUT
    assert rig.loop.soon == []
    rig.loop.advance(60.0)


def test_one_timer_serves_all() -> None:
    rig = Rig()
    rig.add(*(Put(100 + n, deadline=105.0 + n) for n in range(20)))
    assert sum(not timer.cancelled for _, _, timer in rig.loop.timers) == 1


def test_many_that_are_settled_at_once_leave_turns_to_others() -> None:
    rig = Rig()
    puts = [Put(100) for _ in range(2 * RESOLVE_SLICE + 1)]
    rig.add(*puts)
    rig.confirmed.advance(100)
    settled = []
    while rig.loop.soon:
        rig.loop.run()
        settled.append(sum(put.outcome is Outcome.CONFIRMED for put in puts))
    assert settled == [RESOLVE_SLICE, 2 * RESOLVE_SLICE, 2 * RESOLVE_SLICE + 1]


def test_many_whose_time_is_over_at_once_leave_turns_to_others() -> None:
    rig = Rig()
    puts = [Put(100) for _ in range(RESOLVE_SLICE + 1)]
    rig.add(*puts)
    rig.loop.advance(10)
    assert sum(put.outcome is Outcome.TIMED_OUT for put in puts) == RESOLVE_SLICE
    rig.loop.run()
    assert all(put.outcome is Outcome.TIMED_OUT for put in puts)
