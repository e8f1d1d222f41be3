"""Offsets that RocketMQ's consumers commit: those of one turn of the loop together.

    15 (g t/0 40)  15 (g t/1 17)  15 (g t/2 9) ─▶ one commit of g with three rows, by GroupService

A consumer sends one request for each of its queues, one after the other, and waits for no answer;
and with each pull comes the offset of its queue. Mostly an offset only moves on: that is done at
once. The others end where the commits of every other client end: the rows are checked against the
log, an offset that begins a queue is safe on the in-sync set before it is answered, and a group
that has members of this project's own consumers is refused.

A new group begins hundreds of queues within a second, and each write of the offsets costs some
milliseconds. So a connection has one commit of a group under way, and those that come meanwhile
are the next one; a pull does not wait for the commit that came with it. While an offset of a queue
is on its way here, a later one of that queue goes the same way, behind it.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Final

from tandemlog.format.words import quoted
from tandemlog.v1 import broker_pb2, common_pb2

from ...access.caller import Caller
from ...error_status import RequestRefusedError, error_of
from ...pulls.known_queues import KnownQueues
from ...pulls.read_turns import ReadTurns
from ...services.group_service import GroupService

logger = logging.getLogger(__name__)

MOST_ROWS: Final = 4_096
"""Of one commit; the next one takes what comes after."""
MOST_UNHEARD: Final = 256
"""Commits under way for which no request waits, those of all connections."""

Queue = tuple[str, int]
_Key = tuple[str, str]
"""Peer, and group."""
_Refused = dict[Queue, common_pb2.Error]


class _Batch:
    """Commits of one group by one connection, on their way."""

    def __init__(self, group: str, caller: Caller) -> None:
        self.group = group
        self.caller = caller
        self.rows: dict[Queue, int] = {}
        self.unheard = False
        self.ended: asyncio.Future[_Refused] = asyncio.get_running_loop().create_future()


class GroupCommits:
    """See the module. Belongs to the loop."""

    def __init__(self, members: GroupService, known: KnownQueues, turns: ReadTurns) -> None:
        self._members = members
        self._known = known
        self._turns = turns
        self._open: dict[_Key, _Batch] = {}
        self._under_way: dict[_Key, _Batch] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._unheard = 0

    def commit_now(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        """Commit what only moves an offset on, for a client that hears no answer. False, and
        nothing is done, for what `commit` has to do, or to refuse."""
        try:
            return self._moves_on(group, topic, queue_id, queue_offset, caller)
        except RequestRefusedError:
            return False

    def commit_unheard(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        """Commit for a client that neither waits nor hears of it: a refusal is logged. False, and
        nothing is done, where MOST_UNHEARD commits are under way."""
        if self._moves_on_or_is_refused(group, topic, queue_id, queue_offset, caller):
            return True
        key = caller.peer, group
        batch = self._open.get(key)
        if self._unheard >= MOST_UNHEARD and (batch is None or not batch.unheard):
            return False
        batch = self._batch(key, caller)
        if not batch.unheard:
            batch.unheard = True
            self._unheard += 1
            batch.ended.add_done_callback(partial(self._unheard_ended, batch))
        batch.rows[topic, queue_id] = queue_offset
        return True

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
        if not answered and self._moves_on(group, topic, queue_id, queue_offset, caller):
            return
        self._check(topic, queue_id, queue_offset)
        batch = self._batch((caller.peer, group), caller)
        batch.rows[topic, queue_id] = queue_offset
        refused = await asyncio.shield(batch.ended)
        error = refused.get((topic, queue_id))
        if error is not None:
            raise RequestRefusedError(error.code, error.message)

    def _moves_on(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        """Raises RequestRefusedError."""
        key, queue = (caller.peer, group), (topic, queue_id)
        for batches in (self._open, self._under_way):
            if (batch := batches.get(key)) is not None and queue in batch.rows:
                return False
        return self._members.move_forward(group, topic, queue_id, queue_offset, caller)

    def _moves_on_or_is_refused(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        try:
            if self._moves_on(group, topic, queue_id, queue_offset, caller):
                return True
            self._check(topic, queue_id, queue_offset)
        except RequestRefusedError as problem:
            _say_refused(group, caller, str(problem))
            return True
        return False

    def _check(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Raises RequestRefusedError: here, else all rows of the commit would be refused."""
        self._known.check_queue(topic, queue_id)
        if queue_offset < 0:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"the offset of a queue must not be negative: {queue_offset}",
                field="queue_offset",
                actual=queue_offset,
            )

    def _batch(self, key: _Key, caller: Caller) -> _Batch:
        """The one that still takes rows."""
        batch = self._open.get(key)
        if batch is None or len(batch.rows) >= MOST_ROWS:
            # the call that began it may be over before it is
            before = batch or self._under_way.get(key)
            batch = self._open[key] = _Batch(key[1], replace(caller, held_bytes=0))
            task = asyncio.get_running_loop().create_task(self._run(key, batch, before))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return batch

    async def _run(self, key: _Key, batch: _Batch, before: _Batch | None) -> None:
        # what this turn of the loop still brings belongs to it, and what comes until then
        await (asyncio.sleep(0) if before is None else asyncio.wait([before.ended]))
        if self._open.get(key) is batch:
            del self._open[key]
        self._under_way[key] = batch
        try:
            refused = await self._commit(batch)
        except Exception as problem:  # each caller that waits for a row gets it
            refused = dict.fromkeys(batch.rows, error_of(problem))
        finally:
            self._turns.release(batch.caller)
            if self._under_way.get(key) is batch:
                del self._under_way[key]
        batch.ended.set_result(refused)

    def _unheard_ended(self, batch: _Batch, ended: "asyncio.Future[_Refused]") -> None:
        self._unheard -= 1
        if not ended.cancelled() and (refused := ended.result()):
            _say_refused(batch.group, batch.caller, next(iter(refused.values())).message)

    async def _commit(self, batch: _Batch) -> _Refused:
        request = broker_pb2.CommitOffsetsRequest(group=batch.group, without_members=True)
        for (topic, queue_id), queue_offset in batch.rows.items():
            request.offsets.add(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
        response = await self._members.commit(request, batch.caller, of_clients=True)
        return {(each.topic, each.queue_id): response.error for each in response.refused}


def _say_refused(group: str, caller: Caller, reason: str) -> None:
    logger.info(
        "an offset that came with a pull is not committed: group=%s peer=%s reason=%s",
        quoted(group),
        caller.peer,
        reason,
    )
