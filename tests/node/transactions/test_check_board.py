"""Which transactions are asked about, and when: a board with injected time."""

from dataclasses import dataclass

from tandemlog_server.node.transactions.check_board import Asked, CheckBoard


@dataclass(frozen=True)
class Limits:
    check_after_ms: int = 6_000
    check_interval_ms: int = 30_000
    max_checks: int = 2


LIMITS = Limits()


def opened(*names: str, age_s: float = 0.0, checks: int = 0, group: str = "g") -> list[Asked]:
    return [Asked(name, group, age_s, checks) for name in names]


def test_it_is_asked_after_a_while_then_regularly_and_then_no_more() -> None:
    board = CheckBoard()
    times = []
    for now in range(200):
        exhausted = board.look(opened("a"), LIMITS, float(now))
        if board.take("g", 10):
            times.append(now)
        if exhausted:
            break
    assert times == [6, 36]
    assert (now, exhausted, board.checks("a"), board.checks_total) == (66, ["a"], 2, 2)


def test_an_old_one_is_asked_about_at_once_and_a_broker_s_checks_count() -> None:
    board = CheckBoard()
    assert board.look(opened("a", age_s=100.0, checks=1), LIMITS, 0.0) == []
    assert board.take("g", 10) == ["a"]
    assert board.look(opened("a", age_s=130.0), LIMITS, 30.0) == ["a"]


def test_a_clock_that_was_ahead_delays_nothing() -> None:
    board = CheckBoard()
    board.look(opened("a", age_s=-86_400.0), LIMITS, 0.0)
    board.look(opened("a", age_s=-86_394.0), LIMITS, 6.0)
    assert board.take("g", 10) == ["a"]


def test_a_check_that_no_producer_takes_counts_too() -> None:
    board = CheckBoard()
    for now in (0.0, 6.0, 36.0):
        assert board.look(opened("a"), LIMITS, now) == []
    assert board.take("g", 10) == ["a"], "it waits once"
    assert board.look(opened("a"), LIMITS, 66.0) == ["a"]


def test_a_producer_gets_the_checks_of_its_group() -> None:
    board = CheckBoard()
    transactions = opened("a", "b", "c", age_s=9.0) + opened("x", age_s=9.0, group="h")
    board.look(transactions, LIMITS, 0.0)
    assert board.waits("g")
    assert sorted(board.groups) == ["g", "h"]
    assert board.take("g", 2) == ["a", "b"]
    assert board.take("g", 2) == ["c"]
    assert board.take("g", 2) == []
    assert not board.waits("g")
    assert board.take("h", 2) == ["x"]


def test_what_has_ended_is_not_asked_about() -> None:
    board = CheckBoard()
    board.look(opened("a", "b", age_s=9.0), LIMITS, 0.0)
    board.look(opened("b", age_s=10.0), LIMITS, 1.0)
    assert board.take("g", 10) == ["b"]
    assert board.checks("a") == 0
    board.clear()
    assert board.checks("b") == 0
    board.look(opened("b", age_s=10.0), LIMITS, 1.0)
    assert board.take("g", 10) == ["b"], "another term asks again"


def test_without_checks_a_transaction_is_given_up_when_the_first_was_due() -> None:
    limits = Limits(max_checks=0)
    board = CheckBoard()
    assert board.look(opened("a"), limits, 0.0) == []
    assert board.look(opened("a", age_s=6.0), limits, 6.0) == ["a"]
    assert board.take("g", 10) == []


def test_a_look_of_another_thread_while_a_check_is_judged_disturbs_nothing() -> None:
    board = CheckBoard()
    first, more = opened("a", age_s=9.0), opened("b", age_s=9.0)
    board.look(first, LIMITS, 0.0)

    def judged(name: str) -> bool:
        board.look(first + more, LIMITS, 1.0)
        return True

    assert board.take("g", 10, judged) == ["a"]
    assert board.take("g", 10) == ["b"]


def test_a_check_that_another_producer_took_meanwhile_goes_to_one_of_them() -> None:
    board = CheckBoard()
    board.look(opened("a", age_s=9.0), LIMITS, 0.0)
    other: list[str] = []

    def judged(name: str) -> bool:
        other.extend(board.take("g", 10))
        return True

    assert (board.take("g", 10, judged), other) == ([], ["a"])
    assert not board.waits("g")
