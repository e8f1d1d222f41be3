"""The assignment is complete, balanced and sticky."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.node.groups.assignor import Queue, assign

TOPICS = ["a", "b", "c", "d"]
COUNTS = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12))
MEMBERS = st.dictionaries(
    st.sampled_from(["m1", "m2", "m3", "m4", "m5"]), st.frozensets(st.sampled_from(TOPICS))
)


@given(MEMBERS, COUNTS, st.randoms(use_true_random=False))
def test_every_queue_that_somebody_may_read_has_one_reader(
    members: dict[str, frozenset[str]], counts: dict[str, int], random: object
) -> None:
    target = assign(members, counts, {})
    expected = {
        (topic, queue_id)
        for topic, count in counts.items()
        if any(topic in topics for topics in members.values())
        for queue_id in range(count)
    }
    assert set(target) == expected
    assert all(topic in members[member] for (topic, _), member in target.items())
    loads = Counter(target.values())
    for (topic, _), member in target.items():  # no single move would make it more even
        for other, topics in members.items():
            if topic in topics:
                assert loads[member] - loads[other] <= 1


@given(st.integers(1, 9), COUNTS)
def test_equal_subscriptions_differ_by_one_at_most(size: int, counts: dict[str, int]) -> None:
    members = {f"m{number}": frozenset(TOPICS) for number in range(size)}
    loads = Counter(assign(members, counts, {}).values())
    got = [loads[member] for member in members]
    assert max(got) - min(got) <= 1


@given(MEMBERS, COUNTS)
def test_nothing_moves_without_need(
    members: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    target = assign(members, counts, {})
    assert assign(members, counts, target) == target


def moved(before: dict[Queue, str], after: dict[Queue, str]) -> int:
    return sum(after.get(queue) != member for queue, member in before.items())


@given(st.integers(1, 8), st.integers(1, 40))
def test_a_member_that_joins_gets_its_share_and_no_more(size: int, queues: int) -> None:
    members = {f"m{number}": {"a"} for number in range(size)}
    before = assign(members, {"a": queues}, {})
    after = assign({**members, "new": {"a"}}, {"a": queues}, before)
    share = Counter(after.values())["new"]
    assert moved(before, after) == share
    assert share in (queues // (size + 1), queues // (size + 1) + 1)


@given(st.integers(2, 8), st.integers(1, 40))
def test_of_a_member_that_leaves_only_its_own_queues_move(size: int, queues: int) -> None:
    members = {f"m{number}": {"a"} for number in range(size)}
    before = assign(members, {"a": queues}, {})
    lost = sum(member == "m0" for member in before.values())
    del members["m0"]
    assert moved(before, assign(members, {"a": queues}, before)) == lost


def test_many_queues_and_members() -> None:
    members = {f"m{number}": frozenset({"t", f"own{number % 7}"}) for number in range(300)}
    counts = {"t": 20_000, **{f"own{number}": 50 for number in range(7)}}
    first = assign(members, counts, {})
    assert len(first) == 20_350
    del members["m5"]
    second = assign(members, counts, first)
    loads = Counter(second.values())
    assert max(loads.values()) - min(loads.values()) <= 1
