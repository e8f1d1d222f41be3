"""Requests 200051, 200151 and 200053: what consumers say of messages that they popped.

    extraInfo ─▶ receipt handle, in it, or by the number of the delivery ─▶ WorkService
        200051, 200151   ack      it is done
        200053           extend   it comes again when that time is over

A change of the invisible time is both of RocketMQ's requests in one: more time for a handler that
runs, and the pause after one that has failed. The delivery counts either way, and the last one that
the group's settings allow makes a dead letter when that time is over. Without time, or with less
than a lease may have, the message is given back for its next try.

A message that cannot be acknowledged any more is NO_MESSAGE, which a client notes and does not try
again.
"""

from collections.abc import Mapping, Sequence

from tandemlog.format.lease.handle import decode_handles, topic_hash
from tandemlog.format.lease.policy import (
    MAX_DELAY_MS,
    MAX_LEASE_MS,
    MIN_LEASE_MS,
    AckResult,
    ack_sentence,
)
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.pop.pop_receipts import MAX_DELIVERY, delivery_of
from tandemlog_server.rocketmq.clients.pop.pop_requests import (
    BatchAck,
    ReceiptRequest,
    pop_answer,
    read_batch_ack,
    read_receipt,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore

from ...work.work_service import WorkService
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from ..reads.read_rights import require_reads

DONE = (AckResult.OK, AckResult.ALREADY_DONE)


class AckMethods:
    """See the module. Belongs to the loop."""

    def __init__(self, store: MessageStore, work: WorkService) -> None:
        self._store = store
        self._work = work

    def methods(self) -> Mapping[int, Method]:
        """By request code."""
        return {
            RequestCode.ACK_MESSAGE: Method(self.ack),
            RequestCode.BATCH_ACK_MESSAGE: Method(self.batch_ack),
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: Method(self.change),
        }

    async def ack(self, call: RemotingCall) -> Command:
        """Raises FormatError, RemotingRefusedError, and as WorkService.ack does."""
        asked = await self._asked(call)
        handle = await self._handle(asked)
        results = await self._work.ack(asked.group, handle, holder=call.caller.holder)
        _require_done(AckResult(int(results[0])))
        return call.request.response()

    async def batch_ack(self, call: RemotingCall) -> Command:
        """All of them, or NO_MESSAGE if one is not to be acknowledged any more; the others are."""
        parts = read_batch_ack(call.request.body)
        for group, topic in dict.fromkeys((each.group, each.topic) for each in parts):
            require_reads(call.caller, group, topic)
            self._check_topic(topic)
        missing = not parts
        handles: dict[str, list[bytes]] = {}
        for each in parts:
            found = await self._again(each)
            missing |= not all(found)
            handles.setdefault(each.group, []).extend(handle for handle in found if handle)
        for group, of_group in handles.items():
            if not of_group:
                continue
            results = await self._work.ack(group, b"".join(of_group), holder=call.caller.holder)
            missing |= any(each not in DONE for each in results.tolist())
        if missing:
            raise RemotingRefusedError(
                ResponseCode.NO_MESSAGE,
                "not all of these messages can be acknowledged with this request: "
                + ack_sentence(AckResult.INVALID_RECEIPT_HANDLE),
            )
        return call.request.response()

    async def change(self, call: RemotingCall) -> Command:
        """Raises as `ack` does. A client reads the fields of a refusal too."""
        asked = await self._asked(call)
        ms, holder = asked.invisible_ms, call.caller.holder
        handle = await self._handle(asked)
        if ms < MIN_LEASE_MS:
            results = await self._work.nack(
                asked.group, handle, delay_ms=min(ms, MAX_DELAY_MS), holder=holder
            )
        else:
            ms = min(ms, MAX_LEASE_MS)
            results = await self._work.extend(asked.group, handle, ms, holder=holder)
        result = AckResult(int(results[0]))
        now_ms = self._store.clock.now_ms()
        delivery = delivery_of(int(decode_handles(handle)["lease"][0]))
        return call.request.response(
            code=ResponseCode.SUCCESS if result in DONE else ResponseCode.NO_MESSAGE,
            remark="" if result in DONE else ack_sentence(result),
            fields=pop_answer(now_ms, ms, delivery),
        )

    async def _asked(self, call: RemotingCall) -> ReceiptRequest:
        asked = read_receipt(call.request.fields)
        require_reads(call.caller, asked.group, asked.topic)
        self._check_topic(asked.topic)
        return asked

    def _check_topic(self, topic: str) -> None:
        if self._store.topics.get(topic) is None:
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {quoted(topic)}"
            )

    async def _handle(self, asked: ReceiptRequest) -> bytes:
        """The receipt handle, which is of this very message. Raises RemotingRefusedError."""
        handle = asked.receipt.handle
        if not handle:
            [handle] = await self._again(
                BatchAck(
                    asked.group,
                    asked.topic,
                    asked.queue_id,
                    (asked.queue_offset,),
                    asked.receipt.delivery,
                )
            )
            if not handle:
                _require_done(AckResult.INVALID_RECEIPT_HANDLE)
            return handle
        row = decode_handles(handle)[0]
        place = (int(row["topic"]), int(row["queue_id"]), int(row["queue_offset"]))
        if place != (topic_hash(asked.topic), asked.queue_id, asked.queue_offset):
            raise RemotingRefusedError(
                ResponseCode.INVALID_PARAMETER,
                "the receipt handle in extraInfo is for a message of another place",
            )
        return handle

    async def _again(self, each: BatchAck) -> Sequence[bytes]:
        place = (each.group, each.topic, each.queue_id)
        return await self._work.handles_again(
            place, each.queue_offsets, each.delivery, MAX_DELIVERY
        )


def _require_done(result: AckResult) -> None:
    """Raises RemotingRefusedError (NO_MESSAGE)."""
    if result not in DONE:
        raise RemotingRefusedError(ResponseCode.NO_MESSAGE, ack_sentence(result))
