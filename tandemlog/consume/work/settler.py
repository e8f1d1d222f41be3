"""Tells the master what became of messages: many in one request, and until it has said that it
knows.

    ack(), retry() ...  ─▶ pending ──linger──▶ Acknowledge, Nack, Reject, Release ─▶ results
       any thread             ▲                                                       │
                              └── the next ones gather while a request is under way   ├─ done
                                                                                      └─ lost

A request that fails is sent again, to the new master if there is one, while the consumer is open: a
handle stays valid, and a message that is not reported done comes again. What the node does not
accept was lost before: its lease ended, and another consumer has the message.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from ...errors import InternalError, OutcomeUnknownError, TandemlogError
from ...format.lease.policy import MAX_HANDLES, AckResult, ack_sentence
from ...v1 import work_pb2
from .leased_batch import ACKED, REJECTED, RELEASED, RETRIED, LeasedBatch, lost_error
from .work_calls import WorkCalls, may_pass
from .work_statistics import WorkCounters

logger = logging.getLogger(__name__)

Settled = tuple[LeasedBatch, int, int, int | None, str, "asyncio.Future[None] | None"]
"""Batch, row, state, delay in ms (None: by the policy), error, and who waits until it is confirmed
by the in-sync replicas."""

MAX_PENDING: Final = 2 * MAX_HANDLES
MAX_FAILED: Final = 2_000
"""Of one request, where each may have an error of its own."""
PAUSE_S: Final = 0.1
_METHODS: Final = {ACKED: "Acknowledge", RETRIED: "Nack", REJECTED: "Reject", RELEASED: "Release"}
_COUNTERS: Final = {ACKED: "acked", RETRIED: "retried", REJECTED: "rejected", RELEASED: "released"}


class Settler:
    """See the module. `fail` is called with an error that does not pass; `done` with messages whose
    acknowledgement is known now, before their callers hear of it: those that this consumer may have
    got a second time, since another master than the one that leased them was asked too."""

    def __init__(
        self,
        calls: WorkCalls,
        counters: WorkCounters,
        linger_s: float,
        fail: Callable[[TandemlogError], None],
        done: Callable[[Sequence[Settled]], None],
    ) -> None:
        self._calls = calls
        self._counters = counters
        self._linger_s = linger_s
        self._fail = fail
        self._done = done
        self._pending: deque[Settled] = deque()
        self._sending = 0
        self._armed = False
        self._urgent = False
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._loop = asyncio.get_running_loop()
        self._closing = False
        self._task = self._loop.create_task(self._run(), name="tandemlog-settle")

    @property
    def unconfirmed(self) -> int:
        return len(self._pending) + self._sending

    @property
    def full(self) -> bool:
        return len(self._pending) >= MAX_PENDING

    def add(self, settled: Settled) -> None:
        """In the loop."""
        self._pending.append(settled)
        if self._task.done():
            self._give_up()
        if not self._armed:
            self._arm()

    def add_threadsafe(self, settled: Settled) -> None:
        """Any thread. The flag is taken back before the pending ones are: what is added meanwhile
        is either among them, or sets it again."""
        self._pending.append(settled)
        if not self._armed:
            self._armed = True
            self._loop.call_soon_threadsafe(self._arm)

    def _arm(self) -> None:
        self._armed = True
        self._drained.clear()
        self._wake.set()

    def flush(self) -> None:
        """Do not wait for more."""
        self._urgent = True
        self._arm()

    async def room(self) -> None:
        """Wait while too many are not sent."""
        while self.full and not self._task.done():
            self.flush()
            self._drained.clear()
            await self._drained.wait()

    async def close(self, timeout_s: float) -> None:
        """Sends what is pending, and ends. What is not confirmed in this time comes again."""
        self._closing = True
        self.flush()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        finally:
            if left := self.unconfirmed:
                logger.warning(
                    "group %s: %d messages were settled, but no master has confirmed it: they may "
                    "come again",
                    self._calls.group,
                    left,
                )
            self._give_up()

    def _give_up(self) -> None:
        """Nothing is sent any more: who waits is told."""
        for *_, future in self._pending:
            if future is not None and not future.done():
                future.set_exception(_closed(self._calls.group))

    async def _run(self) -> None:
        try:
            while True:
                await self._wake.wait()
                if self._linger_s and not (self._urgent or self._closing):
                    await asyncio.sleep(self._linger_s)
                self._wake.clear()
                self._urgent = self._armed = False
                while self._pending:
                    await self._send_some()
                self._drained.set()
                if self._closing:
                    return
        except TandemlogError as error:
            self._fail(error)
        except Exception as error:
            logger.exception("acknowledgements of group %s failed", self._calls.group)
            self._fail(TandemlogError(f"the client failed: {error!r}"))
        finally:
            self._drained.set()
            self._give_up()

    async def _send_some(self) -> None:
        """One round of requests, one for each kind."""
        kinds: dict[tuple[int, bool], list[Settled]] = {}
        for _ in range(min(len(self._pending), MAX_HANDLES)):
            settled = self._pending.popleft()
            rows = kinds.setdefault((settled[2], settled[5] is not None), [])
            rows.append(settled)
            if settled[2] != ACKED and len(rows) >= MAX_FAILED:
                break
        self._sending = sum(map(len, kinds.values()))
        failures = await asyncio.gather(
            *(self._send(state, rows, sync=sync) for (state, sync), rows in kinds.items()),
            return_exceptions=True,
        )
        for failure in failures:
            if failure is not None:
                raise failure
        self._sending = 0

    async def _send(self, state: int, rows: list[Settled], *, sync: bool) -> None:
        request, rows = _request(self._calls.group, state, rows, sync=sync)
        repeated = False
        try:
            while True:
                try:
                    results, again = await self._calls.settle(_METHODS[state], request)
                except TandemlogError as error:
                    # like a failed call
                    passing = may_pass(error) or isinstance(error, InternalError)
                    if not passing or self._closing:
                        raise
                    logger.warning(
                        "group %s: %d messages were settled, and wait for a master: %s",
                        self._calls.group,
                        len(rows),
                        error,
                    )
                    repeated = True
                    await asyncio.sleep(PAUSE_S)
                    continue
                break
        except BaseException as error:
            for *_, future in rows:
                if future is not None and not future.done():
                    told = error.copy() if isinstance(error, TandemlogError) else None
                    future.set_exception(told or _closed(self._calls.group))
            raise
        self._answered(state, rows, results, repeated=repeated or again)

    def _answered(
        self, state: int, rows: Sequence[Settled], results: bytes, *, repeated: bool
    ) -> None:
        counter = _COUNTERS[state]
        fine = len(rows)
        lost: list[tuple[Settled, AckResult]] = []
        if results.strip(b"\0\1") or len(results) != len(rows):
            # a request that was carried out before, and sent again, is refused the second time
            forgiven = repeated and state != ACKED
            for settled, result in zip(rows, results.ljust(len(rows), b"\2"), strict=False):
                if result > AckResult.ALREADY_DONE and not forgiven:
                    lost.append((settled, _known(result)))
            fine -= len(lost)
        setattr(self._counters, counter, getattr(self._counters, counter) + fine)
        if state == ACKED:
            newest, too_late = self._calls.newest_epoch, [settled for settled, _ in lost]
            if twice := [
                each
                for each in rows
                if (repeated or each[0].epoch != newest) and each not in too_late
            ]:
                self._done(twice)
        for (batch, row, *_, future), result in lost:
            if future is not None and not future.done():
                future.set_exception(lost_error(batch, row, result))
        for *_, future in rows:
            if future is not None and not future.done():
                future.set_result(None)
        if lost and state != RELEASED:
            self._lost(lost)

    def _lost(self, lost: Sequence[tuple[Settled, AckResult]]) -> None:
        self._counters.lost += len(lost)
        (batch, row, *_), result = lost[0]
        logger.warning(
            "group %s: %d messages were settled too late, for example %s: %s",
            self._calls.group,
            len(lost),
            batch.place(row),
            ack_sentence(result),
        )


def _known(result: int) -> AckResult:
    try:
        return AckResult(result)
    except ValueError:
        return AckResult.INVALID_RECEIPT_HANDLE


def _closed(group: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"group {group!r}: the consumer was closed before a master confirmed this; the message may "
        "come again"
    )


def _request(
    group: str, state: int, rows: list[Settled], *, sync: bool
) -> tuple[Any, list[Settled]]:
    """And the rows in the order of its handles."""
    if state in (ACKED, RELEASED):
        handles = b"".join([batch.handle(row) for batch, row, *_ in rows])
        if state == RELEASED:
            return work_pb2.ReleaseRequest(group=group, handles=handles), rows
        return work_pb2.AcknowledgeRequest(group=group, handles=handles, sync=sync), rows
    alike: dict[tuple[int | None, str], list[Settled]] = {}
    for settled in rows:
        alike.setdefault((settled[3], settled[4]), []).append(settled)
    parts = [
        work_pb2.FailedMessages(
            handles=b"".join([batch.handle(row) for batch, row, *_ in members]),
            delay_ms=delay_ms,
            error=error,
        )
        for (delay_ms, error), members in alike.items()
    ]
    ordered = [settled for members in alike.values() for settled in members]
    if state == RETRIED:
        return work_pb2.NackRequest(group=group, failed=parts, sync=sync), ordered
    return work_pb2.RejectRequest(group=group, rejected=parts, sync=sync), ordered
