"""The records of one request, from the first message in it to its answer.

    OpenBatch   takes records one by one (any queues of any topics), until full or due
       │ seal
    PutBatch    one request: immutable records, and its place in the producer's sequence,
                which may change while no node can have stored it
       │ answer or error
    Sink        the waiting callers: the futures of single sends, or one send_many

Columns are arrays of the standard library (sizes u4[n], queue_indexes u2[n]): numpy and a plain
client read them alike. The first record stays apart, since it alone carries the producer's mark.
"""

import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from ..delayed import Delayed
from ..errors import TandemlogError
from ..format.constants import MAX_TABLE, PRODUCER_MARK
from ..format.delay.framing import PLACE_OF_TIMERS
from ..format.protobuf_wire import tag, varint
from ..format.record.producer_mark import ProducerMark
from ..format.record.request_checksum import content_checksum, request_checksum
from ..format.transaction.half import PLACE_OF_HALVES
from ..in_transaction import HeldBack
from ..lazy import HAVE_NUMPY, lazy
from ..put_answer import PutAnswer
from ..v1 import broker_pb2
from .framing import with_property

if TYPE_CHECKING:
    from ..format.columns import checksum_columns
else:
    checksum_columns = lazy("tandemlog.format.columns.checksum_columns")

_WAITING = (PLACE_OF_TIMERS, PLACE_OF_HALVES)
_RECORDS = tag(broker_pb2.AppendRequest.DESCRIPTOR.fields_by_name["records"].number)


class Sink(Protocol):
    """Who waits for a request's outcome; called once, in the event loop."""

    def acknowledged(self, answer: PutAnswer) -> None: ...

    def failed(self, error: TandemlogError) -> None: ...

    def without(self, kept: Sequence[int], dropped: Sequence[int], error: TandemlogError) -> "Sink":
        """Fails the messages `dropped` with `error`; the sink of those `kept`, in that order."""
        ...

    @property
    def divisible(self) -> bool:
        """Whether messages may fail one by one."""
        ...


class NullSink:
    """Does nothing: the sink of a batch whose sink is not known yet."""

    divisible = False

    def acknowledged(self, answer: PutAnswer) -> None:
        """No caller waits."""

    def failed(self, error: TandemlogError) -> None:
        """No caller waits."""

    def without(self, kept: Sequence[int], dropped: Sequence[int], error: TandemlogError) -> Sink:
        return self


class CallbackSink(NullSink):
    """The outcome of a request as a call."""

    def __init__(
        self,
        acknowledged: Callable[[PutAnswer], None],
        failed: Callable[[TandemlogError], None],
    ) -> None:
        self._acknowledged = acknowledged
        self._failed = failed

    def acknowledged(self, answer: PutAnswer) -> None:
        self._acknowledged(answer)

    def failed(self, error: TandemlogError) -> None:
        self._failed(error)


def durability_of(wait: bool) -> broker_pb2.Durability.ValueType:
    """`wait` False: the answer comes once the record is appended, as RocketMQ's WAIT=false."""
    return broker_pb2.CLUSTER if wait else broker_pb2.NO_WAIT


