"""The arithmetic of the table of the seeds; the programs themselves run by `make bench-seeds`."""

from collections.abc import Mapping, Sequence

import pytest

from benchmarks.harness.figures import Figure
from benchmarks.seeds import page
from benchmarks.seeds.__main__ import FULL, QUICK
from benchmarks.seeds.profile import read_stacks, shares
from benchmarks.seeds.sides import OWN_CLIENT, PACED, QUEUES, RAW, Measurement, Size, prefix
from benchmarks.seeds.turns import Rounds


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


def measurement(rate: float, request_us: float = 40.0) -> Measurement:
    return Measurement(rate, p50_ms=1.0, p99_ms=rate / 100, server_us=7.0, request_us=request_us)


def rounds_of(works: Sequence[str], rates: Mapping[str, Sequence[float]]) -> Rounds:
    """The same rates for each work and each number of topics."""
    return {
        (work, topics, side): [measurement(rate) for rate in row]
        for work in works
        for topics in COUNTS
        for side, row in rates.items()
    }


COUNTS = (64, 256)
CLIENTS = rounds_of(
    [*OWN_CLIENT, "read", PACED],
    {page.NODE: [50, 90, 80], page.BROKER: [100, 100, 100], page.KAFKA: [200, 100, 400]},
)
FRAMES = rounds_of(RAW, {page.NODE: [50, 90, 80], page.BROKER: [100, 100, 100]})


def test_a_ratio_is_the_median_of_the_rounds_with_its_range() -> None:
    ours = [measurement(rate) for rate in (50, 90, 80)]
    theirs = [measurement(rate) for rate in (100, 100, 400)]
    assert page.spread(ours, theirs) == "0.50 (0.20 to 0.90)"
    assert page.spread(ours[:1], theirs[:1]) == "0.50"
    with pytest.raises(ValueError, match="zip"):
        page.spread(ours, theirs[:1])


def test_every_work_has_a_row_for_each_number_of_topics() -> None:
    rows = page.client_table(CLIENTS, COUNTS)[2:]
    assert len(rows) == len(OWN_CLIENT) * len(COUNTS)
    assert rows[-1] == (
        "| pull by 32 | 256 | 80 | 100 | 0.80 (0.50 to 0.90) | 200 | 0.25 (0.20 to 0.90) | 7 | 7 |"
    )
    raw = page.raw_table(FRAMES, COUNTS)[2:]
    assert len(raw) == len(RAW) * len(COUNTS)
    assert raw[0] == ("| send | 64 | 80 | 100 | 0.80 (0.50 to 0.90) | 40 | 40 | 1 / 0.8 | 1 / 1 |")


def test_without_kafka_its_cells_are_empty() -> None:
    found = {key: rounds for key, rounds in CLIENTS.items() if key[2] != page.KAFKA}
    assert page.client_table(found, COUNTS)[-1].endswith(" |  |  | 7 | 7 |")
    assert page.wait_table(found, COUNTS, 500)[-1].endswith("| 1 / 0.8 | 1 / 1 |  |")


def test_what_must_hold_is_said_of_what_was_measured() -> None:
    assert [each.holds for each in page.figures(CLIENTS, FRAMES, COUNTS)] == [True] * 6
    slow = dict(CLIENTS)
    slow["async", 256, page.NODE] = [measurement(75.9)]
    slow["push", 64, page.NODE] = [measurement(69.9)]
    costly = {key: [measurement(1, request_us=50.5)] for key in FRAMES}
    missed = [each.name for each in page.figures(slow, costly, COUNTS) if not each.holds]
    assert missed == [
        "push consumer, 64 topics, of the broker's",
        "send, 1,024 in flight, 256 topics, of 64",
        "processor time of the node: pull 32",
    ]
    assert len(page.figures(CLIENTS, {}, COUNTS[:1])) == 3, "no 256 topics to compare"
    assert page.figures({}, {}, COUNTS) == []


def test_a_missed_goal_is_said_in_its_row() -> None:
    figures = [
        Figure("a ratio", 50, "messages/s", 0.7, reference=100),
        Figure("a time", 40, "us", 50, at_most=True),
    ]
    assert page.goal_table(figures)[2:] == [
        "| a ratio | 0.5 (missed) | ≥ 0.7 |",
        "| a time | 40 us | ≤ 50 us |",
    ]


def test_the_section_takes_the_place_of_the_last_one_and_of_nothing_else() -> None:
    section = page.section(
        CLIENTS, FRAMES, page.figures(CLIENTS, FRAMES, COUNTS), COUNTS, Size(3, 512), "today"
    )
    before, after = "# Performance\n\ntext\n", "## What a message costs\n\nmore\n"
    fresh = page.with_section(before, section)
    assert fresh == f"{before}\n{section}"
    old = f"{before}\n{page.HEADING}\n\nold figures\n\n{after}"
    assert page.with_section(old, section) == f"{before}\n{section}\n{after}"
    assert page.with_section(fresh, section) == fresh
    pair = page.section({}, FRAMES, [], COUNTS, Size(3, 512), "today", slave=True)
    both = page.with_section(fresh, pair)
    assert both == f"{fresh}\n{pair}"
    assert page.with_section(both, section) == both


def test_each_queue_has_its_part_of_what_is_read() -> None:
    assert [FULL.of_queue(topics) for topics in (64, 128, 256)] == [256, 128, 64]
    assert [QUICK.of_queue(topics) for topics in (64, 128, 256)] == [64, 32, 32], "full batches"
    assert Size(1, filled=512 * 33).of_queue(64) == 32
    assert QUICK.of_queue(64) * 64 * QUEUES == QUICK.filled


def test_paced_messages_have_topics_of_their_own() -> None:
    assert prefix(64) == prefix(64, "async") == "seeds64"
    assert prefix(64, PACED) == "paced64"
