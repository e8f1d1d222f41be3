"""Requests that are appended together: one batch of the store, one wait, an answer for each.

    request A  [ record ]            ─┐
    request B  [ record | record ]   ─┼─▶ one RecordBatch ─▶ one append ─▶ confirmed ─▶ A, B, C
    request C  [ record ]            ─┘     sizes, queues                   places of each record

A batch is a table of queues and records of any of them, so requests of many connections cost the
store as little as one with as many messages. They are confirmed together too: the batch ends at one
log offset.

A refusal of the store is about one record, and a batch is refused as a whole. So the caller that
joins requests has checked what can be known before, and if the store refuses a batch all the same,
its requests are appended one by one (`parts`).
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tandemlog.format.record.batch import AppendSegment, RecordBatch
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.puts.put_path import PutResult

from ..access.caller import Caller
from ..error_status import RequestRefusedError, put_status_of
from ..roles.role import CurrentRole
from .ack_stats import AckStats
from .confirm_waiters import ConfirmWaiters, Outcome
from .pending import Pending


class Stored(NamedTuple):
    """Where the records of a request are. `status` is a PutStatus: PUT_OK, or how far their
    confirmation is not known. `queue_offset` is that of the first."""

    status: int
    log_offsets: Sequence[int]
    queue_offset: int


class Send(ABC):
    """One request: framed records for one queue."""

    __slots__ = (
        "byte_size",
        "caller",
        "durability",
        "log_offsets",
        "queue_id",
        "queue_offset",
        "received_at",
        "records",
        "share",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        records: Sequence[bytes],
        caller: Caller,
        received_at: float,
        durability: int,
        share: str,
    ) -> None:
        """`share`: whose bound the records count for, if they wait in the store; only requests of
        one share are joined. `received_at` in the loop's time."""
        self.topic = topic
        self.queue_id = queue_id
        self.records = records
        self.byte_size = len(records[0]) if len(records) == 1 else sum(map(len, records))
        self.caller = caller
        self.received_at = received_at
        self.durability = durability
        self.share = share
        self.log_offsets: list[int] = []
        self.queue_offset = -1

    @abstractmethod
    def answer_with(self, stored: Stored) -> None:
        """It is stored. Nothing happens if it is over."""

    @abstractmethod
    def refuse(self, problem: Exception) -> None:
        """Nothing of it is stored. Nothing happens if it is over."""

    @abstractmethod
    def is_unwanted(self) -> bool:
        """Whether no one waits for what becomes of it; then it ends with this question."""


