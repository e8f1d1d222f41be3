"""The Work service of a FakeNode: FakeWork over gRPC."""

# the methods have the names of work.proto
# ruff: noqa: N802

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fakes.fake_log import RefusedError
from fakes.fake_work import Dead, FakeWork, FakeWorkGroup
from tandemlog.consume.work.policy_messages import policy_changed, policy_message
from tandemlog.format.record.record import decode_record
from tandemlog.v1 import common_pb2, work_pb2, work_pb2_grpc

if TYPE_CHECKING:
    from fakes.fake_node import FakeNode

LOOK_S = 0.02


class FakeWorkDoor(work_pb2_grpc.WorkServicer):
    """See the module."""

    def __init__(self, node: "FakeNode") -> None:
        self._node = node

    @property
    def _work(self) -> FakeWork:
        self._node._master_only()
        return self._node.cluster.work

    def _group(self, name: str) -> FakeWorkGroup:
        work = self._work
        if name not in work.groups:
            raise RefusedError(common_pb2.UNKNOWN_GROUP, f"group {name} does not exist")
        return work.groups[name]

    async def Receive(self, request: work_pb2.ReceiveRequest, context: Any) -> Any:
        came_at = asyncio.get_running_loop().time()
        end = came_at + request.wait_ms / 1000
        try:
            while True:
                answer = self._work.receive(request)
                now = asyncio.get_running_loop().time()
                left, answer.waited_ms = end - now, int(1000 * (now - came_at))
                if answer.queues or answer.throttled or left <= 0:
                    answer.master_epoch = self._node.cluster.epoch
                    await self._work.may_be_sent(answer)
                    return answer
                # the next message, the end of a lease, or a pause that ends
                changed = asyncio.ensure_future(self._work.changed.wait())
                appended = asyncio.ensure_future(self._node.cluster.next_append())
                try:
                    await asyncio.wait(
                        [changed, appended],
                        timeout=min(left, LOOK_S),
                        return_when=asyncio.FIRST_COMPLETED,
                    )
                finally:
                    changed.cancel()
                    appended.cancel()
        except RefusedError as refusal:
            return work_pb2.ReceiveResponse(error=refusal.error)

    async def Acknowledge(self, request: Any, context: Any) -> Any:
        return self._handles("Acknowledge", request)

    async def Nack(self, request: Any, context: Any) -> Any:
        return self._handles("Nack", request)

    async def Release(self, request: Any, context: Any) -> Any:
        return self._handles("Release", request)

    async def Extend(self, request: Any, context: Any) -> Any:
        return self._handles("Extend", request)

    async def Reject(self, request: Any, context: Any) -> Any:
        return self._handles("Reject", request)

    def _handles(self, method: str, request: Any) -> Any:
        def settle() -> work_pb2.HandlesResponse:
            answer = self._work.handles(method, request)
            answer.master_epoch = self._node.cluster.epoch
            return answer

        return self._answer(settle, work_pb2.HandlesResponse)

    async def SetGroupPolicy(self, request: work_pb2.SetGroupPolicyRequest, context: Any) -> Any:
        def change() -> work_pb2.SetGroupPolicyResponse:
            group = self._work.group(request.group)
            before, after = group.policy, policy_changed(group.policy, request)
            if not request.dry_run:
                group.policy = after
                self._work.policies_set += 1
            return work_pb2.SetGroupPolicyResponse(
                before=policy_message(before), policy=policy_message(after)
            )

        return self._answer(change, work_pb2.SetGroupPolicyResponse)

    async def DescribeGroupWork(
        self, request: work_pb2.DescribeGroupWorkRequest, context: Any
    ) -> Any:
        def describe() -> work_pb2.DescribeGroupWorkResponse:
            group = self._group(request.group)
            rows = list(group.rows.values())
            now = self._work.now()
            most = max((row.attempts for row in rows), default=0)
            return work_pb2.DescribeGroupWorkResponse(
                policy=policy_message(group.policy),
                leased=sum(bool(row.handle) for row in rows),
                waiting_retry=sum(not row.handle and row.free_at > now for row in rows),
                ready=sum(not row.handle and row.free_at <= now for row in rows),
                dead_letters=len(group.dead) - group.purged,
                attempts=[
                    sum(row.attempts == number for row in rows) for number in range(1, most + 1)
                ],
            )

        return self._answer(describe, work_pb2.DescribeGroupWorkResponse)

    async def ListDeadLetters(self, request: work_pb2.ListDeadLettersRequest, context: Any) -> Any:
        def page() -> work_pb2.ListDeadLettersResponse:
            group = self._group(request.group)
            first = max(request.from_offset, group.purged)
            last = min(first + (request.count or 100), len(group.dead))
            return work_pb2.ListDeadLettersResponse(
                letters=[_letter(at, group.dead[at]) for at in range(first, last)],
                next_offset=max(first, last),
                max_offset=len(group.dead),
            )

        return self._answer(page, work_pb2.ListDeadLettersResponse)

    async def ReadDeadLetter(self, request: work_pb2.ReadDeadLetterRequest, context: Any) -> Any:
        def read() -> work_pb2.ReadDeadLetterResponse:
            group, at = self._group(request.group), request.queue_offset
            if not group.purged <= at < len(group.dead):
                raise RefusedError(common_pb2.OFFSET_OUT_OF_RANGE, f"no dead letter {at}")
            return work_pb2.ReadDeadLetterResponse(
                record=group.dead[at].record, letter=_letter(at, group.dead[at])
            )

        return self._answer(read, work_pb2.ReadDeadLetterResponse)

    async def ResendDeadLetters(
        self, request: work_pb2.ResendDeadLettersRequest, context: Any
    ) -> Any:
        def resend() -> work_pb2.ResendDeadLettersResponse:
            group, answer = self._group(request.group), work_pb2.ResendDeadLettersResponse()
            for at in request.queue_offsets:
                dead = group.dead[at]
                answer.letters.add(queue_offset=at, topic=dead.topic)
                if not request.dry_run:
                    self._node.log.append_again(dead.record)
            return answer

        answer = self._answer(resend, work_pb2.ResendDeadLettersResponse)
        await self._node.cluster.appended()
        return answer

    async def PurgeDeadLetters(
        self, request: work_pb2.PurgeDeadLettersRequest, context: Any
    ) -> Any:
        def purge() -> work_pb2.PurgeDeadLettersResponse:
            group = self._group(request.group)
            before = min(request.before_offset, len(group.dead))
            count = max(before - group.purged, 0)
            if not request.dry_run:
                group.purged = max(group.purged, before)
            return work_pb2.PurgeDeadLettersResponse(count=count)

        return self._answer(purge, work_pb2.PurgeDeadLettersResponse)

    def _answer(self, work: Callable[[], Any], answer: Any) -> Any:
        try:
            return work()
        except RefusedError as refusal:
            return answer(error=refusal.error)


def _letter(at: int, dead: Dead) -> work_pb2.DeadLetter:
    record = decode_record(dead.record)
    return work_pb2.DeadLetter(
        queue_offset=at,
        origin_topic=dead.topic,
        origin_queue_id=dead.queue_id,
        origin_queue_offset=dead.queue_offset,
        origin_message_id=record.uniq_key or "",
        attempts=dead.attempts,
        last_error=dead.error,
        size=len(dead.record),
        keys=record.keys or "",
    )
