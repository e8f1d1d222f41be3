"""Look for a message that may be stored already: by its unique key, in the index of the log.

    confirm and dispatch all that the log has now ─▶ the index of each topic where it may wait
                                                 ─▶ the record with that key and body
                                                 ─▶ wait until that record is confirmed

What the index does not have is not in the log, once the log as it is now is confirmed and
dispatched: a master begins its term with records at the end that the last one could not confirm
any more.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from tandemlog.format.record.record import Record, decode_record
from tandemlog.v1 import common_pb2
from tandemlog_server.storage.message_store import MessageStore

from ..error_status import RequestRefusedError
from ..pulls.dispatch_wait import DispatchWait
from .confirm_waiters import ConfirmWaiters
from .own_confirmation import require_confirmed

LOOK_BACK_MS: Final = 600_000
"""Of store times; a request waits for seconds, and clocks of two nodes may differ by minutes."""


class StoredCopies:
    """See the module. Belongs to the loop."""

    def __init__(
        self, store: MessageStore, waiters: ConfirmWaiters, timeout_s: Callable[[], float]
    ) -> None:
        self._store = store
        self._waiters = waiters
        self._timeout_s = timeout_s
        self._dispatch = DispatchWait(store)

    async def find(
        self,
        topics: Sequence[str],
        key: str,
        body: bytes,
        epoch: int,
        matches: Callable[[Record], bool] = lambda _: True,
    ) -> Record | None:
        """The confirmed record with this UNIQ_KEY and body that `matches`, in the first of `topics`
        that has one; None if none of them has. Raises RequestRefusedError (OUTCOME_UNKNOWN) if the
        log is not confirmed and dispatched in time, or the master's term `epoch` is over."""
        await self._all_known(epoch)

        def search() -> Record | None:
            since = max(self._store.clock.now_ms() - LOOK_BACK_MS, 0)
            for topic in topics:
                for data in self._store.reader.query_key(topic, key, begin_timestamp=since).records:
                    record = decode_record(data)
                    if record.uniq_key == key and record.body == body and matches(record):
                        return record
            return None

        record = await asyncio.to_thread(search)
        if record is not None:
            end = record.physical_offset + record.size
            await require_confirmed(self._waiters, end, epoch, self._timeout_s(), "the message")
        return record

    async def _all_known(self, epoch: int) -> None:
        end = self._store.log.wrote.value
        if self._store.reputed.value >= end:
            return
        what = "what may be the first copy of this message"
        await require_confirmed(self._waiters, end, epoch, self._timeout_s(), what)
        await self._dispatch.reach(end)
        if self._store.reputed.value < end:
            raise RequestRefusedError(
                common_pb2.OUTCOME_UNKNOWN,
                f"the log is dispatched up to {self._store.reputed.value}, and a first copy of the "
                f"message may lie before {end}: look for it before it is sent again",
            )
