"""Requests 200050, 200052, 200054 and 200055: consumers of RocketMQ pop from work queues.

    header ─▶ ReceiveRequest ─▶ WorkService: leases ─▶ records, each with its receipt (POP_CK)
              nothing ─▶ waits as every receive does, at most MOST_WAIT_MS

The leases, their redelivery and their dead letters are those of this project's own consumers
(decisions 0071, 0072), and both may work for one group. What RocketMQ writes to revive and retry
topics is not needed: a message stays in its queue, and comes again from there.

An order is a setting of the group (consumeMessageOrderly). A pop that asks for it makes it so for a
group that has popped nothing yet, since RocketMQ keeps no such setting for its own pops; later it
is refused. The same attempt id gets the same messages again: they are given back, untried, before
they are popped.

A client whose pop was lost with the master simply pops again, so a pop may be handed on twice.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.errors import FormatError
from tandemlog.format.lease.handle import decode_handles, handle_texts
from tandemlog.format.lease.policy import MAX_LEASE_MS, MIN_LEASE_MS, Ordering, StartAt
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.pop.order_counts import OrderCounts, PoppedPlace
from tandemlog_server.rocketmq.clients.pop.pop_receipts import (
    Receipt,
    delivery_of,
    encode_receipt,
    popped_records,
)
from tandemlog_server.rocketmq.clients.pop.pop_requests import (
    ALL_QUEUES,
    MAX_POP,
    PlaceRequest,
    PoppedQueue,
    PopRequest,
    notification_answer,
    pop_answer,
    queue_fields,
    read_place,
    read_pop,
    subscription_of,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.reads.results import GetResult, GetStatus
from tandemlog_server.storage.services.lease_desk import Selector

from ...access.caller import Caller
from ...error_status import RequestRefusedError
from ...pulls.read_turns import ReadTurns
from ...work.work_filter import selector
from ...work.work_looks import has_begun, has_work, is_open, next_offsets, waiting_for
from ...work.work_requests import LeasedMessages, ReceiveRequest, ReceiveResult
from ...work.work_service import WorkService
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from ..reads.read_rights import require_reads

MOST_WAIT_MS: Final = 20_000
"""Below the time after which one node gives the answer of another up."""
POP_BYTES: Final = 4 << 20
PEEK_BYTES: Final = 256 << 10
ATTEMPTS_KEPT: Final = 4_096
_MOST: Final = 0xFFFE
BROKER_NAME: Final = "bname"
"""The field in which a client of 5.x says which broker of the route it means."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    group: str
    topic: str
    attempt_id: str


