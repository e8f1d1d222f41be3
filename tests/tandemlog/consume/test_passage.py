import time
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.consume.passage import Passage
from tandemlog.consume.progress import QueueProgress

OFFSETS = [11, 12, 15, 16]


@given(st.integers(0, 4), st.booleans())
def test_a_passage_counts_what_the_caller_has(taken: int, timed: bool) -> None:
    passage = Passage(OFFSETS)
    messages = passage.of("abcd", time.monotonic() + 60 if timed else None)
    assert passage.passed == 0
    assert list(islice(messages, taken)) == list("abcd")[:taken]
    assert passage.passed == taken
    passage.stop()
    assert list(messages) == []
    assert passage.passed == taken, "what was pulled and did not pass is not counted"


def test_all_messages_pass_in_their_order() -> None:
    passage = Passage(OFFSETS)
    assert list(passage.of(iter("abcd"))) == list("abcd")
    assert passage.passed == 4
    assert list(Passage([]).of("")) == []


def test_nothing_passes_from_the_deadline_on(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    passage = Passage(OFFSETS)
    messages = passage.of("abcd", 2)
    assert next(messages) == "a"
    now[0] = 2.0
    assert list(messages) == []
    assert passage.passed == 1
    assert list(Passage(OFFSETS).of("abcd", 2)) == []


@given(st.integers(0, 4))
def test_progress_follows_a_passage_and_stays_where_it_ended(taken: int) -> None:
    progress = QueueProgress(1, 10)
    passage = Passage(OFFSETS)
    progress.count(passage)
    messages = passage.of("abcd")
    reached = [10, *OFFSETS]
    for number in range(taken):
        next(messages)
        assert progress.delivered == reached[number + 1]
        assert progress.done == reached[number], "the last one is still in the caller's hands"
    progress.count(None)
    next(messages, None)
    assert progress.delivered == reached[taken]
    assert progress.done == reached[max(taken - 1, 0)]
    progress.done = progress.delivered
    assert (progress.done, progress.begun) == (reached[taken], 10)
    progress.delivered = 99
    assert (progress.delivered, progress.done) == (99, reached[taken])
