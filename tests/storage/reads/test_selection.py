"""Selection by columns against RocketMQ's loop over units (DefaultMessageStore.getMessage)."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tandemlog.format.files.queue_unit import PRE_BLANK_SIZE, UNIT_DTYPE
from tandemlog_server.storage.reads.selection import runs, select, units_to_read


def units(*rows: tuple[int, int, int]) -> NDArray[np.void]:
    return np.array(list(rows), dtype=UNIT_DTYPE)


def by_loop(
    rows: NDArray[np.void], max_messages: int, max_bytes: int, hashes: set[int], log_start: int
) -> tuple[int, list[int], bool]:
    taken: list[int] = []
    total, examined, removed = 0, 0, False
    for offset, size, code in rows.tolist():
        if taken and ((max_messages and len(taken) >= max_messages) or total + size > max_bytes):
            break
        examined += 1
        if hashes and (code & 0xFFFFFFFF) not in {each & 0xFFFFFFFF for each in hashes}:
            continue
        if offset < log_start or size == PRE_BLANK_SIZE:
            removed = True
            continue
        taken.append(offset)
        total += size
    return examined, taken, removed


ROWS = st.lists(
    st.tuples(
        st.integers(0, 4000),
        st.one_of(st.integers(91, 400), st.just(PRE_BLANK_SIZE)),
        st.sampled_from([0, 5, -7, 1 << 33 | 5]),
    ),
    max_size=40,
)


@given(
    ROWS,
    st.integers(0, 10),
    st.integers(1, 3000),
    st.sets(st.sampled_from([5, -7, 9])),
    st.sampled_from([0, 1000]),
)
def test_equals_the_loop(
    rows: list[tuple[int, int, int]],
    max_messages: int,
    max_bytes: int,
    hashes: set[int],
    log_start: int,
) -> None:
    column = units(*rows)
    found = select(
        column,
        max_messages=max_messages,
        max_bytes=max_bytes,
        tag_hashes=hashes,
        log_start=log_start,
    )
    examined, taken, removed = by_loop(column, max_messages, max_bytes, hashes, log_start)
    assert found.examined == examined
    assert found.physical_offsets.tolist() == taken
    assert found.removed == removed


def test_the_first_record_is_given_whatever_its_size() -> None:
    found = select(
        units((0, 5000, 0), (5000, 100, 0)),
        max_messages=0,
        max_bytes=10,
        tag_hashes=(),
        log_start=0,
    )
    assert found.sizes.tolist() == [5000]


def test_records_end_to_end_are_one_run() -> None:
    starts, lengths = runs(np.array([0, 100, 250, 400]), np.array([100, 150, 50, 60]))
    assert starts.tolist() == [0, 400]
    assert lengths.tolist() == [300, 60]


def test_no_records_are_no_runs() -> None:
    starts, lengths = runs(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert len(starts) == len(lengths) == 0


def test_a_get_looks_at_800_units_or_as_many_as_asked() -> None:
    assert units_to_read(8, 1 << 20) == 800
    assert units_to_read(5000, 1 << 20) == 5000
    assert units_to_read(0, 1 << 10) == 800
    assert units_to_read(0, 1 << 20) == 8192
