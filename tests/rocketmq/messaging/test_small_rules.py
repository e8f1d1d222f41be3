"""Queues of message groups, signatures, filters, handles, settings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tandemlog.format.lease.handle import HANDLE, HANDLE_CHARS, encode_handles
from tandemlog.format.lease.policy import AckResult, Backoff, GroupPolicy, Ordering
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog.v1 import common_pb2
from tandemlog_server.rocketmq.messaging.client_settings import NodeFacts, answered
from tandemlog_server.rocketmq.messaging.fifo_queue import queue_of_group
from tandemlog_server.rocketmq.messaging.filters import read_filter
from tandemlog_server.rocketmq.messaging.receipt_handles import encoded_handles, result_status
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError, code_of
from tandemlog_server.rocketmq.messaging.resources import full_name, group_of, topic_of
from tandemlog_server.rocketmq.messaging.signatures import (
    Signed,
    read_authorization,
    signature_of,
    signed_by,
)


@given(st.text(max_size=30), st.integers(1, 64))
def test_a_group_moves_only_to_a_new_queue(group: str, queues: int) -> None:
    here, wider = queue_of_group(group, queues), queue_of_group(group, queues + 1)
    assert 0 <= here < queues
    assert wider in (here, queues)


def test_groups_are_spread_over_the_queues() -> None:
    counts = np.bincount([queue_of_group(f"group-{n}", 8) for n in range(4_000)], minlength=8)
    assert counts.min() > 350
    assert counts.max() < 650


def test_a_signature_is_that_of_the_secret() -> None:
    made = signature_of("secret", "20260101T000000Z")
    text = f"MQv2-HMAC-SHA1 Credential=key, SignedHeaders=x-mq-date-time, Signature={made.upper()}"
    signed = read_authorization(text)
    assert signed == Signed("key", made)
    assert signed_by("secret", "20260101T000000Z", signed)
    assert not signed_by("other", "20260101T000000Z", signed)
    assert not signed_by("secret", "20260101T000001Z", signed)
    assert not signed_by("secret", "", Signed("key", signature_of("secret", "")))


@pytest.mark.parametrize(
    "text",
    ["", "Bearer abc", "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=ab"],
)
def test_a_client_without_a_key_has_not_signed(text: str) -> None:
    assert read_authorization(text) is None


@pytest.mark.parametrize(
    ("kind", "text", "tags", "sql"),
    [
        (v2.TAG, "*", [], ""),
        (v2.TAG, "", [], ""),
        (v2.TAG, "a || b||a", ["a", "b"], ""),
        (v2.SQL, "n > 3", [], "n > 3"),
    ],
)
def test_filters(kind: v2.FilterType.ValueType, text: str, tags: list[str], sql: str) -> None:
    assert read_filter(v2.FilterExpression(type=kind, expression=text)) == (tags, sql)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**16 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**62)),
        max_size=6,
    ),
    st.lists(st.tuples(st.integers(0, 6), st.text(max_size=80)), max_size=4),
)
def test_bad_texts_among_handles_spoil_no_other(
    handles: list[tuple[int, int, int]], noise: list[tuple[int, str]]
) -> None:
    columns = np.zeros(len(handles), HANDLE)
    for row, (attempt, lease, offset) in enumerate(handles):
        columns[row]["attempt"], columns[row]["lease"] = attempt, lease
        columns[row]["queue_offset"] = offset
    joined = encode_handles(columns)
    texts = [joined[at : at + HANDLE_CHARS].decode() for at in range(0, len(joined), HANDLE_CHARS)]
    good = list(texts)
    for at, text in noise:
        if len(text.encode(errors="replace")) != HANDLE_CHARS:
            texts.insert(min(at, len(texts)), text)
    found, rows = encoded_handles(texts)
    assert found == joined
    assert [texts[row] for row in rows] == good


def test_a_handle_that_counts_no_more_is_given_up_by_its_client() -> None:
    assert result_status(AckResult.OK).code == v2.OK
    assert result_status(AckResult.ALREADY_DONE).code == v2.OK
    for result in (AckResult.INVALID_RECEIPT_HANDLE, AckResult.OTHER_GROUP):
        assert result_status(result).code == v2.INVALID_RECEIPT_HANDLE


def test_names_may_be_in_a_namespace() -> None:
    assert full_name(v2.Resource(name="T")) == "T"
    assert topic_of(v2.Resource(resource_namespace="ns", name="T")) == "ns%T"
    with pytest.raises(MessagingRefusedError) as refused:
        topic_of(v2.Resource(name="rmq_sys_wheel_timer"))
    assert refused.value.code == v2.ILLEGAL_TOPIC
    with pytest.raises(MessagingRefusedError) as refused:
        group_of(v2.Resource(name=""))
    assert refused.value.code == v2.ILLEGAL_CONSUMER_GROUP


def test_a_busy_node_ends_a_send_and_one_without_a_master_does_not() -> None:
    assert code_of(common_pb2.BUSY) == v2.TOO_MANY_REQUESTS
    assert code_of(common_pb2.NOT_IN_SYNC) == v2.HA_NOT_AVAILABLE
    assert code_of(common_pb2.OUTCOME_UNKNOWN) == v2.INTERNAL_SERVER_ERROR


def test_a_producer_is_told_its_limits() -> None:
    said = v2.Settings(client_type=v2.PRODUCER, metric=v2.Metric(on=True))
    said.publishing.topics.add(name="T")
    made = answered(said, NodeFacts(4 << 20))
    assert made.publishing.max_body_size == 4 << 20
    assert [each.name for each in made.publishing.topics] == ["T"]
    assert made.backoff_policy.max_attempts == 3
    assert made.backoff_policy.exponential_backoff.multiplier == 2
    assert not made.metric.on


def test_a_consumer_is_told_its_groups_policy() -> None:
    policy = GroupPolicy(5, Backoff((1_000, 7_000)), Ordering.QUEUE)
    said = v2.Settings(client_type=v2.PUSH_CONSUMER)
    said.subscription.group.name = "G"
    made = answered(said, NodeFacts(1, policy))
    assert made.subscription.fifo
    assert made.subscription.long_polling_timeout.seconds == 20
    assert made.backoff_policy.max_attempts == 5
    pauses = made.backoff_policy.customized_backoff.next
    assert [each.ToMilliseconds() for each in pauses] == [1_000, 7_000]


def test_an_exponential_policy_is_told_as_a_list() -> None:
    policy = GroupPolicy(5, Backoff((), 1_000, 2.0, 5_000))
    made = answered(v2.Settings(client_type=v2.SIMPLE_CONSUMER), NodeFacts(1, policy))
    pauses = [each.seconds for each in made.backoff_policy.customized_backoff.next]
    assert pauses[:4] == [1, 2, 4, 5]


def test_lite_consumers_are_not_served() -> None:
    with pytest.raises(MessagingRefusedError) as refused:
        answered(v2.Settings(client_type=v2.LITE_PUSH_CONSUMER), NodeFacts(1))
    assert refused.value.code == v2.UNRECOGNIZED_CLIENT_TYPE
