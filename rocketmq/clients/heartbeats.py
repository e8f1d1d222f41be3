"""What a client says of itself: the body of HEART_BEAT, read within bounds.

    {"clientID": "10.0.0.7@4711",
     "producerDataSet": [{"groupName": "p"}],
     "consumerDataSet": [{"groupName": "g", "consumeType": "CONSUME_PASSIVELY",
                          "messageModel": "CLUSTERING", "consumeFromWhere": ...,
                          "subscriptionDataSet": [{"topic": "t", "subString": "a || b",
                                                   "expressionType": "TAG", "subVersion": ms}]}]}

Java writes the names of its enums, C++ their ordinals (and `subVersion` as a text), Go
"Clustering". A heartbeat names all groups of its client, so what is not in it is over. One
with `withoutSub` (the short form of 5.x) leaves the subscriptions out; they are those of the
heartbeat before it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tandemlog.format.constants import group_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.filter.parser import MAX_CHARACTERS
from tandemlog.format.words import quoted

MAX_BODY_BYTES: Final = 1 << 20
MAX_ID: Final = 255
"""Characters of a client's id, a group's and a topic's name."""
MAX_GROUPS: Final = 1_024
"""Of one client: producers and consumers together."""
MAX_SUBSCRIPTIONS: Final = 4_096
"""Of all groups of one client."""

CLUSTERING: Final = "CLUSTERING"
BROADCASTING: Final = "BROADCASTING"
TAG: Final = "TAG"
SQL92: Final = "SQL92"
PUSH: Final = "CONSUME_PASSIVELY"
_TYPES: Final = ("CONSUME_ACTIVELY", PUSH, "CONSUME_POP")
_MODELS: Final = (BROADCASTING, CLUSTERING)
_STARTS: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)
_LONGS: Final = range(-(1 << 63), 1 << 63)

Fields = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Subscription:
    """To one topic. `version`: the client's milliseconds when it was made, by which the newest of
    several members counts."""

    topic: str
    expression: str = "*"
    expression_type: str = TAG
    version: int = 0


@dataclass(frozen=True, slots=True)
class Consumer:
    """One group of a client. `kind`, `model` and `start` are names of RocketMQ's enums."""

    group: str
    subscriptions: tuple[Subscription, ...] = ()
    kind: str = PUSH
    model: str = CLUSTERING
    start: str = _STARTS[0]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """`size`: bytes of the body, for which the node has a bound."""

    client_id: str
    producers: frozenset[str] = frozenset()
    consumers: tuple[Consumer, ...] = ()
    without_subscriptions: bool = False
    size: int = 0


def read_heartbeat(body: bytes) -> Heartbeat:
    """Raises FormatError, which names the field."""
    document = json_object(body, "a heartbeat", MAX_BODY_BYTES)
    producers = _rows(document, "producerDataSet", MAX_GROUPS)
    consumers = _rows(document, "consumerDataSet", MAX_GROUPS - len(producers))
    room = MAX_SUBSCRIPTIONS
    read = []
    for row in consumers:
        consumer = _consumer(row, room)
        room -= len(consumer.subscriptions)
        read.append(consumer)
    by_group = {each.group: each for each in read}
    return Heartbeat(
        client_id=name_in(document, "clientID"),
        producers=frozenset(_group(row) for row in producers),
        consumers=tuple(by_group.values()),
        without_subscriptions=document.get("withoutSub") is True,
        size=len(body),
    )


def json_object(body: bytes, what: str, most: int) -> Fields:
    """The JSON object of a request's body. Raises FormatError."""
    if len(body) > most:
        raise FormatError(f"{what} has {len(body)} bytes, the limit is {most}")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{what} is no JSON: {str(error)[:100]}") from None
    if not isinstance(document, dict):
        raise FormatError(f"{what} is no JSON object")
    return document


def name_in(row: Fields, field: str, most: int = MAX_ID) -> str:
    """A text that is there, and can be shown. Raises FormatError."""
    value = row.get(field)
    if not isinstance(value, str) or not value:
        raise FormatError(f"{field} is missing")
    if len(value) > most:
        raise FormatError(f"{field} has {len(value)} characters, the limit is {most}")
    if not value.isprintable():
        raise FormatError(f"{field} may have printable characters only")
    return value


def whole_in(row: Fields, field: str, default: int = 0) -> int:
    """A number, which C++ writes as a text. Raises FormatError."""
    value = row.get(field)
    if value is None:
        return default
    try:
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            raise ValueError
        number = int(value)
        if number not in _LONGS:
            raise ValueError
    except ValueError:
        raise FormatError(f"{field} is no number of 64 bits: {quoted(str(value))}") from None
    return number


def _consumer(row: Fields, room: int) -> Consumer:
    group = _group(row)
    subscriptions = {
        each.topic: each for each in map(_subscription, _rows(row, "subscriptionDataSet", room))
    }
    return Consumer(
        group=group,
        subscriptions=tuple(subscriptions.values()),
        kind=_one_of(row, "consumeType", _TYPES, PUSH),
        model=_one_of(row, "messageModel", _MODELS, CLUSTERING),
        start=_one_of(row, "consumeFromWhere", _STARTS, _STARTS[0]),
    )


def _subscription(row: Fields) -> Subscription:
    expression = row.get("subString")
    if expression is None:
        expression = "*"
    if not isinstance(expression, str) or len(expression) > MAX_CHARACTERS:
        raise FormatError(f"subString may be a text of at most {MAX_CHARACTERS} characters")
    kind = name_in(row, "expressionType") if row.get("expressionType") else TAG
    return Subscription(name_in(row, "topic"), expression or "*", kind, whole_in(row, "subVersion"))


def _group(row: Fields) -> str:
    group = name_in(row, "groupName")
    fault = group_fault(group, new=False)
    if fault is not None:
        raise FormatError(f"groupName {quoted(group)}: {fault}")
    return group


def _rows(row: Fields, field: str, most: int) -> Sequence[Fields]:
    rows = row.get(field)
    if rows is None:
        return ()
    if not isinstance(rows, list) or not all(isinstance(each, dict) for each in rows):
        raise FormatError(f"{field} is no list of objects")
    if len(rows) > most:
        raise FormatError(
            f"{field} has {len(rows)} entries, {most} fit: a client may have {MAX_GROUPS} groups "
            f"and {MAX_SUBSCRIPTIONS} subscriptions"
        )
    return rows


def _one_of(row: Fields, field: str, names: Sequence[str], default: str) -> str:
    """One of an enum's names, in any case, or its ordinal."""
    value = row.get(field)
    if value is None:
        return default
    if isinstance(value, str) and value.upper() in names:
        return value.upper()
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) < 4:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(names):
        return names[value]
    raise FormatError(f"{field} {quoted(str(value))} must be one of {', '.join(names)}")
