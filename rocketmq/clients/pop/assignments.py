"""Which queues a member of a group works on, where the broker says it (request 400), and in which
way (request 401): it pulls them alone, or pops them together with others.

    PULL   queues 0..n-1 of the topic are dealt out to the sorted members, by AVG or AVG_BY_CIRCLE
    POP    share 0, or at least all other members: everyone pops the whole topic (queue -1)
           share s: its own part of the queues, and those of the s members behind it

The way is kept for each group and topic, as `tandemlog.pop` in the attributes of the group's row of
subscriptionGroup.json: {"<topic>": share, ...} has those that pop. So it is replicated with the
table, and the next master has it. A broker keeps it in messageRequestMode.json.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tandemlog.format.constants import RETRY_PREFIX
from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog_server.storage.metadata.topics import new_group

from ..heartbeats import BROADCASTING, CLUSTERING, json_object
from ..routes import encoded
from .pop_requests import ALL_QUEUES

PULL: Final = "PULL"
POP: Final = "POP"
AVERAGELY: Final = "AVG"
BY_CIRCLE: Final = "AVG_BY_CIRCLE"
MODES: Final = "tandemlog.pop"
MAX_BODY_BYTES: Final = 64 << 10
MAX_TOPICS: Final = 256
"""Of one group that pops them."""
MAX_SHARE: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class AssignmentQuery:
    """Request 400."""

    group: str
    topic: str
    client_id: str
    strategy: str
    broadcasting: bool


@dataclass(frozen=True, slots=True)
class ModeRequest:
    """Request 401; `share` None: the topic is pulled."""

    group: str
    topic: str
    share: int | None


def read_query(body: bytes) -> AssignmentQuery:
    """Raises FormatError."""
    row = json_object(body, "a question for queues", MAX_BODY_BYTES)
    model = row.get("messageModel") or CLUSTERING
    if model not in (CLUSTERING, BROADCASTING):
        raise FormatError(f"messageModel is {quoted(str(model))}: CLUSTERING or BROADCASTING")
    strategy = row.get("strategyName")
    return AssignmentQuery(
        _name(row, "consumerGroup"),
        _name(row, "topic"),
        _name(row, "clientId"),
        strategy if isinstance(strategy, str) else "",
        model == BROADCASTING,
    )


def read_mode(body: bytes) -> ModeRequest:
    """Raises FormatError."""
    row = json_object(body, "a mode of requests", MAX_BODY_BYTES)
    mode, share = row.get("mode") or PULL, row.get("popShareQueueNum") or 0
    if mode not in (PULL, POP):
        raise FormatError(f"mode is {quoted(str(mode))}: PULL or POP")
    if type(share) is not int or not -MAX_SHARE <= share < MAX_SHARE:
        raise FormatError("popShareQueueNum is a whole number of 32 bits")
    topic = _name(row, "topic")
    return ModeRequest(_name(row, "consumerGroup"), topic, max(share, 0) if mode == POP else None)


def _name(row: Mapping[str, object], field: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise FormatError(f"the request has no text {field}")
    return value


def popped_topics(row: object) -> Mapping[str, int]:
    """The topics that a group pops, with their shares, by its row of the table of groups."""
    attributes = row.get("attributes") if isinstance(row, Mapping) else None
    text = attributes.get(MODES) if isinstance(attributes, Mapping) else None
    if not isinstance(text, str):
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    rows = found.items() if isinstance(found, dict) else ()
    return {topic: share for topic, share in rows if type(share) is int}


def with_mode(row: Mapping[str, object], request: ModeRequest) -> dict[str, object]:
    """The group's row once the request is done. Raises FormatError for too many topics."""
    topics = {**popped_topics(row), request.topic: request.share}
    kept = {topic: share for topic, share in sorted(topics.items()) if share is not None}
    if len(kept) > MAX_TOPICS:
        raise FormatError(
            f"group {quoted(request.group)} pops {len(kept)} topics with this one, the most is "
            f"{MAX_TOPICS}: use another group"
        )
    attributes = row.get("attributes")
    changed = dict(attributes) if isinstance(attributes, Mapping) else {}
    changed.pop(MODES, None)
    if kept:
        changed[MODES] = json.dumps(kept, separators=(",", ":"))
    return {**row, "attributes": changed}


def without_settings(group: str, row: object) -> dict[str, object]:
    """The row of a group whose settings are forgotten. The way in which it reads its topics stays:
    RocketMQ keeps that in a file of its own."""
    modes = popped_topics(row)
    kept = {MODES: json.dumps(modes, separators=(",", ":"))} if modes else {}
    return {**new_group(group), "attributes": kept}


def may_pop(topic: str) -> bool:
    """What is retried for a group is pulled by it, always."""
    return not topic.startswith(RETRY_PREFIX)


def allocate(
    strategy: str, client_id: str, queue_ids: Sequence[int], members: Sequence[str]
) -> list[int]:
    """The queues of a member; none for one that is not in the sorted list of `members`. Raises
    FormatError for a strategy that a broker does not know."""
    if client_id not in members:
        return []
    index, count = members.index(client_id), len(members)
    if strategy == BY_CIRCLE:
        return list(queue_ids[index::count])
    if strategy != AVERAGELY:
        raise FormatError(
            f"strategy {quoted(strategy)} is not known here: {AVERAGELY} and {BY_CIRCLE} are; with "
            "another one leave the balance to the client, setClientRebalance(true)"
        )
    least, more = divmod(len(queue_ids), count)
    start = index * least + min(index, more)
    return list(queue_ids[start : start + least + (index < more)])


def allocate_pops(
    strategy: str, client_id: str, queue_ids: Sequence[int], members: Sequence[str], share: int
) -> list[int]:
    """The queues that a member pops; ALL_QUEUES for all. Raises as `allocate`."""
    if share <= 0 or share >= len(members) - 1:
        return [ALL_QUEUES]
    if client_id not in members:
        return []
    index = members.index(client_id)
    if len(members) > len(queue_ids):
        # everyone is to have one
        return [queue_ids[index % len(queue_ids)]] if queue_ids else []
    found: dict[int, None] = {}
    for each in range(index, index + share + 1):
        member = members[each % len(members)]
        found.update(dict.fromkeys(allocate(strategy, member, queue_ids, members)))
    return list(found)


def assignment_answer(topic: str, queues: Sequence[tuple[str, int]] | None, *, pops: bool) -> bytes:
    """The body of the answer to 400: broker names and queues; None leaves the member what it
    has."""
    if queues is None:
        return encoded({})
    rows = [
        {
            "messageQueue": {"brokerName": broker, "queueId": queue_id, "topic": topic},
            "mode": POP if pops else PULL,
        }
        for broker, queue_id in queues
    ]
    return encoded({"messageQueueAssignments": rows})
