"""What this node keeps beside its log, for a backup: the tables, and what came before a place.

    header: log, terms │ topics │ groups │ consumer offsets … │ prologue
                       └ parts of at most PART_BYTES ────────┘

The tables are read after the confirm offset: they may know a little more than the log up to there,
never less. One caller at a time has them in memory; they count in its share of the answers.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial

from tandemlog.format.archive import state as names
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.storage.message_store import MessageStore

from ..access.caller import Caller
from ..error_status import RequestRefusedError
from .read_turns import WAIT_S, ReadTurns

PART_BYTES = 1 << 20
ROOM_BYTES = 16 << 20
"""Kept free before the tables are read."""
DISPATCH_WAIT_S = 1.0
PROLOGUE = "prologue"


class StateStream:
    """See the module."""

    def __init__(self, store: MessageStore, turns: ReadTurns, *, wait_s: float = WAIT_S) -> None:
        self._store = store
        self._turns = turns
        self._wait_s = wait_s
        self._one_at_a_time = asyncio.Lock()

    async def chunks(
        self, request: broker_pb2.FetchLogStateRequest, caller: Caller
    ) -> AsyncIterator[bytes]:
        """Encoded LogStateChunks. Raises RequestRefusedError for a place at which this log cannot
        begin, and where no turn comes."""
        self._check(request.prologue_offset)
        await self._turn()
        try:
            header, tables = await self._turns.run(
                caller,
                partial(self._state, request.prologue_offset),
                room=ROOM_BYTES,
                size_of=lambda answer: sum(map(len, answer[1].values())),
            )
            try:
                yield header.SerializeToString()
                for name, data in tables.items():
                    for at in range(0, max(len(data), 1), PART_BYTES):
                        part = data[at : at + PART_BYTES]
                        chunk = broker_pb2.LogStateChunk(table=name, data=part)
                        yield chunk.SerializeToString()
            finally:
                self._turns.release(caller)
        finally:
            self._one_at_a_time.release()

    async def _turn(self) -> None:
        try:
            async with asyncio.timeout(self._wait_s):
                await self._one_at_a_time.acquire()
        except TimeoutError:
            raise RequestRefusedError(
                common_pb2.BUSY,
                f"another backup has been receiving the tables of this node for {self._wait_s:g} s "
                "or more: try again in a moment",
            ) from None

    def _check(self, prologue_offset: int) -> None:
        log = self._store.log
        if prologue_offset == 0:
            return
        end = self._store.confirmed.value
        if prologue_offset % log.file_size or not log.min_offset <= prologue_offset <= end:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"prologue_offset must be the start of a commit log file in {log.min_offset} to "
                f"{end}, not {prologue_offset}",
                field="prologue_offset",
                limit=end,
                actual=prologue_offset,
            )

    def _state(self, prologue_offset: int) -> tuple[broker_pb2.LogStateChunk, dict[str, bytes]]:
        """Runs in a reader thread. Raises StoreError."""
        store = self._store
        history, confirmed = store.log_identity.history, store.confirmed.value
        if store.log.flushed.value < confirmed:
            store.flush()  # what was acknowledged before the call is in the backup
        store.reputed.wait(confirmed, DISPATCH_WAIT_S)
        end = min(store.confirmed.value, store.reputed.value, store.log.flushed.value)
        header = broker_pb2.LogStateChunk(
            min_offset=store.log.min_offset,
            confirm_offset=end,
            commit_log_file_size=store.log.file_size,
            history=json.dumps(history.to_json()),
            delay_levels=store.config.delay_levels,
            in_batch_queues=sorted(store.topics.in_batch_queues),
            at_ms=store.clock.now_ms(),
        )
        tables = {
            names.TOPICS: store.topics.to_json(),
            names.GROUPS: store.groups.to_json(),
            names.CONSUMER_OFFSETS: store.consumer_offsets.to_json(),
            names.GROUP_MEMBERS: store.group_members.to_json(),
            names.LOG_IDENTITY: store.log_identity.to_json(),
        }
        if prologue_offset:
            tables[PROLOGUE] = store.prologue(prologue_offset)
        return header, tables
