"""Changes of groups on their way to the table of members, and to the nodes that may lead next.

changed, changed, changed ─▶ one write, durable ─▶ the in-sync set has it ─▶ members are told
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from tandemlog_server.ha.store_port import GROUP_MEMBERS
from tandemlog_server.storage.message_store import MessageStore

from ..error_status import RequestRefusedError
from ..roles.role import CurrentRole
from .consumer_group import ConsumerGroup, Member
from .group_rows import row_of_members

logger = logging.getLogger(__name__)

RETRY_S = 0.5


class Groups(Protocol):
    """The groups of the present term; None without one."""

    @property
    def term(self) -> int | None: ...

    @property
    def groups(self) -> Mapping[str, ConsumerGroup]: ...

    def wake_group(self, group: ConsumerGroup) -> None: ...


class GroupSaver:
    """See the module. Belongs to the loop."""

    def __init__(self, store: MessageStore, current: CurrentRole, groups: Groups) -> None:
        self._store = store
        self._current = current
        self._groups = groups
        self._dirty: set[str] = set()
        self._dropped: set[str] = set()
        self._signal = asyncio.Event()

    def changed(self, name: str) -> None:
        self._dropped.discard(name)
        self._dirty.add(name)
        self._signal.set()

    def dropped(self, name: str) -> None:
        """The group is deleted."""
        self._dirty.discard(name)
        self._dropped.add(name)
        self._signal.set()

    def forget(self) -> None:
        """This term is over."""
        self._dirty.clear()
        self._dropped.clear()

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self._signal.wait()
            self._signal.clear()
            try:
                await self._save()
            except RequestRefusedError as error:
                logger.warning("members of groups are not safe yet, nothing new is told: %s", error)
                await asyncio.sleep(RETRY_S)
                self._signal.set()
            except Exception as error:  # a disk that is full: said, and tried again
                logger.error("members of groups cannot be saved: %s", error)
                await asyncio.sleep(RETRY_S)
                self._signal.set()

    async def _save(self) -> None:
        """What has changed since the last time, all in one write."""
        term = self._groups.term
        names = {name for name in self._dirty if name in self._groups.groups}
        dropped = set(self._dropped)
        if term is None or not (names or dropped):
            return
        copies: dict[str, tuple[int, list[Member]]] = {}
        states = {}
        for name in names:
            group = self._groups.groups[name]
            members = [replace(each, owned=dict(each.owned)) for each in group.members.values()]
            copies[name] = group.epoch, members
            states[name] = (
                group,
                group.version,
                group.epoch,
                {each.member_id: (each.epoch, each.owned) for each in members},
            )

        def write() -> bool:
            # here, not in the loop: a large group takes a tenth of a second
            rows: dict[str, object | None] = dict.fromkeys(dropped)
            rows.update({name: row_of_members(*copy) for name, copy in copies.items()})
            return self._store.group_members.update(
                rows, self._store.clock.now_ms(), lambda: self._current.role.epoch() == term
            )

        if not await asyncio.to_thread(write):
            # the role has ended, and the groups are forgotten soon; or it was in doubt for a moment
            await asyncio.sleep(RETRY_S)
            self._signal.set()
            return
        await self._current.role.confirm_table(GROUP_MEMBERS)
        if self._groups.term != term:
            return
        self._dropped -= dropped
        for name, (group, version, epoch, state) in states.items():
            if self._groups.groups.get(name) is group:
                group.confirm(version, epoch, state)
                if group.version == version:
                    self._dirty.discard(name)
                else:
                    self._signal.set()
                self._groups.wake_group(group)
