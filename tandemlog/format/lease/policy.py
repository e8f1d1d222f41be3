"""How a group works on its queues: attempts, pauses between them, order, where it begins.

A policy is kept in the group's row of RocketMQ's `subscriptionGroup.json`, in RocketMQ's own
members where it has them, so that its brokers and tools read the same:

    retryMaxTimes            attempts after the first one
    groupRetryPolicy         CUSTOMIZED {next: [ms ...]}, EXPONENTIAL {initial, max, multiplier}
    consumeMessageOrderly    order by queue
    attributes               tandemlog.ordering, tandemlog.start: what RocketMQ has no member for

RocketMQ skips the first two levels of `next` (1 s and 5 s by default) when a consumer failed, and
stays at the last one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from ..constants import DEAD_LETTER_PREFIX
from ..errors import FormatError

MIN_LEASE_MS: Final = 1_000
MAX_LEASE_MS: Final = 12 * 3_600_000
DEFAULT_LEASE_MS: Final = 30_000
MAX_DELAY_MS: Final = 3 * 86_400_000
"""Of a retry: longer pauses are for delayed messages."""
MAX_RECEIVE: Final = 1_000
MAX_HANDLES: Final = 10_000
HANDLE_CHARS: Final = 64
"""Of a receipt handle: a batch of them is one text (handle.py)."""
MAX_WAIT_MS: Final = 60_000
MAX_TOPICS: Final = 64
"""Of one receive."""
MAX_ERROR_BYTES: Final = 256
MAX_ATTEMPTS: Final = 1_000
DEFAULT_RETRIES: Final = 16
LEVELS_MS: Final = tuple(
    1_000 * each
    for each in (
        10,
        30,
        60,
        120,
        180,
        240,
        300,
        360,
        420,
        480,
        540,
        600,
        1_200,
        1_800,
        3_600,
        7_200,
    )
)
"""RocketMQ's pauses after the first, second ... failed attempt."""
_SKIPPED_MS: Final = (1_000, 5_000)
_ORDERING: Final = "tandemlog.ordering"
_START: Final = "tandemlog.start"
_MAX_POWER: Final = 32


class Ordering(IntEnum):
    """NONE: in any order. QUEUE: the messages of a queue one after the other. KEY: those with the
    same `__SHARDINGKEY` in the same queue; messages without one in any order."""

    NONE = 0
    QUEUE = 1
    KEY = 2


class StartAt(IntEnum):
    """Where a group begins in a topic that it has not read yet."""

    EARLIEST = 0
    LATEST = 1


class AckResult(IntEnum):
    """What became of one handle. OK and ALREADY_DONE: the message does not come again."""

    OK = 0
    ALREADY_DONE = 1
    INVALID_RECEIPT_HANDLE = 2
    OTHER_GROUP = 3
    UNKNOWN_QUEUE = 4


_SENTENCES: Final = {
    AckResult.OK: "done",
    AckResult.ALREADY_DONE: "the message was done before",
    AckResult.INVALID_RECEIPT_HANDLE: (
        "this handle is for no message that can be acknowledged with it: its lease ended and the "
        "message was delivered again, or the log was cut below it; the message comes again unless "
        "another consumer ends it. Use a longer lease, or extend it while a handler runs"
    ),
    AckResult.OTHER_GROUP: (
        "this handle was given to another consumer group; send it with the group that received it"
    ),
    AckResult.UNKNOWN_QUEUE: (
        "the topic or queue of this handle is not there any more; it may have been deleted"
    ),
}


