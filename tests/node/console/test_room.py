"""Places of requests: of one caller, of all, and until the answer is taken."""

from contextlib import ExitStack

import pytest

from tandemlog_server.node.console.room import FullError, Room, network_of


def test_one_caller_does_not_take_the_place_of_another() -> None:
    room = Room(2, 3)
    with ExitStack() as held:
        held.enter_context(room.place("a"))
        held.enter_context(room.place("a"))
        with pytest.raises(FullError, match="2 requests of yours"), room.place("a"):
            pass
        held.enter_context(room.place("b"))
        with pytest.raises(FullError, match="3 requests are in progress"), room.place("c"):
            pass
    with room.place("a"), room.place("a"), room.place("c"):
        pass


def test_a_refused_request_holds_no_place() -> None:
    room = Room(1, 1)
    for _ in range(3):
        with room.place("a"), pytest.raises(FullError), room.place("a"):
            pass


@pytest.mark.parametrize(
    ("host", "counts_as"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2:ffff::1]", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("-", "-"),
    ],
)
def test_what_counts_as_one_host(host: str, counts_as: str) -> None:
    assert network_of(host) == counts_as
