"""The Work service: messages that are leased, settled one by one, and dead letters, over gRPC.

    request ─▶ values of node/work ─▶ WorkService ─▶ columns as bytes ─▶ response

Any node but the master refuses with the master's address. The handles of a request
are one text, and their results one string of bytes, so that no statement runs for each message.
Methods raise errors; call_door.py turns them into responses.

A caller that may consume as a group may set its policy: it could skip or repeat every message of
the group anyway. Dead letters are messages of any topic: to read one needs the right to read the
topic that it came from, to send it again the right to write to that.
"""
# The methods have the names of work.proto.
# ruff: noqa: N802

import asyncio

from tandemlog.consume.work.policy_messages import policy_changed, policy_message
from tandemlog.format.lease.dead_letter import DeadLetter, decode_dead_letter
from tandemlog.format.lease.policy import MAX_WAIT_MS, GroupPolicy, policy_fault
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import common_pb2, work_pb2
from tandemlog_server.storage.services.dead_letters import DeadLetterRow

from ..access.caller import Caller
from ..access.identities import Right
from ..error_status import RequestRefusedError, check_count
from ..work.dead_letter_service import DeadLetterService
from ..work.work_filter import selector
from ..work.work_requests import LeasedMessages, QueueWork, ReceiveRequest, no_group
from ..work.work_service import WorkService

DEFAULT_BYTES = 4 << 20
MAX_BYTES = 8 << 20
MAX_PARTS = 2_000
"""Of a request: messages that failed in the same way."""
MAX_RESENT = 1_000
MAX_LETTERS = 1_000


class WorkMethods:
    """See the module."""

    def __init__(self, work: WorkService, letters: DeadLetterService) -> None:
        self._work = work
        self._letters = letters

    # ---- messages

    async def Receive(
        self, request: work_pb2.ReceiveRequest, caller: Caller
    ) -> work_pb2.ReceiveResponse:
        wanted = ReceiveRequest(
            group=request.group,
            topics=tuple(request.topics),
            max_messages=request.max_messages,
            lease_ms=request.lease_ms,
            wait_ms=min(request.wait_ms, MAX_WAIT_MS),
            max_bytes=min(request.max_bytes or DEFAULT_BYTES, MAX_BYTES),
            filter=selector(request.tags, request.filter),
            queues=frozenset(request.queue_ids),
        )
        now = asyncio.get_running_loop().time
        came_at = now()
        result = await self._work.receive(wanted, caller)
        waited_s = now() - came_at
        policy = await self._work.policy(request.group) or GroupPolicy()
        return work_pb2.ReceiveResponse(
            queues=map(_leased, result.messages),
            leased_until_ms=result.leased_until_ms,
            lease_ms=result.lease_ms,
            throttled=result.throttled,
            waited_ms=int(1000 * waited_s),
            ordering=work_pb2.WorkOrdering.ValueType(policy.ordering),
        )

    async def Acknowledge(
        self, request: work_pb2.AcknowledgeRequest, caller: Caller
    ) -> work_pb2.HandlesResponse:
        results = await self._work.ack(
            request.group, request.handles, sync=request.sync, holder=caller.holder
        )
        return work_pb2.HandlesResponse(results=results.tobytes())

    async def Nack(self, request: work_pb2.NackRequest, caller: Caller) -> work_pb2.HandlesResponse:
        check_count("failed", len(request.failed), MAX_PARTS)
        results = bytearray()
        for part in request.failed:
            delay_ms = part.delay_ms if part.HasField("delay_ms") else None
            results += (
                await self._work.nack(
                    request.group,
                    part.handles,
                    delay_ms=delay_ms,
                    error=part.error,
                    holder=caller.holder,
                )
            ).tobytes()
        return await self._settled(request.group, results, sync=request.sync)

    async def Reject(
        self, request: work_pb2.RejectRequest, caller: Caller
    ) -> work_pb2.HandlesResponse:
        check_count("rejected", len(request.rejected), MAX_PARTS)
        results = bytearray()
        for part in request.rejected:
            results += (
                await self._work.reject(
                    request.group, part.handles, error=part.error, holder=caller.holder
                )
            ).tobytes()
        return await self._settled(request.group, results, sync=request.sync)

    async def Release(
        self, request: work_pb2.ReleaseRequest, caller: Caller
    ) -> work_pb2.HandlesResponse:
        results = await self._work.release(request.group, request.handles, holder=caller.holder)
        return work_pb2.HandlesResponse(results=results.tobytes())

    async def Extend(
        self, request: work_pb2.ExtendRequest, caller: Caller
    ) -> work_pb2.HandlesResponse:
        results = await self._work.extend(
            request.group, request.handles, request.lease_ms, holder=caller.holder
        )
        return work_pb2.HandlesResponse(results=results.tobytes())

    async def _settled(
        self, group: str, results: bytearray, *, sync: bool
    ) -> work_pb2.HandlesResponse:
        if sync:
            await self._work.sync(group)
        return work_pb2.HandlesResponse(results=bytes(results))

    # ---- groups

    async def SetGroupPolicy(
        self, request: work_pb2.SetGroupPolicyRequest, caller: Caller
    ) -> work_pb2.SetGroupPolicyResponse:
        before = await self._work.policy(request.group) or GroupPolicy()
        try:
            after = policy_changed(before, request)
        except ValueError as error:  # a number that stands for nothing here
            raise _refused("policy", str(error)) from error
        fault = policy_fault(after)
        if fault is not None:
            raise _refused("policy", fault)
        if not request.dry_run:
            await self._work.set_policy(request.group, after)
        return work_pb2.SetGroupPolicyResponse(
            before=policy_message(before), policy=policy_message(after)
        )

    async def DescribeGroupWork(
        self, request: work_pb2.DescribeGroupWorkRequest, caller: Caller
    ) -> work_pb2.DescribeGroupWorkResponse:
        if await self._work.policy(request.group) is None:
            raise no_group(request.group)
        found = await self._work.describe(request.group)
        seen = set(caller.seen({each.topic for each in found.queues}))
        return work_pb2.DescribeGroupWorkResponse(
            policy=policy_message(found.policy),
            leased=found.leased,
            waiting_retry=found.waiting_retry,
            ready=found.ready,
            dead=found.dead,
            dead_letters=found.dead_letters,
            oldest_unacked_ms=found.oldest_unacked_ms or 0,
            attempts=found.attempts,
            queues=[_queue(each) for each in found.queues if each.topic in seen],
        )

    # ---- dead letters

    async def ListDeadLetters(
        self, request: work_pb2.ListDeadLettersRequest, caller: Caller
    ) -> work_pb2.ListDeadLettersResponse:
        count = min(request.count, MAX_LETTERS) or MAX_LETTERS
        if request.from_offset < 0 or count < 0:
            raise _refused("from_offset", "from_offset and count must not be negative")
        page = await self._letters.list(request.group, request.from_offset, count)
        seen = set(caller.seen({each.letter.topic for each in page.rows}))
        return work_pb2.ListDeadLettersResponse(
            letters=[_row(each) for each in page.rows if each.letter.topic in seen],
            next_offset=page.next_offset,
            max_offset=page.end_offset,
            left=page.left,
        )

    async def ReadDeadLetter(
        self, request: work_pb2.ReadDeadLetterRequest, caller: Caller
    ) -> work_pb2.ReadDeadLetterResponse:
        data = await self._letters.read(request.group, request.queue_offset)
        record = decode_record(data, check_crc=False)
        letter = decode_dead_letter(record)
        caller.require(Right.READ, (letter.topic,))
        described = _letter(letter, record.queue_offset, record.store_timestamp, len(data))
        described.keys = record.keys or ""
        return work_pb2.ReadDeadLetterResponse(record=data, letter=described)

    async def ResendDeadLetters(
        self, request: work_pb2.ResendDeadLettersRequest, caller: Caller
    ) -> work_pb2.ResendDeadLettersResponse:
        check_count("queue_offsets", len(request.queue_offsets), MAX_RESENT)
        offsets = list(request.queue_offsets)
        topics = {offset: await self._origin(request.group, offset) for offset in offsets}
        caller.require(Right.WRITE, filter(None, topics.values()))
        result = await self._letters.resend(
            request.group, offsets, caller.holder, dry_run=request.dry_run
        )
        refusals = dict(result.refused)
        return work_pb2.ResendDeadLettersResponse(
            letters=[
                work_pb2.ResentLetter(
                    queue_offset=offset, topic=topic, refusal=refusals.get(offset, "")
                )
                for offset, topic in topics.items()
            ]
        )

    async def _origin(self, group: str, queue_offset: int) -> str:
        """Empty if there is no such letter, which `resend` refuses by itself."""
        try:
            data = await self._letters.read(group, queue_offset)
        except RequestRefusedError as refusal:
            if refusal.code == common_pb2.OFFSET_OUT_OF_RANGE:
                return ""
            raise
        return decode_dead_letter(decode_record(data, check_crc=False)).topic

    async def PurgeDeadLetters(
        self, request: work_pb2.PurgeDeadLettersRequest, caller: Caller
    ) -> work_pb2.PurgeDeadLettersResponse:
        count = await self._letters.purge(
            request.group, request.before_offset, dry_run=request.dry_run
        )
        return work_pb2.PurgeDeadLettersResponse(count=count)


