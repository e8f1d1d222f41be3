"""Topics, the cluster, offsets and queries for messages: the admin client for asyncio.

Changes go to the master; reads go to any node (`read_from`).
"""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime
from typing import Any, Self

from .cluster.connection import Connection
from .cluster.connection_options import ConnectionOptions, secured
from .cluster.delayed_messages import DelayedMessage, delayed_messages
from .cluster.elections import (
    Changed,
    ClusterChange,
    Coordination,
    History,
    changed_of,
    coordination_of,
    history_of,
)
from .cluster.node import Node, left_if_it_fails
from .cluster.node_details import (
    NodeConnection,
    NodeSetting,
    SettingChange,
    change_of,
    connections_of,
    setting_of,
)
from .cluster.paging import every_page, pages_of_topics
from .cluster.scrub_status import ScrubStatus, scrub_of
from .cluster.takeover import Takeover, takeover_of
from .cluster.topic_info import ProducerInfo as ProducerInfo
from .cluster.topic_info import TopicInfo as TopicInfo
from .cluster.topic_info import topic_of
from .cluster.topology import ReadFrom, Topology
from .cluster.transactions import OpenTransaction, decide_transaction, open_transactions
from .cluster.unknown_topics import unknown_topics
from .consume.group.group_admin import GroupAdmin, GroupDescription, OffsetChange
from .consume.reading.positions import Positions, Queue, QueueRange, Start, in_ms, queues_of
from .consume.reading.queue_lag import QueueLag
from .consume.reading.reader import Reader
from .consume.received.received_batch import messages_of
from .consume.received.received_message import ReceivedMessage
from .errors import (
    BadRecordError,
    InvalidArgumentError,
    InvalidTopicNameError,
    NoMasterError,
    NoNodeError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from .forks import inherited, watch
from .format.calls import MAX_ROWS
from .format.constants import DEFAULT_QUEUES as DEFAULT_QUEUES
from .format.constants import MAX_QUERY, MAX_QUERY_ALL, topic_fault
from .format.constants import PERM_READ as PERM_READ
from .format.constants import PERM_WRITE as PERM_WRITE
from .format.errors import FormatError
from .format.record.message_id import decode_offset_id
from .produce.recalls import recall
from .transport.security import Security
from .v1 import admin_pb2, broker_pb2


class AsyncAdmin:
    """Administers the cluster that `endpoints` belong to."""

    def __init__(
        self,
        endpoints: str | Sequence[str],
        *,
        read_from: ReadFrom | str = ReadFrom.ANY,
        connection: ConnectionOptions | None = None,
        security: Security | None = None,
    ) -> None:
        self._connection = Connection(endpoints, secured(connection, security))
        self._reader = Reader(self._connection, read_from)
        self._positions = Positions(self._connection, self._reader)
        self._groups = GroupAdmin(self._connection, self._positions)
        self._timeout_ms = self._connection.options.request_timeout_ms
        watch(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Nothing to do: the first call connects. For symmetry with the producer."""

    async def close(self) -> None:
        """Closes the connection."""
        if inherited(self):
            return
        await self._connection.close()

    async def cluster(self) -> Topology:
        """All nodes with their present roles, offsets and lag. Raises NoNodeError if no node
        answers."""
        topology = await self._connection.refresh()
        if not any(node.reachable for node in topology.nodes):
            raise NoNodeError(f"no node can be reached: {topology.asked_text()}")
        return topology

    async def coordination(self) -> Coordination:
        """Who leads, who is in sync, who belongs to the cluster: read at the coordinator now, by
        the node that is read from. Raises CoordinatorUnavailableError, and InvalidArgumentError if
        roles are configured."""
        request = admin_pb2.CoordinationRequest()
        return coordination_of(
            await self._reader.ask(
                lambda node: node.ask(node.admin.Coordination, request, self._timeout_ms)
            )
        )

    async def history(self) -> History:
        """The terms of the cluster's masters; raises as `coordination`."""
        request = admin_pb2.HistoryRequest()
        return history_of(
            await self._reader.ask(
                lambda node: node.ask(node.admin.History, request, self._timeout_ms)
            )
        )

    async def change_cluster(
        self,
        change: ClusterChange,
        node_id: str = "",
        *,
        request_id: str = "",
        epoch: int = 0,
        force: bool = False,
        dry_run: bool = False,
    ) -> Changed:
        """Asks one node, once. A switchover or a failover is only begun: `coordination` shows it
        under `request_id`. `epoch`: only in this one (0: in any). Raises ChangeRefusedError,
        OutcomeUnknownError, and as `coordination`."""
        request = admin_pb2.ChangeClusterRequest(
            action=change.value,
            node_id=node_id,
            request_id=request_id,
            epoch=epoch,
            force=force,
            dry_run=dry_run,
        )
        node = await self._reader.node()
        with left_if_it_fails(node, self._reader.leave):
            answer = await node.ask(node.admin.ChangeCluster, request, self._timeout_ms)
        return changed_of(answer)

    async def take_over(self, *, force: bool = False, dry_run: bool = False) -> Takeover:
        """Asks a node that follows a RocketMQ broker to become the master of its log: it does if
        nothing is left to wait for, else it says what it waits for. Ask again, also if the outcome
        of a call is unknown. `force`: whatever the broker does; what is not here is lost. Raises
        ChangeRefusedError if the node follows no broker."""
        request = admin_pb2.TakeOverRequest(force=force, dry_run=dry_run)

        def ask(node: Node) -> Awaitable[admin_pb2.TakeOverResponse]:
            return node.ask(node.admin.TakeOver, request, self._timeout_ms)

        try:
            return takeover_of(await self._connection.on_master(ask))
        except NoMasterError:  # between two terms the node is no master, and can be asked
            return takeover_of(await ask(await self._reader.node()))

    async def create_topic(
        self,
        name: str,
        queues: int | None = None,
        *,
        perm: int | None = None,
        order: bool | None = None,
        attributes: Mapping[str, str] | None = None,
        update: bool = False,
    ) -> TopicInfo:
        """Creates a topic, or changes one with `update`. A value of None means the default of
        TopicInfo; with `update`, the present value. Raises TopicExistsError, with `update`
        UnknownTopicError and QueuesNotEmptyError (fewer queues than hold messages),
        InvalidTopicNameError, and what the master refuses."""
        fault = topic_fault(name, new=not update)
        if fault is not None:
            raise InvalidTopicNameError(f"topic {name!r}: {fault}", field="topic")
        if perm is not None and perm.__class__ is not int:
            raise InvalidArgumentError(
                f"perm {perm!r}: it must be the sum of 4 (read) and 2 (write): 6, 4 or 2",
                field="perm",
            )
        present = await self._held(name) if update else TopicInfo(name)
        topic = present.changed(queues, perm=perm, order=order, attributes=attributes)
        request = admin_pb2.CreateTopicRequest(
            topic=admin_pb2.Topic(
                name=name,
                read_queues=topic.read_queues,
                write_queues=topic.write_queues,
                perm=topic.perm,
                order=topic.order,
                attributes=topic.attributes,
            ),
            update=update,
        )
        answer = await self._connection.on_master(
            lambda node: node.ask(node.admin.CreateTopic, request, self._timeout_ms)
        )
        return topic_of(answer.topic)

    async def delete_topic(self, name: str) -> None:
        """Deletes a topic; its messages stay in the log until they expire."""
        request = admin_pb2.DeleteTopicRequest(name=name)
        await self._connection.on_master(
            lambda node: node.ask(node.admin.DeleteTopic, request, self._timeout_ms)
        )

    async def topics(self) -> list[TopicInfo]:
        """All topics, by name."""
        found = await pages_of_topics(
            (),
            lambda request: self._reader.ask(
                lambda node: node.ask(node.admin.ListTopics, request, self._timeout_ms)
            ),
        )
        return sorted((topic_of(each) for each in found), key=lambda topic: topic.name)

    async def topic(self, name: str) -> TopicInfo:
        """One topic; raises UnknownTopicError."""
        for each in await self._positions.topics([name]):
            return topic_of(each)
        raise _unknown(name)

    async def _held(self, name: str) -> TopicInfo:
        """The topic as the master has it, whichever node is read from; raises UnknownTopicError."""
        for each in await self._connection.topics([name]):
            return topic_of(each)
        raise _unknown(name)

    async def groups(self) -> list[str]:
        """All consumer groups with a committed offset or a configuration."""
        found: list[str] = []

        async def ask(page: str) -> str:
            request = admin_pb2.ListGroupsRequest(page=page)
            answer = await self._reader.ask(
                lambda node: node.ask(node.admin.ListGroups, request, self._timeout_ms)
            )
            found.extend(answer.groups)
            return answer.next_page

        await every_page(ask)
        return sorted(found)

    async def delayed(self, topic: str = "", limit: int = 1_000) -> list[DelayedMessage]:
        """The next messages that come later to `topic`, or to all topics, as the master has it."""
        return await delayed_messages(self._connection, topic, limit, self._timeout_ms)

    async def recall(self, topic: str, recall_handle: str) -> None:
        """As Producer.recall."""
        await recall(self._connection, topic, recall_handle)

    async def transactions(self) -> list[OpenTransaction]:
        """Those that are open, as the master has them, the oldest first."""
        return await open_transactions(self._connection, self._timeout_ms)

    async def decide_transaction(
        self, transaction_id: str, *, commit: bool, dry_run: bool = False
    ) -> OpenTransaction | None:
        """End a transaction in place of its producer; returns what it had, None if it had ended so
        before. Raises UnknownTransactionError, TransactionDecidedError."""
        return await decide_transaction(
            self._connection, transaction_id, self._timeout_ms, commit=commit, dry_run=dry_run
        )

    async def describe_group(self, group: str) -> GroupDescription:
        """State and members of a consumer group, as its master sees them; raises
        UnknownGroupError if it has neither members nor offsets."""
        return await self._groups.describe(group)

    async def lag(self, group: str, topics: str | Sequence[str] = ()) -> list[QueueLag]:
        """By queue, what waits for the group: of `topics`, or of all topics that it has offsets of
        or that its members follow. A queue without an offset counts from its beginning. Raises
        UnknownGroupError, UnknownTopicError."""
        names = [topics] if isinstance(topics, str) else topics
        return await self._groups.lag(group, names)

    async def reset_offsets(
        self,
        group: str,
        topics: str | Sequence[str] = (),
        *,
        to: Start | Mapping[Queue, int] | None = None,
        shift_by: int | None = None,
        dry_run: bool = False,
    ) -> list[OffsetChange]:
        """Moves the group's offsets and returns what changes; with `dry_run` nothing does.

        `topics`: none means those that the group has offsets of. `to`: EARLIEST, LATEST, a time
        (ms or datetime) or an offset for each (topic, queue id); or `shift_by` messages forward,
        or back where negative. Offsets stay within what a queue holds. Raises
        GroupHasMembersError while members are there, UnknownGroupError, UnknownTopicError.
        """
        names = [topics] if isinstance(topics, str) else topics
        return await self._groups.reset(group, names, to=to, shift_by=shift_by, dry_run=dry_run)

    async def delete_group(self, group: str, *, dry_run: bool = False) -> None:
        """Deletes a group and its offsets; `dry_run` only says whether it would be refused. Raises
        GroupHasMembersError while members are there, UnknownGroupError."""
        await self._groups.delete(group, dry_run=dry_run)

    async def stats(self) -> dict[str, float]:
        """Statistics of the node that is read from, by name."""
        request = admin_pb2.StatsRequest()
        answer = await self._reader.ask(
            lambda node: node.ask(node.admin.Stats, request, self._timeout_ms)
        )
        return dict(answer.values)

    async def settings(self, node_id: str = "") -> list[NodeSetting]:
        """All settings of a running node (default: of the one that is read from)."""
        node = await self._reader.node_named(node_id)
        request = admin_pb2.DescribeSettingsRequest()
        answer = await node.ask(node.admin.DescribeSettings, request, self._timeout_ms)
        return [setting_of(row) for row in answer.settings]

    async def change_setting(
        self,
        key: str,
        value: str,
        node_id: str = "",
        *,
        unset: bool = False,
        dry_run: bool = False,
    ) -> SettingChange:
        """Gives one node's setting a value (as TOML, or bare text), in its file and, where the
        setting is live, at once; `unset` takes the key out of the file. Raises
        InvalidArgumentError for a value that does not fit the rest, and for a key that the
        environment gives."""
        node = await self._reader.node_named(node_id)
        request = admin_pb2.ChangeSettingRequest(key=key, value=value, unset=unset, dry_run=dry_run)
        return change_of(await node.ask(node.admin.ChangeSetting, request, self._timeout_ms))

    async def connections(self, node_id: str = "") -> list[NodeConnection]:
        """Who has calls in progress at a node (default: at the one that is read from)."""
        node = await self._reader.node_named(node_id)
        request = admin_pb2.ListConnectionsRequest()
        answer = await node.ask(node.admin.ListConnections, request, self._timeout_ms)
        return connections_of(answer)

    async def scrub_status(self, node_id: str = "") -> ScrubStatus:
        """How far the scrub of a node is, and what it could not settle (default: of the node that
        is read from)."""
        node = await self._reader.node_named(node_id)
        request = admin_pb2.DescribeScrubRequest()
        return scrub_of(await node.ask(node.admin.DescribeScrub, request, self._timeout_ms))

    async def begin_scrub(self, node_id: str = "") -> ScrubStatus:
        """Lets a node begin a round through its log now. Raises InvalidArgumentError where its
        scrub is off."""
        node = await self._reader.node_named(node_id)
        request = admin_pb2.BeginScrubRequest()
        return scrub_of(await node.ask(node.admin.BeginScrub, request, self._timeout_ms))

    async def ranges(self, topics: str | Sequence[str] = ()) -> list[QueueRange]:
        """The ranges of the queues of `topics` (none: of all)."""
        return await self._positions.ranges([topics] if isinstance(topics, str) else topics)

    async def committed(self, group: str, topics: str | Sequence[str] = ()) -> dict[Queue, int]:
        """A group's committed offsets by (topic, queue id)."""
        names = [topics] if isinstance(topics, str) else topics
        return await self._positions.committed(group, names)

    async def commit(self, group: str, offsets: Mapping[Queue, int]) -> None:
        """Sets where a group continues reading; its consumers must not run meanwhile."""
        await self._positions.commit(group, offsets)

    async def search_offset(
        self, topic: str, time: Start, *, queue_id: int | None = None, upper: bool = False
    ) -> dict[Queue, int]:
        """By queue, the first message stored at or after `time` (ms or datetime); `upper`: the
        last one stored at or before it."""
        queues = queues_of(
            await self._positions.topics([topic]), None if queue_id is None else [queue_id]
        )
        boundary = broker_pb2.UPPER if upper else broker_pb2.LOWER
        return await self._positions.at_time(queues, in_ms(time), boundary)

    async def query_by_key(
        self,
        topic: str,
        key: str,
        *,
        max_messages: int = 0,
        begin: int | datetime = 0,
        end: int | datetime = 0,
        tags: bool = False,
        everything: bool = False,
    ) -> list[ReceivedMessage]:
        """Messages with this key or unique id, stored between two times (ms or datetime; 0: no
        bound). `max_messages` 0 means 64, more with `everything`; `tags`: `key` is a tag."""
        most = MAX_QUERY_ALL if everything else MAX_QUERY
        missing = min(max_messages or most, most)
        request = broker_pb2.QueryByKeyRequest(
            topic=topic,
            key=key,
            begin_timestamp=in_ms(begin),
            end_timestamp=in_ms(end),
            tags=tags,
            all=everything,
        )
        messages: list[ReceivedMessage] = []
        while missing > 0:
            request.max_messages = missing
            answer = await self._reader.ask(
                lambda node: node.ask(node.broker.QueryByKey, request, self._timeout_ms)
            )
            older = messages_of(answer.records, answer.sizes)
            messages = older + messages  # the newest come first, each page in the log's order
            missing -= len(older)
            request.page = answer.next_page
            if not request.page:
                break
        return messages

    async def query_by_id(self, msg_id: str, topic: str | None = None) -> ReceivedMessage | None:
        """The message with this offset id; with `topic`, also the one with this unique id
        (UNIQ_KEY), which has the same form. None if no message has it."""
        if topic is not None:
            messages = await self.query_by_key(topic, msg_id, max_messages=1)
            if messages:
                return messages[0]
        try:
            store_host, offset = decode_offset_id(msg_id)
        except FormatError as error:
            raise InvalidArgumentError(str(error), field="msg_id") from error
        if offset < 0:
            return None
        try:
            [message] = await self.messages_at([offset])
        except OffsetOutOfRangeError:
            return None
        return message if message.store_host == store_host else None

    async def messages_at(self, physical_offsets: Sequence[int]) -> list[ReceivedMessage]:
        """The messages at positions in the commit log (bytes), one for each; raises
        OffsetOutOfRangeError if the log holds none there."""
        found: list[ReceivedMessage] = []
        while len(found) < len(physical_offsets):
            # the answer has as many as fit into it
            rest = physical_offsets[len(found) : len(found) + MAX_ROWS]
            request = broker_pb2.GetByOffsetRequest(physical_offsets=rest)

            async def ask(node: Node, request: Any = request) -> broker_pb2.RecordsResponse:
                return await node.ask(node.broker.GetByOffset, request, self._timeout_ms)

            answer = await self._reader.ask(ask)
            if not answer.sizes:
                raise BadRecordError(
                    "a node answered with none of the messages that were asked for"
                )
            found += messages_of(answer.records, answer.sizes)
        return found

    async def producer(self, producer_id: str) -> ProducerInfo | None:
        """What the master knows of a producer; None if nothing."""
        request = broker_pb2.DescribeProducerRequest(producer_id=producer_id)
        answer = await self._connection.on_master(
            lambda node: node.ask(node.broker.DescribeProducer, request, self._timeout_ms)
        )
        if not answer.known:
            return None
        return ProducerInfo(answer.epoch, answer.last_sequence, answer.last_timestamp)


def _unknown(name: str) -> UnknownTopicError:
    return unknown_topics([name])
