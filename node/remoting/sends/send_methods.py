"""Sends (10, 310, 320): a request in, a record that a broker would store, an answer with its place.

    request ─▶ SendRequest ─▶ topic, queue, rights, sizes ─▶ StoredMessage ─▶ JointSends ─▶ answer
                               │ unknown: made after its model   │ delay, half, %DLQ%
                               ▼                                 ▼
                             TOPIC_NOT_EXIST                   the queue where it waits

Just after an election, what the last master has stored of an earlier attempt is the answer
(second_attempts.py).

All that the store would refuse and that can be known is refused here, for this request alone: what
comes after is appended together with other requests. A message whose delay or transaction is not
over is stored in a topic that no client may send to; the right that counts is that to its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Final, Protocol

from tandemlog.format.constants import (
    DEAD_LETTER_PREFIX,
    DELAY,
    MAX_PROPERTIES,
    RETRY_PREFIX,
    TRANSACTION_PREPARED,
    UNIQ_KEY,
    WAIT,
    client_topic_fault,
    is_closed_topic,
)
from tandemlog.format.delay.handle import RecallHandle
from tandemlog.format.delay.timing import out_ms
from tandemlog.format.errors import FormatError
from tandemlog.format.files.queue_unit import DelayLevels
from tandemlog.format.lease.policy import decode_retries
from tandemlog.format.record.host import host_bytes
from tandemlog.format.record.record import Record
from tandemlog.format.record.sys_flag import INNER_BATCH, TRANSACTION_MASK
from tandemlog.format.words import quoted
from tandemlog.v1 import broker_pb2
from tandemlog_server.rocketmq.clients.batch_records import check_text
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.send_requests import SendRequest, read_send, split_batch
from tandemlog_server.rocketmq.clients.stored_message import (
    StoredMessage,
    frame_stored,
    make_wait,
)
from tandemlog_server.rocketmq.clients.stored_properties import (
    MSG_REGION,
    TRACE_ON,
    BrokerFacts,
    PlainTexts,
    StoredText,
    add_broker_facts,
    member_properties,
    read_properties,
    stored_properties,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig, new_group

from ...access.caller import Caller
from ...pulls.read_turns import ReadTurns
from ...puts.joint_put import Stored
from ..door.remoting_call import Ended, Method, RemotingCall, RemotingRefusedError
from .batch_frames import BatchFrames, is_large
from .born_host import born_host_of
from .joint_sends import JointSends
from .open_send import OpenSend
from .repeated_sends import unique_key
from .second_attempts import SecondAttempts, Sent, queue_of

_UNWRAPPED: Final = 0x40
"""RocketMQ's bit of a batch that is one record; such batches are for topics of another kind."""
_CLEARED: Final = TRANSACTION_MASK | INNER_BATCH | _UNWRAPPED
"""Bits that only a store sets."""
_TRUE: Final = "true"
_CODES: Final[dict[int, int]] = {
    broker_pb2.PUT_OK: ResponseCode.SUCCESS,
    broker_pb2.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    broker_pb2.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    broker_pb2.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
}


class Topics(Protocol):
    """The topics that a send may need (topic_creation.py)."""

    async def create_topic(self, name: str, *, model: str, queues: int) -> TopicConfig:
        """The topic `name`, which may be made after `model`."""

    async def create_of_group(self, name: str, *, queues: int = 1) -> TopicConfig:
        """The topic of a group, which may be made."""


class MakeHalf(Protocol):
    """Turns a message that begins a transaction into the half that is stored in its place."""

    def __call__(self, message: StoredMessage, *, producer_group: str, serial: int) -> None:
        """Changes its topic, queue and properties; `serial` differs for each half. Raises
        FormatError."""


