"""Offsets in queues: as users write them, as Spark keeps them, and as reads use them.

    {"orders": {"0": 17, "1": 4}}         text, both in options and in checkpoints
    {("orders", 0): 17, ("orders", 1): 4} here

An offset is that of the next message. In options -2 stands for the earliest there is, -1 for the
end; a checkpoint holds neither.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tandemlog.format.constants import topic_fault

EARLIEST: Final = -2
LATEST: Final = -1

Queue = tuple[str, int]
"""Topic and queue id."""
Offsets = dict[Queue, int]
"""By queue, the offset of the next message."""


@dataclass(frozen=True, slots=True)
class Position:
    """Where all queues start or end; one field is set. `everywhere` is EARLIEST or LATEST,
    `offsets` by queue (EARLIEST and LATEST among them), times in ms since 1970 for all queues or
    by queue: the first message stored at or after them."""

    everywhere: int | None = None
    offsets: Mapping[Queue, int] | None = None
    time: int | None = None
    times: Mapping[Queue, int] | None = None


def to_json(offsets: Mapping[Queue, int]) -> dict[str, dict[str, int]]:
    """As Spark keeps them; the same offsets become the same text."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, queue_id), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(queue_id)] = offset
    return topics


def from_json(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The inverse of to_json."""
    return {
        (topic, int(queue_id)): offset
        for topic, queues in value.items()
        for queue_id, offset in queues.items()
    }


def parse_offsets(value: Any) -> Offsets:
    """{topic: {queue: offset}} with -2 and -1; raises ValueError that names what is wrong."""
    return _by_queue(value, "an offset", EARLIEST)


def parse_times(value: Any) -> dict[Queue, int]:
    """{topic: {queue: ms}}; raises ValueError."""
    return _by_queue(value, "a time in ms", 0)


def parse_assignment(value: Any) -> dict[str, tuple[int, ...]]:
    """{topic: [queue, ...]}; raises ValueError."""
    assigned: dict[str, tuple[int, ...]] = {}
    for topic, queues in _topics(value):
        if not isinstance(queues, list) or not queues:
            raise ValueError(f"topic {topic!r} needs a list of queue ids")
        ids = [_queue_id(topic, each) for each in queues]
        if len(set(ids)) < len(ids):
            raise ValueError(f"topic {topic!r} names a queue twice")
        assigned[topic] = tuple(sorted(ids))
    return assigned


def _by_queue(value: Any, what: str, least: int) -> dict[Queue, int]:
    numbers: dict[Queue, int] = {}
    for topic, queues in _topics(value):
        if not isinstance(queues, dict) or not queues:
            raise ValueError(f"topic {topic!r} needs an object of queue ids")
        for queue_id, number in queues.items():
            if isinstance(number, bool) or not isinstance(number, int) or number < least:
                raise ValueError(f"{topic}/{queue_id}: {number!r} is not {what}")
            numbers[topic, _queue_id(topic, queue_id)] = number
    return numbers


def _topics(value: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(value, dict) or not value:
        raise ValueError("an object with a topic in it is needed")
    for topic in value:
        fault = topic_fault(topic, new=False)
        if fault is not None:
            raise ValueError(f"topic {topic!r}: {fault}")
    return value.items()


def _queue_id(topic: str, text: Any) -> int:
    try:
        number = int(text)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or isinstance(text, bool | float):
        raise ValueError(f"topic {topic!r}: {text!r} is not a queue id")
    return number
