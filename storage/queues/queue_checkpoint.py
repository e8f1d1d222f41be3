"""What a flush of all consume queues has made durable, as recovery takes it up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

DAMAGED_END = -1


@dataclass(frozen=True, slots=True)
class QueueCheckpoint:
    """What is durable: every unit of the log below `log_offset`, where each queue then ends at
    ends[topic][queue id]; DAMAGED_END for a queue that has to be rebuilt, of which `least` has
    the end that it will have at least."""

    log_offset: int
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    least: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
