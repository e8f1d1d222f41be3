"""What is asked of a group's work without receiving any: whether there is some, who waits for it,
and where the group is.

    work in a queue of the topic ─▶ True        none ─▶ wait in the line of the receives ─▶ woken
                                                        ▸ the next one in the line is woken too

Who only asks takes none, so what woke it is passed on.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from tandemlog.format.lease.progress import QueueProgress

from ..access.caller import Caller
from .waiting_receives import Waiter
from .work_service import WorkService
from .work_term import WorkTerm


async def has_work(
    work: WorkService,
    group: str,
    topics: Sequence[str],
    queue_ids: Collection[int],
    wait_ms: int,
    caller: Caller,
) -> bool:
    """Whether a receive would find something, looked at for up to `wait_ms`; no `queue_ids`: in any
    queue. Raises RequestRefusedError, MetadataError."""
    term = await work.ready()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms / 1000
    waiter = Waiter([(group, each) for each in topics])
    while True:
        await term.open(group, topics, create=True, holder=caller.holder)
        term.engine.tick(term.now())
        found = any(_has_work(term, group, each, queue_ids) for each in topics)
        term.waiting.pass_on(waiter)
        if found or work.closing or loop.time() >= deadline:
            return found
        await work.waits.wait(term, waiter, caller, deadline)


def _has_work(term: WorkTerm, group: str, topic: str, queue_ids: Collection[int]) -> bool:
    place = term.engine.groups.topic(group, topic)
    if place is None:
        return False
    limit, now_ms = term.engine.limits.queue_unacked, term.now().ms
    return any(
        each.may_be_read(limit, now_ms)
        for each in place.line
        if not queue_ids or each.queue_id in queue_ids
    )


async def waiting_for(work: WorkService, group: str, topic: str) -> int:
    """How many receives wait for this topic. Raises RequestRefusedError."""
    term = await work.ready()
    return term.waiting.of_place((group, topic))


def is_open(work: WorkService, group: str, topic: str) -> bool:
    """Whether the group has begun in this topic, and this master serves it already."""
    term = work.term
    return term is not None and term.engine.groups.topic(group, topic) is not None


async def has_begun(work: WorkService, group: str) -> bool:
    """Whether the group was delivered anything, by this master or before it: to ask whether there
    is work begins nothing. Raises RequestRefusedError."""
    term = await work.ready()
    known = term.engine.groups.get(group)
    if known is not None and known.has_delivered:
        return True
    said = await asyncio.to_thread(term.desk.said, group)
    return any(_delivered(term, each) for queues in said.values() for each in queues.values())


def _delivered(term: WorkTerm, said: QueueProgress) -> bool:
    """Whether the log says more of the queue than that the group begins at its first message."""
    if len(said.offsets) or len(said.ended_starts):
        return True
    return (said.floor or 0) > term.desk.range(said.topic, said.queue_id)[0]


async def next_offsets(
    work: WorkService, group: str, topic: str, caller: Caller
) -> Mapping[int, int]:
    """By queue id: the first message that was never delivered to the group. Raises
    RequestRefusedError, MetadataError."""
    term = await work.ready()
    await term.open(group, (topic,), create=True, holder=caller.holder)
    place = term.engine.groups.topic(group, topic)
    return {} if place is None else {each.queue_id: each.next for each in place.queues.values()}
