"""What the master knows of a topic, and of a producer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..format.constants import DEFAULT_QUEUES, PERM_READ, PERM_WRITE
from ..v1 import admin_pb2


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic; `perm` is the sum of 4 (read) and 2 (write)."""

    name: str
    read_queues: int = DEFAULT_QUEUES
    write_queues: int = DEFAULT_QUEUES
    perm: int = PERM_READ | PERM_WRITE
    order: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)

    def changed(
        self,
        queues: int | None = None,
        *,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
    ) -> "TopicInfo":
        """The topic with the given values; None, and attributes that are not named, stay. The
        numbers of read and write queues, which may differ, both become `queues`."""
        return TopicInfo(
            self.name,
            self.read_queues if queues is None else queues,
            self.write_queues if queues is None else queues,
            self.perm if perm is None else perm,
            self.order if order is None else order,
            {**self.attributes, **(attributes or {})},
        )


@dataclass(frozen=True, slots=True)
class ProducerInfo:
    """What the master knows of a producer: its newest epoch and its last request."""

    epoch: int
    last_sequence: int
    last_timestamp: int


def topic_of(topic: admin_pb2.Topic) -> TopicInfo:
    return TopicInfo(
        topic.name,
        topic.read_queues,
        topic.write_queues,
        topic.perm,
        topic.order,
        dict(topic.attributes),
    )
