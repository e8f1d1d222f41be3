"""AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue: what became of messages.

    ack      done
    change   leased until then, by the same handle; when that time is over, the message comes again
             as its next attempt: so a consumer asks for more time, and so it says that it failed
    forward  a dead letter now

What a handle means is the engine's business (storage/leases): one of an earlier master counts, one
of a message that was cut never does. Which of its messages a client has is known by the handle
alone: some clients send other ids.
"""

from collections.abc import Sequence
from typing import Final

from tandemlog.format.lease.policy import MAX_HANDLES, MAX_LEASE_MS, MIN_LEASE_MS, AckResult
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.messaging.receipt_handles import encoded_handles, result_status
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError, made_status
from tandemlog_server.rocketmq.messaging.resources import group_of
from tandemlog_server.rocketmq.messaging.times import milliseconds

from ..access.identities import Right
from ..work.work_service import WorkService
from .messaging_call import Answers, MessagingCall, Method
from .renewed_leases import RenewedLeases, who_of

GIVEN_UP: Final = "the consumer gave it up"


class LeaseMethods:
    """See the module; belongs to the loop."""

    def __init__(self, work: WorkService, renewed: RenewedLeases) -> None:
        self._work = work
        self._renewed = renewed

    def methods(self) -> list[Method]:
        return [
            Method("AckMessage", v2.AckMessageRequest, v2.AckMessageResponse, self.ack),
            Method(
                "ChangeInvisibleDuration",
                v2.ChangeInvisibleDurationRequest,
                v2.ChangeInvisibleDurationResponse,
                self.change,
            ),
            Method(
                "ForwardMessageToDeadLetterQueue",
                v2.DeadLetterRequest,
                v2.DeadLetterResponse,
                self.forward,
            ),
        ]

    async def ack(self, request: v2.AckMessageRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError, DeniedError, and what the engine refuses in any door."""
        group = self._group(request.group, call)
        entries = request.entries
        if not 0 < len(entries) <= MAX_HANDLES:
            raise MessagingRefusedError(
                v2.BAD_REQUEST, f"1 to {MAX_HANDLES} messages are acknowledged, not {len(entries)}"
            )
        texts = [each.receipt_handle for each in entries]
        results = [int(AckResult.INVALID_RECEIPT_HANDLE)] * len(texts)
        handles, rows = encoded_handles(texts)
        if rows:
            done = await self._work.ack(group, handles, holder=call.caller.holder)
            for row, result in zip(rows, done.tolist(), strict=True):
                results[row] = result
        self._renewed.forget(who_of(call), texts)
        statuses = [result_status(each) for each in results]
        answer = v2.AckMessageResponse(
            status=_together(statuses),
            entries=[
                v2.AckMessageResultEntry(
                    message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status
                )
                for entry, status in zip(entries, statuses, strict=True)
            ],
        )
        return [answer]

    async def change(
        self, request: v2.ChangeInvisibleDurationRequest, call: MessagingCall
    ) -> Answers:
        """The handle stays the same, and is in the answer: a client keeps what it is given. Raises
        as `ack`."""
        group = self._group(request.group, call)
        duration_ms = milliseconds(request.invisible_duration)
        if not 0 <= duration_ms <= MAX_LEASE_MS:
            raise MessagingRefusedError(
                v2.ILLEGAL_INVISIBLE_TIME,
                f"invisible_duration must be 0 .. {MAX_LEASE_MS} ms: {duration_ms}",
            )
        handle, holder = request.receipt_handle, call.caller.holder
        handles, rows = encoded_handles([handle])
        status = result_status(AckResult.INVALID_RECEIPT_HANDLE)
        if rows:
            if duration_ms < MIN_LEASE_MS:
                done = await self._work.nack(group, handles, delay_ms=duration_ms, holder=holder)
            else:
                done = await self._work.extend(group, handles, duration_ms, holder=holder)
            status = result_status(int(done[0]))
        self._renewed.forget(who_of(call), [handle])
        return [v2.ChangeInvisibleDurationResponse(status=status, receipt_handle=handle)]

    async def forward(self, request: v2.DeadLetterRequest, call: MessagingCall) -> Answers:
        """Raises as `ack`."""
        group = self._group(request.group, call)
        handles, rows = encoded_handles([request.receipt_handle])
        status = result_status(AckResult.INVALID_RECEIPT_HANDLE)
        if rows:
            done = await self._work.reject(
                group, handles, error=GIVEN_UP, holder=call.caller.holder
            )
            status = result_status(int(done[0]))
        self._renewed.forget(who_of(call), [request.receipt_handle])
        if status.code == v2.INVALID_RECEIPT_HANDLE:
            # a consumer would ask for ever; the message is with another one, or done
            status = made_status(v2.OK, status.message)
        return [v2.DeadLetterResponse(status=status)]

    @staticmethod
    def _group(resource: v2.Resource, call: MessagingCall) -> str:
        group = group_of(resource)
        call.caller.require(Right.CONSUME, [group])
        return group


def _together(statuses: Sequence[v2.Status]) -> v2.Status:
    codes = {each.code for each in statuses}
    return statuses[0] if len(codes) == 1 else made_status(v2.MULTIPLE_RESULTS)
