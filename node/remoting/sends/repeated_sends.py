"""A send that may have been stored before: what its first copy has stored, and the answer to it.

    request with REPEATED ─▶ UNIQ_KEY, in the index of its topic, or of the topic where it waits
                          ─▶ a record of the same queue and time of birth, with the same body?
                               yes: wait until it is confirmed ─▶ the answer of the first copy
                               no:  nothing was stored, so it is stored now

UNIQ_KEY alone says too little: a program may send one message object many times, with one key. The
time of birth is that of the attempt, so the very same request is told apart from a later one; one
of the same millisecond goes to another queue, since clients take their queues in turn.
"""

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
from tandemlog.format.record.record import Record
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore

from ...puts.confirm_waiters import ConfirmWaiters
from ...puts.stored_copies import StoredCopies
from ...roles.role import CurrentRole

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
        self._current = current
        self._copies = StoredCopies(store, waiters, timeout_s)

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
        names, fields = _NAMES[request.code], request.fields
        topic = fields.get(names[0], "")

        def matches(record: Record) -> bool:
            same_birth = str(record.born_timestamp) == fields.get(names[1])
            return same_birth and went_to(record, topic, fields.get(names[3], "-1"))

        topics = (topic, SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC)
        key = unique_key(fields.get(names[2], ""))
        record = await self._copies.find(topics, key, request.body, epoch, matches)
        if record is None:
            return None
        properties = record.properties
        return request.response(
            fields={
                "msgId": record.msg_id,
                "queueId": fields.get(names[3], "0"),
                "queueOffset": str(record.queue_offset),
                "transactionId": record.uniq_key or "",
                **{name: properties[name] for name in _ANSWERED if name in properties},
            }
        )


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
