"""Messages that go back: to be retried (36), or not to come at all (370).

    36   log offset, topic, id ─▶ the record there is that message ─▶ its retry, or dead letter ─┐
                                                                                                 │
                              appended with the sends of the same turn, parked as they are  ◀────┘
    370  recall handle ─▶ the delay service's recall

A consumer says where its message lies. That is a place in a log which may have been cut since, and
a caller can name any place: so the record that is found there must have the topic and the id that
the consumer names, and the caller must have the right to read that topic. For one that may not read
everything it must be in its queue too: a body can have bytes in it that look like a record.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from tandemlog.format.constants import RETRY_PREFIX, is_system_topic
from tandemlog.format.delay.handle import decode_handle
from tandemlog.format.errors import CorruptRecordError, FormatError
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.words import quoted
from tandemlog.v1 import broker_pb2
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.send_back_requests import (
    SendBackRequest,
    mismatch,
    read_recall,
    read_send_back,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.errors import OffsetOutOfRangeError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import new_group
from tandemlog_server.storage.reads.results import NoRecordError
from tandemlog_server.storage.services.send_back import returned_message

from ...access.identities import Right
from ...pulls.read_turns import ReadTurns
from ...puts.joint_put import SendPut
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from .joint_sends import JointSends
from .send_methods import Topics, require_write

Recall = Callable[[broker_pb2.RecallRequest], Awaitable[broker_pb2.RecallResponse]]
_UNCONFIRMED: Final = "stored, but it is not known to be confirmed"


class ReturnMethods:
    """See the module; belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        joint: JointSends,
        topics: Topics,
        turns: ReadTurns,
        recall: Recall,
    ) -> None:
        self._store = store
        self._joint = joint
        self._topics = topics
        self._turns = turns
        self._recall = recall
        self._loop = asyncio.get_running_loop()

    def methods(self) -> dict[int, Method]:
        """By request code."""
        return {
            RequestCode.CONSUMER_SEND_MSG_BACK: Method(self.send_back),
            RequestCode.RECALL_MESSAGE: Method(self.recall),
        }

    async def send_back(self, call: RemotingCall) -> Command | None:
        """36. Raises RemotingRefusedError and DeniedError; RequestRefusedError as a send."""
        caller = call.caller
        try:
            wanted = read_send_back(call.request)
        except FormatError as error:
            raise _refused(str(error)) from None
        caller.require(Right.CONSUME, [wanted.group])
        record = await self._turns.run(
            caller, lambda: self._record(wanted, reads_all=caller.reads_all())
        )
        if record.topic != RETRY_PREFIX + wanted.group:
            caller.require(Right.READ, [record.topic])
        row = self._store.groups.table.get(wanted.group)
        try:
            returned = returned_message(
                self._store,
                wanted.group,
                row if isinstance(row, dict) else new_group(wanted.group),
                record,
                delay_level=wanted.delay_level,
                max_retries=wanted.max_retries,
            )
        except FormatError as error:
            raise _refused(f"message {wanted.origin_id} cannot be retried: {error}") from None
        if returned is not None:
            if self._store.topics.get(returned.goal) is None:
                await self._topics.create_of_group(returned.goal, queues=returned.queues)
            put = SendPut(
                returned.topic,
                returned.queue_id,
                [returned.record],
                caller,
                self._loop.create_future(),
                call.received_at or self._loop.time(),
                share="" if returned.topic == returned.goal else caller.holder,
            )
            await self._append(put)
        return None if call.request.is_oneway else call.request.response()

    async def _append(self, put: SendPut) -> None:
        put.caller.hold(put.byte_size)
        try:
            self._joint.add(put)
            stored = await put.answer
        finally:
            put.caller.hold(-put.byte_size)
        if stored.status != broker_pb2.PUT_OK:
            # the consumer sends the message itself then; it may be retried twice
            raise RemotingRefusedError(
                ResponseCode.SYSTEM_ERROR, f"the retry is {_UNCONFIRMED}: it may come twice"
            )

    def _record(self, wanted: SendBackRequest, *, reads_all: bool) -> Record:
        """In a thread: it reads the disk."""
        place, reader = f"no message stands at log offset {wanted.log_offset}", self._store.reader
        read = reader.record_at if reads_all else reader.message_at
        try:
            data = read(wanted.log_offset)
            record = decode_record(data, physical_offset=wanted.log_offset, check_crc=False)
        except (NoRecordError, OffsetOutOfRangeError, CorruptRecordError) as error:
            raise _refused(f"{place}: {error}") from error
        fault = mismatch(wanted, record)
        if fault is None and is_system_topic(record.topic):
            fault = f"{record.topic} is one of the store's own topics"
        if fault is not None:
            raise _refused(f"the message at log offset {wanted.log_offset} is another one: {fault}")
        return record

    async def recall(self, call: RemotingCall) -> Command | None:
        """370. Raises RemotingRefusedError and DeniedError, and what a recall raises in any
        door."""
        try:
            wanted = read_recall(call.request)
            handle = decode_handle(wanted.handle)
        except FormatError as error:
            raise _refused(str(error)) from None
        if handle.topic != wanted.topic:
            raise _refused(
                f"the handle is of a message to {quoted(handle.topic)}, not to "
                f"{quoted(wanted.topic)}"
            )
        require_write(call.caller, wanted.topic)
        await self._recall(
            broker_pb2.RecallRequest(topic=wanted.topic, recall_handle=wanted.handle)
        )
        if call.request.is_oneway:
            return None
        return call.request.response(fields={"msgId": handle.key})


def _refused(text: str) -> RemotingRefusedError:
    return RemotingRefusedError(ResponseCode.SYSTEM_ERROR, text)
