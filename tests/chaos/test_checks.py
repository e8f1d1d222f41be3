"""The checkers of a chaos run find what they are there for."""

import pytest

from chaos.campaign import order
from chaos.checks import Finding, duplicated, longest_gap, lost, two_leaders, vanished
from chaos.cluster import EMBEDDED, ETCD
from chaos.faults import FAULTS, faults_for
from chaos.tally import Played, Tally
from chaos.watchers import Follower, GroupReader, Witness

HELD = {(0, 0): b"0", (1, 0): b"1", (0, 1): b"2"}
ACKNOWLEDGED = {0: (0, 0), 1: (1, 0), 2: (0, 1)}


def test_what_every_node_holds_is_not_lost() -> None:
    assert lost(ACKNOWLEDGED, {"n0": HELD, "n1": HELD}) == []
    assert duplicated({"n0": HELD}) == []
    assert vanished({(0, 1): b"2"}, {"n0": HELD}) == []


def test_a_message_that_one_node_lacks_is_lost() -> None:
    shorter = {place: body for place, body in HELD.items() if body != b"1"}
    (finding,) = lost(ACKNOWLEDGED, {"n0": HELD, "n1": shorter})
    assert finding == Finding("lost", "n1 has None at (1, 0), where 1 was acknowledged")


def test_a_message_at_another_place_than_was_acknowledged_is_lost() -> None:
    moved = {(0, 0): b"2", (1, 0): b"1", (0, 1): b"0"}
    assert len(lost(ACKNOWLEDGED, {"n0": moved})) == 2


def test_a_message_whose_place_is_not_known_may_be_anywhere() -> None:
    assert lost({2: (0, -1)}, {"n0": HELD}) == []
    assert lost({7: (0, -1)}, {"n0": HELD}) == [Finding("lost", "n0 has 7 nowhere")]


def test_a_message_that_is_there_twice_is_a_duplicate() -> None:
    twice = {**HELD, (3, 5): b"2"}
    assert duplicated({"n0": HELD, "n2": twice}) == [Finding("duplicated", "n2 has 2 2 times")]


def test_what_was_read_and_is_gone_has_vanished() -> None:
    (finding,) = vanished({(0, 7): b"9"}, {"n0": HELD})
    assert finding == Finding("vanished", "b'9' was read at (0, 7), and n0 has None")


def test_what_was_read_and_has_another_content_now_has_vanished() -> None:
    assert [each.kind for each in vanished({(0, 1): b"9"}, {"n0": HELD})] == ["vanished"]


def test_a_place_that_two_readers_saw_with_different_content() -> None:
    witness = Witness()
    witness.saw((0, 0), b"1", "n0")
    witness.saw((0, 0), b"1", "n1")
    assert witness.findings == []
    witness.saw((0, 0), b"2", "n2")
    text = "n2 gave b'2' at (0, 0), where b'1' was read before"
    assert witness.findings == [Finding("vanished", text)]


def test_two_leaders_of_one_epoch() -> None:
    witness = Witness()
    for node_id, epoch in (("n0", 1), ("n1", 2), ("n0", 1), ("n0", 2)):
        witness.leads(node_id, epoch)
    assert two_leaders(witness.leaders) == [Finding("leaders", "epoch 2 was led by n0 and n1")]


def test_a_consumer_that_skips_a_message() -> None:
    witness = Witness()
    follower = Follower(["127.0.0.1:1"], witness)
    for offset in (0, 1, 3):
        follower.deliver((2, offset), b"%d" % offset)
    assert witness.findings == [Finding("skipped", "the consumer got (2, 3), not 2")]
    assert follower.delivered == 3


@pytest.mark.parametrize(
    ("began", "ended", "gap"),
    [
        (2.5, 3.5, 4.0),  # the pause began before the end and lasted beyond it
        (0.5, 1.5, 1.0),
        (2.0, 7.5, 4.0),
        (7.5, 7.6, 1.0),
    ],
)
def test_recovery_is_the_longest_pause_that_touches_the_fault(
    began: float, ended: float, gap: float
) -> None:
    assert longest_gap([0.0, 1.0, 2.0, 3.0, 7.0, 8.0], began, ended) == gap


def test_without_an_acknowledgement_after_it_a_fault_has_no_end() -> None:
    assert longest_gap([0.0, 1.0], 0.5, 2.0) == float("inf")


@pytest.mark.parametrize("kind", [EMBEDDED, ETCD])
def test_a_seed_repeats_an_order_that_has_every_kind(kind: str) -> None:
    first, again, other = order(7, kind), order(7, kind), order(8, kind)
    names = [next(first).name for _ in FAULTS]
    assert names == [next(again).name for _ in FAULTS]
    assert names != [next(other).name for _ in FAULTS]
    fitting = [fault.name for fault in faults_for(kind)]
    assert set(names[: len(fitting)]) == set(fitting)


def test_the_report_counts_by_kind_of_fault() -> None:
    tally = Tally(seed=5)
    bad = Finding("lost", "n1 has 3 nowhere")
    tally.add(Played("kill-master", EMBEDDED, 100, 0, 1, 6.5, 2.0, (bad,)))
    tally.add(Played("kill-master", ETCD, 50, 1, 1, 7.5, 3.0))
    tally.end([Finding("vanished", "…")])
    report = tally.report()
    assert (report["runs"], report["acknowledged"], report["failed"]) == (2, 150, 1)
    assert (report["lost"], report["vanished"], report["duplicated"]) == (1, 1, 0)
    row, end = tally.rows()
    assert (row["fault"], row["runs"], row["lost"], row["vanished"]) == ("kill-master", 2, 1, 0)
    assert (row["median_recovery_s"], row["worst_recovery_s"]) == (7.0, 7.5)
    assert (end["fault"], end["vanished"]) == ("at-the-end", 1)
    assert tally.table().splitlines()[2:] == ["| kill-master | 2 | 150 | 1 | 7.0 | 7.5 |"]


def test_a_group_may_get_a_message_again_and_passes_none() -> None:
    witness = Witness()
    group = GroupReader(["n0:1"], witness)
    for offset in (0, 1, 2, 1, 2, 3):
        group.deliver((0, offset), str(offset).encode())
    assert (witness.findings, group.delivered) == ([], 4)
    group.deliver((0, 6), b"6")
    (finding,) = witness.findings
    assert finding == Finding("skipped", "the group got (0, 6), and nothing from 4 on")
