"""The arithmetic of the table of the seeds; the programs themselves run by `make bench-seeds`."""

import pytest

from benchmarks.seeds.profile import read_stacks, shares


def test_stacks_are_read_without_threads_that_wait_for_work() -> None:
    lines = [
        "main (a.py:1);serve (b c.py:20) 7",
        "run (threading.py:982);_worker (concurrent/futures/thread.py:81) 900",
        "run (threading.py:982);_worker (concurrent/futures/thread.py:83);read (d.py:4) 3",
    ]
    assert list(read_stacks(lines).values()) == [7, 3]


def test_a_function_has_its_own_share_and_that_of_what_it_calls() -> None:
    found = shares({"main (a.py:1);serve (b.py:20)": 3, "main (a.py:2)": 1})
    assert found == {"main (a.py)": (0.25, 1.0), "serve (b.py)": (0.75, 0.75)}


def test_a_function_that_calls_itself_counts_once() -> None:
    assert shares({"walk (a.py:1);walk (a.py:2)": 4}) == {"walk (a.py)": (1.0, 1.0)}


@pytest.mark.parametrize("frame", ["main", "<module> (<string>)"])
def test_a_frame_without_a_line_keeps_its_name(frame: str) -> None:
    assert shares({frame: 1}) == {frame: (1.0, 1.0)}
