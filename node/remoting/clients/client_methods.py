"""Clients over remoting: they say that they live, hear who else does, and are asked about.

    34, 35, a closed connection, silence ─▶ ClientTable ─▶ 40 to the members: your list has changed
    38 ─▶ the master's list, while it leads            └▶ %RETRY%group, and the group's settings

A consumer reports to every broker address of its route, so each node has a table, and the next
master knows the members before it leads. Only the master answers for the cluster and tells members
of changes; a node that begins to lead tells them all once, since a change may have been missed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from tandemlog.format.constants import RETRY_PREFIX, group_fault
from tandemlog.format.errors import FormatError
from tandemlog.format.filter.expression import FilterError
from tandemlog.format.filter.parser import parse
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.client_table import (
    About,
    Changes,
    Client,
    ClientLimits,
    ClientTable,
    TooManyClientsError,
)
from tandemlog_server.rocketmq.clients.codes import RequestCode, ResponseCode
from tandemlog_server.rocketmq.clients.heartbeats import (
    SQL92,
    TAG,
    Heartbeat,
    json_object,
    read_heartbeat,
)
from tandemlog_server.rocketmq.clients.member_documents import (
    ClientRow,
    consumer_connections,
    group_list,
    member_list,
    producer_connections,
)
from tandemlog_server.rocketmq.clients.read_fields import I32
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.message_store import MessageStore

from ...access.caller import Caller
from ...access.identities import Right
from ...groups.heartbeats import MAX_SHOWN_TOPICS
from ...pulls.group_kind import GroupKinds, MemberKind
from ...pulls.read_turns import ReadTurns
from ...roles.role import CurrentRole
from ..cluster.topic_creation import TopicCreation
from ..door.remoting_call import Connection, Method, RemotingCall, RemotingRefusedError
from ..door.remoting_proofs import without_proofs

logger = logging.getLogger(__name__)

TICK_S: Final = 1.0
MAX_CONFIG_BYTES: Final = 64 << 10
CLIENT_TIMEOUT_S: Final = 5.0
"""RocketMQ's broker gives a client as long to answer a forwarded question."""
MAX_RETRY_QUEUES: Final = 64
TOLD_AT_ONCE: Final = 1_024
"""Members that hear of a change before the loop does anything else."""
MANY: Final = 64
"""Members of a group whose list is long."""
CONSUME_MSG_TIMEOUT: Final = 207


