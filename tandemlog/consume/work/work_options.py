"""How a consumer works on a queue, and the policy that it wants its group to have."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from ...errors import InvalidArgumentError
from ...format.lease.policy import (
    LEVELS_MS,
    MAX_LEASE_MS,
    MAX_RECEIVE,
    MAX_WAIT_MS,
    MIN_LEASE_MS,
    Backoff,
    GroupPolicy,
    Ordering,
    StartAt,
    policy_fault,
)
from ..reading.positions import EARLIEST, LATEST
from .signals import delay_in_ms, in_seconds

MOST_PREFETCHED: Final = 10 * MAX_RECEIVE
_ORDERINGS: Final = {
    False: Ordering.NONE,
    True: Ordering.QUEUE,
    "none": Ordering.NONE,
    "queue": Ordering.QUEUE,
    "key": Ordering.KEY,
}
_STARTS: Final = {EARLIEST: StartAt.EARLIEST, LATEST: StartAt.LATEST}


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """Times in ms. `linger_ms`: how long acknowledgements are gathered for one request; `wait_ms`
    of one long poll; `max_bytes` of one answer. `max_poll_interval_ms`: a caller that does not ask
    for the next message for so long counts as stuck, and what it has not seen is given back.
    `stop_timeout_ms`: how long the end waits for handlers that run, and for the node to confirm
    what was settled."""

    linger_ms: float = 3.0
    wait_ms: int = 5_000
    max_bytes: int = 4 << 20
    max_poll_interval_ms: int = 300_000
    stop_timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_poll_interval_ms", "stop_timeout_ms"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be positive: {getattr(self, name)}")
        if not 0 <= self.wait_ms <= MAX_WAIT_MS or not 0 <= self.linger_ms <= 1_000:
            raise ValueError(f"wait_ms must be 0 .. {MAX_WAIT_MS}, linger_ms 0 .. 1000")


@dataclass(frozen=True, slots=True)
class WantedPolicy:
    """What a program says of its group's policy; None: it stays as it is."""

    max_attempts: int | None = None
    backoff: Backoff | None = None
    ordering: Ordering | None = None
    start_at: StartAt | None = None

    @classmethod
    def of(
        cls,
        max_attempts: int | None,
        backoff: "BackoffLike | None",
        ordered: bool | str | None,
        start: str | None,
    ) -> "WantedPolicy":
        """Raises InvalidArgumentError for values that no policy can have."""
        if max_attempts is not None and not isinstance(max_attempts, int):
            raise InvalidArgumentError(
                f"max_attempts={max_attempts!r}: it is a whole number", field="max_attempts"
            )
        if ordered is not None and ordered not in _ORDERINGS:
            raise InvalidArgumentError(
                f"ordered={ordered!r}: it is False, True (by queue), 'queue' or 'key'",
                field="ordered",
            )
        if start is not None and start not in _STARTS:
            raise InvalidArgumentError(
                f"start={start!r}: a group begins at EARLIEST or LATEST", field="start"
            )
        wanted = cls(
            max_attempts,
            None if backoff is None else backoff_of(backoff),
            None if ordered is None else _ORDERINGS[ordered],
            None if start is None else _STARTS[start],
        )
        fault = policy_fault(wanted.on(GroupPolicy()))
        if fault is not None:
            raise InvalidArgumentError(fault, field="policy")
        return wanted

    def on(self, policy: GroupPolicy) -> GroupPolicy:
        """`policy` with what is wanted."""
        changes = {
            name: value
            for name in ("max_attempts", "backoff", "ordering", "start_at")
            if (value := getattr(self, name)) is not None
        }
        return replace(policy, **changes)


BackoffLike = float | timedelta | Sequence[float | timedelta] | Backoff
"""Seconds (or a timedelta) before the second attempt, which double with each further one; seconds
for each; or a Backoff."""


def backoff_of(value: BackoffLike) -> Backoff:
    """Raises InvalidArgumentError for pauses that no retry can have."""
    if isinstance(value, Backoff):
        return value
    if isinstance(value, int | float | timedelta):
        return Backoff(levels_ms=(), initial_ms=delay_in_ms(value, "backoff"))
    levels = tuple(delay_in_ms(each, "backoff") for each in value)
    return Backoff(levels_ms=levels or LEVELS_MS)


def lease_in_ms(seconds: float | timedelta, field: str = "lease") -> int:
    """Raises InvalidArgumentError for a lease that no node gives."""
    value = in_seconds(seconds, field)
    if not MIN_LEASE_MS <= value * 1000 <= MAX_LEASE_MS:
        raise InvalidArgumentError(
            f"{field}={seconds!r}: a lease lasts {MIN_LEASE_MS // 1000} to {MAX_LEASE_MS // 1000} "
            "seconds",
            field=field,
        )
    return round(value * 1000)


def checked_prefetch(prefetch: int | None, concurrency: int) -> int | None:
    """Raises InvalidArgumentError."""
    if prefetch is not None and not 0 <= prefetch <= MOST_PREFETCHED:
        raise InvalidArgumentError(
            f"prefetch={prefetch!r}: 0 to {MOST_PREFETCHED} messages", field="prefetch"
        )
    if concurrency < 1:
        raise InvalidArgumentError(
            f"concurrency={concurrency!r}: at least one handler must run", field="concurrency"
        )
    return prefetch


Handler = Callable[..., object]
"""Gets a delivery; an exception that it raises says what becomes of the message (signals.py)."""
