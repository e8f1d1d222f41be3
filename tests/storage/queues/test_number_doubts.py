"""Which numbers are believed when a queue is made again from the log."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.queues.number_doubts import is_stray

SIZE = 100
BEGIN = 10_000
"""Where the log begins: room for the records before these."""


def kept(numbers: list[int], sizes: int = SIZE) -> list[int]:
    """The numbers that a rebuild takes, record after record, as the queue's store does."""
    taken: list[int] = []
    before, offsets = -1, np.array(numbers, np.int64)
    physical = np.arange(len(numbers), dtype=np.int64) * sizes + BEGIN
    for index, number in enumerate(numbers):
        expected = taken[-1] + 1 if taken else -1
        if is_stray(offsets[index:], physical[index:], expected, before):
            continue
        if not taken or number >= expected:
            taken.append(number)
            before = int(physical[index])
    return taken


@pytest.mark.parametrize(
    ("numbers", "taken"),
    [
        ([0, 1, 2, 7, 4, 5], [0, 1, 2, 4, 5]),
        ([0, 1, 2, 1 << 40, 4, 5], [0, 1, 2, 4, 5]),
        ([0, 1, 2, -7, 4, 5], [0, 1, 2, 4, 5]),
        ([1 << 40, 1, 2], [1, 2]),
        ([9, 10, 11], [9, 10, 11]),
        ([0, 1, 1 << 40], [0, 1]),  # the last one: there is no room for as many
        ([1 << 40, 1], [1]),
        ([1 << 40], []),  # the only one: no log is that long
    ],
)
def test_one_that_is_damaged_is_left_out(numbers: list[int], taken: list[int]) -> None:
    assert kept(numbers) == taken


def test_a_hole_is_a_hole() -> None:
    numbers = np.array([2, 7, 8], np.int64)
    assert not is_stray(numbers[1:], np.array([1000, 1100]), 3, 100)
    assert is_stray(numbers[1:], np.array([300, 400]), 3, 100), "no room for four records"


@given(st.integers(0, 50), st.integers(4, 30), st.data())
def test_any_turned_bit_costs_its_own_message_alone(
    first: int, count: int, data: st.DataObject
) -> None:
    numbers = list(range(first, first + count))
    hit = data.draw(st.integers(0, count - 3))
    numbers[hit] ^= 1 << data.draw(st.integers(0, 62))
    rest = numbers[:hit] + numbers[hit + 1 :]
    assert [number for number in kept(numbers) if number in rest] == rest
