"""The policy of a group in RocketMQ's row of it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.errors import FormatError
from tandemlog.format.lease.policy import (
    LEVELS_MS,
    MAX_ERROR_BYTES,
    AckResult,
    Backoff,
    GroupPolicy,
    Ordering,
    StartAt,
    ack_sentence,
    decode_policy,
    encode_policy,
    short_error,
)

PAUSES = st.integers(0, 86_400_000)
BACKOFFS = st.one_of(
    st.builds(Backoff, st.lists(PAUSES, min_size=1, max_size=20).map(tuple)),
    st.builds(Backoff, st.just(()), PAUSES, st.floats(1, 100), PAUSES),
)
POLICIES = st.builds(
    GroupPolicy,
    st.integers(1, 1_000),
    BACKOFFS,
    st.sampled_from(Ordering),
    st.sampled_from(StartAt),
)


@given(POLICIES)
def test_a_policy_is_read_as_it_was_written(policy: GroupPolicy) -> None:
    row = encode_policy(policy, {"groupName": "g", "attributes": {"other": "stays"}})
    assert decode_policy(row) == policy
    assert row["groupName"] == "g"
    assert row["attributes"]["other"] == "stays"  # type: ignore[index]


def test_the_row_of_a_broker_is_its_default_policy() -> None:
    row = {
        "consumeMessageOrderly": False,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "retryMaxTimes": 16,
    }
    assert decode_policy(row) == GroupPolicy(17, Backoff(LEVELS_MS))
    assert encode_policy(GroupPolicy(), row) == {**row, "attributes": {}}
    assert decode_policy({}) == GroupPolicy()


@pytest.mark.parametrize(
    "row",
    [
        {"groupRetryPolicy": 7, "attributes": [], "retryMaxTimes": "x"},
        {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": []}}},
        {"groupRetryPolicy": {"type": "CUSTOMIZED", "customizedRetryPolicy": None}},
    ],
)
def test_what_a_row_says_otherwise_is_the_default(row: dict[str, object]) -> None:
    assert decode_policy(row) == GroupPolicy()


def test_pauses_by_level_stay_at_the_last() -> None:
    backoff = Backoff((10, 20, 40))
    assert [backoff.delay_ms(attempt) for attempt in (1, 2, 3, 4, 900)] == [10, 20, 40, 40, 40]


def test_exponential_pauses_end_at_the_most() -> None:
    backoff = Backoff((), 100, 1.5, 1_000)
    assert [backoff.delay_ms(attempt) for attempt in (1, 2, 3, 999)] == [100, 150, 225, 1_000]


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (GroupPolicy(0), "max_attempts must be 1 .. 1000: 0"),
        (GroupPolicy(backoff=Backoff((-1,))), "must be 0 .. 259200000 ms: -1"),
        (GroupPolicy(backoff=Backoff((), 1, 0.5)), "multiplier of a backoff must be 1 .. 100"),
        (GroupPolicy(backoff=Backoff((1,) * 1_001)), "at most 1000 levels"),
    ],
)
def test_a_policy_out_of_bounds_is_refused(policy: GroupPolicy, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        encode_policy(policy, {})


def test_leaving_an_order_takes_its_attribute_away() -> None:
    ordered = encode_policy(GroupPolicy(ordering=Ordering.KEY), {})
    plain = encode_policy(replace(decode_policy(ordered), ordering=Ordering.NONE), ordered)
    assert decode_policy(plain).ordering is Ordering.NONE
    assert plain["attributes"] == {}


def test_an_error_is_kept_short_and_plain() -> None:
    assert short_error("a\x01b\nc") == "a b c"
    assert len(short_error("ü" * 500).encode()) == MAX_ERROR_BYTES


def test_every_result_has_a_sentence() -> None:
    assert all(ack_sentence(each) for each in AckResult)
