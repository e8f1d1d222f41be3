"""A range of topics as Arrow batches, read once from its start to its end.

    queues, start, end ──▶ Follower with stops ──▶ what has come, up to WINDOW bytes ──▶ RecordBatch

The end is determined when the scan begins, so it ends even if the topics are still written to.
If the log is cut meanwhile, what was fetched and not given yet is read again.
A scan belongs to no group and commits nothing. At most FollowOptions.prefetch_bytes, one response
and one window are in memory.
"""

import asyncio
import importlib
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Self

from .received.lazy_arrow import as_arrow
from .received.received_batch import ReceivedBatch

if TYPE_CHECKING:
    import pyarrow as pa

    from .following.fetcher import FetchedBatch
    from .following.follower import Follower

WINDOW: Final = 8 << 20
"""Bytes of records in one Arrow batch; more only if one response has more of a queue."""


class AsyncScan:
    """The result of `AsyncConsumer.scan`: Arrow batches, in order for each queue, with the columns
    of `schema`. Read it once; close it, or use `async with`.

    Reading raises BadRecordError for a damaged record, and the error that ended the reading.
    """

    def __init__(
        self, follower: "Follower", schema: "pa.Schema", closed: Callable[["AsyncScan"], None]
    ) -> None:
        self.schema = schema
        self._follower = follower
        self._closed = closed
        self._taken: deque[FetchedBatch] = deque()
        self._decoding: asyncio.Task[pa.RecordBatch] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stops reading."""
        self._closed(self)
        await self._follower.close()

    async def next_batch(self) -> "pa.RecordBatch | None":
        """The next messages, decoded in another thread; None at the end."""
        if self._decoding is None:
            window = await self.next_window()
            if not window:
                return None
            self._decoding = asyncio.create_task(asyncio.to_thread(as_arrow, window, self.schema))
        try:
            batch = await asyncio.shield(self._decoding)
        except asyncio.CancelledError:
            raise  # the caller may ask again, for this window
        except BaseException:
            self._decoding = None
            raise
        self._decoding = None
        return batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "pa.RecordBatch":
        batch = await self.next_batch()
        if batch is None:
            await self.close()
            raise StopAsyncIteration
        return batch

    async def read_all(self) -> "pa.Table":
        """All that is left, as one table in memory."""
        table: pa.Table = importlib.import_module("pyarrow").Table
        return table.from_batches([batch async for batch in self], self.schema)

    async def next_window(self) -> list[ReceivedBatch]:
        """The batches to decode together; none at the end."""
        window: list[ReceivedBatch] = []
        size = 0
        follower = self._follower
        while not window:
            if not self._taken:
                if follower.must_stop:
                    follower.resume_delivery()
                if not await follower.next_fetched(self._taken):
                    break
            while self._taken and (not window or size + len(self._taken[0][0].records) <= WINDOW):
                batch, turn = self._taken.popleft()
                if not follower.progress.may_deliver(batch.queue, turn):
                    continue  # fetched before the log was cut: it is read again
                follower.mark_skipped(batch, turn)
                if len(batch):
                    window.append(batch)
                    size += len(batch.records)
        return window