class PutBatch:
    """One request. `request_id` names it on a stream; `in_doubt`: a node may have stored it under
    its number; `unanswered`: an attempt got no response, so it is not certain that it is not
    stored; `written_in`: the newest epoch of a master that may have stored it.

    `checksum` tells it from any other request under its number (format.producer_mark); None: that
    of its bytes. `delayed`, by index: the messages among them that come later or with a
    transaction.
    """

    __slots__ = (
        "_checksum",
        "byte_size",
        "deadline",
        "delayed",
        "durability",
        "epoch",
        "expired",
        "first",
        "in_doubt",
        "queue_ids",
        "queue_indexes",
        "queue_topics",
        "request_id",
        "rest",
        "sequence",
        "sink",
        "sizes",
        "topics",
        "unanswered",
        "written_in",
    )

    def __init__(
        self,
        *,
        first: bytes,
        rest: bytes | memoryview,
        sizes: "array[int]",
        queue_indexes: "array[int]",
        topics: Sequence[str],
        queue_topics: Sequence[int],
        queue_ids: Sequence[int],
        durability: broker_pb2.Durability.ValueType,
        sink: Sink,
        deadline: float,
        checksum: int | None = None,
        delayed: Mapping[int, Delayed | HeldBack] | None = None,
    ) -> None:
        self._checksum = checksum
        self.delayed: Mapping[int, Delayed | HeldBack] = delayed or {}
        self.first = first
        self.rest = rest
        self.sizes = sizes
        self.queue_indexes = queue_indexes
        self.topics = topics
        self.queue_topics = queue_topics
        self.queue_ids = queue_ids
        self.durability = durability
        self.sink = sink
        self.deadline = deadline
        self.byte_size = len(first) + len(rest)
        self.request_id = 0
        self.sequence: int | None = None
        self.epoch = 0
        self.in_doubt = False
        self.unanswered = False
        self.written_in = 0
        self.expired = False

    @property
    def count(self) -> int:
        return len(self.sizes)

    def queues(self) -> list[tuple[str, int]]:
        """Those that the messages are for, by topic and queue id."""
        queues = [
            (self.topics[topic], int(queue_id))
            for topic, queue_id in zip(self.queue_topics, self.queue_ids, strict=True)
        ]
        if not self.delayed:
            return queues
        later = [(each.topic, each.queue_id) for each in self.delayed.values()]
        return list(dict.fromkeys([each for each in queues if each not in _WAITING] + later))

    def topic_of(self, index: int) -> str:
        """The topic that message `index` is for."""
        if (later := self.delayed.get(index)) is not None:
            return later.topic
        return self.topics[self.queue_topics[self.queue_indexes[index]]]

    @property
    def checksum(self) -> int:
        if self._checksum is None:
            self._checksum = request_checksum((self.first, self.rest))
        return self._checksum

    def may_be_framed_anew(self, before: int = 0) -> int:
        """An attempt of another process at the same messages is this request too. `before` is the
        checksum of the request in front of it, for which this one vouches then; returns its own."""
        if self._checksum is None:
            records = b"".join((self.first, self.rest))
            checksum = checksum_columns.content_checksum if HAVE_NUMPY else content_checksum
            self._checksum = checksum(records, self.sizes, before=before)
        return self._checksum

    def encoded(self, producer_id: str | None, timeout_ms: int) -> list[bytes | memoryview]:
        """The AppendRequest that goes over the wire, marked for `producer_id` (None: no mark), in
        parts that belong end to end: the records are not copied."""
        first = self._marked(producer_id)
        small = broker_pb2.AppendRequest(
            request_id=self.request_id,
            topics=self.topics,
            queue_topics=self.queue_topics,
            queue_ids=self.queue_ids,
            sizes=_little_endian(self._sizes(len(first))),
            queue_indexes=_little_endian(self.queue_indexes),
            durability=self.durability,
            timeout_ms=timeout_ms,
        ).SerializeToString()
        size = _RECORDS + varint(len(first) + len(self.rest))
        return [small + size + first, self.rest]

    def answer(self, response: broker_pb2.AppendResponse, producer_id: str | None) -> PutAnswer:
        """The places of all records; `response` is PUT_OK."""
        first = len(self._marked(producer_id))
        return PutAnswer(
            topics=self.topics,
            queue_topics=self.queue_topics,
            queue_ids=self.queue_ids,
            queue_indexes=self.queue_indexes,
            sizes=self._sizes(first),
            byte_size=first + len(self.rest),
            response=response,
            delayed=self.delayed,
        )

    def _marked(self, producer_id: str | None) -> bytes:
        if producer_id is None or self.sequence is None:
            return self.first
        mark = ProducerMark(producer_id, self.epoch, self.sequence, 0, self.count, self.checksum)
        return with_property(self.first, PRODUCER_MARK, mark.encode())

    def _sizes(self, first: int) -> "array[int]":
        sizes = self.sizes[:]
        sizes[0] = first
        return sizes

    def without(self, dropped: Sequence[int], error: TandemlogError) -> "PutBatch":
        """The same request with the messages `dropped` taken out and failed with `error`."""
        dropped_set = set(dropped)
        kept = [index for index in range(self.count) if index not in dropped_set]
        records = b"".join((self.first, self.rest))
        ends = list(accumulate(self.sizes))
        pieces = [records[ends[index] - self.sizes[index] : ends[index]] for index in kept]
        # A table of what is left: a node checks every entry, used or not.
        entries = sorted({self.queue_indexes[index] for index in kept})
        places = {entry: place for place, entry in enumerate(entries)}
        topics = list(dict.fromkeys(self.topics[self.queue_topics[entry]] for entry in entries))
        batch = PutBatch(
            first=pieces[0],
            rest=b"".join(pieces[1:]),
            sizes=array("I", map(len, pieces)),
            queue_indexes=array("H", [places[self.queue_indexes[index]] for index in kept]),
            topics=topics,
            queue_topics=[topics.index(self.topics[self.queue_topics[entry]]) for entry in entries],
            queue_ids=[self.queue_ids[entry] for entry in entries],
            durability=self.durability,
            sink=self.sink.without(kept, dropped, error),
            deadline=self.deadline,
            delayed={
                place: self.delayed[index]
                for place, index in enumerate(kept)
                if index in self.delayed
            },
        )
        batch.request_id = self.request_id
        return batch

    def messages_of_topic(self, topic: str) -> list[int]:
        """The messages that go to `topic`, by their index."""
        return [index for index in range(self.count) if self.topic_of(index) == topic]


