"""The history of the benchmarks: kept, drawn, and what has fallen is named."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.harness.figures import Figure
from benchmarks.history import FILE, LAST, Ratio, Run, add_run, drawn, fallen, read_runs, run_of


def run(value: float, *, date: str = "2026-11-28", at_most: bool = False) -> Run:
    return Run(date, "abc1234", 2, {"pull, of before": Ratio(value, 0.9, at_most)})


def test_only_ratios_are_kept() -> None:
    figures = [
        Figure("send", 90.0, "1/s", goal=0.9, reference=100.0),
        Figure("memory", 3.0, "MB", goal=5.0, at_most=True),
    ]
    found = run_of(figures, date="2026-11-28", commit="abc", cores=2)
    assert found.ratios == {"send": Ratio(0.9, 0.9)}


def test_what_was_added_is_read(tmp_path: Path) -> None:
    file = tmp_path / "history.jsonl"
    assert read_runs(file) == []
    runs = [run(1.0), run(0.5, date="2026-11-29")]
    for each in runs:
        add_run(each, file)
    assert read_runs(file) == runs


@pytest.mark.parametrize("line", ["{", "[]", '{"date": "x"}', '{"ratios": {"a": {"b": 1}}}'])
def test_a_line_that_is_no_run_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "history.jsonl"
    add_run(run(1.0), file)
    with file.open("a") as opened:
        opened.write(line + "\n")
    with pytest.raises(ValueError, match="line 2"):
        read_runs(file)


@pytest.mark.parametrize(
    ("before", "now", "at_most", "named"),
    [
        ([1.0, 1.0, 1.0], 0.89, False, True),
        ([1.0, 1.0, 1.0], 0.91, False, False),
        ([1.0, 1.0, 1.0], 1.5, False, False),
        ([1.0, 1.0, 1.0], 1.2, True, True),
        ([1.0, 1.0, 1.0], 0.5, True, False),
        ([9.0] * 3 + [1.0] * LAST, 0.95, False, False),
        ([], 0.1, False, False),
        ([0.0], 0.1, False, False),
    ],
)
def test_a_tenth_below_the_usual_is_named(
    before: list[float], now: float, at_most: bool, named: bool
) -> None:
    lines = fallen([run(each, at_most=at_most) for each in before], run(now, at_most=at_most))
    assert bool(lines) is named
    assert all("pull, of before" in line for line in lines)


def test_the_picture_has_a_row_for_each_figure() -> None:
    other = Run("2026-11-29", "def", 2, {"<put> & get": Ratio(0.2, 0.9)})
    svg = ElementTree.fromstring(drawn([run(1.0), other, run(0.8)]))
    texts = [each.text or "" for each in svg.iter() if each.tag.endswith("text")]
    assert "<put> & get" in texts
    assert "pull, of before" in texts
    lines = [each for each in svg.iter() if each.tag.endswith("polyline")]
    assert [len(each.get("points", "").split()) for each in lines] == [1, 2]
    assert ElementTree.fromstring(drawn([])) is not None


def test_the_history_of_this_tree_can_be_read() -> None:
    dates = [each.date for each in read_runs(FILE)]
    assert dates == sorted(dates)
