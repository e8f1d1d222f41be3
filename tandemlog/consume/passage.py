"""Messages that pass to a caller one by one, counted and stopped without a statement for each.

    messages ──▶ compress ──▶ compress ──▶ compress ──▶ caller
                    ▲            ▲            ▲
                  marks        clock        rows        what is left of `rows` says how many passed
                    '-- `stop` clears them: nothing more passes

Statements around each message would cost as much as making the message does, so the steps are
iterators of the standard library. A message that is pulled when nothing may pass any more is not
counted: the rest of its batch comes again.

Two threads meet here: one that takes the messages, and one that asks how many passed, or stops it.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, takewhile
from operator import length_hint
from typing import TypeVar

ItemT = TypeVar("ItemT")


class Passage:
    """`offsets`: for each message the queue offset behind it."""

    __slots__ = ("_marks", "_rows", "offsets")

    def __init__(self, offsets: Sequence[int]) -> None:
        self.offsets = offsets
        self._marks = [True] * len(offsets)
        # from 1 on: a 0 would let nothing pass
        self._rows = iter(range(1, len(offsets) + 1))

    def of(self, messages: Iterable[ItemT], deadline: float | None = None) -> Iterator[ItemT]:
        """The messages, as many as there are offsets; none from `deadline` on, by the monotonic
        clock. To be called once."""
        passing = compress(messages, iter(self._marks))
        if deadline is not None:
            times = iter(time.monotonic, None)
            passing = compress(passing, takewhile(float(deadline).__gt__, times))
        return compress(passing, self._rows)

    def stop(self) -> None:
        """Any thread: nothing more passes."""
        self._marks.clear()

    @property
    def passed(self) -> int:
        """Any thread: how many messages the caller has had."""
        return len(self.offsets) - length_hint(self._rows)
