"""How far a group is, and where it is set to, over remoting: what mqadmin asks for.

    208  ends of the queues, the group's offsets, when it was stored what it consumed last
    222  time ─▶ an offset for each queue ─▶ the table of offsets (as a commit by hand) ─▶ answered
                                                      └▶ 220 to each member: go there

As a broker 5.5 does, the node resets the offsets by itself, so a group without members can be set
too. Members are told besides: what they have in memory would be committed over it.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from functools import partial
from typing import Final

from tandemlog.format.constants import group_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog.v1 import broker_pb2
from tandemlog_server.rocketmq.clients.client_table import ClientTable
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.heartbeats import whole_in
from tandemlog_server.rocketmq.clients.member_documents import (
    ProgressRow,
    consume_stats,
    reset_offsets,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.queues.queue_search import Boundary

from ...access.caller import Caller
from ...access.identities import Right
from ...error_status import RequestRefusedError
from ...pulls.read_turns import ReadTurns
from ...roles.role import CurrentRole
from ...services.group_service import GroupService
from ..door.remoting_call import Connection, Method, RemotingCall, RemotingRefusedError

logger = logging.getLogger(__name__)

MAX_ROWS: Final = 65_536
"""Queues of one answer."""
NO_SUCH_GROUP: Final = 26
JAVA: Final = "JAVA"


Setting = Callable[[str, str, Mapping[int, int]], AbstractAsyncContextManager[None]]


def _plainly(*_: object) -> AbstractAsyncContextManager[None]:
    return nullcontext()


class ProgressMethods:
    """See the module. `broker_name` as clients know it; `setting` is a context in which offsets of
    a group are set: group, topic, and the offset of each queue."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        groups: GroupService,
        turns: ReadTurns,
        clients: ClientTable[Connection],
        broker_name: str,
        setting: Setting = _plainly,
    ) -> None:
        self._store = store
        self._setting = setting
        self._current = current
        self._groups = groups
        self._turns = turns
        self._clients = clients
        self._broker_name = broker_name

    def methods(self) -> Mapping[int, Method]:
        return {
            RequestCode.GET_CONSUME_STATS: Method(self.stats),
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Method(self.reset, audited=True),
        }

    # ---- how far

    async def stats(self, call: RemotingCall) -> Command:
        """208: of one topic, or of all that the group has offsets in."""
        group = _group(call, "consumerGroup")
        topic = call.request.fields.get("topic", "")
        call.caller.require(Right.CONSUME, (group,))
        await self._current.leads()
        await self._groups.offsets_known(group)
        offsets = self._store.consumer_offsets
        topics = [topic] if topic else sorted({each.topic for each in offsets.fetch(group)})
        wanted = self._clients.subscriptions(group)
        # a topic that the group has left holds nothing up
        topics = [each for each in call.caller.seen(topics) if not wanted or each in wanted]
        make = partial(self._stats, group, topics)
        body = await self._turns.run(call.caller, make, size_of=len)
        return call.request.response(body)

    def _stats(self, group: str, topics: Iterable[str]) -> bytes:
        """In a reader thread."""
        return consume_stats(self._broker_name, self._rows(group, topics))

    def _rows(self, group: str, topics: Iterable[str]) -> list[ProgressRow]:
        store, rows = self._store, list[ProgressRow]()
        for topic in topics:
            config = store.topics.get(topic)
            if config is None:
                continue
            if len(rows) + config.read_queues > MAX_ROWS:
                raise FormatError(
                    f"group {quoted(group)} has offsets of more than {MAX_ROWS} queues: name a "
                    "topic"
                )
            committed = store.consumer_offsets.of_pair(topic, group)
            for queue_id in range(config.read_queues):
                consumed = committed.get(queue_id, 0)
                rows.append(
                    ProgressRow(
                        topic,
                        queue_id,
                        store.queue_end(topic, queue_id) or 0,
                        consumed,
                        max(store.reader.time_at(topic, queue_id, consumed - 1), 0),
                    )
                )
        return rows

    # ---- where to

    async def reset(self, call: RemotingCall) -> Command:
        """222. Raises RequestRefusedError as a commit by hand does."""
        fields = call.request.fields
        group, topic = _group(call, "group"), fields.get("topic", "")
        call.caller.require(Right.CONSUME, (group,))
        call.caller.require(Right.READ, (topic,))
        await self._current.leads()
        offsets = await self._turns.run(call.caller, partial(self._targets, group, fields))
        # before the commit: a member that is not told of it would commit over it
        make = partial(self._bodies, topic, offsets)
        bodies = await self._turns.run(call.caller, make, size_of=lambda made: len(made[JAVA]))
        async with self._setting(group, topic, offsets):
            await self._commit(group, topic, offsets, call.caller)
        for each in self._clients.members(group):
            if not each.connection.closed:
                each.connection.push(
                    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
                    {
                        "topic": topic,
                        "group": group,
                        "timestamp": fields.get("timestamp", "-1"),
                        "isForce": "true",
                    },
                    bodies.get(each.about.language, bodies[JAVA]),
                )
        logger.info("offsets reset: group=%s topic=%s queues=%d", group, topic, len(offsets))
        return call.request.response(bodies[JAVA])

    def _bodies(self, topic: str, offsets: Mapping[int, int]) -> dict[str, bytes]:
        """As clients of these languages read it; all others read Java's. In a reader thread."""
        name = self._broker_name
        return {each: reset_offsets(name, topic, offsets, language=each) for each in (JAVA, "CPP")}

    def _targets(self, group: str, fields: Mapping[str, str]) -> dict[int, int]:
        """The offset of each queue. In a reader thread."""
        store, topic = self._store, fields.get("topic", "")
        config = store.topics.get(topic)
        if config is None:
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"topic {quoted(topic)} does not exist"
            )
        offsets = store.consumer_offsets
        if group not in store.groups.table and not offsets.has_group(group):
            raise RemotingRefusedError(NO_SUCH_GROUP, f"there is no group {quoted(group)}")
        queue_id, offset = whole_in(fields, "queueId", -1), whole_in(fields, "offset", -1)
        timestamp = whole_in(fields, "timestamp", -1)
        if queue_id >= config.read_queues:
            raise FormatError(
                f"queueId {queue_id}: topic {quoted(topic)} has {config.read_queues} queues"
            )
        queues = range(config.read_queues) if queue_id < 0 else (queue_id,)
        return {
            each: offset if offset >= 0 and queue_id >= 0 else self._at(topic, each, timestamp)
            for each in queues
        }

    def _at(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The first message that is not older; the end of the queue for a negative time."""
        if timestamp < 0:
            return self._store.queue_end(topic, queue_id) or 0
        return self._store.reader.search_offset(topic, queue_id, timestamp, Boundary.LOWER)

    async def _commit(
        self, group: str, topic: str, offsets: Mapping[int, int], caller: Caller
    ) -> None:
        request = broker_pb2.CommitOffsetsRequest(
            group=group,
            offsets=[
                broker_pb2.QueuePosition(topic=topic, queue_id=queue_id, queue_offset=offset)
                for queue_id, offset in offsets.items()
            ],
        )
        answer = await self._groups.commit(request, caller)
        if answer.error.code:
            raise RequestRefusedError(answer.error.code, answer.error.message)


def _group(call: RemotingCall, field: str) -> str:
    """Raises FormatError for a name that no group can have."""
    group = call.request.fields.get(field, "")
    fault = group_fault(group, new=False)
    if fault is not None:
        raise FormatError(f"{field} {quoted(group)}: {fault}")
    return group
