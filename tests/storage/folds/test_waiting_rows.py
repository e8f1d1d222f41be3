"""A million waiting records in arrays, against a dictionary."""

from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tandemlog_server.storage.folds.waiting_rows import NEAR_MS, NewRows, WaitingRows

NOTHING = (-(1 << 60), -1)


def numbers(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int64)


def new(offsets: np.ndarray, due: np.ndarray, keys: np.ndarray, counted: bool = False) -> NewRows:
    count = len(offsets)
    return NewRows(offsets, due, keys, np.full(count, 99, np.int32), np.full(count, counted))


class AgainstADictionary(RuleBasedStateMachine):
    """`plain` is log offset -> (due, key), `taken` those that a master is about to end."""

    @initialize()
    def begin(self) -> None:
        self.rows = WaitingRows()
        self.plain: dict[int, tuple[int, int]] = {}
        self.taken: set[int] = set()
        self.next, self.now = 0, 1_000

    @rule(
        dues=st.lists(st.integers(-500, 3 * NEAR_MS) | st.sampled_from([0, NEAR_MS]), max_size=30),
        key=st.integers(0, 3),
        many=st.booleans(),
    )
    def append(self, dues: list[int], key: int, many: bool) -> None:
        dues = dues * 40 if many else dues
        offsets = [self.next + 100 * number for number in range(len(dues))]
        self.next += 100 * len(dues) + 7
        due = [self.now + each for each in dues]
        self.rows.append(
            new(numbers(offsets), numbers(due), numbers([key] * len(dues)), counted=key == 1)
        )
        self.plain |= {o: (d, key) for o, d in zip(offsets, due, strict=True)}

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        known = sorted(self.plain)
        some = data.draw(st.lists(st.sampled_from(known), max_size=20) if known else st.just([]))
        named = numbers([*some, self.next + 1, -5])
        ended = self.rows.end(named)
        assert sorted(ended.tolist()) == sorted(set(some))
        self._forget(some)

    @rule(ends=st.lists(st.tuples(st.integers(0, 3), st.floats(0, 1.1)), max_size=4))
    def end_keys(self, ends: list[tuple[int, float]]) -> None:
        places = [(key, int(self.next * share)) for key, share in ends]
        mine = [
            offset
            for offset, (_, key) in self.plain.items()
            if key and any(key == other and offset < behind for other, behind in places)
        ]
        keys, behind = numbers(key for key, _ in places), numbers(at for _, at in places)
        assert self.rows.end_keys(keys, behind).tolist() == mine
        self._forget(mine)

    @rule(share=st.floats(0, 1))
    def end_below(self, share: float) -> None:
        limit = int(self.next * share * 0.3)
        mine = [o for o in self.plain if o < limit]
        assert self.rows.end_below(limit).tolist() == mine
        self._forget(mine)

    def _forget(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self.plain.pop(offset, None)
            self.taken.discard(offset)

    @rule(passed=st.integers(0, 2 * NEAR_MS), limit=st.integers(1, 50))
    def take_what_is_due(self, passed: int, limit: int) -> None:
        self.now += passed
        wanted = self._due()
        rows = self.rows.due(self.now, limit)
        offsets = rows.offsets
        found = list(zip(rows.due_ms.tolist(), offsets.tolist(), strict=True))
        assert found == wanted[: len(found)], "the first ones, by time and in log order"
        assert bool(found) == bool(wanted)
        self.rows.take(offsets)
        self.taken |= set(offsets.tolist())

    @rule(step_ms=st.integers(-2 * NEAR_MS, 2 * NEAR_MS), share=st.floats(0, 1.1))
    def set_the_clock(self, step_ms: int, share: float) -> None:
        before = int(self.next * share)
        self.rows.shift(step_ms, before)
        self.now += step_ms
        for offset, (due, key) in self.plain.items():
            self.plain[offset] = (due + step_ms * (key == 1 and offset < before), key)

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        taken = sorted(self.taken)
        some = data.draw(st.lists(st.sampled_from(taken), max_size=5) if taken else st.just([]))
        self.rows.release(numbers(some))
        self.taken -= set(some)

    @rule()
    def release_all(self) -> None:
        self.rows.release_all()
        self.taken.clear()

    @rule()
    def restore(self) -> None:
        data = b"".join(self.rows.encode())
        self.rows = WaitingRows()
        self.rows.decode(data)
        self.taken.clear()

    def _due(self) -> list[tuple[int, int]]:
        waits = ((due, o) for o, (due, _) in self.plain.items() if o not in self.taken)
        return sorted(each for each in waits if each[0] <= self.now)

    @invariant()
    def looks_alike(self) -> None:
        rows = self.rows
        assert len(rows) == len(self.plain)
        assert rows.first_offset == min(self.plain, default=None)
        waits = [due for o, (due, _) in self.plain.items() if o not in self.taken]
        following = rows.next_due_ms(self.now)
        assert (following is None) == (not self.plain)
        if following is not None and waits:
            first = min(waits)
            assert following <= first, "never looked for too late"
            assert following == first or following > self.now
        some = [*list(self.plain)[:5], self.next + 3]
        assert rows.waits(numbers(some)).tolist() == [
            o in self.plain and o not in self.taken for o in some
        ]

    @invariant()
    def counts_have_every_row_once(self) -> None:
        ends = [self.now, self.now + 10, self.now + NEAR_MS]
        places = np.searchsorted(ends, [due for due, _ in self.plain.values()])
        assert self.rows.counts_by_due(ends) == np.bincount(places, minlength=4).tolist()

    @invariant()
    def pages_have_every_row_once(self) -> None:
        found: list[tuple[int, int]] = []
        after = NOTHING
        while True:
            rows = self.rows.page(after, 7 if len(self.plain) < 60 else 400)
            if not len(rows):
                break
            found += list(zip(rows.due_ms.tolist(), rows.offsets.tolist(), strict=True))
            after = found[-1]
        assert found == sorted((due, o) for o, (due, _) in self.plain.items())


AgainstADictionary.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestAgainstADictionary = AgainstADictionary.TestCase


@given(st.binary(max_size=100))
def test_a_snapshot_of_another_form_changes_nothing(data: bytes) -> None:
    rows = WaitingRows()
    rows.append(new(numbers([5]), numbers([6]), numbers([7])))
    try:
        rows.decode(data)
    except ValueError:
        found = rows.find(5)
        assert found is not None
        assert found.due_ms.tolist() == [6]


def test_a_million_take_a_few_bytes_each() -> None:
    rows = WaitingRows()
    for first in range(0, 1_000_000, 10_000):
        offsets = np.arange(first, first + 10_000) * 300
        rows.append(new(offsets, offsets % 3_600_000, offsets))
    rows.due(3_500_000, 10)
    assert rows.byte_size < 100 << 20


@pytest.mark.parametrize("backlog", [50_000])
def test_a_backlog_goes_by_time_and_in_log_order(backlog: int) -> None:
    rows = WaitingRows()
    offsets = np.arange(backlog) * 10
    rows.append(new(offsets, (offsets * 7919) % 1000, offsets))
    seen: list[tuple[int, int]] = []
    while True:
        found = rows.due(1000, 4096)
        if not len(found):
            break
        rows.take(found.offsets)
        seen += list(zip(found.due_ms.tolist(), found.offsets.tolist(), strict=True))
    assert len(seen) == backlog
    assert seen == sorted(seen)


def test_a_released_row_is_due_at_once_though_others_came_meanwhile() -> None:
    rows = WaitingRows()
    rows.append(new(numbers([100]), numbers([5]), numbers([0])))
    rows.take(rows.due(10, 9).offsets)
    assert not len(rows.due(10, 9))
    rows.append(new(numbers([200]), numbers([10]), numbers([0])))
    assert rows.due(10, 9).offsets.tolist() == [200]
    rows.release(numbers([100]))
    assert rows.due(10, 9).offsets.tolist() == [100, 200]
    assert rows.next_due_ms(10) == 5
