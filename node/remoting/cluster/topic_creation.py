"""Topics that come into being because a client sends to them, or reads as a group.

    send to an unknown topic ──▶ the topic that it names as its model, TBW102 by default
                                   not there, or not to be inherited from ──▶ TOPIC_NOT_EXIST
                                 ▸ made with its queues and permissions ▸ replicated ▸ the send
    a group of classic clients ──▶ %RETRY%group, %DLQ%group: one queue

Many requests for one new topic wait for one creation: the table of topics is written once. A topic
is made by the master alone, and known to every node that may become the master before a message for
it is acknowledged.
"""

import asyncio
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from typing import Final

from tandemlog.format.constants import (
    DEAD_LETTER_PREFIX,
    PERM_READ,
    PERM_WRITE,
    RETRY_PREFIX,
    client_topic_fault,
    group_fault,
    is_system_topic,
)
from tandemlog.format.words import quoted
from tandemlog_server.rocketmq.clients.broker_topics import AUTO_CREATED, PERM_INHERIT
from tandemlog_server.rocketmq.clients.codes import ResponseCode
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.metadata.topics import MetadataError, TopicConfig

from ...roles.role import CurrentRole
from ..door.remoting_call import RemotingRefusedError

MAX_AT_ONCE: Final = 256
"""Creations under way: each writes the whole table."""


class TopicCreation:
    """See the module. `own` are the topics that a broker has from its start, by name; they become
    rows of the table when a message is put to them. `auto_create` is RocketMQ's
    autoCreateTopicEnable. Lives in one event loop."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        own: Mapping[str, TopicConfig],
        *,
        auto_create: bool = True,
        executor: Executor | None = None,
    ) -> None:
        self._store = store
        self._current = current
        self.own = own
        self._auto_create = auto_create
        self._executor = executor
        self._under_way: dict[str, asyncio.Task[TopicConfig]] = {}

    def get(self, name: str) -> TopicConfig | None:
        """The topic as clients may know it: in the table, or one that a broker has by itself."""
        found = self._store.topics.get(name)
        if found is not None:
            return found
        if name == AUTO_CREATED and not self._auto_create:
            return None
        return self.own.get(name)

    def is_own(self, name: str) -> bool:
        """Whether a broker has it from its start, so that no client makes or deletes it."""
        return name in self.own or is_system_topic(name)

    async def create_topic(self, name: str, *, model: str, queues: int) -> TopicConfig:
        """The topic that a send to `name` needs: it is there, or is made like the topic `model`
        with at most `queues` queues. The caller has checked the right to write to it. Raises
        RemotingRefusedError (TOPIC_NOT_EXIST, MESSAGE_ILLEGAL), and what a change of the table
        raises in any door."""
        present = self._store.topics.get(name)
        if present is not None:
            return present
        if name in self.own and not is_system_topic(name):
            return await self.create(self.own[name])
        if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return await self.create_of_group(name)
        if (fault := client_topic_fault(name)) is not None:
            raise RemotingRefusedError(
                ResponseCode.MESSAGE_ILLEGAL, f"topic {quoted(name)}: {fault}"
            )
        like = self.get(model)
        if like is None:
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {quoted(name)} does not exist, nor does {quoted(model)}, after which it "
                "would be made: create it with mqadmin updateTopic or `tandemlog topic create`",
            )
        if not like.perm & PERM_INHERIT:
            raise RemotingRefusedError(
                ResponseCode.TOPIC_NOT_EXIST,
                f"topic {quoted(name)} does not exist, and no topic is made after {quoted(model)}, "
                f"whose permissions are {like.perm}: create it with mqadmin updateTopic or "
                "`tandemlog topic create`",
            )
        count = max(1, min(queues, like.write_queues))
        perm = like.perm & ~PERM_INHERIT
        return await self.create(
            TopicConfig(name, read_queues=count, write_queues=count, perm=perm)
        )

    async def create_of_group(self, name: str, *, queues: int = 1) -> TopicConfig:
        """A topic %RETRY%group or %DLQ%group; it may be there already. Raises as
        `create_topic`."""
        present = self._store.topics.get(name)
        if present is not None:
            return present
        group = name.removeprefix(RETRY_PREFIX).removeprefix(DEAD_LETTER_PREFIX)
        if (fault := group_fault(group, new=False)) is not None:
            raise RemotingRefusedError(
                ResponseCode.MESSAGE_ILLEGAL, f"group {quoted(group)} of {quoted(name)}: {fault}"
            )
        perm = PERM_READ | PERM_WRITE
        return await self.create(TopicConfig(name, queues, queues, perm))

    async def create(self, topic: TopicConfig, *, update: bool = False) -> TopicConfig:
        """As it is in the table once every node that may become the master has it. Without
        `update` a topic that is there stays as it is. Raises MetadataError and
        RequestRefusedError."""
        task = self._under_way.get(topic.name)
        if task is None or update:
            if len(self._under_way) >= MAX_AT_ONCE:
                raise RemotingRefusedError(
                    ResponseCode.SYSTEM_BUSY,
                    f"{len(self._under_way)} topics are being created on this node, the limit is "
                    f"{MAX_AT_ONCE}: try again in a moment",
                )
            task = asyncio.get_running_loop().create_task(
                self._create(topic, update=update), name="topic-creation"
            )
            if not update:
                self._under_way[topic.name] = task
                task.add_done_callback(partial(self._ended, topic.name))
        # one client that goes away does not end it for the others
        return await asyncio.shield(task)

    async def delete(self, name: str) -> None:
        """Once every node that may become the master knows it; nothing if it is not there. Raises
        RequestRefusedError."""
        role = self._current.role
        role.require_master("delete topics on")
        role.require_topics()
        await role.admit_change()
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(self._executor, self._delete, name):
            await role.confirm_table("topics")

    def _delete(self, name: str) -> bool:
        self._current.role.require_master("delete topics on")
        if self._store.topics.get(name) is None:
            return False
        self._store.topics.delete(name, self._store.clock.now_ms())
        return True

    def _ended(self, name: str, task: "asyncio.Task[TopicConfig]") -> None:
        del self._under_way[name]
        if not task.cancelled():
            task.exception()  # those who wait have it, and perhaps no call does

    async def _create(self, topic: TopicConfig, *, update: bool) -> TopicConfig:
        role = self._current.role
        role.require_master("create topics on")
        role.require_topics()
        await role.admit_change()
        loop = asyncio.get_running_loop()
        created = await loop.run_in_executor(
            self._executor, partial(self._in_table, topic, update=update)
        )
        await role.confirm_table("topics")
        return created

    def _in_table(self, topic: TopicConfig, *, update: bool) -> TopicConfig:
        """In a thread: it waits for the disk."""
        self._current.role.require_master("create topics on")
        present = self._store.topics.get(topic.name)
        if update:
            if present is not None:
                topic = replace(topic, attributes={**present.attributes, **topic.attributes})
            return self._store.create_topic(topic, update=True)
        if present is not None:
            return present
        try:
            return self._store.create_topic(topic)
        except MetadataError:
            if (present := self._store.topics.get(topic.name)) is not None:
                return present
            raise