class PopMethods:
    """See the module. `broker_names`: of the route, the own one first; `recent_bytes`:
    a topic whose first messages lie no further back is read from its begin by every new group, as
    RocketMQ does while they are in its memory. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        work: WorkService,
        turns: ReadTurns,
        *,
        broker_names: Callable[[], Sequence[str]],
        recent_bytes: int,
        order_counts: OrderCounts,
    ) -> None:
        self._store = store
        self._work = work
        self._turns = turns
        self._broker_names = broker_names
        self._recent_bytes = recent_bytes
        self._attempts: OrderedDict[_Attempt, bytes] = OrderedDict()
        self._order_counts = order_counts

    def methods(self) -> Mapping[int, Method]:
        """By request code."""
        return {
            RequestCode.POP_MESSAGE: Method(self.pop),
            RequestCode.PEEK_MESSAGE: Method(self.peek),
            RequestCode.NOTIFICATION: Method(self.notification),
            RequestCode.POLLING_INFO: Method(self.polling_info),
        }

    # ---- pop

    async def pop(self, call: RemotingCall) -> Command:
        """Raises FormatError, RemotingRefusedError, and as WorkService.receive does."""
        asked = read_pop(call.request.fields)
        require_reads(call.caller, asked.group, asked.topic)
        self._check_queue(asked.topic, asked.queue_id)
        if not 1 <= asked.max_messages <= MAX_POP:
            raise RemotingRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"a pop asks for 1 .. {MAX_POP} messages: {asked.max_messages}",
            )
        in_order = await self._order(asked)
        attempt = _Attempt(asked.group, asked.topic, asked.attempt_id)
        if in_order and attempt.attempt_id:
            await self._give_back(attempt, call.caller)
        request = await self._request(asked, call.caller)
        result = await self._work.receive(request, call.caller)
        handles = b"".join(each.handles for each in result.messages)
        if call.connection.closed and handles:
            await self._work.release(asked.group, handles)
        elif in_order and handles:
            result = replace(result, messages=self._counted(asked, result.messages))
            if attempt.attempt_id:
                self._note(attempt, handles)
        return self._answer(call.request, asked, result, in_order=in_order)

    async def _request(self, asked: PopRequest, caller: Caller) -> ReceiveRequest:
        wanted = _selector(asked)
        first = (
            asked.from_first
            or is_open(self._work, asked.group, asked.topic)
            or await self._is_young(asked.topic, caller)
        )
        return ReceiveRequest(
            asked.group,
            (asked.topic,),
            asked.max_messages,
            min(max(asked.invisible_ms, MIN_LEASE_MS), MAX_LEASE_MS),
            min(asked.wait_ms, MOST_WAIT_MS),
            POP_BYTES,
            wanted,
            frozenset(() if asked.queue_id == ALL_QUEUES else (asked.queue_id,)),
            StartAt.EARLIEST if first else StartAt.LATEST,
        )

    async def _is_young(self, topic: str, caller: Caller) -> bool:
        """Whether a group that would begin at the end begins at the first message all the same."""
        return await self._turns.run(caller, partial(self._look_young, topic))

    def _look_young(self, topic: str) -> bool:
        for queue_id in self._store.queue_table.queues_of(topic):
            first = self._store.reader.get(topic, queue_id, 0, 1, 1)
            if first.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
                continue
            if first.min_offset > 0 or first.behind > self._recent_bytes:
                return False
        return True

    async def _order(self, asked: PopRequest) -> bool:
        """Whether the group's messages come in an order. Raises RemotingRefusedError if they should
        and cannot."""
        policy = await self._work.policy(asked.group)
        if policy is not None and policy.ordering is not Ordering.NONE:
            return True
        if not asked.in_order:
            return False
        if policy is not None and await has_begun(self._work, asked.group):
            raise RemotingRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"group {quoted(asked.group)} pops without an order, and this pop asks for one: "
                "set it for the group with mqadmin updateSubGroup -o true, or use another group",
            )
        policy = policy or self._store.groups.policy(asked.group)
        await self._work.set_policy(asked.group, replace(policy, ordering=Ordering.QUEUE))
        return True

    async def _give_back(self, attempt: _Attempt, caller: Caller) -> None:
        handles = self._attempts.pop(attempt, b"")
        if handles:
            await self._work.release(attempt.group, handles, holder=caller.holder)

    def _note(self, attempt: _Attempt, handles: bytes) -> None:
        self._attempts[attempt] = handles
        while len(self._attempts) > ATTEMPTS_KEPT:
            self._attempts.popitem(last=False)

    def _answer(
        self, request: Command, asked: PopRequest, result: ReceiveResult, *, in_order: bool
    ) -> Command:
        pop_time_ms = result.leased_until_ms - result.lease_ms
        rest = sum(each.rest for each in result.messages)
        if not result.messages:
            return request.response(
                code=ResponseCode.POLLING_TIMEOUT,
                remark="NO_MESSAGE_IN_QUEUE",
                fields=pop_answer(pop_time_ms, result.lease_ms),
            )
        broker = self._broker_of(request)
        body = b"".join(
            _records(each, pop_time_ms, result, broker, asked.group) for each in result.messages
        )
        leases = decode_handles(result.messages[0].handles)["lease"]
        fields = pop_answer(pop_time_ms, result.lease_ms, delivery_of(int(leases[0])), rest)
        fields.update(queue_fields(_by_queue(result), in_order=in_order))
        return request.response(body, fields=fields, remark="FOUND")

    def _counted(
        self, asked: PopRequest, messages: Sequence[LeasedMessages]
    ) -> tuple[LeasedMessages, ...]:
        """With deliveries in the place of attempts: rocketmq/clients/pop/order_counts.py."""
        counted = []
        for each in messages:
            place = PoppedPlace(asked.group, each.topic, each.queue_id)
            offsets = each.queue_offsets.tolist()
            tried = dict(zip(offsets, _before(each).tolist(), strict=True))
            counts = self._order_counts.popped(place, asked.attempt_id, tried)
            times = [min(counts[offset], _MOST) + 1 for offset in offsets]
            counted.append(replace(each, attempts=np.array(times, np.uint16)))
        return tuple(counted)

    def _broker_of(self, request: Command) -> str:
        """The name by which the client reached a node: it acknowledges by that name."""
        names = self._broker_names()
        name = request.fields.get(BROKER_NAME, "")
        return name if name in names else names[0]

    # ---- without leases

    async def peek(self, call: RemotingCall) -> Command:
        """Messages that the group has not popped yet. Raises as `pop` does."""
        asked = read_place(call.request.fields)
        require_reads(call.caller, asked.group, asked.topic)
        self._check_queue(asked.topic, asked.queue_id)
        places = await next_offsets(self._work, asked.group, asked.topic, call.caller)
        if asked.queue_id != ALL_QUEUES:
            places = {each: places[each] for each in places if each == asked.queue_id}
        found = await self._turns.run(
            call.caller,
            partial(self._peeked, asked, places),
            room=PEEK_BYTES,
            size_of=lambda results: sum(len(each.records) for each in results),
        )
        rest = sum(max(each.max_offset - each.next_offset, 0) for each in found)
        body = b"".join(bytes(each.records) for each in found)
        now_ms = self._store.clock.now_ms()
        return call.request.response(
            body,
            code=ResponseCode.SUCCESS if body else ResponseCode.PULL_NOT_FOUND,
            remark="FOUND" if body else "NO_MESSAGE_IN_QUEUE",
            fields=pop_answer(now_ms, 0, 0, rest),
        )

    def _peeked(self, asked: PlaceRequest, places: Mapping[int, int]) -> list[GetResult]:
        """In a reader thread."""
        found, room, count = [], PEEK_BYTES, min(asked.max_messages, MAX_POP)
        for queue_id, offset in places.items():
            if room <= 0 or count <= 0:
                break
            result = self._store.reader.get(asked.topic, queue_id, offset, count, room)
            if len(result.records):
                found.append(result)
                room -= len(result.records)
                count -= len(result.sizes)
        return found

    async def notification(self, call: RemotingCall) -> Command:
        """Whether there is a message, waited for. Raises as `pop` does."""
        asked = read_place(call.request.fields)
        require_reads(call.caller, asked.group, asked.topic)
        self._check_queue(asked.topic, asked.queue_id)
        queues = () if asked.queue_id == ALL_QUEUES else (asked.queue_id,)
        wait_ms = min(asked.wait_ms, MOST_WAIT_MS)
        found = await has_work(
            self._work, asked.group, (asked.topic,), queues, wait_ms, call.caller
        )
        return call.request.response(fields=notification_answer(has_message=found))

    async def polling_info(self, call: RemotingCall) -> Command:
        """How many pops wait for the topic."""
        asked = read_place(call.request.fields)
        require_reads(call.caller, asked.group, asked.topic)
        count = await waiting_for(self._work, asked.group, asked.topic)
        return call.request.response(fields={"pollingNum": str(count)})

    def _check_queue(self, topic: str, queue_id: int) -> None:
        """Raises RemotingRefusedError."""
        config = self._store.topics.get(topic)
        if config is None:
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"there is no topic {quoted(topic)}: create it, or let its first message do so",
            )
        if queue_id >= config.read_queues:
            raise RemotingRefusedError(
                ResponseCode.INVALID_PARAMETER,
                f"topic {quoted(topic)} has {config.read_queues} queues to read, there is no queue "
                f"{queue_id}",
            )


def _selector(asked: PopRequest) -> Selector | None:
    """Raises RemotingRefusedError (SUBSCRIPTION_PARSE_FAILED)."""
    try:
        return selector(*subscription_of(asked.expression, asked.expression_type))
    except (FormatError, RequestRefusedError) as problem:
        raise RemotingRefusedError(
            ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(problem)
        ) from problem


def _before(messages: LeasedMessages) -> NDArray[np.int64]:
    """How often each was delivered before."""
    return np.maximum(messages.attempts.astype(np.int64) - 1, 0)


def _by_queue(result: ReceiveResult) -> list[PoppedQueue]:
    """Each queue once, ascending."""
    offsets: dict[int, dict[int, int]] = {}
    for each in result.messages:
        rows = zip(each.queue_offsets.tolist(), _before(each).tolist(), strict=True)
        offsets.setdefault(each.queue_id, {}).update(rows)
    found = []
    for queue_id, rows_of in sorted(offsets.items()):
        ordered = sorted(rows_of)
        found.append(PoppedQueue(queue_id, ordered, [rows_of[each] for each in ordered]))
    return found


def _records(
    leased: LeasedMessages, pop_time_ms: int, result: ReceiveResult, broker: str, group: str
) -> bytes:
    """With their receipts."""
    offsets, start = leased.queue_offsets.tolist(), int(leased.queue_offsets[0])
    leases = decode_handles(leased.handles)["lease"].tolist()
    receipts = [
        encode_receipt(
            Receipt(
                start,
                pop_time_ms,
                result.lease_ms,
                delivery_of(lease),
                broker,
                leased.queue_id,
                offset,
                handle.encode(),
            )
        )
        for offset, lease, handle in zip(offsets, leases, handle_texts(leased.handles), strict=True)
    ]
    return popped_records(
        leased.records, leased.sizes, leased.attempts, leased.first_ms, receipts, group
    )
