"""One caller never has all of a bound, and one more always gets in."""

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from tandemlog_server.storage.shares import Shares


def fill(shares: Shares, holder: str, amount: int = 1) -> int:
    for taken in count():
        if not shares.try_take(holder, amount):
            return taken
    raise AssertionError


def test_one_holder_gets_three_quarters() -> None:
    shares = Shares(1000)
    assert fill(shares, "a") == 750 == shares.most("a")


def test_greedy_holders_leave_room_for_the_next_one() -> None:
    shares = Shares(1000)
    got = [fill(shares, f"host {number}") for number in range(5)]
    assert got == [750, 187, 47, 12, 3]
    for _ in range(2_000):  # each ends one and begins as many as it may
        for number in range(5):
            shares.give_back(f"host {number}")
        for number in range(5):
            shares.try_take(f"host {number}")
            shares.try_take(f"host {number}")
    assert all(150 < each < 250 for each in shares.holders.values()), shares.holders
    assert shares.try_take("another", 50)


def test_what_is_given_back_is_free_for_all() -> None:
    shares = Shares(100)
    fill(shares, "a")
    shares.give_back("a", shares.of("a"))
    assert shares.held == 0
    assert not shares.holders
    assert fill(shares, "b") == 75


def test_the_reserve_is_for_those_who_hold_nothing() -> None:
    shares = Shares(100, reserve=20)
    assert fill(shares, "a") == 60
    assert shares.try_take("b", 40)
    assert not shares.may_take("a")


def test_a_limit_of_nothing_is_one() -> None:
    assert not Shares(0).may_take("a")


def test_more_than_the_limit_is_for_one_who_is_alone() -> None:
    shares = Shares(100, oversize=True)
    assert shares.try_take("a", 300)
    assert not shares.may_take("b")
    shares.give_back("a", 300)
    assert shares.may_take("b")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 40)), max_size=200))
def test_no_holder_gets_more_than_it_may(steps: list[tuple[int, int]]) -> None:
    shares = Shares(200)
    for holder, amount in steps:
        name, alone = str(holder), not shares.held
        if shares.try_take(name, amount) and not alone:
            assert shares.held <= 200
            assert shares.of(name) == amount or shares.of(name) <= shares.most(name)
    assert shares.held == sum(shares.holders.values())
