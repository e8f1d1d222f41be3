"""Requests 100, 101, 102 and 219: the key-value configuration by which topics keep an order.

    101, 219 ─▶ from the table of topics          100, 102 ─▶ the topic's order flag, by the master

mqadmin updateTopic -o true sets the flag with the topic itself (17), and asks for the key and sets
it afterwards; see rocketmq/clients/order_config.py.
"""

from collections.abc import Mapping
from dataclasses import replace

from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.order_config import (
    read_key,
    read_value,
    require_order,
    table,
)
from tandemlog_server.rocketmq.clients.routes import order_text
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import MetadataError, TopicConfig

from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from .cluster_nodes import ClusterNodes
from .topic_creation import TopicCreation


class OrderMethods:
    """See the module. Belongs to the loop."""

    def __init__(self, store: MessageStore, nodes: ClusterNodes, topics: TopicCreation) -> None:
        self._store = store
        self._nodes = nodes
        self._topics = topics

    def methods(self) -> Mapping[int, Method]:
        """By request code."""
        return {
            RequestCode.PUT_KV_CONFIG: Method(self.put, audited=True),
            RequestCode.GET_KV_CONFIG: Method(self.get, of_master=False),
            RequestCode.DELETE_KV_CONFIG: Method(self.delete, audited=True),
            RequestCode.GET_KVLIST_BY_NAMESPACE: Method(self.list, of_master=False),
        }

    async def put(self, call: RemotingCall) -> Command:
        """100. Raises FormatError, DeniedError, RemotingRefusedError."""
        call.caller.require_admin("set the order of a topic")
        topic = self._topic(read_key(call.request.fields))
        read_value(call.request.fields, self._nodes.names.broker)
        await self._set(topic, order=True)
        return call.request.response()

    async def get(self, call: RemotingCall) -> Command:
        """101."""
        name = read_key(call.request.fields)
        topic = self._store.topics.get(name)
        if topic is None or not topic.order or not call.caller.seen([name]):
            raise RemotingRefusedError(
                ResponseCode.QUERY_NOT_FOUND, f"topic {quoted(name)} has no order configuration"
            )
        return call.request.response(fields={"value": self._text(topic)})

    async def delete(self, call: RemotingCall) -> Command:
        """102. A key that is not there is deleted already."""
        call.caller.require_admin("set the order of a topic")
        topic = self._store.topics.get(read_key(call.request.fields))
        if topic is not None:
            await self._set(topic, order=False)
        return call.request.response()

    async def list(self, call: RemotingCall) -> Command:
        """219."""
        try:
            require_order(call.request.fields)
        except FormatError as problem:
            raise RemotingRefusedError(ResponseCode.QUERY_NOT_FOUND, str(problem)) from None
        topics = self._store.topics.table
        names = call.caller.seen(name for name, topic in topics.items() if topic.order)
        return call.request.response(table({name: self._text(topics[name]) for name in names}))

    def _topic(self, name: str) -> TopicConfig:
        topic = self._store.topics.get(name)
        if topic is None:
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"there is no topic {quoted(name)}: create it first"
            )
        return topic

    def _text(self, topic: TopicConfig) -> str:
        placement = self._nodes.placement()
        names = [placement.names.broker, *(name for name, _ in placement.aliases)]
        return order_text(names, topic.write_queues)

    async def _set(self, topic: TopicConfig, *, order: bool) -> None:
        if topic.order is order:
            return
        try:
            await self._topics.create(replace(topic, order=order), update=True)
        except MetadataError as error:
            raise RemotingRefusedError(ResponseCode.INVALID_PARAMETER, str(error)) from None
