import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fakes.plain_format import time_diff
from tandemlog.format.files.index_chains import link, time_diffs
from tandemlog.format.files.index_layout import MAX_TIME_DIFF, SLOT_DTYPE

SLOTS = 7


def slow(table: list[int], hashes: list[int], first: int) -> tuple[list[int], list[int], int]:
    """As RocketMQ puts one entry after the other."""
    table = [number if number < first else 0 for number in table]
    previous, fresh = [], 0
    for number, key_hash in enumerate(hashes, first):
        slot = key_hash % SLOTS
        held = max(table[slot], 0)
        previous.append(held)
        fresh += held == 0
        table[slot] = number
    return table, previous, fresh


@given(
    st.lists(st.integers(-2, 12), min_size=SLOTS, max_size=SLOTS),
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=40),
    st.integers(1, 10),
)
def test_a_batch_is_linked_as_one_by_one(table: list[int], hashes: list[int], first: int) -> None:
    held = np.array(table, dtype=SLOT_DTYPE)
    links = link(held, np.array(hashes, dtype=np.int32), first)
    after, previous, fresh = slow(table, hashes, first)
    assert held.tolist() == table
    held[links.slots] = links.newest
    expected = [after[slot] if slot in links.slots else table[slot] for slot in range(SLOTS)]
    assert held.tolist() == expected
    assert links.previous.tolist() == previous
    assert links.fresh == fresh


@given(st.integers(-5, 1 << 42), st.lists(st.integers(0, 1 << 43), min_size=1, max_size=5))
def test_time_differences(begin: int, times: list[int]) -> None:
    found = time_diffs(begin, np.array(times, dtype=np.int64)).tolist()
    assert found == [time_diff(begin, time) for time in times]


def test_time_differences_have_limits() -> None:
    times = np.array([5, 10_999, 1 << 60], dtype=np.int64)
    assert time_diffs(10_000, times).tolist() == [0, 0, MAX_TIME_DIFF]
    assert time_diffs(0, times).tolist() == [0, 0, 0]
