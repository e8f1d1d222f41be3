"""What a broker is asked about itself, and about its groups.

26    settings, in RocketMQ's names: those that are true of this node
28    numbers, as clusterList and brokerStatus print them: of the node that is asked
200   create or change a group, 207 delete it        the master, for administrators
201   the table of groups
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from tandemlog.format.errors import FormatError
from tandemlog.v1 import common_pb2
from tandemlog_server.ha.protocol.versions import VERSION
from tandemlog_server.rocketmq.clients.broker_documents import (
    Rates,
    RuntimeFacts,
    Totals,
    changed_group,
    config_text,
    read_group,
    runtime_table,
)
from tandemlog_server.rocketmq.clients.codes import RequestCode
from tandemlog_server.rocketmq.clients.pop.assignments import without_settings
from tandemlog_server.rocketmq.serve import tables
from tandemlog_server.rocketmq.wire.remoting import Command
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import MetadataError, new_group

from ...error_status import RequestRefusedError
from ...pulls.read_turns import ReadTurns
from ...roles.role import CurrentRole
from ..door.remoting_call import Method, RemotingCall, RemotingRefusedError
from .topic_methods import INVALID_PARAMETER


class BrokerMethods:
    """See the module. `settings` gives those of request 26; `delete_group` ends a group as every
    other door does; `has_popped`: whether a group has work that began. Belongs to the loop."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        turns: ReadTurns,
        *,
        settings: Callable[[], Mapping[str, object]],
        delete_group: Callable[[str], Awaitable[object]],
        has_popped: Callable[[str], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._current = current
        self._turns = turns
        self._settings = settings
        self._delete_group = delete_group
        self._has_popped = has_popped
        self._booted_ms = store.clock.now_ms()
        self._rates = Rates(Totals(store.stats.opened_at_s))

    def methods(self) -> dict[int, Method]:
        return {
            RequestCode.GET_BROKER_CONFIG: Method(self.config, of_master=False),
            RequestCode.GET_BROKER_RUNTIME_INFO: Method(self.runtime, of_master=False),
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTION_GROUP: Method(self.update, audited=True),
            RequestCode.GET_ALL_SUBSCRIPTION_GROUP_CONFIG: Method(self.groups, of_master=False),
            RequestCode.DELETE_SUBSCRIPTION_GROUP: Method(self.delete, audited=True),
        }

    async def config(self, call: RemotingCall) -> Command | None:
        call.caller.require_admin("read the settings of a broker")
        return call.request.response(config_text(self._settings()))

    async def runtime(self, call: RemotingCall) -> Command | None:
        stats = self._store.stats
        rates = self._rates.look(
            Totals(
                self._store.clock.monotonic(),
                stats.puts,
                stats.get_messages,
                stats.gets - stats.get_misses,
                stats.get_misses,
            )
        )
        body = await self._turns.run(call.caller, lambda: self._runtime(rates))
        return call.request.response(body)

    async def groups(self, call: RemotingCall) -> Command | None:
        call.caller.require_admin("read the table of groups")
        body = await self._turns.run(call.caller, lambda: tables.groups(self._store), size_of=len)
        fields = {"totalGroupNum": str(len(self._store.groups.table))}
        return call.request.response(body, fields=fields)

    async def update(self, call: RemotingCall) -> Command | None:
        """Raises RemotingRefusedError for a group that cannot be so, and what a change of the table
        raises."""
        call.caller.require_admin("create or change a group")
        role = self._current.role
        role.require_master("change groups on")
        await role.admit_change()
        try:
            await asyncio.to_thread(self._update, call.request.body)
        except (FormatError, MetadataError) as error:
            raise RemotingRefusedError(INVALID_PARAMETER, str(error)) from None
        await role.confirm_table("groups")
        return call.request.response()

    async def delete(self, call: RemotingCall) -> Command | None:
        """Without cleanOffset the settings alone, as a broker does: a group continues where it was.
        A group that is not there is deleted already."""
        call.caller.require_admin("delete a group")
        name = call.request.fields.get("groupName", "")
        role = self._current.role
        role.require_master("delete groups on")
        await role.admit_change()
        if call.request.fields.get("cleanOffset") != "true" and await self._has_read(name):
            await asyncio.to_thread(self._forget_settings, name)
            await role.confirm_table("groups")
            return call.request.response()
        try:
            await self._delete_group(name)
        except RequestRefusedError as refusal:
            if refusal.code != common_pb2.UNKNOWN_GROUP:
                raise
        return call.request.response()

    async def _has_read(self, group: str) -> bool:
        if self._store.consumer_offsets.has_group(group):
            return True
        return group in self._store.groups.table and await self._has_popped(group)

    # ---- in threads

    def _forget_settings(self, name: str) -> None:
        self._current.role.require_master("delete groups on")
        groups = self._store.groups
        if name in groups.table:
            kept = without_settings(name, groups.table.get(name))
            groups.take_rows({name: kept}, (), self._store.clock.now_ms())

    def _update(self, body: bytes) -> None:
        self._current.role.require_master("change groups on")
        groups, now_ms = self._store.groups, self._store.clock.now_ms()
        name, bean = read_group(body)
        row = groups.table.get(name)
        # before the name is taken: a bean that is refused leaves no group behind
        changed_group(name, bean, row if isinstance(row, Mapping) else new_group(name))
        groups.ensure(name, now_ms)
        row = groups.table.get(name)
        if isinstance(row, Mapping):
            groups.take_rows({name: changed_group(name, bean, row)}, (), now_ms)

    def _runtime(self, rates: Mapping[str, str]) -> bytes:
        store, stats, log = self._store, self._store.stats, self._store.log
        use = store.files.disk_usage(store.directory)
        return runtime_table(
            RuntimeFacts(
                booted_ms=self._booted_ms,
                now_ms=store.clock.now_ms(),
                min_offset=log.min_offset,
                max_offset=log.wrote.value,
                behind_bytes=max(0, log.wrote.value - store.reputed.value),
                unflushed_bytes=max(0, log.wrote.value - log.flushed.value),
                earliest_ms=self._earliest_ms(),
                disk_used=use.percent / 100,
                disk_total=use.total,
                disk_free=use.free,
                puts=stats.puts,
                put_bytes=stats.put_bytes,
                gets=stats.get_messages,
                put_max_s=stats.put_latency.maximum,
                put_p99_s=stats.put_latency.percentile(99),
                active=store.failure is None,
                build=VERSION,
            ),
            rates,
        )

    def _earliest_ms(self) -> int:
        """-1 where there is no message, as a broker says."""
        try:
            return self._store.reader.store_timestamp(self._store.log.min_offset)
        except StoreError:
            return -1
