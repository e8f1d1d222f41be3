"""The Admin service: the cluster as this node sees it, topics, groups, statistics.

Topics are made and changed on the master only; the replication carries the whole table to the
slaves. Any node serves the other calls. Lists come in pages (pages.py).

Creating a topic waits for the disk, so it has its own threads: it does not wait for readers, nor
they for it.
"""
# The methods have the names of admin.proto.
# ruff: noqa: N802

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from tandemlog.format.calls import MAX_NAMES
from tandemlog.format.constants import (
    DEFAULT_QUEUES,
    PERM_READ,
    PERM_WRITE,
    client_topic_fault,
    is_closed_topic,
)
from tandemlog.format.words import quoted
from tandemlog.v1 import admin_pb2, admin_pb2_grpc, common_pb2
from tandemlog_server.ha.protocol.versions import FEATURES, VERSION
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import TopicConfig

from ..access.caller import Caller
from ..access.doorkeeper import Doorkeeper
from ..error_status import RequestRefusedError, check_count
from ..pulls.known_queues import no_topic
from ..pulls.pages import MAX_BYTES, NAME_PAGES, number_of_page, rows_after, sorted_names
from ..pulls.read_turns import ReadTurns
from ..roles.following_roles import Takeover
from ..roles.role import CurrentRole
from ..scrub.scrub_service import ScrubService
from ..settings.config_error import ConfigError
from ..settings.node_config import NodeConfig
from ..settings.running_settings import RunningSettings, SettingRow
from .delay_listing import DelayListing
from .election_service import ElectionService, required
from .group_service import GroupService

BUILD = common_pb2.Build(version=VERSION, features=sorted(FEATURES))

Answer = TypeVar("Answer", bound=Message)
Found = TypeVar("Found")


class ClusterView(Protocol):
    """The cluster as this node knows it; cheap, and of no I/O."""

    def members(self) -> Sequence[common_pb2.NodeStatus]:
        """Every node that is known, this one included."""

    def data_offer(self) -> tuple[int, bytes]:
        """Port and key of this node's data connections; port 0 if it takes none."""

    async def take_over(self, *, force: bool, dry_run: bool) -> Takeover:
        """See FollowingRoles. Raises RequestRefusedError if this node follows no broker."""


