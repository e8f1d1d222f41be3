"""Offsets of groups that pop: kept in the table of all groups, so that a group can be moved.

    every LOOK_S, on the master, for each queue of a topic that a group pops:
        the engine's floor is ahead   ─▶ the table: what lies below is done (208 shows it, and a
                                         group that pulls again continues there)
        the table is ahead            ─▶ the engine: another kind of member has done it, or a tool
                                         has set it
    an offset is set (222)            ─▶ the table, and a group that pops the queue begins there,
                                         with the mode or without

The floor of a queue is where its first message lies that is not done; messages behind it that are
done are in the progress records alone. So a group that is moved, or set, gets those again.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

from tandemlog.v1 import broker_pb2
from tandemlog_server.storage.leases.queue_leases import QueueLeases
from tandemlog_server.storage.message_store import MessageStore

from ...access.caller import Caller
from ...error_status import RequestRefusedError
from ...services.group_service import GroupService
from ...work.work_service import WorkService
from ...work.work_term import WorkTerm
from .request_modes import RequestModes

logger = logging.getLogger(__name__)

LOOK_S: Final = 1.0
NODE: Final = Caller("pop")
"""Who commits: the node itself."""


class PopOffsets:
    """See the module. `run` as long as the node serves; `begun`: a group begins elsewhere in a
    topic. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        work: WorkService,
        groups: GroupService,
        modes: RequestModes,
        begun: Callable[[str, str], None] | None = None,
    ) -> None:
        self._store = store
        self._work = work
        self._groups = groups
        self._modes = modes
        self._begun = begun
        self._being_set: list[str] = []
        # no look commits what it saw before an offset was set
        self._one_at_a_time = asyncio.Lock()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            try:
                await self.look()
            except Exception:  # else no offset would be kept from here on
                logger.exception("offsets of groups that pop are not kept, and are in a moment")
            await asyncio.sleep(LOOK_S)

    async def look(self) -> None:
        """Bring table and engine together, once."""
        term = self._work.term
        if term is None or term.ended or not term.desk.ready:
            return
        try:
            for group in list(term.engine.groups):
                async with self._one_at_a_time:
                    if group not in self._being_set:
                        await self._commit(group, self._look_at(term, group))
        except RequestRefusedError as problem:
            logger.info("offsets of groups that pop are not kept now: %s", problem)
        if not term.ended:
            term.after()

    def _look_at(self, term: WorkTerm, group: str) -> list[QueueLeases]:
        """Returns the queues that have no offset in the table yet."""
        new = []
        for topic in self._modes.popped(group):
            place = term.engine.groups.topic(group, topic)
            if place is None:
                continue
            committed = self._store.consumer_offsets.of_pair(topic, group)
            for queue in place.queues.values():
                known = committed.get(queue.queue_id, 0)
                if known > queue.floor:
                    term.engine.pass_over(queue, queue.floor, min(known, queue.end))
                elif queue.floor > known and not self._groups.move_forward(
                    group, topic, queue.queue_id, queue.floor, NODE
                ):
                    new.append(queue)
        return new

    async def _commit(self, group: str, queues: Sequence[QueueLeases]) -> None:
        if not queues:
            return
        rows = [
            broker_pb2.QueuePosition(
                topic=each.topic, queue_id=each.queue_id, queue_offset=each.floor
            )
            for each in queues
        ]
        request = broker_pb2.CommitOffsetsRequest(group=group, offsets=rows)
        answer = await self._groups.commit(request, NODE)
        if answer.error.code:
            raise RequestRefusedError(answer.error.code, answer.error.message)

    @asynccontextmanager
    async def setting(
        self, group: str, topic: str, offsets: Mapping[int, int]
    ) -> AsyncIterator[None]:
        """Inside, these offsets of the group are set; then, if it pops the topic, it begins there.
        Raises RequestRefusedError (OUTCOME_UNKNOWN) if that is not known to be so."""
        async with self._one_at_a_time:
            self._being_set.append(group)
        try:
            yield
            await self._work.begin_at(group, topic, offsets)
            if self._begun is not None:
                self._begun(group, topic)
        finally:
            self._being_set.remove(group)
