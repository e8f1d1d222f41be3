"""ReceiveMessage: messages leased by the engine of work queues (node/work), over all queues.

    request ─▶ group, topic, filter, time ─▶ WorkService.receive ─▶ messages with their handles
                 │ the same attempt as before: its answer was lost, and what it gave comes again
                 ▼
               nothing came: MESSAGE_NOT_FOUND, which is no error

A client names a queue, and means a node: so the receive is over all queues of the topic. A push
consumer names no time: its leases are renewed while it lives (renewed_leases.py). A receive whose
client is gone gives back what it has got, at the master too where the answer came from there: its
client may live, and the leases would be renewed for hours.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from tandemlog.format.constants import Buffer
from tandemlog.format.errors import FormatError
from tandemlog.format.lease.handle import handle_texts
from tandemlog.format.lease.policy import MAX_HANDLES, MAX_LEASE_MS, MAX_WAIT_MS, MIN_LEASE_MS
from tandemlog.format.record.record import decode_record
from tandemlog.format.words import quoted
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.client_settings import POLL_MS, RECEIVE_BATCH
from tandemlog_server.rocketmq.messaging.delivered_messages import MOST_BODY, delivered
from tandemlog_server.rocketmq.messaging.filters import read_filter
from tandemlog_server.rocketmq.messaging.receipt_handles import encoded_handles
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError, made_status
from tandemlog_server.rocketmq.messaging.resources import group_of, topic_of
from tandemlog_server.rocketmq.messaging.times import milliseconds
from tandemlog_server.storage.message_store import MessageStore

from ..access.identities import Right
from ..work.work_filter import selector
from ..work.work_requests import LeasedMessages, ReceiveRequest
from ..work.work_service import WorkService
from .master_calls import MasterCalls
from .messaging_call import Answers, MessagingCall, Method
from .renewed_leases import RENEWED_MS, RenewedLeases, Who, who_of

ANSWER_S: Final = 0.5
"""A long poll ends so long before the client gives up."""
MOST_BATCH: Final = 1_000
ATTEMPTS_KEPT: Final = 4_096
MOST_ATTEMPT_CHARACTERS: Final = 128
MOST_BYTES: Final = 4 << 20
GIVE_BACK: Final = "GiveBackMessages"
"""A call between nodes: messages that a client of the other node did not get."""
GIVE_BACK_S: Final = 3.0
_NOTHING: Final = "no message came in time"
_Attempt = tuple[Who, str, str]
"""Whose, of which group, and its name."""


class ReceiveMethods:
    """See the module; belongs to the loop."""

    def __init__(
        self, store: MessageStore, work: WorkService, renewed: RenewedLeases, master: MasterCalls
    ) -> None:
        self._store = store
        self._work = work
        self._renewed = renewed
        self._master = master
        self._give_back = Method(
            GIVE_BACK, v2.AckMessageRequest, v2.AckMessageResponse, self.give_back, parks=False
        )
        self._attempts: OrderedDict[_Attempt, bytes] = OrderedDict()
        self._loop = asyncio.get_running_loop()

    def methods(self) -> list[Method]:
        return [
            Method(
                "ReceiveMessage",
                v2.ReceiveMessageRequest,
                v2.ReceiveMessageResponse,
                self.receive,
                streams=True,
                without_master=made_status(v2.MESSAGE_NOT_FOUND, "no master was found in time"),
                undelivered=partial(undelivered, self._master, self._give_back),
            ),
            self._give_back,
        ]

    async def receive(self, request: v2.ReceiveMessageRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError, DeniedError, and what a receive raises in any door."""
        group, topic = group_of(request.group), topic_of(request.message_queue.topic)
        call.caller.require(Right.CONSUME, [group])
        call.caller.require(Right.READ, [topic])
        attempt = self._attempt(request, call, group)
        if attempt is not None:
            await self._lost(attempt)
        wanted = self._wanted(request, call, group, topic)
        if topic not in self._store.topics.table:
            raise MessagingRefusedError(
                v2.TOPIC_NOT_FOUND, f"topic {quoted(topic)} does not exist: send to it first"
            )
        result = await self._work.receive(wanted, call.caller)
        answers, handles, kept = self._answers(result.messages, request, wanted.lease_ms)
        if kept:
            await self._work.release(group, kept)
        if not handles:
            return [
                v2.ReceiveMessageResponse(status=made_status(v2.MESSAGE_NOT_FOUND, _NOTHING)),
                *answers,
            ]
        if attempt is not None:
            self._attempts[attempt] = handles
            while len(self._attempts) > ATTEMPTS_KEPT:
                self._attempts.popitem(last=False)
        if request.auto_renew:
            given = [
                each.message.system_properties.receipt_handle
                for each in answers
                if each.HasField("message")
            ]
            self._renewed.add(who_of(call), group, given, call.caller.holder)
        return [v2.ReceiveMessageResponse(status=made_status(v2.OK)), *answers]

    async def give_back(self, request: v2.AckMessageRequest, call: MessagingCall) -> Answers:
        """These were not taken by the client: others may have them at once. Raises
        MessagingRefusedError, DeniedError, and what the engine refuses in any door."""
        group = group_of(request.group)
        call.caller.require(Right.CONSUME, [group])
        if len(request.entries) > MAX_HANDLES:
            raise MessagingRefusedError(
                v2.BAD_REQUEST,
                f"at most {MAX_HANDLES} messages are given back, not {len(request.entries)}",
            )
        texts = [each.receipt_handle for each in request.entries]
        self._renewed.forget(who_of(call), texts)
        handles, rows = encoded_handles(texts)
        if rows:
            await self._work.release(group, handles, holder=call.caller.holder)
        return [v2.AckMessageResponse(status=made_status(v2.OK))]

    # ---- the request

    def _wanted(
        self, request: v2.ReceiveMessageRequest, call: MessagingCall, group: str, topic: str
    ) -> ReceiveRequest:
        lease_ms = RENEWED_MS
        if not request.auto_renew:
            lease_ms = milliseconds(request.invisible_duration)
            if not MIN_LEASE_MS <= lease_ms <= MAX_LEASE_MS:
                raise MessagingRefusedError(
                    v2.ILLEGAL_INVISIBLE_TIME,
                    f"invisible_duration must be {MIN_LEASE_MS} .. {MAX_LEASE_MS} ms: {lease_ms}",
                )
        wait_ms = POLL_MS
        if request.HasField("long_polling_timeout"):
            wait_ms = milliseconds(request.long_polling_timeout)
        if call.deadline is not None:
            left_ms = int(1000 * (call.deadline - self._loop.time() - ANSWER_S))
            wait_ms = min(wait_ms, left_ms)
        tags, sql = read_filter(request.filter_expression)
        batch = request.batch_size or RECEIVE_BATCH
        return ReceiveRequest(
            group,
            (topic,),
            min(max(batch, 1), MOST_BATCH),
            lease_ms,
            min(max(wait_ms, 0), MAX_WAIT_MS),
            MOST_BYTES,
            selector(tags, sql),
        )

    @staticmethod
    def _attempt(
        request: v2.ReceiveMessageRequest, call: MessagingCall, group: str
    ) -> _Attempt | None:
        attempt = request.attempt_id
        if not attempt or len(attempt) > MOST_ATTEMPT_CHARACTERS:
            return None
        return who_of(call), group, attempt

    async def _lost(self, attempt: _Attempt) -> None:
        """The client asks again under the same name: it has not got the last answer."""
        handles = self._attempts.pop(attempt, None)
        if handles is None:
            return
        who, group, _ = attempt
        self._renewed.forget(who, handle_texts(handles))
        await self._work.release(group, handles)

    # ---- the answer

    def _answers(
        self,
        leased: Sequence[LeasedMessages],
        request: v2.ReceiveMessageRequest,
        lease_ms: int,
    ) -> tuple[list[v2.ReceiveMessageResponse], bytes, bytes]:
        """The answers, the handles of the messages that they are for, and those of messages that
        unpack to more than an answer has room for."""
        space = request.message_queue.topic.resource_namespace
        answers: list[v2.ReceiveMessageResponse] = []
        given: list[str] = []
        kept: list[str] = []
        room = MOST_BODY
        for queue in leased:
            handles = handle_texts(queue.handles)
            at = 0
            for index, size in enumerate(queue.sizes.tolist()):
                data = queue.records[at : at + size]
                at += size
                if kept:
                    kept.append(handles[index])
                    continue
                make = partial(
                    _made,
                    data,
                    space=space,
                    handle=handles[index],
                    attempt=int(queue.attempts[index]),
                    lease_ms=lease_ms,
                )
                message = make(most=room)
                if message is None and room < MOST_BODY and make(most=MOST_BODY) is not None:
                    kept.append(handles[index])
                    continue
                given.append(handles[index])
                if message is not None:  # else it comes again, and is a dead letter in the end
                    room = max(room - len(message.body), 0)
                    answers.append(v2.ReceiveMessageResponse(message=message))
        end = v2.ReceiveMessageResponse()
        end.delivery_timestamp.FromMilliseconds(self._store.clock.now_ms())
        return [*answers, end], "".join(given).encode(), "".join(kept).encode()


async def undelivered(
    master: MasterCalls,
    give_back: Method,
    request: v2.ReceiveMessageRequest,
    answers: Answers,
    call: MessagingCall,
) -> None:
    """The client does not get the messages in these answers: the master hears of it."""
    back = v2.AckMessageRequest(group=request.group)
    for each in answers:
        if isinstance(each, v2.ReceiveMessageResponse) and each.HasField("message"):
            back.entries.add(receipt_handle=each.message.system_properties.receipt_handle)
    if not back.entries:
        return

    async def here(now: MessagingCall) -> list[bytes]:
        return [each.SerializeToString() for each in await give_back.serve(back, now)]

    now = asyncio.get_running_loop().time()  # that of the client may be over
    late = replace(call, received_at=now, deadline=now + GIVE_BACK_S)
    await master.serve(late, give_back, back.SerializeToString(), here)


def _made(data: Buffer, **fields: Any) -> v2.Message | None:
    """None for bytes that are no record, and for a body that unpacks to more than is allowed."""
    try:
        return delivered(decode_record(data, check_crc=False), **fields)
    except FormatError:
        return None
