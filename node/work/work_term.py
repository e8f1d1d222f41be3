"""The work queues of one term: engine, writer, and what is open for which group.

    begin ──▶ ready when everything that stood in the log is applied ──▶ serve ──▶ end: forgotten

A group's queues are opened at its first call: its policy from the table of groups, what it has done
from the fold, where each queue begins and ends from the store. Later changes of these tables are
noticed at the next call.

A group that was not in the table at some moment of the term has done nothing, even if a client has
created it again since: the log forgets it before it is opened again. With another order a group
begins again from what the log says, once that is all it has done.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tandemlog.format.lease.handle import topic_hash
from tandemlog.format.lease.policy import StartAt, dead_letter_topic
from tandemlog.format.lease.progress import QueueProgress
from tandemlog.format.words import quoted
from tandemlog.v1 import common_pb2
from tandemlog_server.ha.store_port import GROUPS
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.leases.lease_engine import LeaseEngine
from tandemlog_server.storage.leases.lease_values import Counters, LeaseLimits, Now
from tandemlog_server.storage.leases.queue_leases import NEVER
from tandemlog_server.storage.message_store import MessageStore
from tandemlog_server.storage.services.dead_letters import DeadLetterDesk
from tandemlog_server.storage.services.lease_desk import LeaseDesk
from tandemlog_server.storage.shares import Shares

from ..error_status import RequestRefusedError, not_sure
from ..pulls.known_queues import KnownQueues
from ..roles.role import NodeRole
from ..settings.sections import WorkSection
from .progress_writer import ProgressWriter
from .waiting_receives import WaitingReceives

logger = logging.getLogger(__name__)

READY_S: Final = 5.0
"""How long a call waits for a term that has just begun."""
STEP_S: Final = 0.005
LOOK_S: Final = 0.1
"""How soon leases and pauses are looked at again: a test moves the clock at any moment."""


class WorkTerm:
    """See the module; lives in the event loop. `number` (32 bits) tells its handles from those of
    other terms."""

    def __init__(
        self,
        store: MessageStore,
        desk: LeaseDesk,
        role: NodeRole,
        known: KnownQueues,
        settings: WorkSection,
        number: int,
        thread: ThreadPoolExecutor,
        counters: Counters,
    ) -> None:
        self.role = role
        self.desk = desk
        self.settings = settings
        self.ended = False
        self.waiting = WaitingReceives()
        limits = LeaseLimits(settings.queue_unacked, settings.node_unacked, settings.grace_ms)
        self.engine = LeaseEngine(limits, number, counters)
        self.letters = DeadLetterDesk(store)
        self.writer = ProgressWriter(
            store, desk, self.letters, self.engine, role, thread,
            settings.write_interval_ms / 1000, self.after, self._look,
        )  # fmt: skip
        self._store = store
        self._known = known
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._opening = asyncio.Lock()
        self._deleted: deque[str] = deque()
        self._stop_listening = store.groups.on_delete(self._deleted.append)
        self._groups_at_begin: frozenset[str] | None = frozenset(store.groups.table)
        self._groups_seen: object = None
        self._topics_seen: object = None
        self._queue_counts: dict[str, int] = {}
        self._not_seen: set[int] = set()
        self._queue_shares = Shares(settings.queues)
        # group -> topic -> (who opened its queues, how many) each time
        self._opened_by: dict[str, dict[str, list[tuple[str, int]]]] = {}
        self._topic_of: dict[int, str] = {}
        self._hashed: object = None
        desk.begin()
        self._task = asyncio.create_task(self.writer.run(), name="work")

    async def end(self) -> None:
        """Nothing more is written or delivered after the return."""
        self.ended = True
        self._stop_listening()
        self.waiting.wake_all()
        if self._timer is not None:
            self._timer.cancel()
        self._task.cancel()
        await asyncio.wait([self._task])
        self.desk.end()

    def now(self) -> Now:
        clock = self._store.clock
        return Now(int(clock.elapsed() * 1000), clock.now_ms())

    async def ready(self) -> None:
        """Raises RequestRefusedError if it is not known in time what the last master was told."""
        deadline = self._loop.time() + READY_S
        while not self.desk.ready and not self.ended:
            if self._loop.time() >= deadline:
                raise not_sure()
            await asyncio.sleep(STEP_S)
        self.check()

    def check(self) -> None:
        """Raises RequestRefusedError if the term has ended."""
        if self.ended:
            raise self.role.no_master("receive from")

    # ---- what has happened

    def grew(self, queues: Iterable[int]) -> None:
        """These queues (dense) got messages."""
        if not self.engine.groups:
            return  # most nodes have none, and may have thousands of queues
        table = self._store.queue_table
        for dense in queues:
            topic, queue_id = table.name(dense)
            groups = self.engine.groups.of_topic(topic)
            if not groups:
                continue
            try:
                minimum, end = self.desk.range(topic, queue_id)
            except StoreError:
                # it is being rebuilt: looked at again by `_look`
                self._not_seen.add(dense)
                continue
            for group in groups:
                self.engine.grew(group, topic, queue_id, minimum, end)
        self.after()

    def after(self) -> None:
        """After every call of the engine: wake who waits for what there is now, and look again when
        the next lease ends."""
        for group, topic in self.engine.take_woken():
            self.waiting.wake((group, topic), self.engine.groups.queues_with_work(group, topic))
        if self.engine.has_dead_letters:
            self.writer.hurry()
        due_ms = self.engine.next_due_ms
        if due_ms == NEVER or self.ended:
            return
        wait_s = min(max(due_ms - self.now().ms, 0) / 1000 + 0.001, LOOK_S)
        if self._timer is not None:
            if self._timer.when() <= self._loop.time() + wait_s:
                return
            self._timer.cancel()
        self._timer = self._loop.call_later(wait_s, self._tick)

    def _look(self) -> None:
        """Several times in a second: changes of tables, and a date that a test has moved."""
        self.look_at_tables()
        if self._not_seen:
            queues, self._not_seen = self._not_seen, set()
            self.grew(sorted(queues))
        if self.engine.next_due_ms <= self.now().ms:
            self._tick()

    def _tick(self) -> None:
        self._timer = None
        self.engine.tick(self.now())
        self.after()

    # ---- groups and their queues

    async def open(
        self,
        group: str,
        topics: Sequence[str],
        *,
        create: bool = False,
        holder: str = "",
        start_at: StartAt | None = None,
    ) -> None:
        """The queues of these topics are open for the group; with `create` a new group is. They
        count in the share of `holder`, an identity or a host, empty for the node itself. A topic
        that the group has not read is begun at its committed offsets, or at `start_at`. Raises
        RequestRefusedError (UNKNOWN_TOPIC, UNKNOWN_GROUP, BUSY), MetadataError."""
        self.look_at_tables()
        if all(self.engine.groups.has_queues(group, each, self._count(each)) for each in topics):
            return
        async with self._opening:
            self.check()
            await self._open_group(group, create=create)
            for topic in topics:
                if not self.engine.groups.has_queues(group, topic, self._count(topic)):
                    await self._open_topic(group, topic, holder, start_at)
            if self.engine.groups.policy(group) is None:
                # deleted meanwhile, or it has another order
                raise not_sure()
        self.after()

    async def _open_group(self, group: str, *, create: bool) -> None:
        groups = self._store.groups
        if group not in groups.table:
            if not create:
                raise RequestRefusedError(
                    common_pb2.UNKNOWN_GROUP,
                    f"there is no group {quoted(group)}: a receive creates it",
                    field="group",
                )
            await asyncio.to_thread(groups.ensure, group, self._store.clock.now_ms())
            self.look_at_tables()
        if self.engine.groups.policy(group) is not None:
            return
        await self._known_by_the_set(group)
        await self._known_by_the_log(group)
        if group in groups.table:
            self.engine.open_group(group, groups.policy(group))

    async def _known_by_the_set(self, group: str) -> None:
        """The next master would take a group that is not in its table for deleted, with all that it
        has done. Raises RequestRefusedError (NOT_IN_SYNC): nothing was done for the caller, which
        may ask again."""
        try:
            await self.role.confirm_table(GROUPS)
        except RequestRefusedError as error:
            if error.code != common_pb2.OUTCOME_UNKNOWN:
                raise
            raise RequestRefusedError(
                common_pb2.NOT_IN_SYNC, f"group {quoted(group)} cannot work yet: {error}"
            ) from None

    async def _open_topic(
        self, group: str, topic: str, holder: str, start_at: StartAt | None
    ) -> None:
        if topic != dead_letter_topic(group):
            self._known.check_queue(topic, 0)
        ranges = self.desk.ranges(topic)
        opened_by = self._opened_by.get(group, {}).get(topic, ())
        new = len(ranges) - sum(count for _, count in opened_by)
        shares = self._queue_shares
        if not shares.may_take(holder, new):
            raise RequestRefusedError(
                common_pb2.BUSY,
                f"groups work on {shares.held} queues on this node, {shares.of(holder)} of them "
                "opened by this identity or host; the limit work.queues is "
                f"{shares.limit} for all, {shares.most(holder)} of it for one now: {quoted(topic)} "
                f"has {new} more; raise the limit, or delete groups that are not used",
                field="topics",
                limit=shares.limit,
                actual=shares.held + new,
            )
        opened = self.engine.groups.get(group)
        said = await asyncio.to_thread(self.desk.said, group)
        self.check()
        if opened is not None and self.engine.groups.get(group) is opened:
            committed = self._store.consumer_offsets.of_pair(topic, group)
            self.engine.open_topic(
                group, topic, ranges, said.get(topic, {}), self.now(), committed, start_at
            )
            shares.take(holder, new)
            by_topic = self._opened_by.setdefault(group, {})
            by_topic.setdefault(topic, []).append((holder, new))

    def _forget(self, group: str) -> list[QueueProgress]:
        """The engine forgets the group. Returns its news that are not written."""
        for opened_by in self._opened_by.pop(group, {}).values():
            for holder, count in opened_by:
                self._queue_shares.give_back(holder, count)
        return self.engine.forget(group)

    async def _known_by_the_log(self, group: str) -> None:
        """Wait until the fold knows everything that this term has written of the group. Raises
        RequestRefusedError if that takes long."""
        deadline = self._loop.time() + READY_S
        written: int | None = None
        while written is None or not self.desk.has_applied(written):
            if self.writer.knows(group):
                written = self.desk.written if written is None else written
            else:
                written = None
                self.writer.hurry()
            if self._loop.time() >= deadline:
                raise not_sure()
            await asyncio.sleep(STEP_S)
            self.check()
            self.look_at_tables()

    async def forget_deleted(self, group: str) -> bool:
        """The group was deleted: return when that is confirmed in the log too; False if that takes
        long. Else a group of the same name would continue where it ended, after a failover."""
        deadline = self._loop.time() + READY_S
        while not self.ended and self._loop.time() < deadline:
            if self.desk.ready:
                self.look_at_tables()
                if self.writer.knows(group):
                    return await self.writer.synced(READY_S)
                self.writer.hurry()
            await asyncio.sleep(STEP_S)
        return False

    async def begin_at(self, group: str, topic: str, offsets: Mapping[int, int]) -> bool:
        """The group's committed offsets in these queues of the topic were set: whatever it has done
        or leased there, it begins at them, and the log has it. False if that takes long. Raises
        as `open`."""
        said = await asyncio.to_thread(self.desk.said, group)
        self.check()
        if self.engine.groups.topic(group, topic) is None:
            if topic not in said:
                return True  # it begins there anyway
            await self.open(group, (topic,))
        for queue_id, offset in offsets.items():
            queue = self.engine.groups.queue(group, topic, queue_id)
            if queue is not None:
                self.engine.begin_again(queue, offset)
        self.after()
        return await self.writer.synced(READY_S)

    def look_at_tables(self) -> None:
        """Groups may have been deleted, or have another policy; topics may have more queues. Of a
        term that is `ready`."""
        groups, topics = self._store.groups, self._store.topics.table
        if self._groups_at_begin is not None:
            self._deleted.extend(each for each in self.desk.groups() if not self._had(each))
            self._groups_at_begin = None
        while self._deleted:
            self._forget_deleted(self._deleted.popleft())
        if groups.table is not self._groups_seen:
            self._groups_seen = groups.table
            for group in list(self.engine.groups):
                if self.engine.groups.policy(group) != groups.policy(group):
                    self._change_policy(group)
        if topics is not self._topics_seen:
            self._topics_seen = topics
            self._queue_counts.clear()

    def _had(self, group: str) -> bool:
        return self._groups_at_begin is None or group in self._groups_at_begin

    def _forget_deleted(self, group: str) -> None:
        logger.info("group %s was deleted: what it has done is forgotten", group)
        self._forget(group)
        self.writer.deleted(group)

    def _change_policy(self, group: str) -> None:
        policy, known = self._store.groups.policy(group), self.engine.groups.policy(group)
        if known is not None and known.ordering is not policy.ordering:
            logger.info("group %s has another order: its leases are forgotten", group)
            self.writer.forgotten(group, self._forget(group))
        else:
            self.engine.open_group(group, policy)

    def _count(self, topic: str) -> int:
        """How many queues the topic has."""
        count = self._queue_counts.get(topic)
        if count is None:
            count = self._queue_counts[topic] = max(len(self.desk.ranges(topic)), 1)
        return count

    async def topics_of(self, hashes: Collection[int]) -> list[str]:
        """The topics with these hashes (handle.py), of those that there are."""
        table = self._store.topics.table
        if table is not self._hashed and not all(each in self._topic_of for each in hashes):
            self._topic_of = await asyncio.to_thread(_hashes_of, [*table])
            self._hashed = table
        names = (self._topic_of.get(each, "") for each in hashes)
        return [each for each in names if each in self._store.topics.table]


def _hashes_of(names: Sequence[str]) -> dict[int, str]:
    return {topic_hash(name): name for name in names}
