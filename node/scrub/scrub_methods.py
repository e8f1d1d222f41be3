"""What a node says to another one whose scrub asks: the calls BlockChecksum and FetchBlock.

    another node's scrub ──▶ a member of this cluster? ──▶ one thread ──▶ disk ──▶ answer

Bytes of the log of any topic go out here, so only a node of the cluster gets them: its proof has to
name the node that it says it is, as for a stream of replication (permissions.py). All callers
together wait for one thread, and for the rate of this node's own scrub times RATE, so that however
many ask, the disk and the processor have the rest.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from tandemlog.cluster.histories import history_of
from tandemlog.format.fast_crc import crc32
from tandemlog.format.files.log_history import MAX_TERMS
from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2, replication_pb2
from tandemlog_server.storage.scrub.block_answers import (
    BlockAnswer,
    BlockQuestion,
    answer,
    read_piece,
)
from tandemlog_server.storage.scrub.block_check import LONGEST
from tandemlog_server.storage.scrub.scrubbed_store import ScrubbedStore
from tandemlog_server.storage.scrub.verdicts import CopyState
from tandemlog_server.storage.token_bucket import TokenBucket

from ..error_status import RequestRefusedError, check_count

RATE: Final = 4
MOST_WAITING: Final = 16
"""Callers that wait for the thread; each node of the cluster has one call under way at a time."""

STATES: Final = {
    CopyState.WHOLE: replication_pb2.COPY_WHOLE,
    CopyState.DAMAGED: replication_pb2.COPY_DAMAGED,
    CopyState.UNREADABLE: replication_pb2.COPY_UNREADABLE,
    CopyState.ABSENT: replication_pb2.COPY_ABSENT,
}

Found = TypeVar("Found")


class ScrubMethods:
    """See the module. The methods have the names of replication.proto."""

    def __init__(self, store: ScrubbedStore, cluster_id: str, bytes_per_s: int) -> None:
        self._store = store
        self._cluster_id = cluster_id
        self._bucket = TokenBucket(RATE * bytes_per_s, store.clock.monotonic())
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="scrub-answers")
        self._waiting = 0

    def close(self) -> None:
        """Answer no node any more."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    async def BlockChecksum(  # noqa: N802
        self, request: replication_pb2.BlockChecksumRequest, _caller: Any
    ) -> replication_pb2.BlockChecksumResponse:
        self._check_cluster(request.cluster_id)
        check_count("history.terms", len(request.history.terms), MAX_TERMS)
        asked = BlockQuestion(
            request.start,
            request.end,
            request.limit,
            request.checksum,
            history_of(request.history),
        )
        size = max(request.end - request.start, 1 << 20)
        found: BlockAnswer = await self._in_turn(size, partial(answer, self._store, asked))
        return replication_pb2.BlockChecksumResponse(
            state=STATES[found.state],
            end=found.end,
            checksum=found.checksum,
            fault=found.fault[:1_000],
        )

    async def FetchBlock(  # noqa: N802
        self, request: replication_pb2.FetchBlockRequest, _caller: Any
    ) -> replication_pb2.FetchBlockResponse:
        self._check_cluster(request.cluster_id)
        if not 0 < request.end - request.start <= LONGEST:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"a block has 1 to {LONGEST} bytes",
                field="end",
                limit=LONGEST,
                actual=request.end - request.start,
            )
        work = partial(read_piece, self._store, request.start, request.end)
        data = await self._in_turn(1 << 20, work)
        return replication_pb2.FetchBlockResponse(data=data, crc=crc32(data))

    def _check_cluster(self, cluster_id: str) -> None:
        if cluster_id != self._cluster_id:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"this is a node of the cluster {quoted(self._cluster_id)}, not of "
                f"{quoted(cluster_id)}",
                field="cluster_id",
            )

    async def _in_turn(self, size: int, work: Callable[[], Found]) -> Found:
        if self._waiting >= MOST_WAITING:
            raise RequestRefusedError(
                common_pb2.BUSY, "too many nodes ask for blocks of the log; ask again later"
            )
        self._waiting += 1
        try:
            wait_s = self._bucket.spend(size, self._store.clock.monotonic())
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self._waiting -= 1
