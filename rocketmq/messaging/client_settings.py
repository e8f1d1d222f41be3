"""What a client says of itself, and what a node makes of it: the settings that both then have.

    the client's    type, topics, group, its patience        kept
    the node's      limits, order, attempts and pauses       put in, from the tables of the node

A client of Java waits for the answer and refuses one without a backoff; one of Python takes pauses
from a list alone, and polls without a pause where no polling time is said. Nothing that a node does
for a client depends on its having sent settings: after a failure it may send them minutes later.
"""

from dataclasses import dataclass, field
from typing import Final

from tandemlog.format.lease.policy import GroupPolicy, Ordering
from tandemlog.rocketmq_v2 import messaging_pb2 as v2

from .refusals import MessagingRefusedError
from .times import milliseconds

CONSUMERS: Final = frozenset({v2.PUSH_CONSUMER, v2.SIMPLE_CONSUMER})
RECEIVE_BATCH: Final = 32
POLL_MS: Final = 20_000
MOST_POLL_MS: Final = 60_000
LEAST_POLL_MS: Final = 1_000
SEND_ATTEMPTS: Final = 3
MOST_SEND_ATTEMPTS: Final = 100
MOST_NAMES: Final = 4_096
"""Topics or subscriptions of one client."""
LEVELS: Final = 10
"""How many pauses of an exponential backoff a client is told as a list."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """`max_body_bytes` of a message; `policy` of the client's group, if it has one."""

    max_body_bytes: int
    policy: GroupPolicy = field(default_factory=GroupPolicy)


def answered(said: v2.Settings, facts: NodeFacts) -> v2.Settings:
    """The settings that count. Raises MessagingRefusedError for a client of a kind that is not
    served."""
    kind = said.client_type
    made = v2.Settings()
    made.CopyFrom(said)
    made.metric.Clear()
    made.metric.on = False
    if kind == v2.PRODUCER:
        _check_names(len(said.publishing.topics))
        made.publishing.max_body_size = facts.max_body_bytes
        made.publishing.validate_message_type = True
        asked = said.backoff_policy.max_attempts or SEND_ATTEMPTS
        backoff = made.backoff_policy
        backoff.Clear()
        backoff.max_attempts = min(max(asked, 1), MOST_SEND_ATTEMPTS)
        pauses = backoff.exponential_backoff
        pauses.initial.FromMilliseconds(10)
        pauses.max.FromMilliseconds(1_000)
        pauses.multiplier = 2.0
        return made
    if kind not in CONSUMERS:
        raise MessagingRefusedError(
            v2.UNRECOGNIZED_CLIENT_TYPE,
            f"clients of type {kind} are not served here: producers, push consumers and simple "
            "consumers are",
        )
    _check_names(len(said.subscription.subscriptions))
    policy, subscription = facts.policy, made.subscription
    subscription.fifo = policy.ordering is not Ordering.NONE
    subscription.receive_batch_size = RECEIVE_BATCH
    asked_ms = milliseconds(said.subscription.long_polling_timeout) or POLL_MS
    poll_ms = min(max(asked_ms, LEAST_POLL_MS), MOST_POLL_MS)
    subscription.long_polling_timeout.FromMilliseconds(poll_ms)
    backoff = made.backoff_policy
    backoff.Clear()
    backoff.max_attempts = policy.max_attempts
    for pause_ms in pauses_of(policy):
        backoff.customized_backoff.next.add().FromMilliseconds(pause_ms)
    return made


def pauses_of(policy: GroupPolicy) -> list[int]:
    """In ms, after the first, second .. failed delivery; the last one counts for all further."""
    backoff = policy.backoff
    if backoff.levels_ms:
        return list(backoff.levels_ms)
    return [backoff.delay_ms(attempt) for attempt in range(1, LEVELS + 1)]


def _check_names(count: int) -> None:
    if count > MOST_NAMES:
        raise MessagingRefusedError(
            v2.BAD_REQUEST, f"settings with {count} topics, the limit is {MOST_NAMES}"
        )
