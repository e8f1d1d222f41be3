"""Requests 14, 15 and 29 to 32: offsets of groups, and where queues begin and end.

A client acts on each of these answers: it begins to read there. So they are given by a node that is
known to lead (`leads`), once its queues have what was acknowledged before.

A group without an offset (14) hears 0 as long as offset 0 exists and its message is recent, else
QUERY_NOT_FOUND, on which a client begins where its program says, mostly at the end. With
QUERY_NOT_FOUND for each new queue it would miss what was sent before its first pull.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeVar

from tandemlog.format.record.record import decode_record
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.offset_requests import (
    OffsetRequest,
    QueueRequest,
    read_commit,
    read_offset_query,
    read_queue,
    read_search,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.queues.queue_search import Boundary
from tandemlog_server.storage.reads.results import GetResult, GetStatus

from ...access.caller import Caller
from ...access.identities import Right
from ...error_status import RequestRefusedError, not_sure
from ...pulls.dispatch_wait import DispatchWait
from ...pulls.known_queues import KnownQueues
from ...pulls.read_turns import ReadTurns
from ...pulls.reading import Cold, ColdBegin
from ...roles.role import CurrentRole
from ...services.group_service import GroupService
from ..door.remoting_call import Ended, Method, RemotingCall
from .group_commits import GroupCommits
from .read_rights import RETRY, require_reads

NO_TIME: Final = -1
"""RocketMQ's earliest store time of a queue without a message."""
_ROOM: Final = 64 << 10

Found = TypeVar("Found")