def _leased(messages: LeasedMessages) -> work_pb2.LeasedMessages:
    return work_pb2.LeasedMessages(
        topic=messages.topic,
        queue_id=messages.queue_id,
        count=len(messages.sizes),
        sizes=messages.sizes.astype("<u4").tobytes(),
        records=bytes(messages.records),
        queue_offsets=messages.queue_offsets.astype("<i8").tobytes(),
        attempts=messages.attempts.astype("<u2").tobytes(),
        handles=messages.handles,
        last_errors=messages.last_errors,
    )


def _queue(row: QueueWork) -> work_pb2.QueueWork:
    return work_pb2.QueueWork(
        topic=row.topic,
        queue_id=row.queue_id,
        floor=row.floor,
        next_offset=row.next_offset,
        max_offset=row.max_offset,
        leased=row.leased,
        waiting_retry=row.waiting_retry,
        ready=row.ready,
        unacked=row.unacked,
        oldest_unacked_ms=row.oldest_unacked_ms or 0,
    )


def _row(row: DeadLetterRow) -> work_pb2.DeadLetter:
    return _letter(row.letter, row.queue_offset, row.store_timestamp, row.size)


def _letter(
    letter: DeadLetter, queue_offset: int, store_timestamp: int, size: int
) -> work_pb2.DeadLetter:
    return work_pb2.DeadLetter(
        queue_offset=queue_offset,
        origin_topic=letter.topic,
        origin_queue_id=letter.queue_id,
        origin_queue_offset=letter.queue_offset,
        origin_message_id=letter.message_id,
        attempts=letter.attempts,
        last_error=letter.last_error,
        first_attempt_ms=letter.first_attempt_ms,
        last_attempt_ms=letter.last_attempt_ms,
        store_timestamp=store_timestamp,
        size=size,
    )


def _refused(field: str, text: str) -> RequestRefusedError:
    return RequestRefusedError(common_pb2.INVALID_ARGUMENT, text, field=field)
