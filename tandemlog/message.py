"""What a producer sends and what it gets back.

    Message ──send──▶ SendResult      one message: its position
    columns ──send_many──▶ SendManyResult   many: the same as arrays

A SendResult is a view into the response for its whole request; the numbers of a request are
computed once, with arrays, when the first of them is accessed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .format.record.message_id import encode_offset_id

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .put_answer import PutAnswer

Bodies = Any
"""A sequence or an iterator of bytes or of Message, or a column (columns_input.byte_column), or
an Arrow table with the columns body, topic, keys, tags, queue, of which only body must be there.
"""
Column = Any
"""One value for all, a column (columns_input.byte_column), or None."""
Queues = Any
"""A queue id for all, a column of queue ids, or None: round robin, a queue for each request."""


@dataclass(slots=True)
class Message:
    """One message to send.

    `keys` are indexed, so that query_by_key finds the message; several as a sequence; a key must
    not contain a space. `tags` is one tag that consumers can filter by. `queue_id` wins over
    `sharding_key`: equal sharding keys go to one queue, in order. Without both the producer
    spreads batches over the topic's queues. `born_timestamp` in ms; None: now.
    """

    topic: str
    body: bytes
    keys: str | Sequence[str] = ""
    tags: str = ""
    properties: Mapping[str, str] | None = None
    queue_id: int | None = None
    sharding_key: str | None = None
    flag: int = 0
    born_timestamp: int | None = None


class SendResult:
    """The position of an acknowledged message. Offsets are -1 if the node no longer knows the
    position of a duplicate.

    Of a message that comes later, topic and queue are those that it comes to, `queue_offset` is -1
    (it gets one when it comes), and `physical_offset` is the position of the record in which it
    waits.
    """

    __slots__ = ("_answer", "_index")

    def __init__(self, answer: "PutAnswer", index: int) -> None:
        self._answer = answer
        self._index = index

    @property
    def topic(self) -> str:
        delayed = self._answer.delayed.get(self._index)
        return self._answer.topic(self._index) if delayed is None else delayed.topic

    @property
    def queue_id(self) -> int:
        delayed = self._answer.delayed.get(self._index)
        return self._answer.queue_id(self._index) if delayed is None else delayed.queue_id

    @property
    def queue_offset(self) -> int:
        if self._index in self._answer.delayed:
            return -1
        return int(self._answer.queue_offsets[self._index])

    @property
    def deliver_at_ms(self) -> int | None:
        """When a message that comes later is due, by the master's clock; None for one that is
        there."""
        delayed = self._answer.delayed.get(self._index)
        return None if delayed is None else delayed.due_ms(self._answer.store_timestamp)

    @property
    def recall_handle(self) -> str:
        """What Producer.recall takes, of a message that comes later; empty for one that is there,
        or if the position of its record is not known."""
        delayed = self._answer.delayed.get(self._index)
        if delayed is None:
            return ""
        return delayed.handle(self._answer.store_timestamp, self.physical_offset)

    @property
    def physical_offset(self) -> int:
        """Position of the record in the commit log, bytes."""
        return int(self._answer.physical_offsets[self._index])

    @property
    def store_timestamp(self) -> int:
        """When the master stored it, ms."""
        return self._answer.store_timestamp

    @property
    def duplicate(self) -> bool:
        """Whether a retry found the message already stored."""
        return self._answer.duplicate

    @property
    def msg_id(self) -> str:
        """The offset id, which query_by_id takes; empty if the position is not known."""
        if self.physical_offset < 0:
            return ""
        return encode_offset_id(self._answer.store_host, self.physical_offset)

    def __repr__(self) -> str:
        return (
            f"SendResult(topic={self.topic!r}, queue_id={self.queue_id}, "
            f"queue_offset={self.queue_offset}, physical_offset={self.physical_offset}, "
            f"duplicate={self.duplicate})"
        )


@dataclass(frozen=True, slots=True)
class SendManyResult:
    """The positions of the messages of one send_many, in the order in which they were given.

    `queue_ids` i4[n], `queue_offsets` and `physical_offsets` i8[n] (without numpy `array.array` of
    the same numbers); -1 if a message was not
    acknowledged or a duplicate's position is not known. `count` is the number of acknowledged
    messages, `duplicates` how many of them a retry found already stored, `requests` the number of
    requests, `byte_size` the bytes of all records.
    """

    count: int
    duplicates: int
    requests: int
    byte_size: int
    store_host: str
    queue_ids: "NDArray[np.int32]"
    queue_offsets: "NDArray[np.int64]"
    physical_offsets: "NDArray[np.int64]"

    def __repr__(self) -> str:
        return (
            f"SendManyResult(count={self.count} of {len(self.queue_ids)}, "
            f"duplicates={self.duplicates}, requests={self.requests}, byte_size={self.byte_size})"
        )

    def msg_id(self, index: int) -> str:
        """The offset id of message `index`; empty if its position is not known."""
        offset = int(self.physical_offsets[index])
        return encode_offset_id(self.store_host, offset) if offset >= 0 else ""
