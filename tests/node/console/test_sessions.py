"""Sessions end, are bounded, and one name pushes out its own alone."""

import pytest

from tandemlog_server.node.console.sessions import (
    LONGEST_S,
    OF_ONE_NAME,
    SESSIONS,
    Session,
    Sessions,
    WrongTokens,
    same_csrf,
)


@pytest.fixture
def ended() -> list[Session]:
    return []


def test_an_idle_session_ends(ended: list[Session]) -> None:
    sessions = Sessions(60, ended.append)
    session = Session("orders", "token")
    key = sessions.open(session, 0)
    assert sessions.find(key, 59) is session
    assert sessions.find(key, 118) is session
    assert sessions.find(key, 178) is None
    assert ended == [session]


def test_a_busy_session_ends_too(ended: list[Session]) -> None:
    sessions = Sessions(60, ended.append)
    key = sessions.open(Session("orders"), 0)
    now = 0.0
    while now + 50 < LONGEST_S:
        now += 50
        assert sessions.find(key, now)
    assert sessions.find(key, LONGEST_S) is None


def test_one_name_pushes_out_its_own_alone(ended: list[Session]) -> None:
    sessions = Sessions(60, ended.append)
    other = sessions.open(Session("other"), 0)
    keys = [sessions.open(Session("orders"), 1) for _ in range(OF_ONE_NAME + 3)]
    assert len(ended) == 3
    assert sessions.find(other, 2)
    assert [sessions.find(key, 2) is not None for key in keys] == [False] * 3 + [True] * OF_ONE_NAME


def test_all_are_bounded(ended: list[Session]) -> None:
    sessions = Sessions(60, ended.append)
    for number in range(SESSIONS + 10):
        sessions.open(Session(f"name-{number}"), number / 1000)
    assert len(sessions) == SESSIONS
    assert [each.name for each in ended] == [f"name-{number}" for number in range(10)]


def test_a_closed_session_is_gone(ended: list[Session]) -> None:
    sessions = Sessions(60, ended.append)
    session = Session("orders")
    key = sessions.open(session, 0)
    sessions.close(session)
    sessions.close(session)
    assert sessions.find(key, 0) is None
    assert ended == [session]


def test_secrets_are_not_shown() -> None:
    session = Session("orders", "the-token", b"certificate")
    assert "the-token" not in repr(session)
    assert session.csrf not in repr(session)
    assert same_csrf(session, session.csrf)
    assert not same_csrf(session, "")
    assert not same_csrf(session, session.csrf[:-1])
    assert not same_csrf(session, "\ud800")


def test_a_host_that_guesses_waits_and_others_do_not() -> None:
    wrong = WrongTokens(0)
    for _ in range(5):
        assert wrong.wait_s("10.0.0.1", 0) == 0
        wrong.add("10.0.0.1", 0)
    assert wrong.wait_s("10.0.0.1", 0) == pytest.approx(5)
    assert wrong.wait_s("10.0.0.2", 0) == 0
    assert wrong.wait_s("10.0.0.1", 5) == pytest.approx(0)


def test_many_hosts_together_wait_too() -> None:
    wrong = WrongTokens(0)
    for number in range(50):
        wrong.add(f"10.0.1.{number}", 0)
    assert wrong.wait_s("10.0.0.9", 0) == pytest.approx(0.5)
    assert wrong.wait_s("10.0.0.9", 1) == 0


def test_a_host_that_has_logged_in_does_not_wait_for_the_others() -> None:
    wrong = WrongTokens(0)
    wrong.right("10.0.0.9")
    for number in range(50):
        wrong.add(f"10.0.1.{number}", 0)
    assert wrong.wait_s("10.0.0.9", 0) == 0
    assert wrong.wait_s("10.0.0.8", 0) > 0
