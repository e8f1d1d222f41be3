"""QueryRoute and QueryAssignment: where a topic is, and what a push consumer polls.

Both are answered by every node from its own tables; what a slave does not know yet, the master may.
A topic that does not exist has the route that it will have once a send creates it, where sends do
that. A push consumer polls every entry of the route: each is a way to all messages, and one that
leads to a frozen node does not stop the others.
"""

from typing import Final

from tandemlog.format.words import quoted
from tandemlog.rocketmq_v2 import messaging_pb2 as v2
from tandemlog_server.rocketmq.clients.broker_topics import AUTO_CREATED
from tandemlog_server.rocketmq.messaging.node_routes import entries_of, queues_of
from tandemlog_server.rocketmq.messaging.refusals import MessagingRefusedError, made_status
from tandemlog_server.rocketmq.messaging.resources import group_of, topic_of
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

from ..access.identities import Right
from ..remoting.cluster.cluster_nodes import ClusterNodes
from ..remoting.cluster.topic_creation import TopicCreation
from .messaging_call import Answers, MessagingCall, Method

LANGUAGE: Final = "x-mq-language"
OF_NODE_JS: Final = "HTTP"
"""What the client for Node.js says. It takes the addresses of an entry for one host's name."""


class RouteMethods:
    """See the module; belongs to the loop."""

    def __init__(self, store: MessageStore, nodes: ClusterNodes, topics: TopicCreation) -> None:
        self._store = store
        self._nodes = nodes
        self._topics = topics

    def methods(self) -> list[Method]:
        return [
            Method(
                "QueryRoute",
                v2.QueryRouteRequest,
                v2.QueryRouteResponse,
                self.route,
                of_master=False,
            ),
            Method(
                "QueryAssignment",
                v2.QueryAssignmentRequest,
                v2.QueryAssignmentResponse,
                self.assignment,
                of_master=False,
            ),
        ]

    async def route(self, request: v2.QueryRouteRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError and DeniedError."""
        queues = self._queues(request.topic, call)
        return [v2.QueryRouteResponse(status=made_status(v2.OK), message_queues=queues)]

    async def assignment(self, request: v2.QueryAssignmentRequest, call: MessagingCall) -> Answers:
        """Raises MessagingRefusedError and DeniedError."""
        call.caller.require(Right.CONSUME, [group_of(request.group)])
        assignments = [
            v2.Assignment(message_queue=each) for each in self._queues(request.topic, call)
        ]
        return [v2.QueryAssignmentResponse(status=made_status(v2.OK), assignments=assignments)]

    def _queues(self, resource: v2.Resource, call: MessagingCall) -> list[v2.MessageQueue]:
        name = topic_of(resource)
        call.caller.require_see((name,))
        nodes = self._nodes.nodes()
        reached = [each.address for each in nodes if each.up and each.address]
        entries = entries_of(
            reached or [self._nodes.address],
            call.client_id,
            alone=dict(call.metadata).get(LANGUAGE) == OF_NODE_JS,
        )
        return queues_of(self._topic(name), resource, self._nodes.names.broker, entries)

    def _topic(self, name: str) -> TopicConfig:
        topic = self._store.topics.table.get(name)
        if topic is not None:
            return topic
        model = self._topics.get(AUTO_CREATED)
        if model is None:
            raise MessagingRefusedError(
                v2.TOPIC_NOT_FOUND,
                f"topic {quoted(name)} does not exist: create it with mqadmin updateTopic or "
                "`tandemlog topic create`",
            )
        return TopicConfig(name)
