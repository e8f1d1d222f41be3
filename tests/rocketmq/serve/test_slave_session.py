"""One slave broker by a fake clock: what it is sent, when it is refused, closed, or waited for."""

import pytest

from tandemlog_server.rocketmq.serve.framing import Cut, Place
from tandemlog_server.rocketmq.serve.session import (
    BATCH_BYTES,
    HEARTBEAT_S,
    SILENCE_S,
    WINDOW_BYTES,
    Action,
    SendHeartbeat,
    SendLog,
    SlaveSession,
)

FILE = 1 << 30


def streaming(offset: int = 500, *, now: float = 0.0, file_size: int = FILE) -> SlaveSession:
    session = SlaveSession("10.0.0.9", file_size, now)
    assert session.greet(offset, 0, 1 << 40, now) == offset
    session.start(Place(offset), offset, now)
    return session


def sent(session: SlaveSession, limit: int, now: float = 0.0) -> Action | None:
    """The next action; log bytes count as sent whole."""
    action = session.next(limit, 0, now)
    if isinstance(action, SendLog):
        end = action.offset + action.length
        session.sent_frames(Cut(Place(end), [end]), now)
    return action


def test_an_empty_slave_gets_the_log_from_its_begin() -> None:
    session = SlaveSession("10.0.0.9", FILE, 0.0)
    assert session.greet(0, 4096, 9000, 0.0) == 4096
    session.start(Place(4096), 4096, 0.0)
    assert sent(session, 9000) == SendLog(4096, 9000 - 4096)
    session.acknowledge(0, 1.0)
    assert not session.closed, "it repeats its 0 until it has stored the first frame"


@pytest.mark.parametrize(
    ("offset", "words"),
    [
        (9001, "the slave's log ends at 9001, this node's at 9000: its log is another one"),
        (4095, "but retention has deleted this node's log below 4096"),
    ],
)
def test_a_slave_that_cannot_continue_is_refused(offset: int, words: str) -> None:
    session = SlaveSession("10.0.0.9", FILE, 0.0)
    assert session.greet(offset, 4096, 9000, 0.0) is None
    assert words in session.closed_reason
    assert session.closed_reason.startswith("10.0.0.9: ")
    assert "move the slave's store directory away" in session.closed_reason
    assert session.next(9000, 4096, 0.0) is None


def test_a_slave_on_no_boundary_is_told_to_restart() -> None:
    session = SlaveSession("10.0.0.9", FILE, 0.0)
    session.greet(5000, 4096, 9000, 0.0)
    session.start(None, 5000, 0.0)
    assert session.fault
    assert "inside of a record" in session.closed_reason
    assert "Restart the slave" in session.closed_reason


def test_no_batch_crosses_a_file() -> None:
    session = streaming(900, file_size=1000)
    assert sent(session, 2500) == SendLog(900, 100)
    assert sent(session, 2500) == SendLog(1000, 1000)
    assert sent(session, 2500) == SendLog(2000, 500)
    assert sent(session, 2500) is None


def test_the_window_holds_the_log_back_until_it_is_acknowledged() -> None:
    session, end = streaming(0), 4 * WINDOW_BYTES
    while sent(session, end) is not None:
        pass
    assert session.sent == WINDOW_BYTES
    session.acknowledge(BATCH_BYTES - 1, 1.0)
    assert sent(session, end) is None
    session.acknowledge(BATCH_BYTES, 1.0)
    assert sent(session, end) == SendLog(WINDOW_BYTES, BATCH_BYTES)


def test_after_a_silence_the_next_offset_is_sent_alone() -> None:
    session = streaming(500, now=100.0)
    assert sent(session, 700, 101.0) == SendLog(500, 200)
    assert sent(session, 700, 101.0 + HEARTBEAT_S - 0.1) is None
    assert sent(session, 700, 101.0 + HEARTBEAT_S) == SendHeartbeat(700)
    assert sent(session, 700, 101.0 + HEARTBEAT_S) is None


def test_a_silent_slave_is_closed_before_and_after_its_first_word() -> None:
    mute = SlaveSession("10.0.0.9", FILE, 100.0)
    mute.tick(100.0 + SILENCE_S)
    assert not mute.closed
    mute.tick(100.1 + SILENCE_S)
    assert mute.closed_reason == "10.0.0.9: nothing was asked for for 20 s"
    session = streaming(500, now=100.0)
    session.acknowledge(500, 110.0)
    session.tick(110.0 + SILENCE_S)
    assert not session.closed
    session.tick(110.1 + SILENCE_S)
    assert session.closed_reason == "10.0.0.9: the slave sent nothing for 20 s"
    assert not session.fault


def test_while_its_place_is_looked_for_a_slave_is_not_silent() -> None:
    session = SlaveSession("10.0.0.9", FILE, 100.0)
    session.greet(500, 0, 9000, 100.0)
    session.tick(200.0)
    assert not session.closed


def test_a_slave_that_acknowledges_what_it_was_not_sent_is_closed() -> None:
    session = streaming(500)
    sent(session, 700)
    session.acknowledge(701, 1.0)
    assert session.fault
    assert "acknowledged 701, but was sent the log up to 700" in session.closed_reason


def test_a_smaller_acknowledgement_takes_nothing_back() -> None:
    session = streaming(500)
    sent(session, 700)
    session.acknowledge(650, 1.0)
    session.acknowledge(600, 1.0)
    assert (session.acked, session.closed) == (650, False)


def test_retention_ends_the_session_of_a_slave_that_is_too_far_behind() -> None:
    session = streaming(500)
    assert session.next(9000, 600, 1.0) is None
    assert "retention has deleted the log below 600" in session.closed_reason


def test_what_may_not_be_sent_yet_waits() -> None:
    """After a failover the limit may be below what the slave has."""
    session = streaming(500)
    assert sent(session, 400) is None
    assert sent(session, 600) == SendLog(500, 100)


def test_a_limit_inside_of_a_record_is_tried_once() -> None:
    session = streaming(500)
    assert session.next(520, 0, 1.0) == SendLog(500, 20)
    session.sent_frames(Cut(Place(500)), 1.0)
    assert session.next(520, 0, 1.0) is None
    assert session.next(520, 0, 1.0 + HEARTBEAT_S) == SendHeartbeat(500)
    assert session.next(600, 0, 6.0) == SendLog(500, 100)


def test_what_is_held_of_a_record_in_slices_counts_up_to_its_begin() -> None:
    session = streaming(0)
    session.next(500, 0, 0.0)
    session.sent_frames(Cut(Place(500), [100, 200, 300, 500], {200: 100, 300: 100}), 0.0)
    held = []
    for offset in (100, 200, 300, 500):
        session.acknowledge(offset, 1.0)
        held.append(session.held)
    assert held == [100, 100, 100, 500]


def test_a_slave_that_comes_back_inside_of_a_large_record_holds_it_up_to_its_begin() -> None:
    session = SlaveSession("10.0.0.9", FILE, 0.0)
    session.greet(700, 0, 9000, 0.0)
    session.start(Place(400, 100), 700, 0.0)
    assert (session.acked, session.held) == (700, 400)
    assert session.place == Place(400, 100)
