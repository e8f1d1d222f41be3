"""All groups of the node that is the master: heartbeats in, what members may own out.

    heartbeat ─▶ ConsumerGroup (pure) ─▶ target (a thread, if it is much) ─▶ reconcile
                                                                        │ changed
    waiting heartbeats ◀── confirmed ◀── in-sync set has it ◀── table, durable
    commit (a reader thread) ─▶ the lock ─▶ who owns the queue? ─▶ offsets

The groups belong to the event loop, and change under a lock: a commit looks at the owners and
writes its offsets under the same lock, so that no queue changes its owner between the two.

They live as long as a term of this node. The first call of a term reads the table of the master
before it; another role forgets the groups and ends the waiting calls.

No answer leaves before the door knows that this node still led when it was made
(services/master_answers.py). A master that cannot know that ends no session either: it hears no
member, so it forgets its groups, and reads them again once it knows.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Sequence

from tandemlog.format.calls import JOIN
from tandemlog.format.errors import FormatError
from tandemlog.format.words import quoted
from tandemlog.v1 import broker_pb2, common_pb2
from tandemlog_server.ha.store_port import CONSUMER_OFFSETS, GROUP_MEMBERS, GROUPS
from tandemlog_server.storage.message_store import MessageStore

from ..error_status import RequestRefusedError, not_sure
from ..pulls.group_kind import GroupKinds, MemberKind
from ..roles.role import CurrentRole
from ..settings.sections import GroupsSection
from .assignor import Queue, assign
from .consumer_group import ConsumerGroup, FencedMemberError, Member, Removed, Report
from .group_refusals import check_room, members_text, refusals, refused
from .group_rows import group_of
from .group_saver import GroupSaver
from .heartbeats import describe, members_of, report_of, response_of
from .offset_promises import OffsetPromises

logger = logging.getLogger(__name__)

MAX_WAIT_MS = 10_000
"""How long a heartbeat waits at most for news of its group."""
CHECK_S = 0.2
FIRST_NEWS_S = 5.0
"""How long a heartbeat waits until the first state of its member is confirmed."""
STOOD_STILL_S = 1.0
IN_LOOP = 2_000
"""Queues that are assigned in the loop; more of them in a thread."""
CHECKED_AT_ONCE = 256


class GroupCoordinator:
    """See the module. `run` as long as the node serves; `now` is a monotonic clock in seconds;
    `changed` sends the tables to the slaves at once."""

    def __init__(
        self,
        store: MessageStore,
        current: CurrentRole,
        now: Callable[[], float],
        limits: GroupsSection,
        kinds: GroupKinds | None = None,
    ) -> None:
        self.kinds = kinds if kinds is not None else GroupKinds()
        self.kinds.count_by(MemberKind.OWN, self._count)
        self._store = store
        self._current = current
        self._now = now
        self.limits = limits
        self._lock = threading.Lock()
        self.term: int | None = None
        self.groups: dict[str, ConsumerGroup] = {}
        self._waiting: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._saver = GroupSaver(store, current, self)
        self.promises = OffsetPromises(store.consumer_offsets, current)
        self._topics: object = None
        self._assigning: set[ConsumerGroup] = set()
        self.rebalances_total = 0
        self.fenced_commits_total = 0
        self.members_removed_total = 0

    async def run(self) -> None:
        """Until it is cancelled."""
        await asyncio.gather(self._check_forever(), self._saver.run())

    # ---- the term

    def _lead(self) -> None:
        """Raises RequestRefusedError on a node that is not the master, or not sure of it."""
        term = self._current.role.epoch()
        if term is None:
            self._forget()
            self._current.role.require_master("report to")
            raise not_sure()
        if term != self.term:
            self._load(term)

    def _load(self, term: int) -> None:
        self._forget()
        now = self._now()
        groups = {}
        for name, row in self._store.group_members.rows().items():
            try:
                groups[name] = group_of(name, row, now)
            except FormatError as error:
                logger.error("members of a group are forgotten, they join again: %s", error)
        with self._lock:
            self.groups, self.term = groups, term
        self.promises.begin_term()
        for name, group in groups.items():
            if group.members:
                self._saver.changed(name)
        members = sum(len(group.members) for group in groups.values())
        if members:
            logger.info("groups: epoch=%d groups=%d members=%d", term, len(groups), members)

    def _forget(self) -> None:
        with self._lock:
            self.groups, self.term = {}, None
        self._saver.forget()
        self._topics = None
        for waiting in self._waiting.values():
            _wake(waiting)

    # ---- heartbeats

    async def heartbeat(
        self, request: broker_pb2.GroupHeartbeatRequest, host: str, holder: str = ""
    ) -> broker_pb2.GroupHeartbeatResponse:
        """`holder`: whose share of the members this one counts for. Raises RequestRefusedError."""
        self._lead()
        self._current.role.require_group(request.group)
        report = report_of(request, host, self.limits, holder)
        name = request.group
        if report.epoch == JOIN:
            self.kinds.require(MemberKind.OWN, name)
        if report.epoch == JOIN and name not in self._store.groups.table:
            await asyncio.to_thread(
                self._store.groups.ensure,
                name,
                self._store.clock.now_ms(),
                has_offsets=self._store.consumer_offsets.has_group(name),
            )
            self._lead()
        with refusals():
            group, member = self._hear(name, report)
        self._wake(name, report.member_id)
        if member is None:
            await self._rebalance(group)
            return broker_pb2.GroupHeartbeatResponse(member_epoch=report.epoch)
        await self._rebalance(group, member if report.epoch != JOIN else None)
        interval_ms = self.limits.interval_ms(member.session_timeout_ms)
        wait_ms = min(max(request.wait_ms, 0), interval_ms, MAX_WAIT_MS)
        await self._wait_for_news(group, member, report.number, self._now() + wait_ms / 1000)
        return response_of(group.tell(member), interval_ms)

    def _hear(self, name: str, report: Report) -> tuple[ConsumerGroup, Member | None]:
        now = self._now()
        group = self.groups.get(name)
        with self._lock:
            if report.epoch == JOIN:
                if group is None:
                    group = self.groups[name] = ConsumerGroup(name)
                if report.member_id not in group.members:
                    check_room(self.groups, group, self.limits, report.holder)
                removed = group.join(report, now)
                group.set_topics(self._queue_counts(group))
            elif group is None:
                raise FencedMemberError(f"there is no group {quoted(name)} with members")
            elif report.epoch < 0:
                removed = group.leave(report, now)
            else:
                removed = None
                group.hear(report, now)
                if group.out_of_date:
                    group.set_topics(self._queue_counts(group))
        if removed is not None:
            self._log_removal(group, removed)
        return group, group.members[report.member_id] if report.epoch >= 0 else None

    async def _wait_for_news(
        self, group: ConsumerGroup, member: Member, number: int, until: float
    ) -> None:
        """Wait for something that this member was not told yet. Raises RequestRefusedError if the
        member, or this term, is over."""
        key = group.name, member.member_id
        latest = max(until, self._now() + FIRST_NEWS_S)
        while True:
            if self.groups.get(group.name) is not group:
                self._lead()
                raise refused(common_pb2.BUSY, "the groups were loaded again: report once more")
            if group.members.get(member.member_id) is not member:
                with refusals():
                    # says why: it was removed, or its instance was taken over
                    group.hear(_again(member, number), self._now())
            if member.number != number:
                raise refused(common_pb2.BUSY, "a newer heartbeat of this member was taken")
            state = group.what_to_tell(member)
            if state.member_epoch and state != member.last:
                return
            left_s = (until if state.member_epoch else latest) - self._now()
            if left_s <= 0 and state.member_epoch:
                return
            if left_s <= 0:
                raise refused(
                    common_pb2.OUTCOME_UNKNOWN,
                    f"group {quoted(group.name)}: what this member may own is not yet on every "
                    "in-sync replica, so it cannot be told; check the replicas, and report again",
                )
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[key] = waiting
            try:
                await asyncio.wait((waiting,), timeout=left_s)
            finally:
                if self._waiting.get(key) is waiting:
                    del self._waiting[key]

    def _wake(self, name: str, member_id: str) -> None:
        waiting = self._waiting.get((name, member_id))
        if waiting is not None:
            _wake(waiting)

    def wake_group(self, group: ConsumerGroup) -> None:
        for member_id in group.members:
            self._wake(group.name, member_id)

    # ---- changes

    async def _rebalance(self, group: ConsumerGroup, member: Member | None = None) -> None:
        """Bring the target and the owners up to date, and have the change saved. `member`: the one
        that has reported, if that is all that may have changed."""
        changed = await self._assign(group)
        with self._lock:
            changed |= group.reconcile(self._now(), member)
        if group.version != group.confirmed_version:
            self._saver.changed(group.name)
        if changed:
            self.wake_group(group)

    async def _assign(self, group: ConsumerGroup) -> bool:
        """Assign the queues again if the target is out of date; whether that was so. One at a time
        for a group: what changes meanwhile is in the next target."""
        if group in self._assigning:
            return False
        done = False
        self._assigning.add(group)
        try:
            while group.out_of_date and self.groups.get(group.name) is group:
                with self._lock:
                    group.set_topics(self._queue_counts(group))
                    work = group.assignment_work()
                try:
                    if sum(work[1].values()) <= IN_LOOP:
                        target = assign(*work)
                    else:
                        target = await asyncio.to_thread(assign, *work)
                except BaseException:  # the caller has gone: `_check_forever` makes it
                    group.out_of_date = True
                    raise
                with self._lock:
                    before = group.rebalances
                    group.set_target(target)
                self.rebalances_total += group.rebalances - before
                done = True
        finally:
            self._assigning.discard(group)
        return done

    def _queue_counts(self, group: ConsumerGroup) -> dict[str, int]:
        table = self._store.topics.table
        counts: dict[str, int] = {}
        for member in group.members.values():
            for topic in member.topics:
                config = table.get(topic)
                if config is not None:
                    counts[topic] = config.read_queues
        return counts

    async def _check_forever(self) -> None:
        looked_at = self._now()
        while True:
            await asyncio.sleep(CHECK_S)
            late_s = self._now() - looked_at - CHECK_S
            leads = await self._leads()
            looked_at = self._now()  # the set's answer took its time, the loop did not stand still
            try:
                await self._check_groups(late_s, leads=leads)
            except Exception:  # else no session would end from here on
                logger.exception("groups could not be looked at, and are again in a moment")

    async def _leads(self) -> bool:
        if self._current.role.epoch() is None:
            return False
        try:
            await self._current.leads()
        except RequestRefusedError:
            return False
        return True

    async def _check_groups(self, late_s: float, *, leads: bool) -> None:
        """Members that are silent, topics that have changed, a role that has ended."""
        if late_s > STOOD_STILL_S:
            self._forgive(late_s)
        if not leads or self._current.role.epoch() is None:
            if self.term is not None:
                self._forget()
            return
        if self._current.role.epoch() != self.term:
            with contextlib.suppress(RequestRefusedError):
                self._lead()
        topics = self._store.topics.table
        look_at_topics, self._topics = topics is not self._topics, topics
        now = self._now()
        for group in list(self.groups.values()):
            with self._lock:
                removed = group.expire(now) if group.next_expiry() <= now else []
                if look_at_topics:
                    group.set_topics(self._queue_counts(group))
                    group.forget_left([each for each in group.left if each[0] not in topics])
            for each in removed:
                self._log_removal(group, each)
            if removed or group.out_of_date:
                await self._rebalance(group)

    def _forgive(self, late_s: float) -> None:
        """This process stood still and heard no member: they were not silent."""
        logger.warning("groups: this node stood still for %.1f s, members get that time", late_s)
        with self._lock:
            for group in self.groups.values():
                group.forgive(late_s)

    def _log_removal(self, group: ConsumerGroup, removed: Removed) -> None:
        member = removed.member
        self.members_removed_total += 1
        logger.info(
            "group member gone: group=%s member=%s client=%s queues=%d reason=%s",
            group.name,
            member.member_id,
            member.client_id,
            len(member.owned),
            removed.reason,
        )
        self._wake(group.name, member.member_id)

    # ---- commits, from any thread

    def commit_owned(
        self,
        group_name: str,
        member_id: str,
        epoch: int,
        queues: Sequence[Queue],
        commit: Callable[[int], None],
    ) -> list[Queue]:
        """`commit(index)` for each queue that this member owns; returns the others."""
        refused: list[Queue] = []
        for first in range(0, len(queues), CHECKED_AT_ONCE):
            part = queues[first : first + CHECKED_AT_ONCE]
            with self._lock:
                self._check_term()
                group = self.groups.get(group_name)
                fenced = (
                    set(part) if group is None else set(group.not_owned(member_id, epoch, part))
                )
                for index, queue in enumerate(part, first):
                    if queue not in fenced:
                        commit(index)
            refused += [queue for queue in part if queue in fenced]
        self.fenced_commits_total += len(refused)
        return refused

    def commit_by_hand(
        self,
        group_name: str,
        queues: Sequence[Queue],
        commit: Callable[[int], None],
        *,
        empty: bool,
        dry_run: bool = False,
    ) -> None:
        """`commit` for all, if no member owns one of them; `empty`: if there is no member at all.
        Raises RequestRefusedError (GROUP_HAS_MEMBERS), and nothing is committed."""
        with self._lock:
            self._check_term()
            group = self.groups.get(group_name)
            if group is not None:
                owned = group.owned_by_members(queues)
                if owned or (empty and group.members):
                    raise refused(common_pb2.GROUP_HAS_MEMBERS, members_text(group, owned))
                if not dry_run:
                    group.forget_left(queues)
            for index in range(len(queues)):
                commit(index)

    def commit_in_passing(self, group_name: str, commit: Callable[[], bool]) -> bool:
        """What `commit` returns, for a group without members in this term; False if that is not
        known at once. Waits for nothing; `commit_by_hand` says what is wrong."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            term = self._current.role.epoch()
            if term is None or term != self.term or group_name in self.groups:
                return False
            return commit()
        finally:
            self._lock.release()

    def _check_term(self) -> None:
        """Under the lock. The groups of a term that is over, or none, say nothing of who owns a
        queue. Raises RequestRefusedError."""
        term = self._current.role.epoch()
        if term is None or term != self.term:
            self._current.role.require_master("commit consumer offsets on")
            raise not_sure()

    # ---- administration

    def lead(self, what: str, group: str) -> None:
        """Raises RequestRefusedError on a node whose groups do not count, or for a group whose
        offsets come from elsewhere; `what` a caller wanted of the master."""
        self._current.role.require_master(what)
        self._current.role.require_group(group)
        self._lead()

    def describe(self, name: str) -> broker_pb2.DescribeGroupResponse:
        """Raises RequestRefusedError (UNKNOWN_GROUP)."""
        self._lead()
        group, kind = self.groups.get(name), self.kinds.kind_of(name)
        store, word = self._store, "" if kind is None else kind.word
        if kind is not None and (members := self.kinds.members(kind, name)):
            return describe(name, "stable", 0 if group is None else group.epoch, members, word)
        if group is None or not group.members:
            exists = name in store.groups.table or name in store.consumer_offsets.groups()
            if group is None and not exists:
                raise refused(common_pb2.UNKNOWN_GROUP, f"there is no group {quoted(name)}")
            return describe(name, "empty", 0 if group is None else group.epoch, (), word)
        return describe(name, group.state, group.epoch, members_of(group, self._now()), word)

    def check_deletable(self, name: str) -> None:
        """Raises RequestRefusedError: UNKNOWN_GROUP, GROUP_HAS_MEMBERS."""
        self._current.role.require_group(name)
        self.describe(name)
        group = self.groups.get(name)
        if group is not None and group.members:
            raise refused(common_pb2.GROUP_HAS_MEMBERS, members_text(group, []))

    async def delete(self, name: str) -> None:
        """The group, its offsets and its epoch; once every node that may lead knows it. Raises
        RequestRefusedError."""
        self._saver.dropped(name)  # before: this call may end in the middle
        await asyncio.to_thread(self._delete, name)
        tables = GROUPS, GROUP_MEMBERS, CONSUMER_OFFSETS
        await asyncio.gather(*(self._current.role.confirm_table(table) for table in tables))

    def _delete(self, name: str) -> None:
        store, now_ms = self._store, self._store.clock.now_ms()
        with self._lock:
            self._check_term()
            term, group = self.term, self.groups.get(name)
            if group is not None and group.members:
                raise refused(common_pb2.GROUP_HAS_MEMBERS, members_text(group, []))
            self.groups.pop(name, None)
            store.consumer_offsets.drop(name)
            store.groups.delete(name, now_ms)
        if name in store.group_members.rows():
            store.group_members.update(
                {name: None},
                now_ms,
                lambda: self._current.role.epoch() == term and name not in self.groups,
            )
        store.consumer_offsets.save(now_ms)

    def _count(self, name: str) -> int:
        group = self.groups.get(name)
        return 0 if group is None else len(group.members)

    def member_counts(self) -> dict[str, int]:
        """By group that has members; for metrics."""
        return {name: len(group.members) for name, group in self.groups.items() if group.members}


def _again(member: Member, number: int) -> Report:
    return Report(
        member.member_id, max(1, member.told_epoch), number, instance_id=member.instance_id
    )


def _wake(waiting: "asyncio.Future[None]") -> None:
    if not waiting.done():
        waiting.set_result(None)