class ClientMethods:
    """See the module. `run` as long as the node serves; `now` is a monotonic clock in seconds;
    `pops` says whether the members of a group pop (pop/request_modes.py)."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        kinds: GroupKinds,
        creation: TopicCreation,
        now: Callable[[], float],
        limits: ClientLimits | None = None,
        *,
        turns: ReadTurns,
        pops: Callable[[str], bool] = lambda _group: False,
    ) -> None:
        self._store = store
        self._turns = turns
        self._pops = pops
        self._creation = creation
        self._current = current
        self._kinds = kinds
        self._now = now
        self.table: ClientTable[Connection] = ClientTable(limits)
        self._callers: dict[Connection, Caller] = {}
        self._term: int | None = None
        self._unprepared: set[str] = set()
        self._news = asyncio.Event()
        self._untold: dict[str, None] = {}
        self._some_untold = asyncio.Event()
        kinds.count_by(MemberKind.CLASSIC, self.member_count)
        kinds.list_by(MemberKind.CLASSIC, self.listed)

    def methods(self) -> Mapping[int, Method]:
        return {
            RequestCode.HEART_BEAT: Method(self.heartbeat, of_master=False),
            RequestCode.UNREGISTER_CLIENT: Method(self.unregister, of_master=False),
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: Method(self.members),
            RequestCode.CHECK_CLIENT_CONFIG: Method(self.check_config, of_master=False),
            RequestCode.GET_CONSUMER_CONNECTION_LIST: Method(self.consumer_connections),
            RequestCode.GET_PRODUCER_CONNECTION_LIST: Method(self.producer_connections),
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Method(self.groups_of_topic),
            RequestCode.GET_CONSUMER_RUNNING_INFO: Method(self.running_info),
        }

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.gather(self._look_forever(), self._prepare_forever(), self._tell_forever())

    async def _look_forever(self) -> None:
        """End who is silent, and begin terms."""
        while True:
            try:
                self._apply(self.table.expire(self._now()))
                self._look_at_term()
            except Exception:  # else no silent client would be found from here on
                logger.exception("clients could not be looked at, and are again in a moment")
            await asyncio.sleep(TICK_S)

    def _look_at_term(self) -> None:
        term = self._current.role.epoch()
        if term != self._term:
            self._term = term
            groups = self.table.groups() if term is not None else []
            for group in groups:
                self._tell((group, each.connection) for each in self.table.members(group))
            self._begun(groups)

    async def _prepare_forever(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            while self._unprepared and self._current.role.epoch() is not None:
                group = self._unprepared.pop()
                try:
                    await self._prepare(group)
                except Exception as error:  # of this group: its settings, or its topic of retries
                    logger.warning("group %s is not prepared: %s", quoted(group), error)

    # ---- what clients say

    async def heartbeat(self, call: RemotingCall) -> Command:
        """34. Raises FormatError, DeniedError, RequestRefusedError."""
        heartbeat = read_heartbeat(call.request.body)
        self._check(call, heartbeat)
        known = self.table.knows(call.connection, heartbeat.client_id)
        try:
            changes = self.table.heartbeat(call.connection, _about(call), heartbeat, self._now())
        except TooManyClientsError as error:
            raise RemotingRefusedError(ResponseCode.SYSTEM_BUSY, str(error)) from None
        self._watch(call)
        self._apply(changes)
        # a client that is new here, and said nothing of its subscriptions, says them again
        unknown = heartbeat.without_subscriptions and not known
        return call.request.response(
            fields={
                "IS_SUPPORT_HEART_BEAT_V2": "false",
                "IS_SUB_CHANGE": "true" if unknown else "false",
            }
        )

    def _check(self, call: RemotingCall, heartbeat: Heartbeat) -> None:
        for consumer in heartbeat.consumers:
            call.caller.require(Right.CONSUME, (consumer.group,))
            retries = RETRY_PREFIX + consumer.group
            topics = [each.topic for each in consumer.subscriptions if each.topic != retries]
            call.caller.require(Right.READ, topics)
            if self.table.member(consumer.group, heartbeat.client_id) is None:
                pops = self._pops(consumer.group)
                kind = MemberKind.WORK if pops else MemberKind.CLASSIC
                self._kinds.require(kind, consumer.group)

    async def unregister(self, call: RemotingCall) -> Command:
        """35. A client is ended by itself alone: it is one of this connection."""
        fields = call.request.fields
        changes = self.table.unregister(
            call.connection,
            fields.get("clientID", ""),
            fields.get("producerGroup", ""),
            fields.get("consumerGroup", ""),
        )
        self._apply(changes)
        return call.request.response()

    def caller_of(self, connection: Connection) -> Caller | None:
        """Who has sent the last heartbeat by `connection`; None once it has ended."""
        return self._callers.get(connection)

    def _watch(self, call: RemotingCall) -> None:
        connection = call.connection
        if connection not in self._callers:
            connection.on_close(lambda: self._closed(connection))
        self._callers[connection] = call.caller

    def _closed(self, connection: Connection) -> None:
        self._callers.pop(connection, None)
        self._apply(self.table.closed(connection))

    def _apply(self, changes: Changes[Connection]) -> None:
        self._begun(changes.begun)
        if self._current.role.epoch() is not None:
            self._tell(changes.notify)

    def _tell(self, notices: Iterable[tuple[str, Connection]]) -> None:
        """The first ones at once, the others a group at a time: where many clients have the same
        many groups, one that comes is news for hundreds of thousands."""
        room = TOLD_AT_ONCE
        for group, connection in dict.fromkeys(notices):
            if room > 0:
                room -= 1
                _tell_one(group, connection)
            else:
                self._untold[group] = None
        if self._untold:
            self._some_untold.set()

    async def _tell_forever(self) -> None:
        while True:
            await self._some_untold.wait()
            self._some_untold.clear()
            while self._untold:
                group = next(iter(self._untold))
                del self._untold[group]
                if self._current.role.epoch() is not None:
                    for each in self.table.members(group):
                        _tell_one(group, each.connection)
                await asyncio.sleep(0)

    def _begun(self, groups: Iterable[str]) -> None:
        self._unprepared.update(groups)
        if self._unprepared and self._current.role.epoch() is not None:
            self._news.set()

    async def _prepare(self, group: str) -> None:
        """The settings of a new group, and its topic of retries: a client asks for the route of
        that topic at once, and else again after 30 s."""
        store = self._store
        await asyncio.to_thread(
            store.groups.ensure,
            group,
            store.clock.now_ms(),
            has_offsets=store.consumer_offsets.has_group(group),
        )
        row = store.groups.table.get(group)
        queues = row.get("retryQueueNums") if isinstance(row, Mapping) else None
        count = queues if isinstance(queues, int) and 0 < queues <= MAX_RETRY_QUEUES else 1
        await self._creation.create_of_group(RETRY_PREFIX + group, queues=count)

    # ---- what clients and mqadmin ask

    async def members(self, call: RemotingCall) -> Command:
        """38. Raises RequestRefusedError of a master that may have been deposed: a client that gets
        no list keeps its queues."""
        group = _group(call)
        call.caller.require(Right.CONSUME, (group,))
        await self._leads()
        ids = self.table.consumer_ids(group)
        if not ids:
            raise RemotingRefusedError(
                ResponseCode.SYSTEM_ERROR, f"no client consumes as group {quoted(group)}"
            )
        if len(ids) < MANY:
            return call.request.response(member_list(ids))
        return await self._long(call, partial(member_list, ids))

    async def check_config(self, call: RemotingCall) -> Command:
        """46: whether the node can filter by this subscription."""
        document = json_object(call.request.body, "a client's configuration", MAX_CONFIG_BYTES)
        row = document.get("subscriptionData")
        if not isinstance(row, Mapping):
            return call.request.response()
        kind, expression = row.get("expressionType") or TAG, row.get("subString") or ""
        if kind == SQL92 and isinstance(expression, str):
            try:
                parse(expression)
            except FilterError as error:
                raise RemotingRefusedError(
                    ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                    f"the filter {quoted(expression)} cannot be read: {error}",
                ) from None
        elif kind != TAG:
            raise RemotingRefusedError(
                ResponseCode.SUBSCRIPTION_PARSE_FAILED,
                f"a filter of type {quoted(str(kind))} is not known here: TAG and SQL92 are",
            )
        return call.request.response()

    async def consumer_connections(self, call: RemotingCall) -> Command:
        """203."""
        group = _group(call)
        call.caller.require(Right.CONSUME, (group,))
        await self._leads()
        consumer = self.table.consumer(group)
        if consumer is None:
            raise _not_online(group)
        rows = [_row(each) for each in self.table.members(group)]
        wanted = self.table.subscriptions(group)
        seen = set(call.caller.seen(wanted))
        shown = {topic: each for topic, each in wanted.items() if topic in seen}
        return await self._long(call, partial(consumer_connections, rows, consumer, shown))

    async def producer_connections(self, call: RemotingCall) -> Command:
        """204."""
        group = _group(call, "producerGroup")
        call.caller.require_admin("to list the producers of a group")
        await self._leads()
        rows = [_row(each) for each in self.table.producers(group)]
        if not rows:
            raise RemotingRefusedError(
                ResponseCode.SYSTEM_ERROR, f"no client sends as producer group {quoted(group)}"
            )
        return await self._long(call, partial(producer_connections, rows))

    async def groups_of_topic(self, call: RemotingCall) -> Command:
        """300: groups with members or offsets in the topic."""
        topic = call.request.fields.get("topic", "")
        call.caller.require_see((topic,))
        await self._leads()
        offsets, members = self._store.consumer_offsets, self.table.groups_of_topic(topic)

        def listed() -> bytes:
            groups = {group for each, group in offsets.pairs() if each == topic}
            return group_list(call.caller.consumed(sorted(groups.union(members))))

        return await self._long(call, listed)

    async def _long(self, call: RemotingCall, make: Callable[[], bytes]) -> Command:
        """An answer that grows with what clients have said of themselves: made in a reader thread,
        and counted until it is taken."""
        body = await self._turns.run(call.caller, make, size_of=len)
        return call.request.response(body)

    async def running_info(self, call: RemotingCall) -> Command:
        """307: what the client itself says of its queues, and of its threads. It does not get the
        signature of who asks: that counts for whatever has the same values, of any code."""
        group = _group(call)
        client_id = call.request.fields.get("clientId", "")
        call.caller.require(Right.CONSUME, (group,))
        await self._leads()
        client = self.table.member(group, client_id)
        if client is None:
            raise _not_online(group, client_id)
        try:
            answer = await client.connection.ask(
                RequestCode.GET_CONSUMER_RUNNING_INFO,
                without_proofs(call.request.fields),
                timeout_s=CLIENT_TIMEOUT_S,
            )
        except ConnectionError:
            raise _not_online(group, client_id) from None
        except TimeoutError:
            raise RemotingRefusedError(
                CONSUME_MSG_TIMEOUT,
                f"client {quoted(client_id)} of group {quoted(group)} did not answer within "
                f"{CLIENT_TIMEOUT_S:.0f} s",
            ) from None
        return call.request.response(
            answer.body, code=answer.code, remark=answer.remark, fields=answer.fields
        )

    async def _leads(self) -> None:
        """Raises RequestRefusedError where another node may lead. One that leads no term answers
        from its own table: it is asked only while there is no master."""
        if self._current.role.epoch() is not None:
            await self._current.leads()

    # ---- for others

    def member_count(self, group: str) -> int:
        """Of members that balance by themselves: in a group that pops there are none, and leases
        say who works."""
        return 0 if self._pops(group) else len(self.table.members(group))

    def listed(self, group: str) -> list[dict[str, Any]]:
        """The members, by client id, as the fields of GroupMember. Which queues each has taken, it
        alone knows."""
        now = self._now()
        return [
            {
                "client_id": each.client_id,
                "host": each.about.address,
                "topics": sorted(sub.topic for sub in each.consumers[group].subscriptions)[
                    :MAX_SHOWN_TOPICS
                ],
                "heard_ms_ago": int((now - each.heard_at) * 1000),
            }
            for each in self.table.members(group)
        ]


def _tell_one(group: str, connection: Connection) -> None:
    if not connection.closed:
        connection.push(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": group})


def _about(call: RemotingCall) -> About:
    _, _, address = call.connection.peer.partition(":")
    request, holder = call.request, call.caller.holder
    version = request.version if request.version in I32 else 0
    address = address or call.connection.peer
    return About(address, request.language, version, holder, call.caller.name)


def _row(client: Client[Connection]) -> ClientRow:
    about = client.about
    return ClientRow(about.address, client.client_id, about.language, about.version)


def _group(call: RemotingCall, field: str = "consumerGroup") -> str:
    """Raises FormatError for a name that no group can have."""
    group = call.request.fields.get(field, "")
    fault = group_fault(group, new=False)
    if fault is not None:
        raise FormatError(f"{field} {quoted(group)}: {fault}")
    return group


def _not_online(group: str, client_id: str = "") -> RemotingRefusedError:
    who = f"client {quoted(client_id)}" if client_id else "no client"
    return RemotingRefusedError(
        ResponseCode.CONSUMER_NOT_ONLINE,
        f"{who} consumes as group {quoted(group)} here{' no more' if client_id else ''}",
    )
