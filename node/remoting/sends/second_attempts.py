"""A client's own second attempt at a send, whose first one the master before this one has stored.

    log   ──────────────────────────────────┬───────────────────────────▶
              first copy, by the last master │ this term: the attempt after it
              UNIQ_KEY K, body B, born at t  │ UNIQ_KEY K, body B, born a moment later
                        ▲                    ▼
                        └──────── is the answer to the second attempt

A client whose connection ends before the answer came tries once more, with another time of birth
and at another queue, in milliseconds. If the first copy has reached the replicas, the next master
would store the message twice. So for WINDOW_S of a term each send is compared with what lies below
the begin of the term: the newest record of its key, of the same topic and body, born at most
ATTEMPTS_MS before.

RocketMQ's broker does not look. A program may send one message object on purpose as often as it
likes, and its UNIQ_KEY stays the same. So what looks like a second attempt is answered so once for
each record, and only for the newest of its key: of a program that sends one object again and again,
one send in a failover counts as another attempt of the one before it, and no more. Of a batch all
messages have to be there, one behind the other in their queue.

Below the begin of the term nothing is missing from the index once the log is dispatched up to
there: sends wait for that, as they would for their own confirmation. Those with WAIT=false, which
wait for nothing else, wait for that too.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from tandemlog.format.constants import (
    DELAY,
    HALF_TOPIC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)
from tandemlog.format.record.record import Record, decode_record
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.rocketmq.clients.send_requests import SendRequest
from tandemlog_server.storage.message_store import MessageStore

from ...pulls.dispatch_wait import DISPATCH_CHECK_S
from ...puts.stored_copies import LOOK_BACK_MS
from ...roles.role import CurrentRole, NodeRole
from ..door.remoting_call import RemotingRefusedError

WINDOW_S: Final = 10.0
"""From the first send of a term. Clients try again for 3 s."""
ATTEMPTS_MS: Final = 5_000
"""Between the births of two attempts: the time that a client gives a send, and more."""
WAIT_S: Final = 2.5
"""A client's own patience is 3 s."""
_ALL_BYTES: Final = 1 << 30
_WAITING: Final = ((DELAY, SCHEDULE_TOPIC), ("TIMER_", TIMER_TOPIC), ("TRAN_MSG", HALF_TOPIC))
"""Properties with which a message waits in a topic of the store."""


class Sent(NamedTuple):
    """A message of a send: its UNIQ_KEY, and its body."""

    key: str
    body: bytes


class SecondAttempts:
    """See the module. Belongs to the loop, whose clock is `now`."""

    def __init__(self, store: MessageStore, current: CurrentRole, now: Callable[[], float]) -> None:
        self._store = store
        self._current = current
        self._now = now
        self._role: NodeRole | None = None
        self._until = float("-inf")
        self._begin = 0
        self._dispatched: asyncio.Task[None] | None = None
        self._answered: dict[int, int] = {}  # log offsets of first copies, and attempts' births
        self.found_total = 0

    def looks(self) -> bool:
        """Whether the term is so young that a send may be a second attempt."""
        role, now = self._current.role, self._now()
        if role is not self._role:
            self._begin_term(role, now)
        return now <= self._until

    async def first_copies(
        self, request: SendRequest, messages: Sequence[Sent], received_at: float
    ) -> Sequence[Record]:
        """The records of an earlier attempt to send these messages; none if there is none. Raises
        RequestRefusedError if this node has ceased to lead meanwhile, RemotingRefusedError if the
        log is not dispatched in time."""
        key = messages[0].key if messages else ""
        if not self.looks() or not key:
            return ()
        role, now = self._role, self._now()
        if self._store.reputed.value < self._begin:
            await self._wait_dispatched((received_at or now) + WAIT_S - now)
            if self._current.role is not role:
                raise self._current.role.no_master("send puts to")
        topics = [request.topic]
        topics += [topic for name, topic in _WAITING if name in request.properties]
        for topic in topics:
            if self._may_have(topic, key):
                found = await asyncio.to_thread(self._stored, topic, request, messages)
                if found and self._is_first_answer(found[0], request):
                    self.found_total += 1
                    return found
        return ()

    def _begin_term(self, role: NodeRole, now: float) -> None:
        self._role, self._until = role, now + WINDOW_S
        term = self._store.epochs.table.last
        self._begin = 0 if term is None else term.start_offset
        self._answered.clear()
        if self._dispatched is not None:
            self._dispatched.cancel()
            self._dispatched = None

    async def _wait_dispatched(self, left_s: float) -> None:
        """One look serves all who wait."""
        if self._dispatched is None or self._dispatched.done():
            self._dispatched = asyncio.ensure_future(self._dispatch(self._begin, self._role))
        await asyncio.wait({self._dispatched}, timeout=max(left_s, 0))
        if self._store.reputed.value < self._begin and self._current.role is self._role:
            raise RemotingRefusedError(
                ResponseCode.SERVICE_NOT_AVAILABLE,
                f"the log of the master before is dispatched up to {self._store.reputed.value}, "
                f"and a first copy of the message may lie before {self._begin}: try again",
            )

    async def _dispatch(self, begin: int, role: NodeRole | None) -> None:
        while (  # noqa: ASYNC110 - once for each term
            self._store.reputed.value < begin and self._current.role is role
        ):
            await asyncio.sleep(DISPATCH_CHECK_S)

    def _since(self) -> int:
        return max(self._store.clock.now_ms() - LOOK_BACK_MS, 0)

    def _may_have(self, topic: str, key: str) -> bool:
        """Whether the index has an entry below the begin of the term: mostly it has none."""
        index = self._store.reader.index
        if index is None:
            return False
        return any(offset < self._begin for offset in index.query(topic, key, self._since()))

    def _stored(
        self, topic: str, request: SendRequest, messages: Sequence[Sent]
    ) -> Sequence[Record]:
        """The newest copy below the begin of the term."""
        reader, end = self._store.reader, self._begin
        found = reader.query_key(
            topic, messages[0].key, begin_timestamp=self._since(), before=end, max_messages=1
        )
        records = [decode_record(data) for data in found.records]
        if records and len(messages) > 1:
            first = records[0]
            batch = reader.get(topic, first.queue_id, first.queue_offset, len(messages), _ALL_BYTES)
            records, at = [], 0
            for size in batch.sizes.tolist():
                records.append(decode_record(batch.records, at, limit=at + size))
                at += size
            if len(records) < len(messages):
                return ()
        alike = records and all(map(partial(_is_copy, request), records, messages))
        return records if alike and records[-1].physical_offset < end else ()

    def _is_first_answer(self, record: Record, request: SendRequest) -> bool:
        """A request that is handed on twice is one attempt."""
        answered = self._answered.setdefault(record.physical_offset, request.born_timestamp)
        return answered == request.born_timestamp


def _is_copy(request: SendRequest, record: Record, message: Sent) -> bool:
    if record.body != message.body or record.uniq_key != message.key:
        return False
    if record.topic != request.topic and record.properties.get(REAL_TOPIC) != request.topic:
        return False
    return 0 <= request.born_timestamp - record.born_timestamp <= ATTEMPTS_MS


def queue_of(record: Record) -> int:
    """The queue that its sender chose, also of a message that waits elsewhere."""
    waits = record.properties.get(REAL_QUEUE_ID, "")
    return int(waits) if waits.isdigit() else record.queue_id
