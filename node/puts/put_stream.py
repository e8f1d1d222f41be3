"""One stream of puts: its requests on their way, and the responses in their order.

    request ─▶ PendingPut ─▶ appended ─▶ resolved (confirmed, timed out, fenced, failed)
                    │                            │
    PutStream  [ oldest … newest ]            ▼
                    └── taken when it and all before it have a response

A stream responds in the order of its requests: a response that is ready waits for those before it.
Responses that a client does not take use memory, most of it for a request's table of queues: a
stream with ANSWER_BYTES of them reads no further; with FEW_ANSWER_BYTES, while those of all streams
have ALL_ANSWER_BYTES.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.puts.put_path import PutResult

from ..access.caller import Caller
from ..error_status import error_of, put_status_of
from ..roles.role import CurrentRole
from .ack_stats import AckStats
from .confirm_waiters import ConfirmWaiters, Outcome
from .pending import Pending
from .put_wire import PutRequest, answer_of, batch_of

MAX_UNANSWERED = 4_096
ANSWER_BYTES = 8 << 20
FEW_ANSWER_BYTES = 256 << 10
ALL_ANSWER_BYTES = 64 << 20


class PendingPut(Pending):
    """One request on its way: a waiter once it is appended, answered once `response` is there."""

    __slots__ = (
        "answer_bytes",
        "confirm_deadline",
        "count",
        "current",
        "durability",
        "received_at",
        "request",
        "request_id",
        "response",
        "stats",
        "stream",
    )

    def __init__(
        self,
        request: PutRequest,
        byte_size: int,
        stream: "PutStream",
        stats: AckStats,
        received_at: float,
        timeout_s: float,
    ) -> None:
        super().__init__(byte_size)
        self.request: PutRequest | None = request
        self.request_id = request.request_id
        self.durability = request.durability
        self.stream = stream
        self.current = stream.current
        self.stats = stats
        self.received_at = received_at
        # 8 bytes for each queue of the table, whose number is one byte at least
        self.answer_bytes = 8 * len(request.queue_ids)
        self.count = len(request.sizes) // 4
        self.confirm_deadline = received_at + timeout_s
        self.response: broker_pb2.AppendResponse | None = None

    def append(self, store: MessageStore) -> PutResult:
        request, self.request = self.request, None
        assert request is not None
        return store.put(batch_of(request), holder=self.stream.caller.holder)

    def stored(self, waiters: ConfirmWaiters) -> bool:
        if self.durability == broker_pb2.NO_WAIT:
            self.answer(broker_pb2.PUT_OK, None)
            return False
        waiters.add(self)
        return True

    def resolve(self, outcome: Outcome, failure: StoreError | None) -> None:
        if outcome is Outcome.CONFIRMED:
            self.stats.confirm_seconds.record(self.stream.now() - self.appended_at)
            self.answer(broker_pb2.PUT_OK, None)
            return
        if outcome is Outcome.TIMED_OUT:
            status, reason = self.current.role.unconfirmed(self.end_offset)
        elif outcome is Outcome.FENCED:
            status = broker_pb2.UNKNOWN_ERROR
            reason = f"this node is no longer the master of epoch {self.epoch}"
        else:
            status, reason = broker_pb2.FLUSH_DISK_TIMEOUT, str(failure)
        self.answer(
            status,
            common_pb2.Error(
                code=common_pb2.OUTCOME_UNKNOWN,
                message=f"stored up to {self.end_offset}, outcome unknown: {reason}",
                record_index=-1,
            ),
        )

    def answer(self, status: int, error: common_pb2.Error | None) -> None:
        """Say what became of the request."""
        self.response = answer_of(self.request_id, status, error, self.result, self.epoch)
        self.stream.caller.hold(-self.byte_size)
        self.stats.record(status, self.stream.now() - self.received_at, self.count)
        self.stream.wake()

    def refuse(self, problem: Exception) -> None:
        self.refuse_with(error_of(problem))

    def refuse_with(self, error: common_pb2.Error) -> None:
        error.master_epoch = self.epoch
        self.answer(put_status_of(error.code), error)


@dataclass(slots=True)
class AnswerBytes:
    """Of the answers of all streams that are not taken yet; roughly, from above."""

    count: int = 0


class PutStream:
    """The requests of one stream, in order. Belongs to the loop."""

    def __init__(
        self,
        current: CurrentRole,
        store_host: str,
        now: Callable[[], float],
        waiting: "AnswerBytes",
        caller: Caller,
    ) -> None:
        self.current = current
        self.now = now
        self.caller = caller
        self._waiting = waiting
        self._answer_bytes = 0
        self._store_host = store_host
        self._pending: deque[PendingPut] = deque()
        self._changed = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False

    async def room(self) -> None:
        """Wait until the stream may have another request under way."""
        await self._room.wait()

    def add(self, pending: PendingPut) -> None:
        self._pending.append(pending)
        self._count(pending.answer_bytes)

    def _count(self, answer_bytes: int) -> None:
        self._answer_bytes += answer_bytes
        self._waiting.count += answer_bytes
        most = ANSWER_BYTES if self._waiting.count < ALL_ANSWER_BYTES else FEW_ANSWER_BYTES
        if len(self._pending) >= MAX_UNANSWERED or self._answer_bytes > most:
            self._room.clear()
        else:
            self._room.set()

    def forget(self) -> None:
        """The client will not take the responses."""
        self._waiting.count -= self._answer_bytes
        self._answer_bytes = 0
        self._pending.clear()
        self._waiting = AnswerBytes()

    def end(self) -> None:
        """No further request will come; `responses` ends with the last answer."""
        self._ended = True
        self._changed.set()

    def wake(self) -> None:
        if self._pending and self._pending[0].response is not None:
            self._changed.set()

    async def responses(self) -> AsyncIterator[broker_pb2.AppendResponse]:
        """Every answer, in the order of the requests."""
        while True:
            while self._pending and (response := self._pending[0].response) is not None:
                pending = self._pending.popleft()
                self._count(-pending.answer_bytes)
                response.store_host = self._store_host
                yield response
            if self._ended and not self._pending:
                return
            self._changed.clear()
            await self._changed.wait()
