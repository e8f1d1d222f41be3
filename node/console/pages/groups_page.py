"""Consumer groups: who is in them, what waits for them, and moving or deleting their offsets.

names, members         by the client, as the caller: members by the master's word
lag of a list          from this node's memory, over the topics that the caller may know
lag of one group       the same, and for the queues that are shown how long it has waited
reset, delete          by the client; a reset is planned first (dry run), and does what was shown
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tandemlog.admin import AsyncAdmin
from tandemlog.consume.group.group_admin import GroupDescription, GroupMember, OffsetChange
from tandemlog.consume.reading.positions import EARLIEST, LATEST, Queue, Start
from tandemlog.errors import InvalidArgumentError, UnavailableError, UnknownGroupError
from tandemlog.format.words import queues_text, shortened
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore

from ...pulls.group_places import GroupPlace
from ..queue_sums import topics_of_groups, waiting
from ..reset_plan import given_plan, plan_of, require_unchanged
from ..served_node import ServedNode
from ..table_pages import choice, named, needed, page_of
from ..visit import MAX_ROWS, Json, Needs, Route, Visit
from ..work_places import WorkPlaces

AT_ONCE = 8
"""Groups that are asked about at a time."""
TIME = "time"
END_OF_TIME_MS = 1 << 62
MAX_QUEUES_TEXT = 500
"""Characters of the queues of one member."""


class GroupsPage:
    """See the module."""

    def __init__(self, node: ServedNode) -> None:
        self._store = node.store

    def routes(self) -> Sequence[Route]:
        return (
            Route("GET", "/api/groups", Needs.CALLER, self._groups),
            Route("GET", "/api/group", Needs.CALLER, self._group),
            Route("GET", "/api/groups/reset", Needs.CALLER, self._plan),
            Route("POST", "/api/groups/reset", Needs.CHANGE, self._reset, not_audited=("plan",)),
            Route("POST", "/api/groups/delete", Needs.CHANGE, self._delete),
        )

    # ---- looking

    async def _groups(self, visit: Visit) -> Json:
        """`text`, `sort` (name or lag), `page`."""
        sort = choice(visit, "sort", "name", "lag")
        async with visit.clients.admin() as admin:
            names = named(visit, await admin.groups())
            topics = await asyncio.to_thread(self._topics_of, visit, names)
            lags: Mapping[str, int | None] = {}
            if sort == "lag":
                lags = await asyncio.to_thread(waiting, self._store, topics, names)
                names.sort(key=lambda name: (-(lags[name] or 0), name))
            shown, place = page_of(visit, names)
            if sort == "name":
                lags = await asyncio.to_thread(waiting, self._store, topics, shown)
            described, fault = await _described(admin, shown)
        return {
            **place,
            "partial": any(each is None for each in lags.values()),
            "fault": fault,
            "groups": [
                {
                    **_row(name, described.get(name)),
                    "topics": len(topics.get(name, ())),
                    "lag": lags[name],
                }
                for name in shown
            ],
        }

    def _topics_of(self, visit: Visit, groups: Sequence[str]) -> Mapping[str, Sequence[str]]:
        store = self._store
        seen = {name for name in store.topics.table if visit.may_see(name)}
        return topics_of_groups(store, set(groups), seen)

    async def _group(self, visit: Visit) -> Json:
        """`name`; `topic`: only its queues; `page` of the queues."""
        name, topic = needed(visit, "name"), visit.text("topic")
        async with visit.clients.admin() as admin:
            description = await admin.describe_group(name)
        return await asyncio.to_thread(self._standing, visit, description, topic)

    def _standing(self, visit: Visit, description: GroupDescription, topic: str) -> Json:
        """The group, with what waits for it in its topics and in the queues of the page."""
        name, members = description.group, description.members
        topics = self._topics_of(visit, [name]).get(name, ())
        followed = {each for member in members for each in member.topics}
        every = sorted({*topics, *filter(visit.may_see, followed)})
        work = WorkPlaces(self._store, name)
        places = [(each, place) for each in every for place in work.places(each)]
        of_topic = [(each, place) for each, place in places if topic in ("", each)]
        shown, position = page_of(visit, of_topic, MAX_ROWS)
        by_topic, owners = _by_topic(places), _owners(members)
        return {
            **position,
            **_row(name, description),
            "epoch": description.epoch,
            "works": any(map(work.works_on, every)),
            "member_rows": [_member(each) for each in members[:MAX_ROWS]],
            "lag": sum(row["lag"] for row in by_topic),
            "behind": sum(place.messages > 0 for _, place in places),
            "queue_count": len(places),
            "now_ms": self._store.clock.now_ms(),
            "topics": by_topic[:MAX_ROWS],
            "topic_count": len(by_topic),
            "queues": [
                {
                    "topic": each,
                    "queue_id": place.queue_id,
                    "committed": place.committed,
                    "end": place.end,
                    "lag": place.messages,
                    "since": _waiting_since(self._store, each, place),
                    "owner": owners.get((each, place.queue_id)),
                }
                for each, place in shown
            ],
        }

    # ---- moving and deleting

    async def _plan(self, visit: Visit) -> Json:
        """What a reset would change: `name`, `to` (earliest, latest or time), `time` in ms,
        `topic` (default: all that the group has offsets of). Nothing is changed."""
        name, topic = needed(visit, "name"), visit.text("topic")
        to = _target(visit)
        async with visit.clients.admin() as admin:
            changes = await admin.reset_offsets(name, topic or (), to=to, dry_run=True)
        return {**_moved(name, changes), "plan": plan_of(changes)}

    async def _reset(self, visit: Visit) -> Json:
        """`group`, `topic` and `plan` as they were looked at. Refused if the group has committed
        since."""
        name = visit.given("group")
        visit.confirmed(name)
        topic = visit.given("topic") if "topic" in visit.body else ""
        planned = given_plan(visit)
        to = {(each.topic, each.queue_id): each.after for each in planned if _moves(each)}
        async with visit.clients.admin() as admin:
            now = await admin.reset_offsets(name, topic or (), to=LATEST, dry_run=True)
            require_unchanged(planned, now)
            done = await admin.reset_offsets(name, to=to)
        stay = [each for each in planned if not _moves(each)]
        return _moved(name, [*done, *stay])

    async def _delete(self, visit: Visit) -> Json:
        """`group`. Refused while it has members."""
        name = visit.given("group")
        visit.confirmed(name)
        async with visit.clients.admin() as admin:
            await admin.delete_group(name)
        return {"group": name}


async def _described(
    admin: AsyncAdmin, groups: Sequence[str]
) -> tuple[Mapping[str, GroupDescription], str]:
    """Each of the groups that is still there; and why none is known, where there is no master."""
    turn = asyncio.Semaphore(AT_ONCE)
    found: dict[str, GroupDescription] = {}
    faults: list[str] = []

    async def describe(group: str) -> None:
        async with turn:
            if faults:
                return  # each would wait for a master as long as the first
            try:
                found[group] = await admin.describe_group(group)
            except UnknownGroupError:
                found[group] = GroupDescription(group, "empty", 0, ())  # only configured, or gone
            except UnavailableError as error:
                faults.append(f"the members are not known: {error}")

    await asyncio.gather(*map(describe, groups))
    return found, faults[0] if faults else ""


def _waiting_since(store: MessageStore, topic: str, place: GroupPlace) -> int | None:
    """The store time in ms of the next message; None where none waits or the disk has trouble."""
    if not place.messages:
        return None
    try:
        time_ms = store.reader.time_at(topic, place.queue_id, place.next)
    except (StoreError, OSError):
        return None
    return time_ms if time_ms >= 0 else None


def _by_topic(places: Iterable[tuple[str, GroupPlace]]) -> list[dict[str, Any]]:
    """What waits in each topic, the most first."""
    rows: dict[str, dict[str, Any]] = {}
    for topic, place in places:
        row = rows.setdefault(topic, {"topic": topic, "queues": 0, "lag": 0})
        row["queues"] += 1
        row["lag"] += place.messages
    return sorted(rows.values(), key=lambda row: (-row["lag"], row["topic"]))


def _owners(members: Iterable[GroupMember]) -> Mapping[Queue, str]:
    return {queue: each.client_id for each in members for queue in each.assigned}


def _row(name: str, found: GroupDescription | None) -> dict[str, Any]:
    """`found` is None where members are not known."""
    return {
        "group": name,
        "kind": None if found is None else found.kind,
        "state": None if found is None else found.state,
        "members": None if found is None else len(found.members),
        "heard_ms_ago": None
        if found is None
        else min((each.heard_ms_ago for each in found.members), default=None),
    }


def _member(each: GroupMember) -> Mapping[str, Any]:
    return {
        "client_id": each.client_id,
        "host": each.host,
        "instance_id": each.instance_id,
        "member_id": each.member_id,
        "queues": len(each.assigned),
        "assigned": shortened(queues_text(each.assigned), MAX_QUEUES_TEXT),
        "moving": each.assigned != each.target,
        "heard_ms_ago": each.heard_ms_ago,
    }


def _target(visit: Visit) -> Start:
    """Where to reset to: it has no default. Raises InvalidArgumentError."""
    to = choice(visit, "to", EARLIEST, LATEST, TIME, required=True)
    time_ms = visit.number("time", -1, least=-1)
    if to != TIME:
        return to
    if not 0 <= time_ms < END_OF_TIME_MS:
        raise InvalidArgumentError("time: give a time in ms since 1970", field="time")
    return time_ms


def _moves(change: OffsetChange) -> bool:
    return change.before != change.after


def _moved(group: str, changes: Sequence[OffsetChange]) -> Mapping[str, Any]:
    moved = [each for each in changes if _moves(each)]
    moved.sort(key=lambda each: (-abs(_shift(each)), each.topic, each.queue_id))
    return {
        "group": group,
        "queues": len(changes),
        "moved": len(moved),
        "skipped": sum(max(0, _shift(each)) for each in moved),
        "again": sum(max(0, -_shift(each)) for each in moved),
        "changes": [_change(each) for each in moved[:MAX_ROWS]],
    }


def _shift(change: OffsetChange) -> int:
    """By how many messages it moves; a group without an offset there has read none."""
    return 0 if change.before is None else change.after - change.before


def _change(change: OffsetChange) -> Mapping[str, Any]:
    return {
        "topic": change.topic,
        "queue_id": change.queue_id,
        "before": change.before,
        "after": change.after,
        "shift": None if change.before is None else change.after - change.before,
    }
