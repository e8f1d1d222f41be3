"""What a connection or an identity may use: counted, refused by name, and paced by a clock."""

import pytest

from tandemlog_server.node.access.access_refusals import OverLimitError
from tandemlog_server.node.access.identities import CallerLimits
from tandemlog_server.node.access.usage import Usage


def usage(**limits: int) -> Usage:
    return Usage("identity 'a'", "limits.", CallerLimits(**limits), now=0.0)


def begin(each: Usage, *, stream: bool = False, now: float = 0.0) -> None:
    each.calls += 1
    each.streams += stream
    each.check(stream=stream, now=now)


def test_calls_and_streams_above_the_limit_are_refused_by_name() -> None:
    each = usage(calls=3, streams=1)
    begin(each, stream=True)
    with pytest.raises(OverLimitError, match=r"identity 'a' has 2 streams .* limits\.streams is 1"):
        begin(each, stream=True)
    each.streams -= 1
    begin(each)
    with pytest.raises(OverLimitError, match=r"has 4 calls .* limits\.calls is 3") as over:
        begin(each)
    assert (over.value.field, over.value.limit, over.value.actual) == ("calls", 3, 4)
    each.calls -= 2
    each.check(stream=False, now=0.0)


def test_long_polls() -> None:
    each = usage(long_polls=1)
    each.check_long_poll()
    each.long_polls += 1
    with pytest.raises(OverLimitError, match=r"limits\.long_polls is 1"):
        each.check_long_poll()


def test_calls_per_second() -> None:
    each = usage(calls_per_s=2)
    begin(each)
    begin(each)
    with pytest.raises(OverLimitError, match=r"limits\.calls_per_s, which is 2"):
        begin(each, now=0.1)
    begin(each, now=2.0)


def test_calls_that_are_refused_are_not_owed() -> None:
    """Else a client in a loop would lock out the others of its identity for minutes."""
    each = usage(calls_per_s=2)
    refused = 0
    for _ in range(1_000):
        try:
            begin(each, now=0.0)
        except OverLimitError:
            refused += 1
    assert refused == 998
    begin(each, now=0.5)


def test_bytes_per_second_delay_a_put_and_refuse_a_read() -> None:
    each = usage(bytes_per_s=100)
    assert each.spend(100, 0.0) == 0
    assert each.spend(50, 0.0) == pytest.approx(0.5)
    begin(each, now=0.0)  # half a second is waited for by the caller's next request
    assert each.spend(100, 0.0) == pytest.approx(1.5)
    with pytest.raises(OverLimitError, match="bytes_per_s"):
        begin(each, now=0.1)
    begin(each, now=1.6)


def test_bytes_in_flight_say_when_there_is_room_again() -> None:
    each, told = usage(bytes_in_flight=100), list[int]()
    each.hold(99)
    assert not each.full
    each.hold(50)
    assert each.full
    each.when_room(lambda: told.append(1))
    each.hold(-9)
    assert told == []
    each.hold(-90)
    assert told == [1]
    each.hold(100)
    each.when_room(lambda: told.append(2))
    each.set_limits(CallerLimits(), 0.0)
    assert told == [1, 2]
    assert not each.full


def test_new_limits_keep_what_is_counted() -> None:
    each = usage(calls=5)
    begin(each)
    begin(each)
    each.set_limits(CallerLimits(calls=1), 0.0)
    with pytest.raises(OverLimitError, match="has 2 calls"):
        each.check(stream=False, now=0.0)
