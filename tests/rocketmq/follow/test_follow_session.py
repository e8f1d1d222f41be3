"""One HA connection, step by step: what is compared, what is stored, what is acknowledged."""

from typing import Any

from tandemlog_server.rocketmq.follow.comparison import Ask
from tandemlog_server.rocketmq.follow.session import (
    HEARTBEAT_S,
    SILENT_S,
    Append,
    Compare,
    Compared,
    Differs,
    Disconnect,
    FollowSession,
    FollowState,
    Send,
)
from tandemlog_server.rocketmq.wire.frames import Run

FILE = 1000


def session(start: int, end: int, own_end: int) -> FollowSession:
    return FollowSession(Ask(start, end), own_end, FILE, 0.0)


def test_an_empty_log_is_asked_for_from_1_on_and_begins_with_the_byte_that_is_told() -> None:
    follow = session(0, 0, 0)
    assert follow.start(0.0) == [Send(1), Compared()]
    head = bytes(range(1, 31))
    assert follow.receive(Run(1, head), 0.1) == []  # too little to tell the first byte
    rest = bytes(120)
    (append,) = follow.receive(Run(31, rest), 0.2)
    assert isinstance(append, Append)
    assert append.offset == 0
    assert append.data[1:] == head + rest


def test_an_empty_log_is_acknowledged_with_0_once_the_broker_was_heard() -> None:
    """A broker of 4.9 closes on a number above the end of its log, which may be 0. One that stood
    still reads only the last number that came meanwhile, and 0 asks for something else."""
    follow = session(0, 0, 0)
    follow.start(0.0)
    assert follow.tick(HEARTBEAT_S) == []
    follow.receive(Run(1, b""), HEARTBEAT_S + 0.1)
    assert follow.tick(HEARTBEAT_S + 0.2) == [Send(0)]


def test_what_lies_below_the_own_end_is_compared_and_only_then_the_rest_is_stored() -> None:
    follow = session(400, 600, 600)
    assert follow.start(0.0) == [Send(400)]
    assert follow.receive(Run(400, b"a" * 150), 0.1) == [Compare(400, b"a" * 150)]
    assert follow.receive(Run(550, b"b" * 100), 0.1) == [
        Compare(550, b"b" * 50),
        Compared(),
        Append(600, b"b" * 50),
    ]


def test_a_log_that_ends_earlier_differs_there() -> None:
    follow = session(400, 500, 600)
    follow.start(0.0)
    assert follow.receive(Run(400, b"a" * 100), 0.1) == [Compare(400, b"a" * 100), Differs(500)]


def test_nothing_crosses_a_log_file() -> None:
    follow = session(900, 900, 900)
    follow.start(0.0)
    assert follow.receive(Run(900, b"a" * 2_200), 0.1) == [
        Append(900, b"a" * 100),
        Append(1000, b"a" * 1000),
        Append(2000, b"a" * 1000),
        Append(3000, b"a" * 100),
    ]


def test_nothing_is_acknowledged_before_the_comparison_but_its_start() -> None:
    follow = session(400, 600, 600)
    follow.start(0.0)
    follow.receive(Run(400, b"a" * 100), 1.0)
    assert follow.tick(HEARTBEAT_S) == [Send(400)]
    follow.receive(Run(500, b"a" * 100), 5.0)
    assert follow.stored(600, 5.1) == [Send(600)]
    assert follow.state is FollowState.FOLLOWING
    assert follow.stored(600, 5.2) == []
    assert follow.tick(5.1 + HEARTBEAT_S) == [Send(600)]


def test_a_silent_broker_is_left() -> None:
    follow = session(400, 400, 400)
    follow.start(0.0)
    follow.receive(Run(400, b""), 1.0)
    assert [type(each) for each in follow.tick(1.0 + SILENT_S)] == [Send]
    (end,) = follow.tick(1.1 + SILENT_S)
    assert isinstance(end, Disconnect)
    assert follow.receive(Run(400, b"x"), 30.0) == []
    assert follow.stored(500, 30.0) == []


def test_a_silence_of_our_own_does_not_count() -> None:
    follow = session(400, 400, 400)
    follow.start(0.0)
    follow.stand_still(19.0)
    assert not any(isinstance(each, Disconnect) for each in follow.tick(30.0))


def test_many_small_files_in_one_run_are_taken_apart_in_one_pass() -> None:
    follow = FollowSession(Ask(4096, 4096), 4096, 4096, 0.0)
    follow.start(0.0)
    data, before = CountedBytes(1 << 20), CountedBytes.copied
    pieces = follow.receive(Run(4096, data), 0.1)
    assert len(pieces) == 256
    assert all(isinstance(piece, Append) and len(piece.data) == 4096 for piece in pieces)
    assert CountedBytes.copied - before == len(data)


class CountedBytes(bytes):
    """Counts the bytes of the slices that are taken of it, and of those."""

    copied = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        if not isinstance(key, slice):
            return found
        CountedBytes.copied += len(found)
        return CountedBytes(found)