class SendMethods:
    """See the module; belongs to the loop. `broker_name` is what a recall handle names, as clients
    know this node. `new_key` makes a UNIQ_KEY. Without `attempts` none is recognised."""

    def __init__(
        self,
        store: MessageStore,
        joint: JointSends,
        topics: Topics,
        turns: ReadTurns,
        facts: BrokerFacts,
        *,
        broker_name: str,
        new_key: Callable[[], str],
        make_half: MakeHalf | None = None,
        attempts: SecondAttempts | None = None,
    ) -> None:
        self._store = store
        self._joint = joint
        self._topics = topics
        self._facts = facts
        self._texts = PlainTexts(facts)
        self._broker_name = broker_name
        self._new_key = new_key
        self._make_half = make_half
        self._attempts = attempts
        self._serials = count(1)
        self._any_queue = count()
        config = store.config
        self._max_body = config.max_message_size
        self._max_level = DelayLevels(config.delay_levels).max_level
        host = host_bytes(config.store_host)
        self._store_ipv6 = config.store_host.startswith("[")
        self._frames = BatchFrames(turns, store_ipv6=self._store_ipv6, most_bytes=self._max_body)
        self._id_prefix = host.hex().upper()
        self.broker_facts = {MSG_REGION: facts.region, TRACE_ON: "true" if facts.trace else "false"}
        self._loop = asyncio.get_running_loop()

    def methods(self) -> dict[int, Method]:
        """By request code."""
        method = Method(self.send, begin=self.begin)
        return {
            RequestCode.SEND_MESSAGE: method,
            RequestCode.SEND_MESSAGE_V2: method,
            RequestCode.SEND_BATCH_MESSAGE: method,
        }

    def begin(self, call: RemotingCall, ended: Ended) -> bool:
        """See Method: a send to a topic that exists waits for the log alone, if it is no large
        batch. Raises as `send`."""
        if self._attempts is not None and self._attempts.looks():
            return False
        request = _read(call)
        if request.batch and is_large(request.body):
            return False
        topic = self._store.topics.table.get(request.topic)
        if topic is None or request.topic.startswith(RETRY_PREFIX):
            return False
        require_write(call.caller, request.topic)
        queue_id = self._queue(topic, request)
        if request.batch:
            common, host = _common_of(request, queue_id), born_host_of(call.connection.peer)
            records = self._frames.frame(request.body, common, host)
            send = self._batch(call, common, records, queue_id)
        else:
            text = None if request.reconsume_times else self._texts.of(request.properties)
            if text is None:
                send = self._single(call, request, _message_of(request, queue_id), queue_id)
            else:
                send = self._plain(call, request, text, queue_id)
        self._begin(send, ended)
        return True

    async def send(self, call: RemotingCall) -> Command | None:
        """Raises RemotingRefusedError and DeniedError; RequestRefusedError as PutPump.admit and for
        what the store refuses."""
        request = _read(call)
        queue_id = await self.place(call, request)
        if request.batch:
            common, host = _common_of(request, queue_id), born_host_of(call.connection.peer)
            frame = partial(self._frames.frame, request.body, common, host)
            records = await self._frames.in_turn(call.caller, request, frame)
            send = self._batch(call, common, records, queue_id)
        else:
            message = _message_of(request, queue_id)
            if request.topic.startswith(RETRY_PREFIX):
                await self._end_retries(request, message)
            send = self._single(call, request, message, queue_id)
        first: Sequence[Record] = ()
        if self._attempts is not None and self._attempts.looks():
            sent = await self._frames.in_turn(call.caller, request, lambda: _sent(request, send))
            first = await self._attempts.first_copies(request, sent, call.received_at)
        if first:
            stored, send.asked_queue_id = _place_of(first)
            return self._respond(send, stored)
        return await self._ended(send)

    async def send_as_it_is(
        self, call: RemotingCall, request: SendRequest, queue_id: int
    ) -> Command | None:
        """Store a message in this queue with the properties that it came with, whatever they ask
        for: so a broker keeps replies. Returns and raises as `send`."""
        text = request.properties.encode("utf-8", "surrogatepass")
        message = _message_of(request, queue_id, {})
        host = born_host_of(call.connection.peer)
        record = self._framed(message, member_properties(text), host)
        key = read_properties(request.properties).get(UNIQ_KEY, "")
        return await self._ended(self._open(call, message, [record], queue_id, key))

    def _single(
        self, call: RemotingCall, request: SendRequest, message: StoredMessage, queue_id: int
    ) -> OpenSend:
        properties = message.properties
        if not properties.get(UNIQ_KEY):
            properties[UNIQ_KEY] = self._new_key()
        add_broker_facts(properties, self._facts)
        share = call.caller.holder if self._put_aside(message, request.group) else ""
        record = self._framed(message, encoded(properties), born_host_of(call.connection.peer))
        return self._open(
            call,
            message,
            [record],
            queue_id,
            properties.get(UNIQ_KEY, ""),
            waits=properties.get(WAIT) != "false",
            share=share,
        )

    def _plain(
        self, call: RemotingCall, request: SendRequest, text: StoredText, queue_id: int
    ) -> OpenSend:
        """The same for a message that asks for nothing but to be stored."""
        message = _message_of(request, queue_id, {})
        record = self._framed(message, _bounded(text.text), born_host_of(call.connection.peer))
        return self._open(call, message, [record], queue_id, text.key, waits=text.waits)

    # ---- what is sent

    async def place(self, call: RemotingCall, request: SendRequest) -> int:
        """The queue that a request goes to. Raises DeniedError, RemotingRefusedError."""
        require_write(call.caller, request.topic)
        topic = self._store.topics.table.get(request.topic)
        if topic is None:
            topic = await self._create(request)
        return self._queue(topic, request)

    async def _create(self, request: SendRequest) -> TopicConfig:
        topic = request.topic
        self._check_name(topic)
        if topic.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return await self._topics.create_of_group(topic)
        return await self._topics.create_topic(
            topic, model=request.default_topic, queues=request.default_queues
        )

    @staticmethod
    def _check_name(topic: str) -> None:
        if is_closed_topic(topic):
            raise RemotingRefusedError(
                ResponseCode.NO_PERMISSION,
                f"Sending message to topic[{topic}] is forbidden: it is one of the store's own",
            )
        if (fault := client_topic_fault(topic)) is not None:
            raise _illegal(f"topic {quoted(topic)}: {fault}")

    def _queue(self, topic: TopicConfig, request: SendRequest) -> int:
        """The queue of the request, or any if it leaves that open. Raises RemotingRefusedError for
        a topic that takes no messages, and for a queue that it does not have."""
        name, queues, queue_id = topic.name, topic.write_queues, request.queue_id
        if not topic.writable or queues <= 0:
            raise RemotingRefusedError(
                ResponseCode.NO_PERMISSION,
                f"the topic[{name}] sending message is forbidden: its perm is {topic.perm}, and it "
                f"has {queues} queues to write",
            )
        if is_closed_topic(name) or topic.in_batch_queues:
            self._check_name(name)
            raise _illegal(f"topic {quoted(name)} has batch queues, which only RocketMQ has")
        if queue_id < 0:
            return next(self._any_queue) % queues
        if queue_id >= queues:
            raise RemotingRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"request queueId[{queue_id}] is illegal: topic {quoted(name)} has {queues} queues",
            )
        return queue_id

    async def _end_retries(self, request: SendRequest, message: StoredMessage) -> None:
        """A consumer whose request 36 failed sends its message to be retried by itself: it is a
        dead letter after too many retries."""
        group = request.topic.removeprefix(RETRY_PREFIX)
        row = self._store.groups.table.get(group)
        most, _ = decode_retries(row if isinstance(row, dict) else new_group(group))
        if request.max_reconsume_times is not None:
            most = request.max_reconsume_times
        if request.reconsume_times <= most:
            return
        topic = await self._topics.create_of_group(DEAD_LETTER_PREFIX + group)
        message.topic, message.queue_id = topic.name, 0
        message.properties.pop(DELAY, None)

    def _put_aside(self, message: StoredMessage, group: str) -> bool:
        """Whether the message waits in a topic of the store, where it is put then."""
        try:
            if _begins_transaction(message):
                if self._make_half is None:
                    raise RemotingRefusedError(
                        ResponseCode.NO_PERMISSION, "sending transaction messages is forbidden here"
                    )
                self._make_half(message, producer_group=group, serial=next(self._serials))
                return True
            if message.asks:
                now_ms = self._store.clock.now_ms()
                make_wait(message, max_level=self._max_level, now_ms=now_ms)
                return message.waiting
        except FormatError as error:
            raise _illegal(str(error)) from None
        return False

    def _batch(
        self, call: RemotingCall, common: StoredMessage, records: list[bytes], queue_id: int
    ) -> OpenSend:
        properties = common.properties
        key, waits = properties.get(UNIQ_KEY, ""), properties.get(WAIT) != "false"
        return self._open(call, common, records, queue_id, key, waits=waits)

    # ---- into the store, and the answer

    def _framed(self, message: StoredMessage, properties: bytes, born_host: str) -> bytes:
        try:
            check_text(message.body, self._max_body)
            return frame_stored(message, properties, born_host, store_ipv6=self._store_ipv6)
        except FormatError as error:
            raise _illegal(str(error)) from None

    def _open(
        self,
        call: RemotingCall,
        message: StoredMessage,
        records: list[bytes],
        queue_id: int,
        key: str,
        *,
        waits: bool = True,
        share: str = "",
    ) -> OpenSend:
        return OpenSend(
            call,
            message,
            records,
            self._respond,
            received_at=call.received_at or self._loop.time(),
            asked_queue_id=queue_id,
            key=key,
            durability=broker_pb2.CLUSTER if waits else broker_pb2.NO_WAIT,
            share=share,
        )

    def _begin(self, send: OpenSend, ended: Ended) -> None:
        send.begin(ended)
        self._joint.add(send)

    async def _ended(self, send: OpenSend) -> Command | None:
        """For a request that has waited for something before."""
        answer: asyncio.Future[Command | None] = self._loop.create_future()

        def ended(_: RemotingCall, response: Command | None, problem: Exception | None) -> None:
            if answer.done():  # the client is gone, and its task has not run again yet
                return
            if problem is None:
                answer.set_result(response)
            else:
                answer.set_exception(problem)

        self._begin(send, ended)
        try:
            return await answer
        finally:
            send.give_up()

    def _handle(self, message: StoredMessage, key: str, log_offset: int) -> str:
        assert message.due_ms is not None
        topic = message.properties["REAL_TOPIC"]
        time_ms = out_ms(message.due_ms) + 1
        return RecallHandle(topic, time_ms, key, log_offset, self._broker_name).encode()

    def _respond(self, send: OpenSend, stored: Stored) -> Command | None:
        call, message = send.call, send.message
        if call.request.is_oneway:
            return None
        prefix, offsets = self._id_prefix, stored.log_offsets
        if len(offsets) == 1:
            ids = f"{prefix}{offsets[0]:016X}"
        else:
            ids = (f",{prefix}%016X" * len(offsets))[1:] % tuple(offsets)
        fields = {
            "msgId": ids,
            "queueId": str(send.asked_queue_id),
            "queueOffset": str(stored.queue_offset),
            **self.broker_facts,
        }
        if send.key:  # a batch has none
            fields["transactionId"] = send.key
        if message.due_ms is not None:
            fields["recallHandle"] = self._handle(message, send.key, offsets[0])
        code = _CODES.get(stored.status, ResponseCode.SYSTEM_ERROR)
        return call.request.response(code=code, fields=fields)


