"""A send that may have been stored before: what its first copy has stored, and the answer to it.

    request with REPEATED ─▶ UNIQ_KEY, in the index of its topic, or of the topic where it waits
                          ─▶ a record of the same queue and time of birth, with the same body?
                               yes: wait until it is confirmed ─▶ the answer of the first copy
                               no:  nothing was stored, so it is stored now

UNIQ_KEY alone says too little: a program may send one message object many times, with one key. The
time of birth is that of the attempt, so the very same request is told apart from a later one; one
of the same millisecond goes to another queue, since clients take their queues in turn. What the
index does not have is not in the log, once the log as it is now is confirmed and dispatched: a
master begins its term with records at the end that the last one could not confirm any more.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from tandemlog.format.constants import (
    HALF_TOPIC,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    UNIQ_KEY,
)
from tandemlog.format.record.record import Record, decode_record
from tandemlog.v1 import common_pb2
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore

from ...error_status import RequestRefusedError
from ...pulls.dispatch_wait import DispatchWait
from ...puts.confirm_waiters import ConfirmWaiters
from ...puts.own_confirmation import require_confirmed
from ...roles.role import CurrentRole

LOOK_BACK_MS: Final = 600_000
"""Of store times; a request waits for seconds, and clocks of two nodes may differ by minutes."""
_NAMES: Final = {
    RequestCode.SEND_MESSAGE: ("topic", "bornTimestamp", "properties", "queueId", "batch"),
    RequestCode.SEND_MESSAGE_V2: ("b", "g", "i", "e", "m"),
}
_ANSWERED: Final = ("MSG_REGION", "TRACE_ON")


class RepeatedSends:
    """See the module. Batches are not recognised. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        waiters: ConfirmWaiters,
        timeout_s: Callable[[], float],
    ) -> None:
        self._store = store
        self._current = current
        self._waiters = waiters
        self._timeout_s = timeout_s
        self._dispatch = DispatchWait(store)

    def knows(self, request: Command) -> bool:
        """Whether its first copy could be found: one message, with a key."""
        names = _NAMES.get(request.code)
        if names is None or request.fields.get(names[4]) == "true":
            return False
        return bool(unique_key(request.fields.get(names[2], "")))

    async def answer(self, request: Command) -> Command | None:
        """The answer to the first copy of the request; None if it is not stored. Raises
        RequestRefusedError (OUTCOME_UNKNOWN) if the log is not confirmed and dispatched in time."""
        epoch = self._current.role.epoch()
        if epoch is None or not self.knows(request):
            return None
        await self._all_known(epoch)
        record = await asyncio.to_thread(self._find, request)
        if record is None:
            return None
        end = record.physical_offset + record.size
        await require_confirmed(self._waiters, end, epoch, self._timeout_s(), "the message")
        properties = record.properties
        names = _NAMES[request.code]
        return request.response(
            fields={
                "msgId": record.msg_id,
                "queueId": request.fields.get(names[3], "0"),
                "queueOffset": str(record.queue_offset),
                "transactionId": record.uniq_key or "",
                **{name: properties[name] for name in _ANSWERED if name in properties},
            }
        )

    async def _all_known(self, epoch: int) -> None:
        end = self._store.log.wrote.value
        if self._store.reputed.value >= end:
            return
        what = "what may be the first copy of this message"
        await require_confirmed(self._waiters, end, epoch, self._timeout_s(), what)
        await self._dispatch.reach(end)
        if self._store.reputed.value < end:
            raise RequestRefusedError(
                common_pb2.OUTCOME_UNKNOWN,
                f"the log is dispatched up to {self._store.reputed.value}, and a first copy of the "
                f"message may lie before {end}: look for it before it is sent again",
            )

    def _find(self, request: Command) -> Record | None:
        names, fields = _NAMES[request.code], request.fields
        key = unique_key(fields.get(names[2], ""))
        since = self._store.clock.now_ms() - LOOK_BACK_MS
        for topic in (fields.get(names[0], ""), SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC):
            found = self._store.reader.query_key(topic, key, begin_timestamp=max(since, 0))
            for data in found.records:
                record = decode_record(data)
                same_birth = str(record.born_timestamp) == fields.get(names[1])
                if not same_birth or record.uniq_key != key or record.body != request.body:
                    continue
                if went_to(record, fields.get(names[0], ""), fields.get(names[3], "-1")):
                    return record
        return None


def went_to(record: Record, topic: str, queue_id: str) -> bool:
    """Whether the message was sent to this topic and queue, though it may wait elsewhere; a queue
    below 0 is any."""
    said = record.properties
    if said.get(REAL_TOPIC, record.topic) != topic:
        return False
    queue = said.get(REAL_QUEUE_ID, str(record.queue_id))
    return queue_id.startswith("-") or queue == queue_id


def unique_key(properties: str) -> str:
    """UNIQ_KEY among the properties of a request; empty if it has none."""
    for part in properties.split("\x02"):
        name, _, value = part.partition("\x01")
        if name == UNIQ_KEY:
            return value
    return ""
