"""The leases of a cluster in memory, message by message: the rules of a work queue without its
engine.

    FakeWork ── FakeWorkGroup ── one row for each message of the topics that was delivered

    work.skip(seconds)           leases end and retries are due so much earlier
    work.result = AckResult...   what the next request of handles answers for each of them
    work.requests                all requests of handles, by method
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fakes.fake_log import FakeLog, RefusedError
from fakes.plain_filter import selects
from tandemlog.format.constants import TAGS
from tandemlog.format.filter.expression import Condition, FilterError
from tandemlog.format.filter.parser import parse
from tandemlog.format.lease.policy import HANDLE_CHARS, AckResult, GroupPolicy, Ordering
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import common_pb2, work_pb2


@dataclass
class Row:
    """A message that was delivered and is not done: leased with `handle`, or free at `free_at`."""

    attempts: int = 0
    handle: bytes = b""
    free_at: float = 0.0
    error: str = ""


@dataclass
class Dead:
    topic: str
    queue_id: int
    queue_offset: int
    record: bytes
    attempts: int
    error: str


@dataclass
class FakeWorkGroup:
    policy: GroupPolicy = field(default_factory=GroupPolicy)
    done: set[tuple[str, int, int]] = field(default_factory=set)
    rows: dict[tuple[str, int, int], Row] = field(default_factory=dict)
    by_handle: dict[bytes, tuple[str, int, int]] = field(default_factory=dict)
    dead: list[Dead] = field(default_factory=list)
    purged: int = 0


class FakeWork:
    """See the module."""

    def __init__(self, log: FakeLog) -> None:
        self.log = log
        self.groups: dict[str, FakeWorkGroup] = {}
        self.result: AckResult | None = None
        self.throttled = False
        self.requests: list[tuple[str, Any]] = []
        self.policies_set = 0
        self._ahead = 0.0
        self._number = 0
        self.changed = asyncio.Event()
        self.keep_back_second = False
        """Whether an answer with a second delivery is sent once `go_on` is set."""
        self.kept_back, self.go_on = asyncio.Event(), asyncio.Event()

    async def may_be_sent(self, answer: work_pb2.ReceiveResponse) -> None:
        """Returns when the answer may go to its client."""
        again = any(each.attempts != each.count * b"\1\0" for each in answer.queues)
        if again and self.keep_back_second:
            self.kept_back.set()
            await self.go_on.wait()

    def now(self) -> float:
        return time.monotonic() + self._ahead

    def skip(self, seconds: float) -> None:
        self._ahead += seconds
        self.wake()

    def wake(self) -> None:
        event, self.changed = self.changed, asyncio.Event()
        event.set()

    def group(self, name: str) -> FakeWorkGroup:
        return self.groups.setdefault(name, FakeWorkGroup())

    def lose_leases(self) -> None:
        """All leases end, and other consumers have got the messages."""
        for group in self.groups.values():
            group.by_handle.clear()

    # ---- receive

    def receive(self, request: work_pb2.ReceiveRequest) -> work_pb2.ReceiveResponse:
        group = self.group(request.group)
        self._expire(group)
        answer = work_pb2.ReceiveResponse(
            lease_ms=request.lease_ms,
            ordering=work_pb2.WorkOrdering.ValueType(group.policy.ordering),
            throttled=self.throttled,
        )
        room = 0 if self.throttled else request.max_messages
        condition = _condition(request.filter)
        for topic in request.topics:
            if topic not in self.log.topics:
                raise RefusedError(common_pb2.UNKNOWN_TOPIC, f"topic {topic} does not exist")
            for queue_id in range(self.log.topics[topic].read_queues):
                places: list[tuple[tuple[str, int, int], bytes]] = []
                for offset, at in enumerate(self.log.queues.get((topic, queue_id), ())):
                    place = (topic, queue_id, offset)
                    if place in group.done:
                        continue
                    properties = decode_record(self.log.records[at]).properties
                    if (request.tags and properties.get(TAGS) not in request.tags) or (
                        condition is not None and not selects(condition, properties)
                    ):
                        group.done.add(place)
                    elif self._is_free(group, place, properties) and len(places) < room:
                        places.append((place, self.log.records[at]))
                if places:
                    room -= len(places)
                    answer.queues.append(self._lease(group, places, request.lease_ms))
        return answer

    def _is_free(
        self, group: FakeWorkGroup, place: tuple[str, int, int], properties: Mapping[str, str]
    ) -> bool:
        row = group.rows.get(place)
        if row is not None and (row.handle or row.free_at > self.now()):
            return False
        topic, queue_id, offset = place
        for other, held in group.rows.items():
            earlier = other[:2] == (topic, queue_id) and other[2] < offset
            if not earlier or not (held.handle or held.free_at > self.now()):
                continue
            if group.policy.ordering is Ordering.QUEUE:
                return False
            if group.policy.ordering is Ordering.KEY:
                key = properties.get("__SHARDINGKEY")
                at = self.log.queues[topic, queue_id][other[2]]
                theirs = decode_record(self.log.records[at]).properties.get("__SHARDINGKEY")
                if key is not None and key == theirs:
                    return False
        return True

    def _lease(
        self,
        group: FakeWorkGroup,
        places: list[tuple[tuple[str, int, int], bytes]],
        lease_ms: int,
    ) -> work_pb2.LeasedMessages:
        (topic, queue_id, _), _ = places[0]
        leased = work_pb2.LeasedMessages(topic=topic, queue_id=queue_id, count=len(places))
        for index, (place, record) in enumerate(places):
            row = group.rows.setdefault(place, Row())
            self._number += 1
            row.attempts += 1
            row.handle = b"%064d" % self._number
            row.free_at = self.now() + lease_ms / 1000
            group.by_handle[row.handle] = place
            leased.sizes += len(record).to_bytes(4, "little")
            leased.records += record
            leased.queue_offsets += place[2].to_bytes(8, "little")
            leased.attempts += row.attempts.to_bytes(2, "little")
            leased.handles += row.handle
            if row.error:
                leased.last_errors[index] = row.error
        return leased

    def _expire(self, group: FakeWorkGroup) -> None:
        for place, row in list(group.rows.items()):
            if row.handle and row.free_at <= self.now():
                self._failed(group, place, row, 0, row.error)

    def _failed(
        self, group: FakeWorkGroup, place: Any, row: Row, delay_ms: int, error: str
    ) -> None:
        group.by_handle.pop(row.handle, None)
        row.handle, row.error = b"", error
        row.free_at = self.now() + delay_ms / 1000
        if row.attempts >= group.policy.max_attempts:
            self._bury(group, place, row)
        if group.policy.ordering is Ordering.QUEUE:
            self._take_back(group, place)

    def _take_back(self, group: FakeWorkGroup, place: tuple[str, int, int]) -> None:
        for other, row in group.rows.items():
            if other[:2] == place[:2] and other[2] > place[2] and row.handle:
                group.by_handle.pop(row.handle, None)
                row.handle, row.free_at = b"", self.now()
                row.attempts -= 1

    def _bury(self, group: FakeWorkGroup, place: tuple[str, int, int], row: Row) -> None:
        topic, queue_id, offset = place
        record = self.log.records[self.log.queues[topic, queue_id][offset]]
        group.dead.append(Dead(topic, queue_id, offset, record, row.attempts, row.error))
        self._end(group, place)

    def _end(self, group: FakeWorkGroup, place: tuple[str, int, int]) -> None:
        row = group.rows.pop(place, Row())
        group.by_handle.pop(row.handle, None)
        group.done.add(place)

    # ---- handles

    def handles(self, method: str, request: Any) -> work_pb2.HandlesResponse:
        self.requests.append((method, request))
        group = self.group(request.group)
        self._expire(group)
        parts: Iterable[Any] = [request]
        if method in ("Nack", "Reject"):
            parts = request.failed if method == "Nack" else request.rejected
        results = bytearray()
        for part in parts:
            for at in range(0, len(part.handles), HANDLE_CHARS):
                handle = part.handles[at : at + HANDLE_CHARS]
                results.append(self._settle(group, method, handle, part))
        if self.result is not None:
            results = bytearray([self.result] * len(results))
            self.result = None
        self.wake()
        return work_pb2.HandlesResponse(results=bytes(results))

    def _settle(self, group: FakeWorkGroup, method: str, handle: bytes, part: Any) -> AckResult:
        place = group.by_handle.get(handle)
        if place is None:
            return AckResult.INVALID_RECEIPT_HANDLE
        row = group.rows[place]
        if method == "Acknowledge":
            self._end(group, place)
        elif method == "Nack":
            delay = part.delay_ms
            if not part.HasField("delay_ms"):
                delay = group.policy.backoff.delay_ms(row.attempts)
            self._failed(group, place, row, delay, part.error)
        elif method == "Release":
            row.attempts -= 1
            group.by_handle.pop(handle)
            row.handle, row.free_at = b"", self.now()
        elif method == "Reject":
            row.error = part.error
            self._bury(group, place, row)
        else:
            row.free_at = self.now() + part.lease_ms / 1000
        return AckResult.OK

    def in_progress(self, group: str) -> int:
        return sum(bool(row.handle) for row in self.group(group).rows.values())


def _condition(text: str) -> Condition | None:
    try:
        return parse(text) if text else None
    except FilterError as error:
        raise RefusedError(common_pb2.INVALID_ARGUMENT, str(error), field="filter") from error
