"""Which copy of a block is right."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.scrub.verdicts import (
    Copy,
    CopyState,
    Doubt,
    Fine,
    Lost,
    Mend,
    judge,
)

WHOLE, DAMAGED, UNREADABLE, ABSENT = CopyState


def whole(holder: str, checksum: bytes) -> Copy:
    return Copy(holder, WHOLE, checksum)


@st.composite
def copies(draw: st.DrawFn) -> list[Copy]:
    states = draw(st.lists(st.sampled_from(list(CopyState)), min_size=1, max_size=6))
    if states[0] is ABSENT:
        states[0] = WHOLE
    return [
        Copy(f"n{number}", state, draw(st.sampled_from([b"a", b"b", b"c"])))
        for number, state in enumerate(states)
    ]


def test_equal_copies_are_fine() -> None:
    assert judge(whole("n0", b"a"), [whole("n1", b"a"), whole("n2", b"a")]) == Fine(2)
    assert judge(whole("n0", b"a"), []) == Fine(0)
    assert judge(whole("n0", b"a"), [Copy("n1", ABSENT), Copy("n2", DAMAGED)]) == Fine(0)


def test_one_whole_copy_mends_a_damaged_one() -> None:
    others = [whole("n1", b"a"), Copy("n2", DAMAGED, b"x")]
    for state in (DAMAGED, UNREADABLE):
        assert judge(Copy("n0", state), others) == Mend(b"a", ("n1",))


def test_whole_copies_that_differ_vote() -> None:
    assert judge(whole("n0", b"x"), [whole("n1", b"a"), whole("n2", b"a")]) == Mend(
        b"a", ("n1", "n2")
    )
    assert judge(whole("n0", b"a"), [whole("n1", b"x"), whole("n2", b"a")]) == Fine(1)


def test_two_that_differ_are_a_doubt() -> None:
    assert judge(whole("n0", b"a"), [whole("n1", b"x")]) == Doubt(("n1",))
    assert judge(Copy("n0", DAMAGED), [whole("n1", b"x"), whole("n2", b"a")]) == Doubt(("n1", "n2"))
    # two against two prove nothing either
    others = [whole("n1", b"a"), whole("n2", b"x"), whole("n3", b"x")]
    assert judge(whole("n0", b"a"), others) == Doubt(("n2", "n3"))


def test_damage_everywhere_is_lost() -> None:
    others = [Copy("n1", DAMAGED, b"x"), Copy("n2", UNREADABLE), Copy("n3", ABSENT)]
    assert judge(Copy("n0", DAMAGED), others) == Lost(("n1", "n2"))


@given(copies())
def test_nothing_is_mended_by_a_copy_that_is_not_whole(found: list[Copy]) -> None:
    own, *others = found
    verdict = judge(own, others)
    if isinstance(verdict, Mend):
        sources = [each for each in others if each.holder in verdict.sources]
        assert sources
        assert all(each.state is WHOLE for each in sources)
        assert all(each.checksum == verdict.checksum for each in sources)
        assert own.state is not WHOLE or own.checksum != verdict.checksum


@given(copies())
def test_a_whole_copy_is_replaced_by_a_majority_alone(found: list[Copy]) -> None:
    own, *others = found
    votes = Counter(each.checksum for each in found if each.state is WHOLE)
    if own.state is WHOLE and isinstance(verdict := judge(own, others), Mend):
        assert votes[verdict.checksum] >= 2
        assert 2 * votes[verdict.checksum] > votes.total()


@given(copies(), st.randoms(use_true_random=False))
def test_the_order_of_the_others_does_not_matter(found: list[Copy], numbers: object) -> None:
    own, *others = found
    turned = list(others)
    numbers.shuffle(turned)  # type: ignore[attr-defined]
    assert judge(own, turned) == judge(own, others)


@given(copies())
def test_a_copy_that_says_nothing_changes_nothing(found: list[Copy]) -> None:
    own, *others = found
    silent = Copy("silent", ABSENT, b"z")
    assert judge(own, [*others, silent]) == judge(own, others)


@given(st.integers(3, 7), st.integers(0, 6), st.booleans())
def test_one_flip_among_three_or_more_is_mended_where_it_is(
    count: int, where: int, is_seen: bool
) -> None:
    """Seen by the CRC of its record, or only by its checksum."""
    where %= count
    flipped = Copy(f"n{where}", DAMAGED if is_seen else WHOLE, b"x")
    found = [flipped if each == where else whole(f"n{each}", b"a") for each in range(count)]
    for own in found:
        verdict = judge(own, [each for each in found if each is not own])
        if own is flipped:
            others = tuple(sorted(f"n{each}" for each in range(count) if each != where))
            assert verdict == Mend(b"a", others)
        else:
            assert verdict == Fine(count - 2)