def _read(call: RemotingCall) -> SendRequest:
    try:
        return read_send(call.request)
    except FormatError as error:
        raise RemotingRefusedError(ResponseCode.SYSTEM_ERROR, str(error)) from None


def _sent(request: SendRequest, send: OpenSend) -> list[Sent]:
    if not request.batch:
        return [Sent(send.message.properties[UNIQ_KEY], send.message.body)]
    return [
        Sent(unique_key(each.properties.decode(errors="replace")), each.body)
        for each in split_batch(request.body)
    ]


def _place_of(first: Sequence[Record]) -> tuple[Stored, int]:
    """Where the last master has stored an attempt, and the queue that its sender chose."""
    offsets = [each.physical_offset for each in first]
    return Stored(broker_pb2.PUT_OK, offsets, first[0].queue_offset), queue_of(first[0])


def _message_of(
    request: SendRequest, queue_id: int, properties: dict[str, str] | None = None
) -> StoredMessage:
    """With these properties, or those of the request."""
    return StoredMessage(
        request.topic,
        queue_id,
        read_properties(request.properties) if properties is None else properties,
        request.body,
        request.flag,
        request.sys_flag & ~_CLEARED,
        request.born_timestamp,
        request.reconsume_times,
    )


def _common_of(request: SendRequest, queue_id: int) -> StoredMessage:
    """What the messages of a batch have in common."""
    if request.topic.startswith(RETRY_PREFIX):
        raise _illegal("batch request does not support retry group")
    common = _message_of(request, queue_id)
    if common.properties.get(DELAY, "0") != "0" or _begins_transaction(common):
        raise _illegal("the messages of a batch cannot come later, nor within a transaction")
    common.body = b""
    return common


