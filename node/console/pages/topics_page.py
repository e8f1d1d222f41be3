"""Topics: which there are, what goes through them, what their queues hold, who reads them.

names, queues, rights     by the client, as the caller
rates                     of this node, by the sampler
messages, lag of a group  from this node's memory, of topics and groups that the client named
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tandemlog.admin import TopicInfo
from tandemlog.consume.reading.positions import QueueRange
from tandemlog.errors import InvalidArgumentError
from tandemlog.format.constants import (
    DEAD_LETTER_PREFIX,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    is_system_topic,
)
from tandemlog_server.storage.metadata.topics import MAX_QUEUES, TopicConfig

from ..queue_sums import held, topics_of_groups, waiting
from ..sampler import Sampler
from ..served_node import ServedNode
from ..standing import reached_master
from ..table_pages import choice, named, needed, page_of
from ..visit import MAX_ROWS, Json, Needs, Route, Visit


class TopicsPage:
    """See the module."""

    def __init__(self, node: ServedNode, sampler: Sampler) -> None:
        self._node = node
        self._traffic = sampler.topics

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/topics", Needs.CALLER, self._topics),
            Route("GET", "/api/topic", Needs.CALLER, self._topic),
            Route("POST", "/api/topics/create", Needs.CHANGE, self._create),
            Route("POST", "/api/topics/queues", Needs.CHANGE, self._change_queues),
            Route("POST", "/api/topics/delete", Needs.CHANGE, self._delete),
        )

    # ---- looking

    async def _topics(self, visit: Visit) -> Json:
        """`text`, `sort` (name or rate), `system` (1: also those that are hidden), `page`."""
        sort = choice(visit, "sort", "name", "rate")
        hides = choice(visit, "system", "0", "1") == "0"
        seen = self._traffic.seen
        shown, place, hidden = await asyncio.to_thread(
            self._chosen, visit, sort, seen.rates, hides=hides
        )
        messages = await asyncio.to_thread(held, self._node.store, [each.name for each in shown])
        plots = seen.plots(time.monotonic(), [each.name for each in shown])
        return {
            **place,
            "hidden": hidden,
            "master": self._master(),
            "topics": [
                {
                    **_row(each),
                    "messages": messages[each.name],
                    "rates": seen.rates.get(each.name),
                    "plots": plots.get(each.name),
                }
                for each in shown
            ],
        }

    def _chosen(
        self, visit: Visit, sort: str, rates: Mapping[str, Sequence[float]], *, hides: bool
    ) -> tuple[Sequence[TopicConfig], Json, int]:
        """The topics of a page, where it lies, and how many are hidden."""
        table = self._node.store.topics.table
        seen = [name for name in table if visit.may_see(name)]
        of_clients = [name for name in seen if not is_hidden(name)]
        names = named(visit, of_clients if hides else seen)
        traffic = {name: rates[name][0] + rates[name][2] for name in names if name in rates}
        names.sort(key=lambda name: (-traffic.get(name, 0.0) if sort == "rate" else 0.0, name))
        shown, place = page_of(visit, names)
        return [table[name] for name in shown], place, len(seen) - len(of_clients) if hides else 0

    def _master(self) -> str:
        """The node at which messages come in; empty where none is heard."""
        master = reached_master(self._node.members())
        return "" if master is None else master.node_id

    async def _topic(self, visit: Visit) -> Json:
        """`name`; `page` of its queues."""
        name = needed(visit, "name")
        async with visit.clients.admin() as admin:
            topic = await admin.topic(name)
            ranges = {each.queue_id: each for each in await admin.ranges(name)}
            groups = await admin.groups()
        queues = range(max(topic.read_queues, topic.write_queues, max(ranges, default=-1) + 1))
        shown, place = page_of(visit, queues, MAX_ROWS)
        holding = [each for each in ranges.values() if each.max_offset > each.min_offset]
        lags = await asyncio.to_thread(self._groups, name, groups)
        traffic = self._traffic.seen
        plots = traffic.plots(time.monotonic(), [name])
        return {
            **place,
            **_row(topic),
            "order": topic.order,
            "attributes": dict(topic.attributes),
            "system": is_hidden(name),
            "messages": sum(each.max_offset - each.min_offset for each in holding),
            "oldest": min((each.min_timestamp for each in holding), default=-1),
            "newest": max((each.max_timestamp for each in holding), default=-1),
            "queues": [
                _queue(ranges.get(number) or QueueRange(name, number, 0, 0, -1, -1))
                for number in shown
            ],
            "rates": traffic.rates.get(name),
            "plots": plots.get(name),
            "master": self._master(),
            "groups": lags[:MAX_ROWS],
            "group_count": len(lags),
            "partial": any(each["lag"] is None for each in lags),
        }

    def _groups(self, topic: str, groups: Sequence[str]) -> list[Mapping[str, Any]]:
        """Those of `groups` that have offsets or work in it; the one furthest behind first, and
        last those for whose lag there was no time."""
        store = self._node.store
        found = topics_of_groups(store, set(groups), {topic})
        lags = waiting(store, found, sorted(found))
        rows = [{"group": group, "lag": lag} for group, lag in lags.items()]
        return sorted(rows, key=lambda row: (row["lag"] is None, -(row["lag"] or 0)))

    # ---- changing

    async def _create(self, visit: Visit) -> Json:
        """`topic`, `queues`."""
        name, queues = visit.given("topic"), _queues(visit)
        visit.confirmed(name)
        async with visit.clients.admin() as admin:
            return _row(await admin.create_topic(name, queues))

    async def _change_queues(self, visit: Visit) -> Json:
        """`topic`, `queues`: how many it has then. The node refuses to take away one that holds
        messages."""
        name, queues = visit.given("topic"), _queues(visit)
        visit.confirmed(name)
        async with visit.clients.admin() as admin:
            return _row(await admin.create_topic(name, queues, update=True))

    async def _delete(self, visit: Visit) -> Json:
        """`topic`. Its messages stay in the log until they expire."""
        name = visit.given("topic")
        visit.confirmed(name)
        async with visit.clients.admin() as admin:
            await admin.delete_topic(name)
        return {"topic": name}


def _queues(visit: Visit) -> int:
    """Raises InvalidArgumentError."""
    queues = visit.given_number("queues", least=1)
    if queues > MAX_QUEUES:
        raise InvalidArgumentError(f"queues: a topic has at most {MAX_QUEUES}", field="queues")
    return queues


def is_hidden(topic: str) -> bool:
    """Whether a list shows it only when asked to: RocketMQ's own, and those of a group's retries
    and dead letters."""
    return is_system_topic(topic) or topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX))


def _row(topic: TopicInfo | TopicConfig) -> Mapping[str, Any]:
    return {
        "topic": topic.name,
        "read_queues": topic.read_queues,
        "write_queues": topic.write_queues,
        "readable": bool(topic.perm & PERM_READ),
        "writable": bool(topic.perm & PERM_WRITE),
    }


def _queue(each: QueueRange) -> Mapping[str, Any]:
    return {
        "queue_id": each.queue_id,
        "min_offset": each.min_offset,
        "max_offset": each.max_offset,
        "messages": each.max_offset - each.min_offset,
        "oldest": each.min_timestamp,
        "newest": each.max_timestamp,
    }
