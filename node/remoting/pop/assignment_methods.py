"""Requests 400 and 401: which queues a member works on, and whether it pulls or pops them.

    400  members that heartbeat here ─▶ a part of the queues (PULL), or all of them (POP)
    401  the group's row ─▶ in the table of every node that may lead next ─▶ the answer

The master answers both: all members must be dealt out by one list.

Who pops a whole topic does so by each name of the broker, the write aliases of the slaves too: each
hands its pop on to the master, and none is bound to a queue. When the master dies, the pops by the
other names find the next one, while those by its own wait until the client has a new route.
"""

import asyncio
from collections.abc import Mapping

from tandemlog.format.constants import RETRY_PREFIX
from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog_server.ha.store_port import GROUPS
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.pop.assignments import (
    AssignmentQuery,
    ModeRequest,
    allocate,
    allocate_pops,
    assignment_answer,
    may_pop,
    read_mode,
    read_query,
    with_mode,
)
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import MetadataError

from ...roles.role import CurrentRole
from ..clients.client_methods import ClientMethods
from ..cluster.cluster_nodes import ClusterNodes
from ..cluster.topic_creation import TopicCreation
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from ..reads.read_rights import require_reads
from .request_modes import RequestModes


class AssignmentMethods:
    """See the module. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        clients: ClientMethods,
        topics: TopicCreation,
        nodes: ClusterNodes,
        modes: RequestModes,
    ) -> None:
        self._store = store
        self._current = current
        self._clients = clients
        self._topics = topics
        self._nodes = nodes
        self._modes = modes

    def methods(self) -> Mapping[int, Method]:
        """By request code."""
        return {
            RequestCode.QUERY_ASSIGNMENT: Method(self.query),
            RequestCode.SET_MESSAGE_REQUEST_MODE: Method(self.set_mode, audited=True),
        }

    async def query(self, call: RemotingCall) -> Command:
        """400. Raises FormatError, DeniedError, RequestRefusedError."""
        asked = read_query(call.request.body)
        require_reads(call.caller, asked.group, asked.topic)
        if self._current.role.epoch() is not None:
            await self._current.leads()
        share = None if asked.broadcasting else self._modes.popped(asked.group).get(asked.topic)
        queues = self._queues(asked, share)
        return call.request.response(assignment_answer(asked.topic, queues, pops=share is not None))

    def _queues(self, asked: AssignmentQuery, share: int | None) -> list[tuple[str, int]] | None:
        """None if nothing can be said, so that the member keeps what it has."""
        config = self._topics.get(asked.topic)
        if config is None:
            return None
        placement = self._nodes.placement()
        broker = placement.names.broker
        queue_ids = range(config.read_queues)
        if asked.broadcasting:
            return [(broker, each) for each in queue_ids]
        members = sorted(self._clients.table.consumer_ids(asked.group))
        if not members:
            return None
        if share is None:
            mine = allocate(asked.strategy, asked.client_id, queue_ids, members)
            return [(broker, each) for each in mine]
        mine = allocate_pops(asked.strategy, asked.client_id, queue_ids, members, share)
        names = [broker, *(name for name, _ in placement.aliases)]
        return [(name, each) for name in names for each in mine]

    async def set_mode(self, call: RemotingCall) -> Command:
        """401. Raises FormatError, DeniedError, RemotingRefusedError, RequestRefusedError."""
        asked = read_mode(call.request.body)
        call.caller.require_admin("set how a group gets its messages")
        if not may_pop(asked.topic):
            raise RemotingRefusedError(
                ResponseCode.NO_PERMISSION,
                f"what is retried for a group ({RETRY_PREFIX}...) is always pulled",
            )
        if self._topics.get(asked.topic) is None:
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {quoted(asked.topic)}"
            )
        role = self._current.role
        role.require_master("change groups on")
        await role.admit_change()
        try:
            await asyncio.to_thread(self._set_mode, asked)
        except (FormatError, MetadataError) as error:
            raise RemotingRefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        await role.confirm_table(GROUPS)
        return call.request.response()

    def _set_mode(self, asked: ModeRequest) -> None:
        """In a thread. A group that is not there is made, as by a broker."""
        self._current.role.require_master("change groups on")
        groups, now_ms = self._store.groups, self._store.clock.now_ms()
        groups.ensure(asked.group, now_ms)
        row = groups.table.get(asked.group)
        if isinstance(row, Mapping):
            groups.take_rows({asked.group: with_mode(row, asked)}, (), now_ms)