def _begins_transaction(message: StoredMessage) -> bool:
    properties = message.properties
    if properties.get(TRANSACTION_PREPARED, "").lower() != _TRUE:
        return False
    # a retry of a message that was sent in a transaction begins none
    return not (message.reconsume_times > 0 and properties.get(DELAY, "0") != "0")


def require_write(caller: Caller, topic: str) -> None:
    """Raises DeniedError if the caller may not send to the topic: who may consume as a group may
    send to that group's own topic for retries."""
    if caller.restricted is None:
        return
    if topic.startswith(RETRY_PREFIX) and caller.consumed([topic.removeprefix(RETRY_PREFIX)]):
        return
    caller.require_writes([topic.encode(errors="replace")])


def encoded(properties: dict[str, str]) -> bytes:
    """As they are stored. Raises RemotingRefusedError for what has no stored form."""
    try:
        text = stored_properties(properties)
    except UnicodeEncodeError as error:
        raise _illegal(f"properties: not valid Unicode text: {error}") from None
    return _bounded(text)


def _bounded(text: bytes) -> bytes:
    if len(text) > MAX_PROPERTIES:
        raise _illegal(f"properties have {len(text)} bytes, the limit is {MAX_PROPERTIES}")
    return text


def _illegal(text: str) -> RemotingRefusedError:
    return RemotingRefusedError(ResponseCode.MESSAGE_ILLEGAL, text)
