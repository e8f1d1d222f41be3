"""The arithmetic of the table of stages, and a small run of the programs behind it."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.stages.marks import Marks, Noted, around
from benchmarks.stages.stage_times import Run, by_number, first_at, way_of

MS = 1_000_000


def moments(*values: float) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    return np.array([each * MS for each in values]).astype(np.int64)


def test_the_waits_of_a_message_add_up_to_its_whole_time() -> None:
    way = way_of(
        "all",
        [
            ("due", moments(0, 10, 20)),
            ("first", moments(1, 12, 23)),
            ("second", moments(5, 13, 24)),
        ],
    )
    assert [row.name for row in way.rows] == ["first", "second", "all"]
    assert way.rows[0].at[0] == 2
    assert way.whole.at == (4, 5, 5)
    slowest = [row.slowest_mean for row in way.rows]
    assert slowest == [1, 4, 5]


def test_moments_that_two_threads_noted_in_the_other_order_are_no_time() -> None:
    way = way_of("all", [("due", moments(0)), ("late", moments(5)), ("early", moments(3))])
    assert way.rows[1].at == (0, 0, 0)
    assert way.whole.at[0] == 5


def test_a_way_needs_messages() -> None:
    with pytest.raises(ValueError, match="no message"):
        way_of("all", [("due", moments()), ("done", moments())])


def test_a_position_is_reached_by_its_first_notice_at_or_above() -> None:
    positions = np.array([(100, 1), (200, 2), (150, 3), (300, 4)], np.int64)
    assert first_at(positions, np.array([100, 101, 200, 201])).tolist() == [1, 2, 2, 4]
    with pytest.raises(ValueError, match="did not reach 301"):
        first_at(positions, np.array([301]))


def test_rows_are_found_by_their_number() -> None:
    rows = np.array([(7, 70), (3, 30), (5, 50)], np.int64)
    assert by_number(rows, np.array([3, 7]))[:, 1].tolist() == [30, 70]
    for missing in (4, 8):
        with pytest.raises(ValueError, match="noted"):
            by_number(rows, np.array([missing]))


def test_what_was_noted_is_read_again(tmp_path: Path) -> None:
    marks = Marks()
    marks.note("pair", 1, 2)
    marks.note("pair", 3, 4)
    marks.note("one", 5)
    marks.save(tmp_path / "marks.npz")
    noted = Noted.load(tmp_path / "marks.npz")
    assert noted.rows("pair", 2).tolist() == [[1, 2], [3, 4]]
    assert noted.between("pair", 2, 1, 3, 5).tolist() == [[3, 4]]
    assert noted.rows("absent", 3).shape == (0, 3)


def test_a_hook_for_what_is_not_there_fails() -> None:
    with pytest.raises(AttributeError):
        around(Marks, "no_such_function", lambda original: original)


def test_a_message_is_followed_by_request_offset_and_queue() -> None:
    """Two requests, of two messages and of one; the first message is of the time before the run."""
    producer = Noted(
        {
            "began": np.array([[100]], np.int64),
            "sent": np.array([(0, 0, 90, 91), (1, 1, 100, 101), (2, 2, 110, 111)], np.int64),
            "sealed": np.array([(1, 2, 120, 0), (2, 1, 121, 1)], np.int64),
            "written": np.array([(1, 130), (2, 131)], np.int64),
            "answered": np.array([(1, 200), (2, 201)], np.int64),
            "done": np.array([(0, 210), (1, 211), (2, 212)], np.int64),
        }
    )
    master = Noted(
        {
            "arrived": np.array([(1, 50), (1, 140), (2, 141)], np.int64),  # of another producer
            "appended": np.array([(1, 150, 160, 500), (2, 161, 170, 700)], np.int64),
            "confirmed": np.array([(500, 172), (700, 173)], np.int64),
            "answer": np.array([(1, 180), (2, 181)], np.int64),
            "written": np.array([(182, 190), (191, 192)], np.int64),
            "reputed": np.array([(700, 220)], np.int64),
            "read": np.array([(1, 0, 2, 230, 240), (2, 0, 9, 231, 241), (3, 0, 9, 232, 242)]),
            "read_sent": np.array([(1, 243, 250), (3, 251, 252)], np.int64),  # 2 was given up
        }
    )
    consumer = Noted(
        {"hand": np.array([(1, 0, 1, 300, 260, 270, 280), (2, 0, 2, 600, 261, 271, 281)], np.int64)}
    )
    acknowledged, handed = Run(producer, consumer, master).ways()
    assert acknowledged.whole.at[-1] * MS == 211 - 100
    assert acknowledged.rows[-2].name == "future done"
    assert handed.whole.at[-1] * MS == 280 - 100
    assert handed.rows[-4].at[-1] * MS == 252 - 242
    slave = Noted(
        {"wrote": np.array([(700, 171)], np.int64), "flushed": np.array([(700, 171)], np.int64)}
    )
    names = [row.name for row in Run(producer, consumer, master, slave).ways()[0].rows]
    assert "the slave has flushed it" in names
