"""SendMessage and RecallMessage: a message in, a record that a broker would store, its place out.

    message ─▶ topic, rights, type ─▶ queue: by its message_group, else in turn
            ─▶ an earlier attempt of this send?   its answer (first_copies.py)
            ─▶ StoredMessage ─▶ a half, or delayed: the queue where it waits
            ─▶ appended with the sends of the same turn, parked as they are (joint_sends.py)

Clients send one message in a request, or several of one topic; each has an answer of its own.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

from tandemlog.format.constants import MAX_PROPERTIES, TRANSACTION, UNIQ_KEY
from tandemlog.format.delay.handle import RecallHandle, decode_handle
from tandemlog.format.delay.timing import out_ms
from tandemlog.format.errors import FormatError
from tandemlog.format.record.record import Record
from tandemlog.format.words import quoted
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog.v1 import broker_pb2
from tandemlog_server.rocketmq.clients.broker_topics import AUTO_CREATED
from tandemlog_server.rocketmq.clients.half_messages import make_half
from tandemlog_server.rocketmq.clients.stored_message import (
    StoredMessage,
    frame_stored,
    make_wait,
)
from tandemlog_server.rocketmq.clients.stored_properties import (
    BrokerFacts,
    add_broker_facts,
    stored_properties,
)
from tandemlog_server.rocketmq.messaging.fifo_queue import queue_of_group
from tandemlog_server.rocketmq.messaging.node_routes import types_of
from tandemlog_server.rocketmq.messaging.refusals import (
    MessagingRefusedError,
    made_status,
)
from tandemlog_server.rocketmq.messaging.resources import topic_of
from tandemlog_server.rocketmq.messaging.sent_messages import message_group_of, stored_message
from tandemlog_server.rocketmq.messaging.times import milliseconds
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

from ..access.access_refusals import DeniedError
from ..puts.joint_put import SendPut
from ..remoting.cluster.topic_creation import TopicCreation
from ..remoting.sends.born_host import born_host_of
from ..remoting.sends.joint_sends import JointSends
from .first_copies import Copy, FirstCopies
from .messaging_call import Answers, MessagingCall, Method
from .refused_status import status_of

MOST_MESSAGES: Final = 1_024
"""Of one request."""
SLACK_BYTES: Final = 1 << 20
"""Of a request, beside the largest body."""
MOST_QUEUES: Final = 8
"""Of a topic that is created by a send, unless its model has fewer."""

Recall = Callable[[broker_pb2.RecallRequest], Awaitable[broker_pb2.RecallResponse]]
WhoTransacts = Callable[[MessagingCall, str], None]
"""A client has begun a transaction with a message to this topic."""


class SendMethods:
    """See the module; belongs to the loop. `broker_name` is what a recall handle names."""

    def __init__(
        self,
        store: MessageStore,
        joint: JointSends,
        topics: TopicCreation,
        facts: BrokerFacts,
        copies: Callable[[Callable[[Record], str]], FirstCopies],
        recall: Recall,
        transacts: WhoTransacts,
        *,
        broker_name: str,
    ) -> None:
        self._store = store
        self._joint = joint
        self._topics = topics
        self._facts = facts
        self._recall = recall
        self._transacts = transacts
        self._broker_name = broker_name
        self._copies = copies(self._handle_of_record)
        self._any_queue = count()
        self._serials = count(1)
        self._max_body = store.config.max_message_size
        self._store_ipv6 = store.config.store_host.startswith("[")
        self._loop = asyncio.get_running_loop()

    def methods(self) -> list[Method]:
        largest = self._max_body + SLACK_BYTES
        return [
            Method(
                "SendMessage",
                v2.SendMessageRequest,
                v2.SendMessageResponse,
                self.send,
                largest=largest,
            ),
            Method("RecallMessage", v2.RecallMessageRequest, v2.RecallMessageResponse, self.recall),
        ]

    async def send(self, request: v2.SendMessageRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError and DeniedError; RequestRefusedError as PutPump.admit and
        for what the store refuses."""
        messages = request.messages
        if not 0 < len(messages) <= MOST_MESSAGES:
            raise MessagingRefusedError(
                v2.BAD_REQUEST,
                f"a send has 1 to {MOST_MESSAGES} messages, not {len(messages)}",
            )
        if len(messages) == 1:
            entry = await self._send_one(messages[0], call)
            return [v2.SendMessageResponse(status=entry.status, entries=[entry])]
        entries = await asyncio.gather(*(self._entry(each, call) for each in messages))
        codes = {each.status.code for each in entries}
        one = codes.pop() if len(codes) == 1 else v2.MULTIPLE_RESULTS
        return [v2.SendMessageResponse(status=made_status(one), entries=entries)]

    async def _entry(self, message: v2.Message, call: MessagingCall) -> v2.SendResultEntry:
        """Of one message among several: its refusal is not that of the others."""
        try:
            return await self._send_one(message, call)
        except Exception as problem:
            if isinstance(problem, DeniedError):
                call.caller.refused(problem)
            return v2.SendResultEntry(status=status_of(problem))

    async def _send_one(self, message: v2.Message, call: MessagingCall) -> v2.SendResultEntry:
        name = topic_of(message.topic)
        call.caller.require_writes([name.encode()])
        topic = self._store.topics.table.get(name)
        if topic is None:
            topic = await self._topics.create_topic(name, model=AUTO_CREATED, queues=MOST_QUEUES)
        queue_id = self._queue(topic, message)
        now_ms = self._store.clock.now_ms()
        stored = stored_message(message, queue_id, now_ms)
        self._check(stored, message, now_ms)
        message_id = stored.properties[UNIQ_KEY]

        async def append() -> Copy:
            return await self._append(stored, call, name, now_ms)

        copy = await self._copies.once(
            name, message_id, stored.body, append, repeated=call.repeated
        )
        if copy.transaction_id:
            self._transacts(call, name)
        return copy.entry(message_id)

    # ---- what is sent

    def _queue(self, topic: TopicConfig, message: v2.Message) -> int:
        name, queues = topic.name, topic.write_queues
        if not topic.writable or queues <= 0:
            raise MessagingRefusedError(
                v2.FORBIDDEN,
                f"topic {quoted(name)} takes no messages: its perm is {topic.perm}, and it has "
                f"{queues} queues to write",
            )
        if topic.in_batch_queues:
            raise MessagingRefusedError(
                v2.ILLEGAL_TOPIC,
                f"topic {quoted(name)} has batch queues, which only RocketMQ has",
            )
        system = message.system_properties
        if system.message_type not in types_of(topic):
            raise MessagingRefusedError(
                v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
                f"topic {quoted(name)} takes messages of the type in its attribute message.type, "
                f"not of type {v2.MessageType.Name(system.message_type)}"
                if system.message_type in v2.MessageType.values()
                else f"messages of type {system.message_type} are not known here",
            )
        if system.message_group:
            return queue_of_group(message_group_of(system), queues)
        return next(self._any_queue) % queues

    def _check(self, stored: StoredMessage, message: v2.Message, now_ms: int) -> None:
        if len(stored.body) > self._max_body:
            raise MessagingRefusedError(
                v2.MESSAGE_BODY_TOO_LARGE,
                f"the body has {len(stored.body)} bytes, the limit is {self._max_body} "
                "(store.max_message_size)",
            )
        system, most_ms = message.system_properties, self._store.config.max_delay_ms
        if system.message_type == v2.DELAY:
            due_ms = milliseconds(system.delivery_timestamp)
            if due_ms <= 0 or due_ms > now_ms + most_ms:
                raise MessagingRefusedError(
                    v2.ILLEGAL_DELIVERY_TIME,
                    f"delivery_timestamp is {due_ms} ms since 1970: it may be {most_ms} ms from "
                    "now at the most (store.max_delay_ms); the API wants seconds",
                )

    # ---- into the store

    async def _append(
        self, message: StoredMessage, call: MessagingCall, topic: str, now_ms: int
    ) -> Copy:
        properties = message.properties
        add_broker_facts(properties, self._facts)
        aside = self._put_aside(message, topic, now_ms)
        try:
            record = frame_stored(
                message,
                _encoded(properties),
                born_host_of(call.caller.peer),
                store_ipv6=self._store_ipv6,
            )
        except FormatError as error:
            raise MessagingRefusedError(v2.BAD_REQUEST, str(error)) from None
        put = SendPut(
            message.topic,
            message.queue_id,
            [record],
            call.caller,
            self._loop.create_future(),
            call.received_at,
            durability=broker_pb2.CLUSTER,
            share=call.caller.holder if aside else "",
        )
        self._joint.add(put)
        # the client may go away, and ask again: what became of it must be known then
        stored = await asyncio.shield(put.answer)
        offset = stored.log_offsets[0]
        copy = Copy(
            offset + len(record),
            stored.queue_offset,
            stored.status,
            transaction_id=properties.get(TRANSACTION, ""),
        )
        if message.due_ms is not None:
            copy.recall_handle = self._handle(topic, message.due_ms, properties[UNIQ_KEY], offset)
        return copy

    def _put_aside(self, message: StoredMessage, topic: str, now_ms: int) -> bool:
        try:
            if "TRAN_MSG" in message.properties:
                make_half(message, producer_group=topic, serial=next(self._serials))
                return True
            if message.asks:
                # there are no levels in this API
                make_wait(message, max_level=0, now_ms=now_ms)
            return message.waiting
        except FormatError as error:
            raise MessagingRefusedError(v2.BAD_REQUEST, str(error)) from None

    def _handle(self, topic: str, due_ms: int, key: str, log_offset: int) -> str:
        time_ms = out_ms(due_ms) + 1
        return RecallHandle(topic, time_ms, key, log_offset, self._broker_name).encode()

    def _handle_of_record(self, record: Record) -> str:
        properties = record.properties
        due = properties.get("TIMER_DELIVER_MS") or properties.get("TIMER_OUT_MS", "0")
        topic, key = properties.get("REAL_TOPIC", ""), properties.get(UNIQ_KEY, "")
        return self._handle(topic, int(due), key, record.physical_offset)

    # ---- called back

    async def recall(self, request: v2.RecallMessageRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError and DeniedError, and what a recall raises in any door."""
        topic = topic_of(request.topic)
        call.caller.require_writes([topic.encode()])
        try:
            handle = decode_handle(request.recall_handle)
        except FormatError as error:
            raise MessagingRefusedError(v2.BAD_REQUEST, str(error)) from None
        await self._recall(
            broker_pb2.RecallRequest(topic=topic, recall_handle=request.recall_handle)
        )
        return [v2.RecallMessageResponse(status=made_status(v2.OK), message_id=handle.key)]


def _encoded(properties: dict[str, str]) -> bytes:
    text = stored_properties(properties)
    if len(text) > MAX_PROPERTIES:
        raise MessagingRefusedError(
            v2.MESSAGE_PROPERTIES_TOO_LARGE,
            f"properties have {len(text)} bytes, the limit is {MAX_PROPERTIES}",
        )
    return text
