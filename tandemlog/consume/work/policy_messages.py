"""Policies of groups in the messages of work.proto, and back."""

from dataclasses import replace

from ...format.lease.policy import Backoff, GroupPolicy, Ordering, StartAt
from ...v1 import work_pb2
from .work_options import WantedPolicy


def policy_request(
    group: str, wanted: WantedPolicy, *, dry_run: bool = False
) -> work_pb2.SetGroupPolicyRequest:
    """What is None stays absent."""
    return work_pb2.SetGroupPolicyRequest(
        group=group,
        dry_run=dry_run,
        max_attempts=wanted.max_attempts,
        backoff=None if wanted.backoff is None else backoff_message(wanted.backoff),
        ordering=None if wanted.ordering is None else ordering_message(wanted.ordering),
        start=None if wanted.start_at is None else start_message(wanted.start_at),
    )


def policy_changed(policy: GroupPolicy, request: work_pb2.SetGroupPolicyRequest) -> GroupPolicy:
    """`policy` with what the request names."""
    if request.HasField("max_attempts"):
        policy = replace(policy, max_attempts=request.max_attempts)
    if request.HasField("backoff"):
        policy = replace(policy, backoff=backoff_of_message(request.backoff))
    if request.HasField("ordering"):
        policy = replace(policy, ordering=Ordering(request.ordering))
    if request.HasField("start"):
        policy = replace(policy, start_at=StartAt(request.start))
    return policy


def policy_message(policy: GroupPolicy) -> work_pb2.GroupPolicy:
    return work_pb2.GroupPolicy(
        max_attempts=policy.max_attempts,
        backoff=backoff_message(policy.backoff),
        ordering=ordering_message(policy.ordering),
        start=start_message(policy.start_at),
    )


def policy_of(message: work_pb2.GroupPolicy) -> GroupPolicy:
    return GroupPolicy(
        message.max_attempts,
        backoff_of_message(message.backoff),
        Ordering(message.ordering),
        StartAt(message.start),
    )


def backoff_message(backoff: Backoff) -> work_pb2.RetryBackoff:
    return work_pb2.RetryBackoff(
        levels_ms=backoff.levels_ms,
        initial_ms=backoff.initial_ms,
        multiplier=backoff.multiplier,
        max_ms=backoff.max_ms,
    )


def backoff_of_message(message: work_pb2.RetryBackoff) -> Backoff:
    return Backoff(tuple(message.levels_ms), message.initial_ms, message.multiplier, message.max_ms)


def ordering_message(ordering: Ordering) -> work_pb2.WorkOrdering.ValueType:
    return work_pb2.WorkOrdering.ValueType(ordering)


def start_message(start: StartAt) -> work_pb2.WorkStart.ValueType:
    return work_pb2.WorkStart.ValueType(start)
