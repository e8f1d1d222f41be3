"""How far a stream is behind, from what Spark reports of a finished batch.

    sources[i].endOffset      {"orders": {"0": 40, "1": 38}}     read up to here
    sources[i].latestOffset   {"orders": {"0": 90, "1": 38}}     what there was when the batch began
                                            50        0          the lag, in messages

A queue that is newer than the plan of the batch is in neither.
"""

import json
from dataclasses import dataclass
from typing import Final

from .cluster_errors import OffsetsError
from .queue_offsets import Offsets, parse_offsets
from .stream_offset import StreamOffset, queues_in

_OF_PYTHON: Final = "PythonMicroBatchStream"
"""In the description of every source in Python, which cannot have one of its own."""


@dataclass(frozen=True, slots=True)
class QueueLag:
    """`source` counts the sources of a query; `position` is the queue offset of the next message to
    be read, and the queue has `messages` from there on. `oldest_ms` is the store time of the first
    of them, None if that is not known."""

    source: int
    topic: str
    queue_id: int
    position: int
    messages: int
    oldest_ms: int | None = None

    def seconds(self, now_ms: float) -> float | None:
        """The age of the oldest message that is not read yet; 0 if there is none."""
        if not self.messages:
            return 0.0
        return None if self.oldest_ms is None else max(now_ms - self.oldest_ms, 0) / 1000


def lags_of(source: int, description: str, end: str, latest: str) -> list[QueueLag]:
    """The lag of each queue of one source, by topic and queue; empty for sources of other kinds."""
    if _OF_PYTHON not in description:
        return []
    ends, newest = _offsets(end), _offsets(latest)
    return [
        QueueLag(source, topic, queue_id, position, max(newest[topic, queue_id] - position, 0))
        for (topic, queue_id), position in sorted(ends.items())
        if (topic, queue_id) in newest
    ]


def cut_rows(description: str, end: str) -> int:
    """How many rows that one source had read were no longer in the log when this batch was planned;
    0 for sources of other kinds."""
    if _OF_PYTHON not in description:
        return 0
    try:
        return sum(StreamOffset.from_json(json.loads(end)).cut.values())
    except (AttributeError, TypeError, ValueError, OffsetsError):
        return 0


def _offsets(text: str) -> Offsets:
    """Empty for a text of another form: of another source, or of one without an offset yet."""
    try:
        return parse_offsets(queues_in(json.loads(text)))
    except (AttributeError, TypeError, ValueError):
        return {}