class AdminService(admin_pb2_grpc.AdminServicer):
    """See the module. `statistics` gives all counters of the node as plain numbers; `elections` is
    None where roles are configured."""

    def __init__(
        self,
        store: MessageStore,
        view: ClusterView,
        current: CurrentRole,
        config: NodeConfig,
        executor: Executor,
        turns: ReadTurns,
        statistics: Callable[[], Mapping[str, float]],
        elections: ElectionService | None = None,
        *,
        members: GroupService,
        settings: RunningSettings,
        keeper: Doorkeeper,
        scrub: ScrubService,
    ) -> None:
        self._scrub = scrub
        self._settings = settings
        self._keeper = keeper
        self._members = members
        self._store = store
        self._view = view
        self._current = current
        self._config = config
        self._executor = executor
        self._turns = turns
        self._delays = DelayListing(store, turns)
        self._sorted: tuple[Mapping[str, TopicConfig], Sequence[str]] = ({}, ())
        self._statistics = statistics
        self._elections = elections

    async def DescribeCluster(
        self, request: admin_pb2.DescribeClusterRequest, context: Any
    ) -> admin_pb2.DescribeClusterResponse:
        nodes = self._view.members()
        masters = [node.node_id for node in nodes if node.role == common_pb2.MASTER]
        config = self._config
        port, key = self._view.data_offer()
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
            coordinator=None if self._elections is None else self._elections.status(),
            data_port=port,
            data_key=key,
            build=BUILD,
        )

    async def Coordination(
        self, request: admin_pb2.CoordinationRequest, context: Any
    ) -> admin_pb2.CoordinationResponse:
        return await required(self._elections).coordination()

    async def History(
        self, request: admin_pb2.HistoryRequest, context: Any
    ) -> admin_pb2.HistoryResponse:
        return await required(self._elections).history()

    async def ChangeCluster(
        self, request: admin_pb2.ChangeClusterRequest, context: Any
    ) -> admin_pb2.ChangeClusterResponse:
        return await required(self._elections).change(request)

    async def TakeOver(
        self, request: admin_pb2.TakeOverRequest, context: Any
    ) -> admin_pb2.TakeOverResponse:
        outcome = await self._view.take_over(force=request.force, dry_run=request.dry_run)
        return admin_pb2.TakeOverResponse(
            answered_by=self._config.node_id,
            taken_over=not outcome.waits_for,
            waits_for=outcome.waits_for,
            broker=outcome.broker,
            end_offset=outcome.end_offset,
            broker_end_offset=-1 if outcome.broker_end is None else outcome.broker_end,
            epoch=outcome.epoch,
            last_stored_ms=outcome.last_stored_ms,
            taken_ms=outcome.taken_ms,
        )

    async def CreateTopic(
        self, request: admin_pb2.CreateTopicRequest, context: Any
    ) -> admin_pb2.TopicResponse:
        return await self._changed(partial(self._create, request))

    async def _changed(
        self, work: Callable[[], admin_pb2.TopicResponse]
    ) -> admin_pb2.TopicResponse:
        """A change of a topic is done once every node that may become the master knows it."""
        self._current.role.require_master("change topics on")
        self._current.role.require_topics()
        await self._current.role.admit_change()
        response = await asyncio.get_running_loop().run_in_executor(self._executor, work)
        await self._current.role.confirm_table("topics")
        return response

    def _create(self, request: admin_pb2.CreateTopicRequest) -> admin_pb2.TopicResponse:
        self._current.role.require_master("create topics on")
        self._current.role.require_topics()
        wanted = request.topic
        _refuse_system_topic(wanted.name)
        present = self._store.topics.get(wanted.name)
        if request.update and present is None:
            raise RequestRefusedError(
                common_pb2.UNKNOWN_TOPIC,
                f"there is no topic {quoted(wanted.name)} to update: create it without update",
                field="name",
            )
        topic = TopicConfig(
            name=wanted.name,
            read_queues=wanted.read_queues or (present.read_queues if present else DEFAULT_QUEUES),
            write_queues=wanted.write_queues
            or (present.write_queues if present else DEFAULT_QUEUES),
            perm=wanted.perm or (present.perm if present else PERM_READ | PERM_WRITE),
            order=wanted.order,
            attributes={**(present.attributes if present else {}), **wanted.attributes},
        )
        created = self._store.create_topic(topic, update=request.update)
        return admin_pb2.TopicResponse(topic=_topic(created))

    async def ListTopics(
        self, request: admin_pb2.ListTopicsRequest, context: Any
    ) -> admin_pb2.ListTopicsResponse:
        return await self._read(context, partial(self._list_topics, request, context))

    def _list_topics(
        self, request: admin_pb2.ListTopicsRequest, caller: Caller
    ) -> admin_pb2.ListTopicsResponse:
        check_count("names", len(request.names), MAX_NAMES)
        if not request.names:
            table, names = self._all_topics()
            if caller.restricted is not None:
                names = caller.seen(names)
            topics, following = rows_after(
                request.page, names, lambda name: _topic(table[name]), _size, NAME_PAGES
            )
            return admin_pb2.ListTopicsResponse(topics=topics, next_page=following)
        response = admin_pb2.ListTopicsResponse()
        size = 0
        for number in range(number_of_page(request.page), len(request.names)):
            name = request.names[number]
            topic = self._store.topics.get(name)
            if topic is None:
                raise RequestRefusedError(common_pb2.UNKNOWN_TOPIC, no_topic(name), field="names")
            row = _topic(topic)
            size += row.ByteSize()
            if size > MAX_BYTES and response.topics:
                response.next_page = str(number)
                break
            response.topics.append(row)
        return response

    def _all_topics(self) -> tuple[Mapping[str, TopicConfig], Sequence[str]]:
        """The table, and its names in order: sorted once, since a change replaces the table."""
        table = self._store.topics.table
        names = self._sorted
        if names[0] is not table:
            names = self._sorted = (table, sorted_names(table))
        return names

    async def DeleteTopic(
        self, request: admin_pb2.DeleteTopicRequest, context: Any
    ) -> admin_pb2.TopicResponse:
        return await self._changed(partial(self._delete, request.name))

    def _delete(self, name: str) -> admin_pb2.TopicResponse:
        self._current.role.require_master("delete topics on")
        self._current.role.require_topics()
        _refuse_system_topic(name)
        return admin_pb2.TopicResponse(
            topic=_topic(self._store.topics.delete(name, self._store.clock.now_ms()))
        )

    async def ListGroups(
        self, request: admin_pb2.ListGroupsRequest, context: Any
    ) -> admin_pb2.ListGroupsResponse:
        return await self._read(context, partial(self._list_groups, request.page, context))

    def _list_groups(self, page: str, caller: Caller) -> admin_pb2.ListGroupsResponse:
        groups_of_store = {*self._store.groups.table, *self._store.consumer_offsets.groups()}
        names = sorted_names(self._seen_groups(caller, groups_of_store))
        groups, following = rows_after(page, names, str, len, NAME_PAGES)
        return admin_pb2.ListGroupsResponse(groups=groups, next_page=following)

    def _seen_groups(self, caller: Caller, groups: set[str]) -> list[str]:
        """Those that the caller may consume, without groups that read only topics that it may not
        know of."""
        consumed = caller.consumed(groups)
        if caller.restricted is None:
            return consumed
        pairs = self._store.consumer_offsets.pairs()
        topics = set(caller.seen({topic for topic, _ in pairs}))
        hidden = {group for topic, group in pairs} - {
            group for topic, group in pairs if topic in topics
        }
        return [group for group in consumed if group not in hidden]

    async def DeleteGroup(
        self, request: admin_pb2.DeleteGroupRequest, context: Any
    ) -> admin_pb2.DeleteGroupResponse:
        self._current.role.require_master("delete groups on")
        await self._current.role.admit_change()
        return await self._members.delete(request)

    async def ListDelayed(
        self, request: admin_pb2.ListDelayedRequest, context: Any
    ) -> admin_pb2.ListDelayedResponse:
        return await self._delays.list(request, context)

    async def Stats(self, request: admin_pb2.StatsRequest, context: Any) -> admin_pb2.StatsResponse:
        return admin_pb2.StatsResponse(values=self._statistics())

    async def DescribeSettings(
        self, request: admin_pb2.DescribeSettingsRequest, context: Any
    ) -> admin_pb2.DescribeSettingsResponse:
        rows = await self._in_settings(self._settings.rows)
        return admin_pb2.DescribeSettingsResponse(
            answered_by=self._config.node_id, settings=[_setting(row) for row in rows]
        )

    async def ChangeSetting(
        self, request: admin_pb2.ChangeSettingRequest, context: Any
    ) -> admin_pb2.ChangeSettingResponse:
        row, before = await self._in_settings(
            partial(
                self._settings.change,
                request.key,
                request.value,
                unset=request.unset,
                dry_run=request.dry_run,
            )
        )
        return admin_pb2.ChangeSettingResponse(
            answered_by=self._config.node_id,
            setting=_setting(row),
            before=before,
            needs_restart=bool(row.next_value) and not row.live,
        )

    async def _in_settings(self, work: Callable[[], Found]) -> Found:
        """In a thread, as it reads and writes a file."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        except ConfigError as error:
            raise RequestRefusedError(common_pb2.INVALID_ARGUMENT, str(error)) from None

    async def ListConnections(
        self, request: admin_pb2.ListConnectionsRequest, context: Any
    ) -> admin_pb2.ListConnectionsResponse:
        return admin_pb2.ListConnectionsResponse(
            answered_by=self._config.node_id, connections=_connections(self._keeper)
        )

    async def DescribeScrub(
        self, request: admin_pb2.DescribeScrubRequest, context: Any
    ) -> admin_pb2.ScrubResponse:
        return self._scrub.description()

    async def BeginScrub(
        self, request: admin_pb2.BeginScrubRequest, context: Any
    ) -> admin_pb2.ScrubResponse:
        if not self._config.scrub.on:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"the scrub of {self._config.node_id} is off: set scrub.on, and restart it",
            )
        self._scrub.begin()
        return self._scrub.description()

    async def _read(self, caller: Caller, work: Callable[[], Answer]) -> Answer:
        return await self._turns.run(caller, work, room=MAX_BYTES, size_of=_size)


def _size(answer: Message) -> int:
    return answer.ByteSize()


def _refuse_system_topic(name: str) -> None:
    """As RocketMQ does. A name that is merely bad is for who makes the topic to refuse: one that
    is there can be deleted."""
    if is_closed_topic(name):
        fault = client_topic_fault(name)
        raise RequestRefusedError(
            common_pb2.INVALID_TOPIC_NAME, f"topic {quoted(name)}: {fault}", field="name"
        )


def _connections(keeper: Doorkeeper) -> list[admin_pb2.ConnectionInfo]:
    """Those with calls in progress, the oldest first; slaves by their stream of replication."""
    now, calls = keeper.monotonic(), defaultdict[str, list[Caller]](list)
    for caller in keeper.callers:
        calls[caller.peer].append(caller)
    rows = [
        admin_pb2.ConnectionInfo(
            peer=peer,
            identity=next((each.name for each in callers if each.name), ""),
            seconds=max(now - each.began for each in callers),
            calls=len(callers),
            streams=sum(each.stream for each in callers),
            long_polls=callers[0].usages[0].long_polls if callers[0].usages else 0,
            methods=sorted({each.call.rpartition("/")[2] for each in callers}),
        )
        for peer, callers in calls.items()
    ]
    rows += [
        admin_pb2.ConnectionInfo(peer=peer, calls=1, streams=1, methods=["Replicate"])
        for peer in keeper.streaming
        if peer not in calls
    ]
    return sorted(rows, key=lambda row: -row.seconds)


def _setting(row: SettingRow) -> admin_pb2.Setting:
    return admin_pb2.Setting(
        key=row.key,
        value=row.value,
        default_value=row.default,
        source=row.source,
        live=row.live,
        next_value=row.next_value,
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