class OffsetMethods:
    """See the module. A first message that lies within `recent_bytes` before the end of the log is
    recent."""

    def __init__(
        self,
        store: MessageStore,
        members: GroupService,
        commits: GroupCommits,
        known: KnownQueues,
        turns: ReadTurns,
        dispatch: DispatchWait,
        current: CurrentRole,
        *,
        recent_bytes: int,
        cold: Cold | None = None,
    ) -> None:
        self._store = store
        self._members = members
        self._commits = commits
        self._known = known
        self._turns = turns
        self._dispatch = dispatch
        self._current = current
        self._recent_bytes = recent_bytes
        self._cold = cold

    def methods(self) -> Mapping[int, Method]:
        """By request code."""
        return {
            RequestCode.QUERY_CONSUMER_OFFSET: Method(self.offset),
            RequestCode.UPDATE_CONSUMER_OFFSET: Method(self.commit, begin=self.begin_commit),
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Method(self.search),
            RequestCode.GET_MAX_OFFSET: Method(self.end),
            RequestCode.GET_MIN_OFFSET: Method(self.begin),
            RequestCode.GET_EARLIEST_MSG_STORETIME: Method(self.earliest_time),
        }

    async def offset(self, call: RemotingCall) -> Command:
        """The offset of a group in a queue. All of these raise as the calls of other doors."""
        asked = read_offset_query(call.request.fields)
        require_reads(call.caller, asked.group, asked.queue.topic)
        await self._members.offsets_known(asked.group)
        await self._commits.settled(asked.group, (asked.queue.topic, asked.queue.queue_id))
        found = await self._as_leader(lambda: self._offset(asked, call.caller))
        await self._members.offsets_confirmed(asked.group)
        if found is None:
            return call.request.response(
                code=ResponseCode.QUERY_NOT_FOUND,
                remark=f"group {quoted(asked.group)} has no offset in this queue yet",
            )
        return _offset_answer(call.request, found)

    async def _offset(self, asked: OffsetRequest, caller: Caller) -> int | None:
        topic, queue_id = asked.queue.topic, asked.queue.queue_id
        offset = self._store.consumer_offsets.offset(asked.group, topic, queue_id)
        if offset is not None or not asked.zero:
            return offset
        await self._dispatch.ends_known()
        first = self._first_now(asked.queue)
        if first is None:
            first = await self._turns.run(caller, partial(self._first, asked.queue), room=_ROOM)
        if first.status in (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE):
            return 0  # where every start begins
        recent = first.status is GetStatus.FOUND and first.behind <= self._recent_bytes
        return 0 if recent and first.min_offset == 0 else None

    def _first_now(self, queue: QueueRequest) -> GetResult | None:
        """The same if it needs no thread: a consumer that starts asks for each of its queues."""
        reader, topic, queue_id = self._store.reader, queue.topic, queue.queue_id
        found = reader.get_in_memory(topic, queue_id, 0, 1, 1)
        return found if found is not None else reader.get_nothing(topic, queue_id, 0)

    def _first(self, queue: QueueRequest) -> GetResult:
        return self._store.reader.get(queue.topic, queue.queue_id, 0, 1, 1)

    def begin_commit(self, call: RemotingCall, ended: Ended) -> bool:
        """See Method: the offset of a client that waits for no answer, in the order in which its
        requests come. At a node that does not lead any more it is handed on."""
        if not call.request.is_oneway:
            return False
        asked = read_commit(call.request.fields)
        queue = asked.queue
        require_reads(call.caller, asked.group, queue.topic)
        try:
            self._members.lead(asked.group)
        except RequestRefusedError:
            return False
        if not self._commits.commit_unheard(
            asked.group, queue.topic, queue.queue_id, asked.queue_offset, call.caller
        ):
            return False
        ended(call, None, None)
        return True

    async def commit(self, call: RemotingCall) -> Command | None:
        """Raises RequestRefusedError."""
        asked = read_commit(call.request.fields)
        queue = asked.queue
        require_reads(call.caller, asked.group, queue.topic)
        await self._commits.commit(
            asked.group, queue.topic, queue.queue_id, asked.queue_offset, call.caller
        )
        return None if call.request.is_oneway else call.request.response()

    async def search(self, call: RemotingCall) -> Command:
        """The offset for a store time."""
        asked = read_search(call.request.fields)
        self._check(asked.queue, call.caller)
        boundary = Boundary.UPPER if asked.upper else Boundary.LOWER
        queue = asked.queue
        wanted = queue.topic, queue.queue_id, max(asked.timestamp, 0), boundary
        search = self._store.reader.search_offset
        found = await self._ends_read(call.caller, partial(search, *wanted))
        cold = self._cold
        if cold is not None and cold.reader.may_be_older(queue.topic, queue.queue_id, found):
            found = await cold.run(call.caller, partial(cold.reader.search_offset, *wanted))
        return _offset_answer(call.request, found)

    async def end(self, call: RemotingCall) -> Command:
        """The offset that the next message of the queue gets."""
        return _offset_answer(call.request, (await self._edge(call, self._end))[1])

    async def begin(self, call: RemotingCall) -> Command:
        """The first offset that is still in the log, or in an archive that is read."""
        queue, offset = await self._edge(call, self._begin)
        archived = await self._archived(queue, offset, call.caller)
        return _offset_answer(call.request, offset if archived is None else archived.number)

    async def _archived(
        self, queue: QueueRequest, minimum: int, caller: Caller
    ) -> ColdBegin | None:
        """The first message that only the archive has, of a queue that begins at `minimum`."""
        cold, name = self._cold, (queue.topic, queue.queue_id)
        if cold is None or minimum <= 0:
            return None
        begin = (await cold.run(caller, partial(cold.reader.begins, (name,)))).get(name)
        return begin if begin is not None and begin.number < minimum else None

    async def _edge(self, call: RemotingCall, of: Callable[[int], int]) -> tuple[QueueRequest, int]:
        queue = read_queue(call.request.fields)
        self._check(queue, call.caller)
        dense = self._store.queue_table.get(queue.topic, queue.queue_id)
        work = partial(of, dense)
        return queue, 0 if dense < 0 else await self._ends_read(call.caller, work)

    def _end(self, dense: int) -> int:
        return self._store.queues.max_offset(dense)

    def _begin(self, dense: int) -> int:
        return self._store.queues.min_offset(dense)

    async def earliest_time(self, call: RemotingCall) -> Command:
        """The store time of the queue's first message, in ms."""
        queue = read_queue(call.request.fields)
        self._check(queue, call.caller)
        minimum, time = await self._ends_read(call.caller, partial(self._first_time, queue))
        archived = await self._archived(queue, minimum, call.caller)
        time = time if archived is None else archived.time_ms
        return call.request.response(fields={"timestamp": str(time)})

    def _first_time(self, queue: QueueRequest) -> tuple[int, int]:
        """The number of the first message, and its time."""
        dense = self._store.queue_table.get(queue.topic, queue.queue_id)
        if dense < 0:
            return 0, NO_TIME
        minimum = self._store.queues.min_offset(dense)
        result = self._store.reader.get(queue.topic, queue.queue_id, minimum, 1, 1)
        if not result.count:
            return minimum, NO_TIME
        return minimum, decode_record(bytes(result.records)).store_timestamp

    def _check(self, queue: QueueRequest, caller: Caller) -> None:
        """Raises DeniedError, and RequestRefusedError for a queue that is not there."""
        if caller.restricted is not None:
            if queue.topic.startswith(RETRY):
                caller.require(Right.CONSUME, (queue.topic.removeprefix(RETRY),))
            else:
                caller.require_see((queue.topic,))
        self._known.check_queue(queue.topic, queue.queue_id)

    async def _ends_read(self, caller: Caller, work: Callable[[], Found]) -> Found:
        """What `work` finds in a reader thread, of queues that are whole."""

        async def read() -> Found:
            await self._dispatch.ends_known()
            return await self._turns.run(caller, work, room=_ROOM)

        return await self._as_leader(read)

    async def _as_leader(self, read: Callable[[], Awaitable[Found]]) -> Found:
        """What was read while this node led. Raises RequestRefusedError if that is not known."""
        epoch = self._current.role.epoch()
        found = await read()
        if epoch is None or await self._current.leads() != epoch:
            raise not_sure()
        return found


def _offset_answer(request: Command, offset: int) -> Command:
    return request.response(fields={"offset": str(offset)})