def ack_sentence(result: AckResult) -> str:
    """For people: what happened to the handle, and what to do."""
    return _SENTENCES[result]


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def short_error(text: str) -> str:
    """The text as it is kept with a message: at most MAX_ERROR_BYTES of UTF-8, no control
    characters, which separate properties."""
    plain = "".join(each if each.isprintable() else " " for each in text)
    return plain.encode(errors="replace")[:MAX_ERROR_BYTES].decode(errors="ignore")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses before the next attempt, in ms: one for each level, then the last one again; or,
    without levels, `initial_ms * multiplier ** (attempt - 1)`, at most `max_ms`."""

    levels_ms: tuple[int, ...] = LEVELS_MS
    initial_ms: int = 5_000
    multiplier: float = 2.0
    max_ms: int = 7_200_000

    def delay_ms(self, attempt: int) -> int:
        """The pause after the failed delivery number `attempt`, the first of which is 1."""
        failed = max(attempt - 1, 0)
        if self.levels_ms:
            return self.levels_ms[min(failed, len(self.levels_ms) - 1)]
        return round(min(self.initial_ms * self.multiplier ** min(failed, _MAX_POWER), self.max_ms))


@dataclass(frozen=True, slots=True)
class GroupPolicy:
    """`max_attempts`: deliveries in all; the message is a dead letter after the last one."""

    max_attempts: int = DEFAULT_RETRIES + 1
    backoff: Backoff = Backoff()
    ordering: Ordering = Ordering.NONE
    start_at: StartAt = StartAt.EARLIEST


def policy_fault(policy: GroupPolicy) -> str | None:
    """Why no group can have this policy, or None."""
    backoff = policy.backoff
    if not 1 <= policy.max_attempts <= MAX_ATTEMPTS:
        return f"max_attempts must be 1 .. {MAX_ATTEMPTS}: {policy.max_attempts}"
    if len(backoff.levels_ms) > MAX_ATTEMPTS:
        return f"a backoff has at most {MAX_ATTEMPTS} levels: {len(backoff.levels_ms)}"
    pauses = backoff.levels_ms or (backoff.initial_ms, backoff.max_ms)
    for pause in pauses:
        if not 0 <= pause <= MAX_DELAY_MS:
            return f"a pause between attempts must be 0 .. {MAX_DELAY_MS} ms: {pause}"
    if not 1 <= backoff.multiplier <= 100:
        return f"the multiplier of a backoff must be 1 .. 100: {backoff.multiplier}"
    return None


def decode_policy(row: Mapping[str, object]) -> GroupPolicy:
    """The policy in a group's row; what is missing, or is no number, has RocketMQ's default."""
    attributes = _members(row, "attributes")
    ordering = Ordering.QUEUE if row.get("consumeMessageOrderly") is True else Ordering.NONE
    if attributes.get(_ORDERING) == "key":
        ordering = Ordering.KEY
    latest = attributes.get(_START) == "latest"
    retries = _whole(row.get("retryMaxTimes"), DEFAULT_RETRIES)
    return GroupPolicy(
        min(max(retries, 0) + 1, MAX_ATTEMPTS),
        _backoff(_members(row, "groupRetryPolicy")),
        ordering,
        StartAt.LATEST if latest else StartAt.EARLIEST,
    )


def decode_retries(row: Mapping[str, object]) -> tuple[int, int]:
    """How often a message comes again, and how many queues the group's retry topic has: for
    consumers that send messages back."""
    return (
        max(_whole(row.get("retryMaxTimes"), DEFAULT_RETRIES), 0),
        _whole(row.get("retryQueueNums"), 1),
    )


def encode_policy(policy: GroupPolicy, row: Mapping[str, object]) -> dict[str, object]:
    """The group's row with this policy; its other members stay. Raises FormatError for a policy
    that no group can have."""
    fault = policy_fault(policy)
    if fault is not None:
        raise FormatError(fault)
    attributes = dict(_members(row, "attributes"))
    for name, value in (
        (_ORDERING, "key" if policy.ordering is Ordering.KEY else ""),
        (_START, "latest" if policy.start_at is StartAt.LATEST else ""),
    ):
        attributes.pop(name, None)
        if value:
            attributes[name] = value
    changed = {
        **row,
        "attributes": attributes,
        "consumeMessageOrderly": policy.ordering is not Ordering.NONE,
        "groupRetryPolicy": _retry_policy(policy.backoff),
        "retryMaxTimes": policy.max_attempts - 1,
    }
    return dict(sorted(changed.items()))


def _retry_policy(backoff: Backoff) -> dict[str, object]:
    if backoff.levels_ms == LEVELS_MS:
        return {"type": "CUSTOMIZED"}
    if backoff.levels_ms:
        levels = [*_SKIPPED_MS, *backoff.levels_ms]
        return {"customizedRetryPolicy": {"next": levels}, "type": "CUSTOMIZED"}
    exponential = {
        "initial": backoff.initial_ms,
        "max": backoff.max_ms,
        # RocketMQ's member is a whole number; a fraction is kept beside it
        "multiplier": int(backoff.multiplier),
        **_fraction(backoff.multiplier),
    }
    return {"exponentialRetryPolicy": exponential, "type": "EXPONENTIAL"}


def _fraction(multiplier: float) -> dict[str, object]:
    return {} if multiplier == int(multiplier) else {"exactMultiplier": multiplier}


def _backoff(policy: Mapping[str, Any]) -> Backoff:
    if policy.get("type") == "EXPONENTIAL":
        told = _members(policy, "exponentialRetryPolicy")
        exact = told.get("exactMultiplier", told.get("multiplier"))
        multiplier = float(exact) if isinstance(exact, int | float) and exact >= 1 else 2.0
        return Backoff(
            (),
            min(max(_whole(told.get("initial"), 5_000), 0), MAX_DELAY_MS),
            min(multiplier, 100.0),
            min(max(_whole(told.get("max"), 7_200_000), 0), MAX_DELAY_MS),
        )
    told = _members(policy, "customizedRetryPolicy")
    steps = told.get("next")
    if not isinstance(steps, list):
        return Backoff()
    levels = [min(max(_whole(each, 0), 0), MAX_DELAY_MS) for each in steps[:MAX_ATTEMPTS]]
    return Backoff(tuple(levels[len(_SKIPPED_MS) :]) or tuple(levels[-1:]) or LEVELS_MS)


def _members(row: Mapping[str, object], name: str) -> Mapping[str, Any]:
    value = row.get(name)
    return value if isinstance(value, Mapping) else {}


def _whole(value: object, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default