def _little_endian(numbers: "array[int]") -> bytes:
    if sys.byteorder == "big":
        numbers = numbers[:]
        numbers.byteswap()
    return numbers.tobytes()


class Rows(Protocol):
    """Makes records of what an OpenBatch has collected."""

    def records(self, batch: "OpenBatch") -> tuple[bytes | memoryview, "array[int]"]:
        """The records end to end, and the bytes of each, u4[n]."""
        ...


class OpenBatch:
    """Messages as they come in, for `sink`: records, or bodies with `own` properties of which
    records are made later (Framer.row). Not for several threads at a time: the accumulator's
    lock. `opened_at` on the monotonic clock, `born` in seconds of the wall clock."""

    __slots__ = (
        "born",
        "byte_size",
        "delayed",
        "durability",
        "framed",
        "opened_at",
        "own",
        "queue_ids",
        "queue_indexes",
        "queue_topics",
        "records",
        "sink",
        "table",
        "topics",
    )

    def __init__(
        self, durability: broker_pb2.Durability.ValueType, sink: Sink, opened_at: float
    ) -> None:
        self.durability = durability
        self.sink = sink
        self.opened_at = opened_at
        self.byte_size = 0
        self.framed = 0
        self.records: list[bytes] = []
        self.own: list[Any] = []
        self.born: list[float] = []
        self.delayed: dict[int, Delayed | HeldBack] = {}
        self.queue_indexes = array("H")
        self.table: dict[str, dict[int, int]] = {}
        self.topics: dict[str, int] = {}
        self.queue_topics: list[int] = []
        self.queue_ids: list[int] = []

    def has_room(self, size: int, limit: int) -> bool:
        """Whether a record of `size` bytes may still go in."""
        return self.byte_size + size <= limit and len(self.queue_ids) < MAX_TABLE

    def add(
        self,
        record: bytes,
        topic: str,
        queue_id: int,
        own: bytes | None = None,
        size: int = 0,
        born: float = 0.0,
    ) -> None:
        """A record; or, with `own`, a body whose record will have `size` bytes."""
        entries = self.table.get(topic)
        if entries is None or (entry := entries.get(queue_id)) is None:
            entry = self.new_entry(topic, queue_id)
        self.records.append(record)
        self.own.append(own)
        self.born.append(born)
        self.queue_indexes.append(entry)
        if own is None:
            self.framed += 1
            size = len(record)
        self.byte_size += size

    def new_entry(self, topic: str, queue_id: int) -> int:
        """The place of a queue in the table."""
        entry = self.table.setdefault(topic, {})[queue_id] = len(self.queue_ids)
        self.queue_topics.append(self.topics.setdefault(topic, len(self.topics)))
        self.queue_ids.append(queue_id)
        return entry

    def seal(self, delivery_seconds: float, rows: Rows | None = None) -> PutBatch:
        """The request with all that was added, at least one record; its outcome must be known
        `delivery_seconds` after the first. `rows` frames the messages that are not records yet."""
        if rows is None or self.framed == len(self.records):
            assert self.framed == len(self.records)
            records: bytes | memoryview = b"".join(self.records)
            sizes = array("I", map(len, self.records))
        else:
            records, sizes = rows.records(self)
        first = sizes[0]
        return PutBatch(
            first=bytes(records[:first]),
            rest=memoryview(records)[first:],
            sizes=sizes,
            queue_indexes=self.queue_indexes,
            topics=tuple(self.topics),
            queue_topics=self.queue_topics,
            queue_ids=self.queue_ids,
            durability=self.durability,
            sink=self.sink,
            deadline=self.opened_at + delivery_seconds,
            delayed=self.delayed,
        )