class SendPut(Send):
    """A Send whose `answer` gets a Stored, or the refusal."""

    __slots__ = ("answer",)

    def __init__(
        self,
        topic: str,
        queue_id: int,
        records: Sequence[bytes],
        caller: Caller,
        answer: asyncio.Future[Stored],
        received_at: float,
        *,
        durability: int = broker_pb2.CLUSTER,
        share: str = "",
    ) -> None:
        super().__init__(topic, queue_id, records, caller, received_at, durability, share)
        self.answer = answer

    def answer_with(self, stored: Stored) -> None:
        if not self.answer.done():
            self.answer.set_result(stored)

    def refuse(self, problem: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(problem)

    def is_unwanted(self) -> bool:
        return self.answer.done()


class JointPut(Pending):
    """See the module. The requests are of one durability and one share."""

    __slots__ = (
        "_current",
        "_entries",
        "_sends",
        "_sizes",
        "_stats",
        "_timeout_s",
        "confirm_deadline",
    )

    def __init__(
        self, sends: Sequence[Send], current: CurrentRole, stats: AckStats, timeout_s: float
    ) -> None:
        super().__init__(sum([send.byte_size for send in sends]))
        self._sends = sends
        self._current = current
        self._stats = stats
        self._timeout_s = timeout_s
        self._entries: list[int] = []
        self._sizes = np.empty(0, np.int64)
        self.confirm_deadline = 0.0

    @property
    def requests(self) -> int:
        return len(self._sends)

    @property
    def durability(self) -> int:
        return self._sends[0].durability

    def append(self, store: MessageStore) -> PutResult:
        batch, self._entries = joined(self._sends)
        self._sizes = batch.sizes.astype(np.int64)
        return store.put(batch, holder=self._sends[0].share)

    def parts(self) -> Sequence[Pending]:
        if len(self._sends) == 1:
            return ()
        about = self._current, self._stats, self._timeout_s
        return [JointPut([send], *about) for send in self._sends]

    def stored(self, waiters: ConfirmWaiters) -> bool:
        self._find_places()
        if self.durability == broker_pb2.NO_WAIT:
            self._answer(broker_pb2.PUT_OK)
            return False
        # an append may have waited for its turn: the time counts for the confirmation alone
        self.confirm_deadline = self.appended_at + self._timeout_s
        waiters.add(self)
        return True

    def resolve(self, outcome: Outcome, failure: StoreError | None) -> None:
        now = asyncio.get_running_loop().time()
        if outcome is Outcome.CONFIRMED:
            self._stats.confirm_seconds.record(now - self.appended_at)
            self._answer(broker_pb2.PUT_OK)
        elif outcome is Outcome.TIMED_OUT:
            status, _ = self._current.role.unconfirmed(self.end_offset)
            self._answer(status)
        elif outcome is Outcome.FAILED:
            self._answer(broker_pb2.FLUSH_DISK_TIMEOUT)
        else:
            self._refuse(
                RequestRefusedError(
                    common_pb2.OUTCOME_UNKNOWN,
                    f"stored up to {self.end_offset}, outcome unknown: this node is no longer the "
                    f"master of epoch {self.epoch}",
                ),
                broker_pb2.UNKNOWN_ERROR,
            )

    def refuse_with(self, error: common_pb2.Error) -> None:
        status = put_status_of(error.code)
        role = self._current.role
        if error.code == common_pb2.SHUTTING_DOWN and role.epoch() is None:
            # nothing of it is stored: another node may take it
            self._refuse(role.no_master("send puts to"), status)
            return
        self._refuse(
            RequestRefusedError(
                error.code,
                error.message,
                field=error.field,
                limit=error.limit,
                actual=error.actual,
                record_index=error.record_index,
            ),
            status,
        )

    def _refuse(self, problem: RequestRefusedError, status: int) -> None:
        self._count(status)
        for send in self._sends:
            send.refuse(problem)

    def _answer(self, status: int) -> None:
        self._count(status)
        for send in self._sends:
            send.answer_with(Stored(status, send.log_offsets, send.queue_offset))

    def _count(self, status: int) -> None:
        """Together for those that came together."""
        now = asyncio.get_running_loop().time()
        came_at, requests, messages = self._sends[0].received_at, 0, 0
        for send in self._sends:
            if send.received_at != came_at:
                self._stats.record(status, now - came_at, messages, requests)
                came_at, requests, messages = send.received_at, 0, 0
            requests += 1
            messages += len(send.records)
        self._stats.record(status, now - came_at, messages, requests)

    def _find_places(self) -> None:
        """Log offset of each record, and queue offset of each request's first."""
        assert self.result is not None
        segments = self.result.segments
        if len(segments) != 1:
            self._find_places_in(segments)
            return
        segment = segments[0]
        following = segment.queue_offsets.tolist()
        sizes = self._sizes + segment.record_extra
        places = (segment.physical_offset + np.cumsum(sizes) - sizes).tolist()
        row = 0
        for send in self._sends:
            count, entry = len(send.records), self._entries[row]
            send.queue_offset = following[entry]
            send.log_offsets = places[row : row + count]
            following[entry] += count
            row += count

    def _find_places_in(self, segments: Sequence[AppendSegment]) -> None:
        """The same for a put that went into several files."""
        parts = iter(segments)
        at = extra = left = row = 0
        following: list[int] = []
        for send in self._sends:
            for record in send.records:
                while not left:
                    segment = next(parts)
                    at, extra, left = segment.physical_offset, segment.record_extra, segment.count
                    following = segment.queue_offsets.tolist()
                entry = self._entries[row]
                if not send.log_offsets:
                    send.queue_offset = following[entry]
                send.log_offsets.append(at)
                following[entry] += 1
                at += len(record) + extra
                left -= 1
                row += 1


def joined(sends: Sequence[Send]) -> tuple[RecordBatch, list[int]]:
    """The records of all requests in their order, as one batch; and the table entry of each."""
    table: dict[tuple[str, int], int] = {}
    entries: list[int] = []
    records: list[bytes] = []
    for send in sends:
        entry = table.setdefault((send.topic, send.queue_id), len(table))
        if len(send.records) == 1:
            entries.append(entry)
        else:
            entries += [entry] * len(send.records)
        records += send.records
    topics: dict[str, int] = {}
    queue_topics = [topics.setdefault(topic, len(topics)) for topic, _ in table]
    batch = RecordBatch(
        records=b"".join(records),
        sizes=np.array([len(record) for record in records], np.uint32),
        queue_indexes=np.array(entries, np.uint16),
        topics=tuple(topics),
        queue_topics=np.array(queue_topics, np.uint32),
        queue_ids=np.array([queue_id for _, queue_id in table], np.uint32),
    )
    return batch, entries
