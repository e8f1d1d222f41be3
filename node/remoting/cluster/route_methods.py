"""What RocketMQ's clients ask a name server: routes (105), brokers (106), topics (206).

    105 of a topic    in the table                 its route
                      that a broker has by itself  its route (rocketmq/clients/broker_topics.py)
                      %RETRY%g, %DLQ%g             its route; the master creates it on the way
                      any other, on the master     17, after which a producer asks for TBW102
                      any other, elsewhere         the master's answer: the table here may be old

A consumer asks for the route of its retry topic before a broker has heard of its group, and again
only 30 s later: so that answer does not wait for the creation longer than a moment.
"""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Final

from tandemlog.format.constants import (
    DEAD_LETTER_PREFIX,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    group_fault,
)
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.routes import cluster_info, route, topic_list
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

from ...access.caller import Caller
from ...error_status import RequestRefusedError
from ...pulls.read_turns import ReadTurns
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from ..door.remoting_door import HandsOn
from .cluster_nodes import ClusterNodes
from .topic_creation import TopicCreation

CREATE_S: Final = 0.5
"""A client waits for 3 s."""
ACCESS_KEY: Final = "AccessKey"
_OF_GROUP: Final = (RETRY_PREFIX, DEAD_LETTER_PREFIX)


class RouteMethods:
    """See the module. `master` reaches the node that leads. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        nodes: ClusterNodes,
        topics: TopicCreation,
        master: HandsOn,
        turns: ReadTurns,
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._topics = topics
        self._master = master
        self._turns = turns

    def methods(self) -> dict[int, Method]:
        return {
            RequestCode.GET_ROUTE_INFO_BY_TOPIC: Method(self.route, of_master=False),
            RequestCode.GET_BROKER_CLUSTER_INFO: Method(self.cluster, of_master=False),
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: Method(self.topics, of_master=False),
        }

    async def route(self, call: RemotingCall) -> Command | None:
        """Raises RemotingRefusedError (TOPIC_NOT_EXIST)."""
        name = call.request.fields.get("topic", "")
        topic = self._seen(call.caller, name)
        if topic is None and name.startswith(_OF_GROUP):
            topic = await self._of_group(call.caller, name)
        if topic is not None:
            return self._route(call, topic)
        if self._nodes.leads() or (call.caller.who is not None and not _signed(call.request)):
            raise no_route(name)
        return await self._master.serve(call, self.route)

    async def cluster(self, call: RemotingCall) -> Command | None:
        return call.request.response(cluster_info(self._nodes.placement()))

    async def topics(self, call: RemotingCall) -> Command | None:
        names = {*self._store.topics.table, *self._topics.own}
        make = partial(self._listed, call.caller, names)
        body = await self._turns.run(call.caller, make, size_of=len)
        return call.request.response(body)

    @staticmethod
    def _listed(caller: Caller, names: Iterable[str]) -> bytes:
        """In a reader thread: there may be a hundred thousand."""
        return topic_list(caller.seen(names))

    def _route(self, call: RemotingCall, topic: TopicConfig) -> Command:
        # a caller that is known by its certificate alone is not handed on (forwarding.py)
        aliases = call.caller.who is None or _signed(call.request)
        return call.request.response(route(topic, self._nodes.placement(), aliases=aliases))

    def _seen(self, caller: Caller, name: str) -> TopicConfig | None:
        topic = self._topics.get(name)
        if topic is None or caller.restricted is None or name in self._topics.own:
            return topic
        if name.startswith(_OF_GROUP):
            return topic if caller.consumed([_group_of(name)]) else None
        return topic if caller.seen([name]) else None

    async def _of_group(self, caller: Caller, name: str) -> TopicConfig | None:
        """The topic of a group that may be new; None if it can be no group's, or is not the
        caller's."""
        group = _group_of(name)
        if group_fault(group) is not None or not caller.consumed([group]):
            return None
        if self._nodes.leads():
            creating = asyncio.ensure_future(self._topics.create_of_group(name))
            done, _ = await asyncio.wait({creating}, timeout=CREATE_S)
            if done and isinstance(
                creating.exception(), RemotingRefusedError | RequestRefusedError | StoreError
            ):
                pass  # the group's heartbeat, or its first retry, creates it
            elif done:
                return creating.result()
            else:
                creating.add_done_callback(_looked_at)
        return TopicConfig(name, 1, 1, PERM_READ | PERM_WRITE)


def no_route(name: str) -> RemotingRefusedError:
    """The refusal that RocketMQ's clients know."""
    return RemotingRefusedError(
        ResponseCode.TOPIC_NOT_EXIST,
        f"No topic route info in name server for the topic: {quoted(name)}: create it with mqadmin "
        "updateTopic or `tandemlog topic create`, or let its first message create it",
    )


def _group_of(name: str) -> str:
    return name.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)


def _signed(request: Command) -> bool:
    return bool(request.fields.get(ACCESS_KEY))


def _looked_at(creating: "asyncio.Future[TopicConfig]") -> None:
    if not creating.cancelled():
        creating.exception()
