"""A send that comes again: what its first copy has stored, and the answer to it.

    message id, body
               ─▶ sent in the last KEPT sends of this node   ─▶ the answer of that send
               ─▶ handed on a second time, or this node has led for less than YOUNG_S:
                    UNIQ_KEY in the index of its topic, or of the topic where it waits, with the
                    same body ─▶ the answer once that is confirmed
               ─▶ neither: it is stored now

A client makes a new id for each send, and keeps it when it tries again: so, other than of classic
clients, a message with the id and the body of a stored one is that one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Final

from tandemlog.format.constants import HALF_TOPIC, TIMER_TOPIC, TRANSACTION
from tandemlog.format.record.record import Record
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog.v1 import broker_pb2
from tandemlog_server.rocketmq.messaging.refusals import put_status
from tandemlog_server.storage.message_store import MessageStore

from ..puts.confirm_waiters import ConfirmWaiters
from ..puts.own_confirmation import require_confirmed
from ..puts.stored_copies import StoredCopies
from ..roles.role import CurrentRole

KEPT: Final = 50_000
YOUNG_S: Final = 10.0
_WHAT: Final = "the message"


@dataclass(slots=True)
class Copy:
    """A stored message: `end_offset` is that of its record, `status` a PutStatus."""

    end_offset: int
    queue_offset: int
    status: int = broker_pb2.PUT_OK
    transaction_id: str = ""
    recall_handle: str = ""

    def entry(self, message_id: str) -> v2.SendResultEntry:
        return v2.SendResultEntry(
            status=put_status(self.status),
            message_id=message_id,
            transaction_id=self.transaction_id,
            offset=self.queue_offset,
            recall_handle=self.recall_handle,
        )


_Key = tuple[str, str, bytes]
"""Topic, message id, and a digest of the body."""
HandleOf = Callable[[Record], str]
"""The recall handle of a record that waits."""


class FirstCopies:
    """See the module. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        waiters: ConfirmWaiters,
        timeout_s: Callable[[], float],
        handle_of: HandleOf,
        kept: int = KEPT,
    ) -> None:
        self._current = current
        self._waiters = waiters
        self._timeout_s = timeout_s
        self._handle_of = handle_of
        self._kept = kept
        self._copies = StoredCopies(store, waiters, timeout_s)
        self._loop = asyncio.get_running_loop()
        self._sends: OrderedDict[_Key, asyncio.Future[Copy]] = OrderedDict()
        self._storing: set[asyncio.Task[Copy]] = set()
        self._term: int | None = None
        self._since = 0.0

    async def once(
        self,
        topic: str,
        message_id: str,
        body: bytes,
        store: Callable[[], Awaitable[Copy]],
        *,
        repeated: bool,
    ) -> Copy:
        """What is stored of the message, by an earlier send or by `store`. Raises what `store`
        raises, and RequestRefusedError (OUTCOME_UNKNOWN)."""
        self._look_at_term()
        key = topic, message_id, blake2b(body, digest_size=16).digest()
        while (known := self._sends.get(key)) is not None:
            await asyncio.wait({known})
            if not known.cancelled():
                return await self._confirmed(known.result())
            # its client went away before it was stored: this one is the first now
        sending: asyncio.Future[Copy] = self._loop.create_future()
        self._sends[key] = sending
        try:
            copy = None
            if repeated or self._loop.time() - self._since < YOUNG_S:
                copy = await self._found(topic, message_id, body)
        except BaseException as problem:
            self._settle(key, sending, problem)
            raise
        if copy is not None:
            self._settle(key, sending, copy)
            return copy
        # a task of its own: a client that goes away now may ask again, and hears what became of it
        storing = self._loop.create_task(_of(store))
        self._storing.add(storing)
        storing.add_done_callback(partial(self._stored, key, sending))
        return await asyncio.shield(storing)

    def _stored(self, key: _Key, sending: asyncio.Future[Copy], done: asyncio.Task[Copy]) -> None:
        self._storing.discard(done)
        problem = asyncio.CancelledError() if done.cancelled() else done.exception()
        self._settle(key, sending, problem or done.result())

    def _settle(
        self, key: _Key, sending: asyncio.Future[Copy], outcome: Copy | BaseException
    ) -> None:
        if isinstance(outcome, Copy):
            sending.set_result(outcome)
            while len(self._sends) > self._kept:
                self._sends.popitem(last=False)
            return
        # nothing is known to be stored: the next attempt is as the first one
        if self._sends.get(key) is sending:
            del self._sends[key]
        if isinstance(outcome, Exception):
            sending.set_exception(outcome)
            sending.exception()  # others may wait for it, and perhaps no call does
        else:
            sending.cancel()

    def _look_at_term(self) -> None:
        """What an earlier term has stored may have been cut."""
        term = self._current.role.epoch()
        if term != self._term:
            self._term, self._since = term, self._loop.time()
            self._sends.clear()

    async def _confirmed(self, copy: Copy) -> Copy:
        if copy.status == broker_pb2.PUT_OK:
            return copy
        epoch = self._current.role.epoch()
        await require_confirmed(self._waiters, copy.end_offset, epoch, self._timeout_s(), _WHAT)
        copy.status = broker_pb2.PUT_OK
        return copy

    async def _found(self, topic: str, message_id: str, body: bytes) -> Copy | None:
        epoch = self._current.role.epoch()
        if epoch is None:
            return None
        topics = (topic, TIMER_TOPIC, HALF_TOPIC)
        record = await self._copies.find(topics, message_id, body, epoch)
        if record is None:
            return None
        return Copy(
            record.physical_offset + record.size,
            record.queue_offset,
            transaction_id=record.properties.get(TRANSACTION, ""),
            recall_handle=self._handle_of(record) if record.topic == TIMER_TOPIC else "",
        )


async def _of(store: Callable[[], Awaitable[Copy]]) -> Copy:
    return await store()
