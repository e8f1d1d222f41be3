import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.files.queue_unit import UNIT_DTYPE
from tandemlog_server.storage.queues.queue_runs import regroup


def run_lists(dense: list[int], offsets: list[int]) -> dict[int, tuple[list[int], list[int], bool]]:
    units = np.zeros(len(dense), dtype=UNIT_DTYPE)
    units["physical_offset"] = np.arange(len(dense))
    runs = regroup(np.array(dense, dtype=np.int64), np.array(offsets, dtype=np.int64), units)
    assert runs.first.tolist() == runs.offsets[runs.starts].tolist()
    assert np.repeat(runs.queues, runs.counts).tolist() == runs.dense.tolist()
    cells = runs.cells.view(UNIT_DTYPE)["physical_offset"]
    return {
        int(queue): (
            runs.offsets[start : start + count].tolist(),
            cells[start : start + count].tolist(),
            bool(contiguous),
        )
        for queue, start, count, contiguous in zip(
            runs.queues, runs.starts, runs.counts, runs.contiguous, strict=True
        )
    }


def test_units_of_a_queue_stay_in_log_order() -> None:
    assert run_lists([3, 1, 3, 1, 7], [4, 9, 5, 10, 0]) == {
        1: ([9, 10], [1, 3], True),
        3: ([4, 5], [0, 2], True),
        7: ([0], [4], True),
    }


def test_a_gap_within_a_batch_is_seen_in_its_queue_alone() -> None:
    found = run_lists([1, 2, 1, 2, 3, 3], [0, 0, 2, 1, 5, 5])
    assert [found[queue][2] for queue in (1, 2, 3)] == [False, True, False]


@given(
    st.lists(
        st.tuples(st.sampled_from([0, 1, 2, 65535, 65536, 4_000_000]), st.integers(0, 3)),
        min_size=1,
        max_size=40,
    )
)
def test_runs_are_what_a_loop_finds(pairs: list[tuple[int, int]]) -> None:
    expected: dict[int, tuple[list[int], list[int]]] = {}
    for row, (queue, offset) in enumerate(pairs):
        offsets, rows = expected.setdefault(queue, ([], []))
        offsets.append(offset)
        rows.append(row)
    found = run_lists([queue for queue, _ in pairs], [offset for _, offset in pairs])
    assert list(found) == sorted(expected)
    for queue, (offsets, rows) in expected.items():
        contiguous = offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        assert found[queue] == (offsets, rows, contiguous)
