"""When a waiting record says that its message is due; handles."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.delay.framing import after, at
from tandemlog.format.delay.handle import RecallHandle, decode_handle, handle_of
from tandemlog.format.delay.timing import LATEST_MS, checked_time, out_ms, timer_due_ms
from tandemlog.format.errors import FormatError

STORED = 1_764_200_000_777


@pytest.mark.parametrize(
    ("due_ms", "expected"), [(10_500, 10_000), (10_000, 9_000), (10_001, 10_000), (1, 0)]
)
def test_a_broker_acts_on_the_last_whole_second_before_the_time(due_ms: int, expected: int) -> None:
    assert out_ms(due_ms) == expected


@given(delay_ms=st.integers(0, 40 * 86_400_000), skew_ms=st.integers(-10_000, 10_000))
def test_a_delay_counts_from_the_store_time_to_the_millisecond(delay_ms: int, skew_ms: int) -> None:
    properties = after("orders", 3, delay_ms, STORED + skew_ms)
    assert timer_due_ms(properties, STORED) == STORED + delay_ms


@given(due_ms=st.integers(1, LATEST_MS))
def test_a_time_is_kept_to_the_millisecond(due_ms: int) -> None:
    assert timer_due_ms(at("orders", 3, due_ms), STORED) == due_ms


@given(asked_ms=st.integers(2, LATEST_MS - 2000), taken_ms=st.integers(0, 5))
def test_of_a_broker_s_record_it_is_never_too_early(asked_ms: int, taken_ms: int) -> None:
    out = str(out_ms(asked_ms))
    exact = timer_due_ms({"TIMER_OUT_MS": out, "TIMER_DELIVER_MS": str(asked_ms)}, STORED)
    assert exact == asked_ms
    alone = timer_due_ms({"TIMER_OUT_MS": out}, STORED)
    assert alone is not None
    assert asked_ms <= alone < asked_ms + 1000
    delay_ms = 5_000
    asked_at = max(asked_ms - delay_ms, 0)
    delayed = {"TIMER_OUT_MS": str(out_ms(asked_at + delay_ms)), "TIMER_DELAY_MS": str(delay_ms)}
    due = timer_due_ms(delayed, asked_at + taken_ms)
    assert due is not None
    assert asked_at + delay_ms <= due <= asked_at + delay_ms + taken_ms


def test_without_a_time_nothing_waits() -> None:
    assert timer_due_ms({}, STORED) is None
    assert timer_due_ms({"TIMER_OUT_MS": "soon", "__TL_DUE": "5"}, STORED) is None


def test_a_time_that_no_clock_comes_to_is_refused() -> None:
    with pytest.raises(FormatError, match="the end of the year 9999"):
        checked_time("the time", 1 << 70)
    with pytest.raises(FormatError, match="a delay of -1 ms"):
        after("orders", 0, -1, STORED)


@given(
    topic=st.text("abcXYZ_-%|", min_size=1, max_size=60),
    due_ms=st.integers(1, LATEST_MS),
    key=st.text("0123456789ABCDEF", min_size=1, max_size=56),
    log_offset=st.integers(0, (1 << 63) - 1),
)
def test_a_handle_is_read_as_it_was_written(
    topic: str, due_ms: int, key: str, log_offset: int
) -> None:
    handle = handle_of(topic, due_ms, key, log_offset)
    assert decode_handle(handle.encode()) == handle
    assert out_ms(handle.time_ms) == out_ms(due_ms), "a broker finds the same second"


def test_a_broker_s_handle_has_no_log_offset() -> None:
    text = base64.urlsafe_b64encode(b"v1 orders broker-a 1764200001001 7F0001").decode()
    assert decode_handle(text) == RecallHandle("orders", 1764200001001, "7F0001", -1, "broker-a")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64 !",
        "x" * 5000,
        base64.urlsafe_b64encode(b"v2 a b 1 k").decode(),
        base64.urlsafe_b64encode(b"v1 a b soon k").decode(),
        base64.urlsafe_b64encode(b"v1 a b 1").decode(),
        base64.urlsafe_b64encode(b"v1 a b 1 k -5").decode(),
        base64.urlsafe_b64encode(b"\xff\xfe").decode(),
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="recall handle"):
        decode_handle(text)
