"""What is known of a file's pages; against sets of bytes."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from storage.disk.residency import CHUNK, Residency

SIZE = 5 * CHUNK + 1000
PLACES = st.integers(0, SIZE // 500).map(lambda number: min(number * 500, SIZE - 1))


@given(noted=st.lists(st.tuples(PLACES, PLACES)), asked=st.lists(st.tuples(PLACES, PLACES)))
def test_only_chunks_that_were_noted_as_a_whole_are_known(
    noted: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    residency = Residency(SIZE)
    known: set[int] = set()
    for one, other in noted:
        begin, end = min(one, other), max(one, other) + 1
        residency.note(begin, end - begin)
        known |= {
            chunk
            for chunk in range(6)
            if begin <= chunk * CHUNK and min((chunk + 1) * CHUNK, SIZE) <= end
        }
    for one, other in asked:
        begin, end = min(one, other), max(one, other) + 1
        there = set(range(begin // CHUNK, (end - 1) // CHUNK + 1)) <= known
        assert residency.covers(begin, end - begin) is there
        if end - begin <= CHUNK:
            [missing] = residency.missing(np.array([begin]), np.array([end])).tolist()
            assert missing is not there
