"""The leases that a consumer has: which end when, and asking for more time.

    leased_at ────── a third of the lease ──────▶ Extend ─▶ another lease from there
                                       no master ▶ asked again, several times before the end
              ────── the whole lease ──▶ what still waits here is dropped: others may have it

All times are of the loop's clock, from before a request was sent: so a lease ends here before it
ends at the master. A lease that was extended by hand (`longer`) is left alone until it would end
before another one.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from ...errors import BadRecordError, TandemlogError
from ...format.lease.policy import MAX_HANDLES, AckResult
from ...v1 import work_pb2
from .leased_batch import ACKED, LOST, TAKEN, WAITING, LeasedBatch, Taken, lost_error
from .settler import Settled
from .work_calls import WorkCalls, may_pass
from .work_statistics import WorkCounters

logger = logging.getLogger(__name__)

_Offsets: TypeAlias = dict[tuple[str, int], set[int]]
"""Queue offsets by topic and queue."""


class OpenLeases:
    """See the module. One event loop. `on_lost` is called with each message whose lease ended."""

    def __init__(
        self,
        calls: WorkCalls,
        counters: WorkCounters,
        lease_ms: int,
        on_lost: Callable[[LeasedBatch, int], None],
    ) -> None:
        self._calls = calls
        self._counters = counters
        self._lease_ms = lease_ms
        self._on_lost = on_lost
        self.batches: list[LeasedBatch] = []
        self._done: _Offsets = {}
        """Acknowledged by a later master than leased them, since a receive was sent: as many as
        were out at the change of master, at most."""

    def forget_finished(self) -> None:
        self.batches = [each for each in self.batches if not each.finished]

    def count(self, state: int) -> int:
        """Any thread."""
        return sum(each.states.count(state) for each in list(self.batches))

    def done(self, settled: Sequence[Settled]) -> None:
        """These are acknowledged. Before that the next master may have delivered them once more: no
        caller gets them from what waits here, or from an answer that is under way."""
        offsets: _Offsets = {}
        for batch, row, *_ in settled:
            place = batch.topic, batch.queue_id
            offsets.setdefault(place, set()).add(batch.queue_offsets[row])
        for batch in self.batches:
            _pass_over(batch, offsets)
        for place, those in offsets.items():
            self._done.setdefault(place, set()).update(those)

    def asked(self) -> None:
        """A receive is sent now. What was acknowledged before does not come in its answer: a master
        that does not know it has an older epoch, and is not believed."""
        self._done.clear()

    def add(self, batch: LeasedBatch) -> None:
        """It has arrived."""
        _pass_over(batch, self._done)
        self.batches.append(batch)

    async def look(self) -> None:
        """Drop what has ended, and renew what is due. Raises an error that does not pass."""
        self.forget_finished()
        now = asyncio.get_running_loop().time()
        for batch in self.batches:
            if now >= batch.until:
                for row in batch.rows_in(WAITING):
                    self._lose(batch, row)
        lease_s = self._lease_ms / 1e3
        due = [each for each in self.batches if now - each.renewed_at >= lease_s / 3]
        if due:
            await self._renew(due, now)

    async def extend(self, taken: Taken, lease_ms: int) -> None:
        """A lease that lasts `lease_ms` from now on. Raises LeaseLostError."""
        batch, row = taken
        if batch.states[row] == TAKEN:
            until = asyncio.get_running_loop().time() + lease_ms / 1e3
            [result] = await self._extend([taken], lease_ms)
            if result == AckResult.OK:
                batch.longer[row] = until
                return
            self._lose(batch, row)
        raise lost_error(batch, row, AckResult.INVALID_RECEIPT_HANDLE)

    async def _renew(self, batches: Sequence[LeasedBatch], now: float) -> None:
        lease_s = self._lease_ms / 1e3
        rows = [
            (batch, row)
            for batch in batches
            for row in batch.rows_in(WAITING, TAKEN)
            if batch.longer.get(row, now) - now < lease_s
        ]
        for first in range(0, len(rows), MAX_HANDLES):
            part = rows[first : first + MAX_HANDLES]
            try:
                results = await self._extend(part, self._lease_ms)
            except TandemlogError as error:
                if not may_pass(error):
                    raise
                logger.warning("group %s: leases wait for a master: %s", self._calls.group, error)
                return
            for (batch, row), result in zip(part, results, strict=True):
                if result != AckResult.OK:
                    self._lose(batch, row)
        for batch in batches:
            batch.renewed_at, batch.until = now, now + lease_s

    def _lose(self, batch: LeasedBatch, row: int) -> None:
        """Unless it was settled meanwhile."""
        state = batch.states[row]
        if state not in (WAITING, TAKEN):
            return
        batch.states[row] = LOST
        self._counters.lost += 1
        if state == TAKEN:
            logger.warning(
                "group %s: the lease of %s ended while it was handled; it comes again",
                self._calls.group,
                batch.place(row),
            )
        self._on_lost(batch, row)

    async def _extend(self, rows: Sequence[Taken], lease_ms: int) -> bytes:
        request = work_pb2.ExtendRequest(
            group=self._calls.group,
            handles=b"".join([batch.handle(row) for batch, row in rows]),
            lease_ms=lease_ms,
        )
        results, _ = await self._calls.settle("Extend", request)
        if len(results) != len(rows):
            raise BadRecordError(
                f"group {self._calls.group!r}: {len(results)} results for {len(rows)} handles"
            )
        return results


def _pass_over(batch: LeasedBatch, done: _Offsets) -> None:
    """No caller gets those that wait in `batch` and are done."""
    again = done.get((batch.topic, batch.queue_id))
    for row in batch.rows_in(WAITING) if again else ():
        if again and batch.queue_offsets[row] in again:
            batch.states[row] = ACKED
