"""What groups do is counted, and callers cannot make the table grow."""

import pytest

from fakes.clock import FakeClock
from tandemlog_server.node.pulls import group_activity as module
from tandemlog_server.node.pulls.group_activity import IDLE_S, MEMBER_S, GroupActivity, GroupNumbers


def test_pulls_and_commits_are_counted_by_group() -> None:
    clock = FakeClock()
    groups = GroupActivity(10, clock.monotonic)
    groups.pulled("g", "c1", 3, 300)
    groups.pulled("g", "c2", 0, 0)
    groups.committed("g", "c1")
    groups.pulled("", "c3", 5, 500)
    assert groups.numbers() == {"g": GroupNumbers(3, 300, 1, 2)}
    clock.advance(MEMBER_S)
    groups.pulled("g", "c2", 1, 10)
    assert groups.numbers()["g"].members == 2
    clock.advance(1)
    assert groups.numbers() == {"g": GroupNumbers(4, 310, 1, 1)}


def test_groups_beyond_the_bound_are_counted_together() -> None:
    clock = FakeClock()
    groups = GroupActivity(2, clock.monotonic)
    for name in ("a", "b", "c", "d", "other"):
        groups.pulled(name, "c1", 1, 10)
    assert groups.numbers() == {
        "a": GroupNumbers(1, 10, 0, 1),
        "b": GroupNumbers(1, 10, 0, 1),
        "other": GroupNumbers(3, 30, 0, 1),
    }
    assert groups.folded == 2
    clock.advance(IDLE_S)
    groups.pulled("b", "c1", 1, 10)
    groups.pulled("c", "c1", 1, 10)
    assert set(groups.numbers()) == {"b", "c", "other"}
    assert groups.folded == 1


def test_names_and_members_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MEMBERS", 3)
    groups = GroupActivity(0, FakeClock().monotonic)
    for number in range(50):
        groups.pulled(f"g{number}", f"c{number}", 1, 1)
    assert groups.numbers() == {"other": GroupNumbers(50, 50, 0, 3)}
    assert groups.folded == 0


def test_a_name_that_no_group_can_have_is_no_label() -> None:
    groups = GroupActivity(10, FakeClock().monotonic)
    for name in ("g" * 100_000, "a b", "ok"):
        groups.pulled(name, "c1", 1, 10)
    assert {name: each.messages for name, each in groups.numbers().items()} == {"other": 2, "ok": 1}
    assert groups.folded == 0
