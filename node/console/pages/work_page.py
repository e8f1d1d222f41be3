"""What groups have under way in their work queues, and which have dead letters.

    names      of the groups that the caller may know, by the client
    order      dead letters first, then work, then the others: by this node's folds, from memory
    rows       of one page: each group's numbers by the master's word

The order is this node's own view: of a slave it may be a moment old, and a group that stands too
low is found by its name. The numbers are the master's.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tandemlog.consume.group.group_admin import NOT_KNOWN_THERE
from tandemlog.consume.work.work_admin import AsyncWorkAdmin, GroupWork, QueueWork
from tandemlog.errors import InvalidArgumentError, UnknownGroupError
from tandemlog.format.lease.policy import GroupPolicy, StartAt, dead_letter_topic
from tandemlog_server.storage.message_store import MessageStore

from ..served_node import ServedNode
from ..visit import MAX_ROWS, Json, Needs, Route, Visit
from ..work_clients import work_admin

ROWS = 25
AT_ONCE = 8
"""Groups that are asked about at a time."""
RANK_S = 0.5
"""For the order; what is found then has to do."""
DEAD, WORKS, OTHER = range(3)


class WorkPage:
    """See the module."""

    def __init__(self, node: ServedNode) -> None:
        self._node = node

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/services/groups", Needs.CALLER, self._groups),
            Route("GET", "/api/services/groups/{group}", Needs.CALLER, self._group),
        )

    async def _groups(self, visit: Visit) -> Json:
        """`name`: only groups whose name has it, also those without work. `first`: where the page
        begins."""
        first, part = visit.number("first", 0), visit.text("name")
        async with visit.clients.admin() as admin:
            names = await admin.groups()
        ranks, complete = await asyncio.to_thread(ranked, self._node.store, names)
        with_work = [name for name, rank in ranks.items() if rank is not OTHER]
        wanted = [name for name in ranks if part in name] if part else with_work
        async with work_admin(visit.clients) as work:
            turn = asyncio.Semaphore(AT_ONCE)
            page = wanted[first : first + ROWS]
            rows = await asyncio.gather(*(_numbers(work, turn, name) for name in page))
        return {
            "groups": rows,
            "first": first,
            "rows": ROWS,
            "total": len(wanted),
            "others": len(names) - len(with_work),
            "partial": not complete,
            "now_ms": self._node.store.clock.now_ms(),
        }

    async def _group(self, visit: Visit) -> Json:
        """`first`: of its queues, those with messages under way first."""
        first = visit.number("first", 0)
        async with work_admin(visit.clients) as work:
            found = await work.group_work(visit.part("group"))
        letters = dead_letter_topic(found.group)
        # what of its dead letters is done: no work, until someone works on them
        shown = [each for each in found.queues if each.topic != letters or each.unacked]
        queues = sorted(shown, key=lambda each: (-each.unacked, each.topic, each.queue_id))
        return {
            **_row(found),
            "policy": _policy(found.policy),
            "attempts": list(found.attempts),
            "queues": [_queue(each) for each in queues[first : first + MAX_ROWS]],
            "first": first,
            "rows": MAX_ROWS,
            "total": len(queues),
            "now_ms": self._node.store.clock.now_ms(),
        }


def ranked(store: MessageStore, names: Sequence[str]) -> tuple[Mapping[str, int], bool]:
    """`names` in the order of the page, each with what it has: DEAD letters, WORKS, or OTHER. And
    whether there was time to look at each: the others count as if no dead letter was done."""
    deadline = time.monotonic() + RANK_S
    complete = True
    queues = [store.queue_table.get(dead_letter_topic(name), 0) for name in names]
    ends = dict(zip(names, store.queues.ends_of(queues), strict=True))
    works = set(store.leases.groups())
    ranks = {}
    for name in names:
        done = 0
        if ends[name] > 0 and name in works:
            if time.monotonic() < deadline:
                done = _done_letters(store, name)
            else:
                complete = False
        ranks[name] = DEAD if ends[name] > done else WORKS if name in works else OTHER
    order = sorted(names, key=lambda each: (ranks[each], each))
    return {name: ranks[name] for name in order}, complete


def _done_letters(store: MessageStore, group: str) -> int:
    """Below which number all dead letters were sent again or purged."""
    topic = dead_letter_topic(group)
    found = [each.floor or 0 for each in store.leases.of_group(group) if each.topic == topic]
    return max(found, default=0)


async def _numbers(work: AsyncWorkAdmin, turn: asyncio.Semaphore, group: str) -> Json:
    """`works` is false of a group that has never had a work queue."""
    async with turn:
        try:
            return {**_row(await work.group_work(group)), "works": True}
        except UnknownGroupError:
            return {"group": group, "works": False}
        except InvalidArgumentError as error:
            if error.reason != NOT_KNOWN_THERE:
                raise
            return {"group": group, "works": False}


def _row(found: GroupWork) -> dict[str, Any]:
    return {
        "group": found.group,
        "leased": found.leased,
        "waiting_retry": found.waiting_retry,
        "ready": found.ready,
        "dead": found.dead,
        "dead_letters": found.dead_letters,
        "unacked": sum(each.unacked for each in found.queues),
        "oldest_unacked_ms": found.oldest_unacked_ms,
    }


def _policy(policy: GroupPolicy) -> Json:
    """Pauses in milliseconds: those of each attempt, or the first one and how they grow."""
    backoff = policy.backoff
    return {
        "max_attempts": policy.max_attempts,
        "levels_ms": list(backoff.levels_ms),
        "initial_ms": backoff.initial_ms,
        "multiplier": backoff.multiplier,
        "max_ms": backoff.max_ms,
        "ordering": policy.ordering.name.lower(),
        "start": "latest" if policy.start_at is StartAt.LATEST else "earliest",
    }


def _queue(row: QueueWork) -> Json:
    return {
        "topic": row.topic,
        "queue_id": row.queue_id,
        "floor": row.floor,
        "next_offset": row.next_offset,
        "max_offset": row.max_offset,
        "leased": row.leased,
        "waiting_retry": row.waiting_retry,
        "ready": row.ready,
        "unacked": row.unacked,
        "oldest_unacked_ms": row.oldest_unacked_ms,
    }
