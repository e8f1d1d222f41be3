"""The state of a queue that the log carries, compared with plain sets."""

from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.lease.progress import Progress, ProgressKind, QueueProgress
from tandemlog_server.storage.leases.intervals import IntervalSet
from tandemlog_server.storage.leases.progress_table import UNKNOWN, ProgressTable
from tandemlog_server.storage.leases.queue_state import MAX_ERRORS, QueueState

SPAN = 40


@st.composite
def changes(draw: st.DrawFn) -> QueueProgress:
    ranges = draw(st.lists(st.tuples(st.integers(0, SPAN), st.integers(0, 6)), max_size=4))
    ended = list(IntervalSet((start, start + size) for start, size in ranges))
    offsets = sorted(draw(st.sets(st.integers(0, SPAN), max_size=5)))
    attempts = [draw(st.integers(1, 9)) for _ in offsets]
    return QueueProgress(
        "g", "t", 0,
        draw(st.sampled_from((0, 0, 0, 1))),
        draw(st.none() | st.none() | st.integers(0, SPAN)),
        np.array([start for start, _ in ended], np.int64),
        np.array([end for _, end in ended], np.int64),
        np.array(offsets, np.int64),
        np.array(attempts, np.uint16),
        np.array([100 + each for each in offsets], np.int64),
        {each: f"error {each}" for each in offsets[:2]},
    )  # fmt: skip


@dataclass
class PlainState:
    generation: int = 0
    done: set[int] = field(default_factory=set)
    attempts: dict[int, int] = field(default_factory=dict)

    def apply(self, change: QueueProgress) -> None:
        if change.generation < self.generation:
            return
        if change.generation > self.generation:
            self.generation, self.done, self.attempts = change.generation, set(), {}
        self.done |= set(range(change.floor or 0))
        for start, end in zip(change.ended_starts, change.ended_ends, strict=True):
            self.done |= set(range(start, end))
        self.attempts.update(zip(change.offsets.tolist(), change.attempts.tolist(), strict=True))
        self.attempts = {key: each for key, each in self.attempts.items() if key not in self.done}


def check(state: QueueState, plain: PlainState) -> None:
    everywhere = range(SPAN + 9)
    done = {each for each in everywhere if each < state.floor or each in state.ended}
    assert done == {each for each in everywhere if each in plain.done}
    assert state.floor not in state.ended
    rows = dict(zip(state.offsets.tolist(), state.attempts.tolist(), strict=True))
    assert rows == plain.attempts
    assert all(time == 100 + row for row, time in zip(state.offsets, state.first_ms, strict=True))
    assert set(state.errors) <= set(rows)


@given(st.lists(changes(), max_size=8))
def test_changes_in_order_give_the_state(rows: list[QueueProgress]) -> None:
    state, plain = QueueState(), PlainState()
    for row in rows:
        state.apply(row)
        plain.apply(row)
        check(state, plain)


@given(st.lists(changes(), max_size=6), st.lists(changes(), max_size=4), st.data())
def test_a_full_state_replaces_everything_before_it(
    before: list[QueueProgress], after: list[QueueProgress], data: st.DataObject
) -> None:
    """A node that missed any first part of the changes knows the same behind a STATE."""
    whole, late = QueueState(), QueueState()
    begins = data.draw(st.integers(0, len(before)))
    for number, row in enumerate(before):
        whole.apply(row)
        if number >= begins:
            late.apply(row)
    full = whole.progress("g", "t", 0)
    for row in (full, *after):
        whole.apply(row)
        late.apply(row)
    assert (late.generation, late.floor, late.ended) == (whole.generation, whole.floor, whole.ended)
    assert late.offsets.tolist() == whole.offsets.tolist()
    assert late.attempts.tolist() == whole.attempts.tolist()
    assert late.errors == whole.errors


def test_errors_are_kept_of_the_newest_messages() -> None:
    state = QueueState()
    count = MAX_ERRORS + 5
    state.apply(QueueProgress("g", "t", 0, errors=dict.fromkeys(range(count), "x")))
    assert sorted(state.errors) == list(range(5, count))


def test_the_log_is_needed_from_the_newest_whole_set_on() -> None:
    table = ProgressTable()
    assert table.needed_offset == UNKNOWN
    row = QueueProgress("g", "t", 0, floor=4)

    def state(offset: int, set_id: int, piece: int) -> int:
        table.apply(Progress([row], ProgressKind.STATE, set_id, piece, 2), offset)
        return table.needed_offset

    table.apply(Progress([row]), 100)
    assert table.needed_offset == 100
    assert state(200, 1, 0) == 100
    assert state(300, 2, 0) == 100  # the first set was given up by its writer
    table.apply(Progress([row]), 350)
    assert state(400, 2, 1) == 300
    assert state(500, 3, 0) == 300


def test_a_dropped_queue_is_forgotten() -> None:
    table = ProgressTable()
    table.apply(Progress([QueueProgress("g", "t", 0, floor=4), QueueProgress("g", "u", 1)]), 0)
    table.apply(Progress([QueueProgress("g", "t", 0, dropped=True)]), 1)
    assert [each.topic for each in table.entries()] == ["u"]
    table.apply(Progress([QueueProgress("g", "u", 1, dropped=True)]), 2)
    assert not table.groups
    assert table.queue_count() == 0
