"""What is asked of the work queues, what comes back, and what cannot be asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.constants import group_fault
from tandemlog.format.lease.handle import HANDLE_CHARS, decode_handles
from tandemlog.format.lease.policy import (
    MAX_DELAY_MS,
    MAX_HANDLES,
    MAX_LEASE_MS,
    MAX_RECEIVE,
    MAX_TOPICS,
    MAX_WAIT_MS,
    MIN_LEASE_MS,
    GroupPolicy,
    StartAt,
)
from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.services.lease_desk import Selector

from ..error_status import RequestRefusedError, check_count

MAX_QUEUE_IDS = 10_000
"""Of one receive."""


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """Up to `max_messages` of `topics`, for `lease_ms`. The answer comes when there is anything, at
    the latest after `wait_ms`. `filter`: what it leaves out is done for the group. `queues`: only
    these, all if there are none."""

    group: str
    topics: tuple[str, ...]
    max_messages: int
    lease_ms: int
    wait_ms: int = 0
    max_bytes: int = 4 << 20
    filter: Selector | None = None
    queues: frozenset[int] = frozenset()
    start_at: StartAt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LeasedMessages:
    """Messages of one queue: `records` end to end, `sizes` i8[n], `queue_offsets` i8[n] ascending,
    `attempts` u2[n] (1: the first delivery), `first_ms` i8[n] when that was, `handles` 64
    characters each, `last_errors` by index, of those that failed before; `rest`: how many messages
    of the queue were never delivered."""

    topic: str
    queue_id: int
    records: bytes | memoryview
    sizes: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    attempts: NDArray[np.uint16]
    first_ms: NDArray[np.int64]
    handles: bytes
    last_errors: Mapping[int, str]
    rest: int


@dataclass(frozen=True, slots=True, eq=False)
class ReceiveResult:
    """`leased_until_ms` is wall clock. `throttled`: messages are held back, because the caller, or
    all together, have too many that are not done."""

    messages: tuple[LeasedMessages, ...]
    leased_until_ms: int
    lease_ms: int
    throttled: bool


@dataclass(frozen=True, slots=True)
class QueueWork:
    """One queue of a group. `floor`: everything below is done; `next_offset`: what is delivered
    next; `unacked` messages were delivered and are not done: `leased` now, waiting for a `retry`,
    or `ready` to come again. `oldest_unacked_ms`: when the first of these was first delivered."""

    topic: str
    queue_id: int
    floor: int
    next_offset: int
    max_offset: int
    leased: int
    waiting_retry: int
    ready: int
    unacked: int
    oldest_unacked_ms: int | None


@dataclass(frozen=True, slots=True)
class GroupWork:
    """All queues of a group together; `attempts[i]`: how many unacked messages were delivered i + 1
    times; `dead`: messages that are on their way to the dead letters; `dead_letters`: those that
    are there."""

    policy: GroupPolicy
    leased: int
    waiting_retry: int
    ready: int
    dead: int
    dead_letters: int
    oldest_unacked_ms: int | None
    attempts: tuple[int, ...]
    queues: tuple[QueueWork, ...] = field(default=())


def check_receive(request: ReceiveRequest) -> None:
    """Raises RequestRefusedError (INVALID_ARGUMENT)."""
    check_group(request.group)
    check_count("topics", len(request.topics), MAX_TOPICS)
    check_count("queue_ids", len(request.queues), MAX_QUEUE_IDS)
    if not request.topics or len(set(request.topics)) < len(request.topics):
        raise _refused("topics", "a receive names one topic or several, each once")
    _check_range("max_messages", request.max_messages, 1, MAX_RECEIVE)
    _check_range("lease_ms", request.lease_ms, MIN_LEASE_MS, MAX_LEASE_MS)
    _check_range("wait_ms", request.wait_ms, 0, MAX_WAIT_MS)
    _check_range("max_bytes", request.max_bytes, 1, 1 << 31)


def check_group(group: str) -> None:
    fault = group_fault(group)
    if fault is not None:
        raise _refused("group", f"group {quoted(group)}: {fault}")


def check_lease(lease_ms: int) -> None:
    _check_range("lease_ms", lease_ms, MIN_LEASE_MS, MAX_LEASE_MS)


def check_delay(delay_ms: int | None) -> None:
    if delay_ms is not None:
        _check_range("delay_ms", delay_ms, 0, MAX_DELAY_MS)


def checked_handles(handles: bytes) -> NDArray[np.void]:
    """HANDLE[n]. Raises RequestRefusedError for too many, FormatError for other bytes."""
    check_count("handles", len(handles) // HANDLE_CHARS, MAX_HANDLES)
    return decode_handles(handles)


def _check_range(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise RequestRefusedError(
            common_pb2.INVALID_ARGUMENT,
            f"{name} must be {least} .. {most}: {value}",
            field=name,
            limit=most,
            actual=value,
        )


def no_group(group: str) -> RequestRefusedError:
    """The refusal for a group that is not there."""
    return RequestRefusedError(
        common_pb2.UNKNOWN_GROUP,
        f"there is no group {quoted(group)}: a receive, a policy or a committed offset makes it",
        field="group",
    )


def _refused(name: str, text: str) -> RequestRefusedError:
    return RequestRefusedError(common_pb2.INVALID_ARGUMENT, text, field=name)
