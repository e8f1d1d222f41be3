"""The Admin service: the cluster as this node sees it, topics, groups, statistics.

Topics are made and changed on the master only; the replication carries the whole table to the
slaves. Everything else any node answers.
"""
# The methods have the names of admin.proto.
# ruff: noqa: N802

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol

from storage.message_store import MessageStore
from storage.metadata import PERM_READ, PERM_WRITE, TopicConfig
from tandemlog.format.constants import client_topic_fault, is_system_topic
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, common_pb2

from .config import NodeConfig
from .error_status import RequestRefusedError, error_of

DEFAULT_QUEUES = 8


class ClusterView(Protocol):
    """The cluster as this node knows it; cheap, and of no I/O."""

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        """Every node that is known, this one included."""

    def require_master(self, what: str) -> None:
        """Raises RequestRefusedError (NOT_MASTER, with the master's endpoint) on a slave."""

    async def admit_change(self) -> None:
        """Raises RequestRefusedError (NOT_MASTER, NOT_IN_SYNC) where no table can be changed."""

    async def settle(self, table: str) -> None:
        """Wait until a changed table is safe. Raises RequestRefusedError (OUTCOME_UNKNOWN)."""


class AdminService(admin_pb2_grpc.AdminServicer):
    """See the module. `statistics` gives all counters of the node as plain numbers."""

    def __init__(
        self,
        store: MessageStore,
        view: ClusterView,
        config: NodeConfig,
        executor: Executor,
        statistics: Callable[[], Mapping[str, float]],
    ) -> None:
        self._store = store
        self._view = view
        self._config = config
        self._executor = executor
        self._statistics = statistics

    async def DescribeCluster(
        self, request: admin_pb2.DescribeClusterRequest, context: Any
    ) -> admin_pb2.DescribeClusterResponse:
        nodes = self._view.members()
        masters = [node.node_id for node in nodes if node.role == common_pb2.MASTER]
        config = self._config
        return admin_pb2.DescribeClusterResponse(
            cluster_id=config.cluster_id,
            answered_by=config.node_id,
            master_id=masters[0] if masters else "",
            nodes=nodes,
            flush=config.store.flush.value,
            replication=config.replication.mode.value,
            min_in_sync=config.replication.min_in_sync,
            max_message_size=config.store.max_message_size,
            max_batch_size=config.store.max_batch_size,
        )

    async def CreateTopic(
        self, request: admin_pb2.CreateTopicRequest, context: Any
    ) -> admin_pb2.TopicResponse:
        return await self._changed(lambda: self._create(request))

    async def _changed(
        self, work: Callable[[], admin_pb2.TopicResponse]
    ) -> admin_pb2.TopicResponse:
        """A topic is made, changed or gone once whoever may become the master knows it."""
        try:
            self._view.require_master("topics are changed")
            await self._view.admit_change()
            response = await asyncio.get_running_loop().run_in_executor(self._executor, work)
            await self._view.settle("topics")
        except Exception as problem:  # bad input never ends a call, nor the node
            return admin_pb2.TopicResponse(error=error_of(problem))
        return response

    def _create(self, request: admin_pb2.CreateTopicRequest) -> admin_pb2.TopicResponse:
        self._view.require_master("topics are made")
        asked = request.topic
        _refuse_system_topic(asked.name)
        held = self._store.topics.get(asked.name)
        if request.update and held is None:
            raise RequestRefusedError(
                common_pb2.UNKNOWN_TOPIC, f"there is no topic {asked.name!r}", field="name"
            )
        topic = TopicConfig(
            name=asked.name,
            read_queues=asked.read_queues or (held.read_queues if held else DEFAULT_QUEUES),
            write_queues=asked.write_queues or (held.write_queues if held else DEFAULT_QUEUES),
            perm=asked.perm or (held.perm if held else PERM_READ | PERM_WRITE),
            order=asked.order,
            attributes={**(held.attributes if held else {}), **asked.attributes},
        )
        made = self._store.create_topic(topic, update=request.update)
        return admin_pb2.TopicResponse(topic=_topic(made))

    async def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, context: Any
    ) -> admin_pb2.ListTopicsResponse:
        names = list(request.names) or self._store.topics.names()
        topics = []
        for name in names:
            topic = self._store.topics.get(name)
            if topic is None:
                problem = RequestRefusedError(
                    common_pb2.UNKNOWN_TOPIC, f"there is no topic {name!r}", field="names"
                )
                return admin_pb2.ListTopicsResponse(error=error_of(problem))
            topics.append(_topic(topic))
        return admin_pb2.ListTopicsResponse(topics=topics)

    async def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, context: Any
    ) -> admin_pb2.TopicResponse:
        return await self._changed(lambda: self._delete(request.name))

    def _delete(self, name: str) -> admin_pb2.TopicResponse:
        self._view.require_master("topics are deleted")
        _refuse_system_topic(name)
        return admin_pb2.TopicResponse(
            topic=_topic(self._store.topics.delete(name, self._store.clock.now_ms()))
        )

    async def ListGroups(
        self, request: admin_pb2.ListGroupsRequest, context: Any
    ) -> admin_pb2.ListGroupsResponse:
        names = {*self._store.groups.names(), *self._store.consumer_offsets.groups()}
        return admin_pb2.ListGroupsResponse(groups=sorted(names))

    async def Stats(self, request: admin_pb2.StatsRequest, context: Any) -> admin_pb2.StatsResponse:
        return admin_pb2.StatsResponse(values=self._statistics())


def _refuse_system_topic(name: str) -> None:
    """As RocketMQ does. A name that is merely bad is for who makes the topic to refuse: one that
    is there can be deleted."""
    if is_system_topic(name):
        fault = client_topic_fault(name)
        raise RequestRefusedError(
            common_pb2.INVALID_TOPIC_NAME, f"topic {name!r}: {fault}", field="name"
        )


def _topic(topic: TopicConfig) -> admin_pb2.Topic:
    return admin_pb2.Topic(
        name=topic.name,
        read_queues=topic.read_queues,
        write_queues=topic.write_queues,
        perm=topic.perm,
        order=topic.order,
        attributes=topic.attributes,
    )
