"""Offsets that RocketMQ's consumers commit: those of one turn of the loop together.

    15 (g t/0 40)  15 (g t/1 17)  15 (g t/2 9) ─▶ one commit of g with three rows, by GroupService

A consumer sends one request for each of its queues, one after the other, and waits for no answer;
and with each pull comes the offset of its queue. Mostly an offset only moves on: that is done at
once. The others end where the commits of every other client end: the rows are checked against the
log, an offset that begins a queue is safe on the in-sync set before it is answered, and a group
that has members of this project's own consumers is refused.

A new group begins hundreds of queues within a second, and each write of the offsets costs some
milliseconds. So the commits of a connection and a group stand in line: one is under way, and what
comes meanwhile is the next one; a pull does not wait for the commit that came with it.

    line of (connection, group)   [under way] [full] ... [takes rows]

Offsets count in the order in which they came: while one of a queue is in the line, a later one of
that queue goes behind it. A consumer's last offsets come just before its connection ends, and are
committed all the same. Who asks for an offset of a group, or sets one by hand, waits for those that
are in line.
"""

import asyncio
import logging
from collections import Counter, deque
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
"""Commits of one connection in line for which no request waits."""
SAY_EACH_S: Final = 1.0

Queue = tuple[str, int]
_Key = tuple[str, str]
"""Peer, and group."""
_Refused = dict[Queue, common_pb2.Error]


class _Batch:
    """Commits of one group by one connection, in line. `begun`: it takes no more rows."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.rows: dict[Queue, int] = {}
        self.begun = False
        self.unheard = False
        self.ended: asyncio.Future[_Refused] = asyncio.get_running_loop().create_future()


_Line = deque[_Batch]


class GroupCommits:
    """See the module. Belongs to the loop."""

    def __init__(self, members: GroupService, known: KnownQueues, turns: ReadTurns) -> None:
        self._members = members
        self._known = known
        self._turns = turns
        self._lines: dict[_Key, _Line] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._unheard: Counter[str] = Counter()
        self._refusals = _Refusals()
        members.in_line = self.settled

    def commit_unheard(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        """Commit for a client that neither waits nor hears of it: a refusal is logged. False, and
        nothing is done, where its connection has MOST_UNHEARD commits in line."""
        if self._moves_on_or_is_refused(group, topic, queue_id, queue_offset, caller):
            return True
        line = self._lines.get((caller.peer, group))
        joins = line is not None and line[-1].unheard and self._takes_rows(line[-1])
        if not joins and self._unheard[caller.peer] >= MOST_UNHEARD:
            return False
        batch = self._batch(group, caller)
        if not batch.unheard:
            batch.unheard = True
            self._unheard[caller.peer] += 1
            batch.ended.add_done_callback(partial(self._unheard_ended, batch, group))
        batch.rows[topic, queue_id] = queue_offset
        return True

    async def settled(self, group: str, queue: Queue | None = None) -> None:
        """Wait until the offsets of a group, or of one of its queues, that came before now are
        committed, or refused."""
        ends = [
            batch.ended
            for (_, its_group), line in self._lines.items()
            if its_group == group
            for batch in line
            if queue is None or queue in batch.rows
        ]
        if ends:
            await asyncio.wait(ends)

    async def commit(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> None:
        """Commit for a client that hears of it. Raises RequestRefusedError."""
        self._check(topic, queue_id, queue_offset)
        batch = self._batch(group, caller)
        batch.rows[topic, queue_id] = queue_offset
        refused = await asyncio.shield(batch.ended)
        error = refused.get((topic, queue_id))
        if error is not None:
            raise RequestRefusedError(error.code, error.message)

    def _moves_on(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        """Raises RequestRefusedError."""
        queue = topic, queue_id
        if any(queue in batch.rows for batch in self._lines.get((caller.peer, group), ())):
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
            self._refusals.say(group, caller, str(problem))
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

    @staticmethod
    def _takes_rows(batch: _Batch) -> bool:
        return not batch.begun and len(batch.rows) < MOST_ROWS

    def _batch(self, group: str, caller: Caller) -> _Batch:
        """The one at the end of the line, which takes rows."""
        key = caller.peer, group
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line()
            task = asyncio.get_running_loop().create_task(self._run(key, line))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        if not line or not self._takes_rows(line[-1]):
            # the call that began it may be over before it is
            line.append(_Batch(replace(caller, held_bytes=0)))
        return line[-1]

    async def _run(self, key: _Key, line: _Line) -> None:
        await asyncio.sleep(0)  # what this turn of the loop still brings belongs to the first one
        while line:
            batch = line[0]
            batch.begun = True
            try:
                refused = await self._commit(key[1], batch)
            except Exception as problem:  # each caller that waits for a row gets it
                refused = dict.fromkeys(batch.rows, error_of(problem))
            finally:
                self._turns.release(batch.caller)
            line.popleft()
            batch.ended.set_result(refused)
        del self._lines[key]

    def _unheard_ended(self, batch: _Batch, group: str, ended: "asyncio.Future[_Refused]") -> None:
        peer = batch.caller.peer
        self._unheard[peer] -= 1
        if not self._unheard[peer]:
            del self._unheard[peer]
        if not ended.cancelled() and (refused := ended.result()):
            self._refusals.say(group, batch.caller, next(iter(refused.values())).message)

    async def _commit(self, group: str, batch: _Batch) -> _Refused:
        request = broker_pb2.CommitOffsetsRequest(group=group, without_members=True)
        for (topic, queue_id), queue_offset in batch.rows.items():
            request.offsets.add(topic=topic, queue_id=queue_id, queue_offset=queue_offset)
        response = await self._members.commit(request, batch.caller, of_clients=True)
        return {(each.topic, each.queue_id): response.error for each in response.refused}


class _Refusals:
    """Lines of the log about what no client hears: one in SAY_EACH_S, with the number of those
    that were left out."""

    def __init__(self) -> None:
        self._next_at = 0.0
        self._left_out = 0

    def say(self, group: str, caller: Caller, reason: str) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._next_at:
            self._left_out += 1
            return
        self._next_at, left_out, self._left_out = now + SAY_EACH_S, self._left_out, 0
        logger.info(
            "an offset is not committed: group=%s peer=%s reason=%s left_out=%d",
            quoted(group),
            caller.peer,
            reason,
            left_out,
        )
