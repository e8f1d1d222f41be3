"""What mqadmin and the dashboard do with topics.

    17       create or update, 215 and 216 delete        the master, for administrators
    351, 21  the bean of one topic, the table of all
    202      the ends of a topic's queues

A broker and its name server are one here, so 216 finds nothing left to do after 215.
"""

from collections.abc import Mapping
from typing import Final

from tandemlog.format.constants import PERM_READ, PERM_WRITE, client_topic_fault
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.routes import encoded, topic_stats
from tandemlog_server.rocketmq.serve import tables
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import MetadataError, TopicConfig

from ...pulls.read_turns import ReadTurns
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from .cluster_nodes import ClusterNodes
from .topic_creation import TopicCreation

INVALID_PARAMETER: Final = 29
"""RocketMQ's number."""
QUEUES: Final = 16
"""RocketMQ's default where a request names no number."""
ROW_BYTES: Final = 160
"""Of one queue in an answer."""
_MOST_DIGITS: Final = 9


class TopicMethods:
    """See the module. Belongs to the loop."""

    def __init__(
        self, store: MessageStore, nodes: ClusterNodes, topics: TopicCreation, turns: ReadTurns
    ) -> None:
        self._store = store
        self._nodes = nodes
        self._topics = topics
        self._turns = turns

    def methods(self) -> dict[int, Method]:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: Method(self.update, audited=True),
            RequestCode.DELETE_TOPIC_IN_BROKER: Method(self.delete, audited=True),
            RequestCode.DELETE_TOPIC_IN_NAMESRV: Method(self.delete_route),
            RequestCode.GET_TOPIC_CONFIG: Method(self.config, of_master=False),
            RequestCode.GET_ALL_TOPIC_CONFIG: Method(self.table, of_master=False),
            RequestCode.GET_TOPIC_STATS_INFO: Method(self.stats, of_master=False),
        }

    async def update(self, call: RemotingCall) -> Command | None:
        """Raises RemotingRefusedError for a topic that cannot be so, and what a change of the table
        raises."""
        call.caller.require_admin("create or change a topic")
        topic = wanted_topic(call.request.fields)
        try:
            await self._topics.create(topic, update=True)
        except MetadataError as error:
            raise RemotingRefusedError(INVALID_PARAMETER, str(error)) from None
        return call.request.response()

    async def delete(self, call: RemotingCall) -> Command | None:
        """A topic that is not there is deleted already."""
        call.caller.require_admin("delete a topic")
        name = call.request.fields.get("topic", "")
        if not name or self._topics.is_own(name):
            raise RemotingRefusedError(
                INVALID_PARAMETER, f"The topic[{name}] is conflict with system topic."
            )
        await self._topics.delete(name)
        return call.request.response()

    async def delete_route(self, call: RemotingCall) -> Command | None:
        call.caller.require_admin("delete the route of a topic")
        return call.request.response()

    async def config(self, call: RemotingCall) -> Command | None:
        """The topic's bean. Raises RemotingRefusedError (TOPIC_NOT_EXIST)."""
        topic = self._require(call)
        return call.request.response(encoded(topic.encode()))

    async def table(self, call: RemotingCall) -> Command | None:
        call.caller.require_admin("read the table of topics")
        body = await self._turns.run(call.caller, lambda: tables.topics(self._store), size_of=len)
        fields = {"totalTopicNum": str(len(self._store.topics.table))}
        return call.request.response(body, fields=fields)

    async def stats(self, call: RemotingCall) -> Command | None:
        """Raises RemotingRefusedError (TOPIC_NOT_EXIST)."""
        topic = self._require(call)
        room = max(topic.write_queues, topic.read_queues) * ROW_BYTES

        def read() -> bytes:
            ranges = self._store.reader.ranges([topic.name])
            return topic_stats(self._nodes.names, topic.name, topic.write_queues, ranges)

        body = await self._turns.run(call.caller, read, room=room, size_of=len)
        return call.request.response(body)

    def _require(self, call: RemotingCall) -> TopicConfig:
        name = call.request.fields.get("topic", "")
        topic = self._topics.get(name)
        if topic is None or not (self._topics.is_own(name) or call.caller.seen([name])):
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {quoted(name)}"
            )
        return topic


def wanted_topic(fields: Mapping[str, str]) -> TopicConfig:
    """The topic that a request 17 describes. Raises RemotingRefusedError."""
    name = fields.get("topic", "")
    if (fault := client_topic_fault(name)) is not None:
        raise RemotingRefusedError(INVALID_PARAMETER, f"topic {quoted(name)}: {fault}")
    return TopicConfig(
        name,
        _number(fields, "readQueueNums", QUEUES),
        _number(fields, "writeQueueNums", QUEUES),
        _number(fields, "perm", PERM_READ | PERM_WRITE),
        fields.get("order", "") == "true",
        attributes_of(fields.get("attributes", "")),
        {
            "topicFilterType": fields.get("topicFilterType") or "SINGLE_TAG",
            "topicSysFlag": _number(fields, "topicSysFlag", 0),
        },
    )


def attributes_of(text: str) -> dict[str, str]:
    """`+key=value,+key=value`, as mqadmin sends them. Raises RemotingRefusedError for an attribute
    that is taken away, which is not stored here."""
    attributes = {}
    for part in filter(None, text.split(",")):
        key, separator, value = part.partition("=")
        if not (key.startswith("+") and separator and len(key) > 1):
            raise RemotingRefusedError(
                INVALID_PARAMETER, f"attributes: +key=value is needed, not {quoted(part)}"
            )
        attributes[key[1:]] = value
    return attributes


def _number(fields: Mapping[str, str], name: str, default: int) -> int:
    text = fields.get(name) or ""
    if not text:
        return default
    if len(text) > _MOST_DIGITS or not text.isdecimal():
        raise RemotingRefusedError(INVALID_PARAMETER, f"{name} must be a number: {quoted(text)}")
    return int(text)
