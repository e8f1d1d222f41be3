"""Finding the first unit at or after a log offset, with pre-blank units anywhere in the queue."""

from types import SimpleNamespace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, UNIT_DTYPE
from tandemlog_server.storage.queues import queue_units
from tandemlog_server.storage.queues.queue_units import QueueUnits


class ListedUnits(QueueUnits):
    """Units of one queue in an array, numbered from `first_unit` on."""

    def __init__(self, units: NDArray[np.void], first_unit: int) -> None:
        self.units, self.first_unit = units, first_unit
        self.ends = np.array([first_unit + len(units)], np.int64)
        self.queues = {0: SimpleNamespace(file=str)}  # type: ignore[dict-item]

    def first(self, dense: int) -> int:
        return self.first_unit

    def read(self, dense: int, queue_offset: int, count: int) -> NDArray[np.void]:
        at = queue_offset - self.first_unit
        return self.units[max(at, 0) : max(at + count, 0)]


def units_of(physical: list[int | None]) -> NDArray[np.void]:
    units = np.zeros(len(physical), UNIT_DTYPE)
    units["physical_offset"] = [each or 0 for each in physical]
    units["size"] = [PRE_BLANK_SIZE if each is None else 100 for each in physical]
    return units


@given(
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.integers(0, 7_000),
    st.integers(0, 1_000),
    st.sampled_from([2, 5, 256]),
)
def test_holes_say_nothing_about_the_units_around_them(
    holes: list[bool], log_offset: int, first_unit: int, window: int
) -> None:
    physical = [None if hole else 100 * (row + 1) for row, hole in enumerate(holes)]
    listed = ListedUnits(units_of(physical), first_unit)
    fitting = [row for row, at in enumerate(physical) if at is not None and at >= log_offset]
    expected = first_unit + (fitting[0] if fitting else len(physical))
    before, queue_units._WINDOW = queue_units._WINDOW, window
    try:
        assert listed.first_at_or_after(0, log_offset) == expected
    finally:
        queue_units._WINDOW = before
