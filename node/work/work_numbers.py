"""The numbers of a group's work, out of the engine's columns."""

from dataclasses import dataclass

import numpy as np

from tandemlog.format.lease.policy import GroupPolicy, dead_letter_topic
from tandemlog_server.storage.leases.lease_engine import LeaseEngine
from tandemlog_server.storage.leases.lease_values import Counters
from tandemlog_server.storage.leases.queue_leases import QueueLeases
from tandemlog_server.storage.leases.unacked import State

from .work_requests import GroupWork, QueueWork

MOST_ATTEMPTS = 32
"""More attempts are counted together."""


@dataclass(frozen=True, slots=True)
class WorkNumbers:
    """All groups of this node together; `counters` since the process began."""

    counters: Counters
    unacked: int = 0
    leased: int = 0
    oldest_unacked_s: float = 0.0
    waiting: int = 0


def work_numbers(engine: LeaseEngine, waiting: int, now_ms: int) -> WorkNumbers:
    """`now_ms` since the epoch."""
    leased, oldest = 0, now_ms
    for known in engine.groups.values():
        for queue in known.queues():
            if queue.rows.live:
                leased += int((queue.rows.state == State.LEASED).sum())
                oldest = min(oldest, _oldest(queue) or now_ms)
    held = engine.owners.shares.held
    return WorkNumbers(engine.counters, held, leased, max(now_ms - oldest, 0) / 1000, waiting)


def has_leased(engine: LeaseEngine, group: str) -> bool:
    """Whether a consumer has a message of the group."""
    return any(
        queue.rows.live and bool((queue.rows.state == State.LEASED).any())
        for queue in engine.groups.queues(group)
    )


def letters_left(engine: LeaseEngine, group: str, end: int) -> int:
    """Dead letters that were neither sent again nor purged; `end` is behind the last of all. Until
    one of them is done, the engine does not know their queue."""
    queue = engine.groups.queue(group, dead_letter_topic(group), 0)
    return end if queue is None else queue.left


def group_work(
    engine: LeaseEngine, group: str, policy: GroupPolicy, dead_letters: int
) -> GroupWork:
    """All queues that are open for the group."""
    queues, attempts, dead = [], np.zeros(MOST_ATTEMPTS + 1, np.int64), 0
    for queue in engine.groups.queues(group):
        states = _states(queue)
        dead += int(states[State.GIVEN_UP] + states[State.BURYING])
        live = queue.rows.state != State.GONE
        tried = np.minimum(queue.rows.attempts[live], MOST_ATTEMPTS)
        attempts += np.bincount(tried, minlength=MOST_ATTEMPTS + 1)
        queues.append(_queue_work(queue, states))
    oldest = [each.oldest_unacked_ms for each in queues if each.oldest_unacked_ms is not None]
    most = int(attempts.nonzero()[0].max()) if attempts.any() else 0
    return GroupWork(
        policy,
        sum(each.leased for each in queues),
        sum(each.waiting_retry for each in queues),
        sum(each.ready for each in queues),
        dead,
        dead_letters,
        min(oldest, default=None),
        tuple(attempts[1 : most + 1].tolist()),
        tuple(queues),
    )


def _states(queue: QueueLeases) -> list[int]:
    counts: list[int] = np.bincount(queue.rows.state, minlength=State.COUNT).tolist()
    return counts


def _queue_work(queue: QueueLeases, states: list[int]) -> QueueWork:
    return QueueWork(
        queue.topic,
        queue.queue_id,
        queue.floor,
        queue.next,
        queue.end,
        states[State.LEASED],
        states[State.WAITING],
        states[State.READY],
        queue.rows.live,
        _oldest(queue),
    )


def _oldest(queue: QueueLeases) -> int | None:
    first = queue.rows.first_ms[(queue.rows.state != State.GONE) & (queue.rows.first_ms > 0)]
    return int(first.min()) if len(first) else None
