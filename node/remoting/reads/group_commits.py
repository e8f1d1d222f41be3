"""Offsets that RocketMQ's consumers commit: those of one turn of the loop together.

    15 (g t/0 40)  15 (g t/1 17)  15 (g t/2 9) ─▶ one commit of g with three rows, by GroupService

A consumer sends one request for each of its queues, one after the other, and waits for no answer;
and with each pull comes the offset of its queue. Mostly an offset only moves on: that is done at
once. The others end where the commits of every other client end: the rows are checked against the
log, an offset that begins a queue is safe on the in-sync set before it is answered, and a group
that has members of this project's own consumers is refused.
"""

import asyncio
from dataclasses import replace
from typing import Final

from tandemlog.v1 import broker_pb2, common_pb2

from ...access.caller import Caller
from ...error_status import RequestRefusedError, error_of
from ...pulls.known_queues import KnownQueues
from ...pulls.read_turns import ReadTurns
from ...services.group_service import GroupService

MOST_ROWS: Final = 4_096
"""Of one commit; the next one takes what comes after."""

Queue = tuple[str, int]


class _Batch:
    """Commits of one group by one connection, on their way."""

    def __init__(self, group: str, caller: Caller) -> None:
        self.group = group
        self.caller = caller
        self.rows: dict[Queue, int] = {}
        self.ended: asyncio.Future[dict[Queue, common_pb2.Error]] = (
            asyncio.get_running_loop().create_future()
        )


class GroupCommits:
    """See the module. Belongs to the loop."""

    def __init__(self, members: GroupService, known: KnownQueues, turns: ReadTurns) -> None:
        self._members = members
        self._known = known
        self._turns = turns
        self._open: dict[tuple[str, str], _Batch] = {}
        self._running: set[asyncio.Task[None]] = set()

    def commit_now(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        """Commit what only moves an offset on, for a client that hears no answer. False, and
        nothing is done, for what `commit` has to do, or to refuse."""
        try:
            return self._members.move_forward(group, topic, queue_id, queue_offset, caller)
        except RequestRefusedError:
            return False

    async def commit(
        self,
        group: str,
        topic: str,
        queue_id: int,
        queue_offset: int,
        caller: Caller,
        *,
        answered: bool = False,
    ) -> None:
        """`answered`: the client hears that it is committed. Raises RequestRefusedError if it is
        not."""
        if not answered and self._members.move_forward(
            group, topic, queue_id, queue_offset, caller
        ):
            return
        self._known.check_queue(topic, queue_id)
        if queue_offset < 0:  # here, else it would be refused with all rows of the turn
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"the offset of a queue must not be negative: {queue_offset}",
                field="queue_offset",
                actual=queue_offset,
            )
        batch = self._batch(group, caller)
        batch.rows[topic, queue_id] = queue_offset
        refused = await asyncio.shield(batch.ended)
        error = refused.get((topic, queue_id))
        if error is not None:
            raise RequestRefusedError(error.code, error.message)

    def _batch(self, group: str, caller: Caller) -> _Batch:
        """The one that still takes rows."""
        key = caller.peer, group
        batch = self._open.get(key)
        if batch is None or len(batch.rows) >= MOST_ROWS:
            # the call that began it may be over before it is
            batch = self._open[key] = _Batch(group, replace(caller, held_bytes=0))
            task = asyncio.get_running_loop().create_task(self._run(key, batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return batch

    async def _run(self, key: tuple[str, str], batch: _Batch) -> None:
        # what this turn of the loop still brings belongs to it
        await asyncio.sleep(0)
        if self._open.get(key) is batch:
            del self._open[key]
        try:
            refused = await self._commit(batch)
        except Exception as problem:  # each caller that waits for a row gets it
            refused = dict.fromkeys(batch.rows, error_of(problem))
        finally:
            self._turns.release(batch.caller)
        batch.ended.set_result(refused)

    async def _commit(self, batch: _Batch) -> dict[Queue, common_pb2.Error]:
        request = broker_pb2.CommitOffsetsRequest(group=batch.group, without_members=True)
        for (topic, queue_id), queue_offset in batch.rows.items():
            request.offsets.add(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
        response = await self._members.commit(request, batch.caller, of_clients=True)
        return {(each.topic, each.queue_id): response.error for each in response.refused}
