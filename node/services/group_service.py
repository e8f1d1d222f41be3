"""Consumer groups over gRPC: heartbeats of members, commits of offsets, and what administers them.

Commits come from members, which may commit what they own, and from readers without a membership,
which may commit what no member owns (node/groups/group_coordinator.py).

Offsets are saved every few seconds: one that is lost makes messages come again. A group's first
offset in a queue, and one that moves back, is saved at once and answered once the in-sync set has
it (node/groups/offset_promises.py): without it the group would begin where its program says, or
stay where it was, and that may be behind messages that it has not had.

Offsets that a transaction sets stand in the log. They are not set back by members, and by hand only
in the log too (storage/services/transaction_desk.py).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial

from tandemlog.format.calls import MAX_ROWS
from tandemlog.format.constants import BROKER_TRANSACTIONS
from tandemlog.format.files.log_history import NO_CUT
from tandemlog.format.transaction.decision import NO_OFFSET, GroupOffset
from tandemlog.v1 import admin_pb2, broker_pb2, common_pb2
from tandemlog_server.storage.errors import StoreError
from tandemlog_server.storage.message_store import MessageStore

from ..access.caller import Caller
from ..error_status import RequestRefusedError, check_count
from ..groups.group_coordinator import GroupCoordinator
from ..groups.group_refusals import COMMIT_OVER, MAKE_AGAIN
from ..groups.offset_promises import OffsetPromises
from ..pulls.group_activity import GroupActivity
from ..pulls.group_kind import MemberKind
from ..pulls.known_queues import KnownQueues
from ..pulls.read_turns import ReadTurns
from ..transactions.transaction_work import TransactionWork

logger = logging.getLogger(__name__)

Setting = Callable[[str, str, Mapping[int, int]], AbstractAsyncContextManager[None]]
"""(group, topic, queue -> offset): around a commit by hand of these offsets. Who works in the group
without committing begins there afterwards."""

MAX_SHOWN = 8
ROWS_BYTES = 1 << 20


class GroupService:
    """See the module."""

    def __init__(
        self,
        store: MessageStore,
        coordinator: GroupCoordinator,
        known: KnownQueues,
        turns: ReadTurns,
        activity: GroupActivity,
        transactions: TransactionWork | None = None,
        work_deleted: Callable[[str], Awaitable[None]] | None = None,
        setting: Setting | None = None,
    ) -> None:
        """`work_deleted`: a group was deleted, and what it has done of its work queues goes too."""
        self.setting = setting
        # waits until the offsets of RocketMQ's clients in this group that came before are committed
        self.in_line: Callable[[str], Awaitable[None]] | None = None
        self._store = store
        self._transactions = transactions
        self._work_deleted = work_deleted
        self._coordinator = coordinator
        self._known = known
        self._turns = turns
        self._activity = activity

    async def heartbeat(
        self, request: broker_pb2.GroupHeartbeatRequest, caller: Caller
    ) -> broker_pb2.GroupHeartbeatResponse:
        return await self._coordinator.heartbeat(request, caller.peer, caller.holder)

    def describe(
        self, request: broker_pb2.DescribeGroupRequest, caller: Caller
    ) -> broker_pb2.DescribeGroupResponse:
        """Of the members that share a topic with the caller: who knows a member's id can end it."""
        description = self._coordinator.describe(request.group)
        if caller.restricted is not None:
            members = [each for each in description.members if _only_seen(each, caller)]
            del description.members[:]
            description.members.extend(members)
        return description

    async def commit(
        self,
        request: broker_pb2.CommitOffsetsRequest,
        caller: Caller,
        *,
        of_clients: bool = False,
    ) -> broker_pb2.CommitOffsetsResponse:
        """`of_clients`: members of RocketMQ's clients commit what they have read."""
        if self.in_line is not None and not of_clients and not request.member_id:
            await self.in_line(request.group)
        # after the wait: another node may lead by now
        self._coordinator.lead("commit consumer offsets on", request.group)
        if not request.without_members or of_clients:
            return await self._commit_rows(request, caller)
        self._coordinator.kinds.require_none(MemberKind.CLASSIC, request.group, COMMIT_OVER)
        if self.setting is None or request.dry_run:
            return await self._commit_rows(request, caller)
        topics: dict[str, dict[int, int]] = {}
        for each in request.offsets:
            topics.setdefault(each.topic, {})[each.queue_id] = each.queue_offset
        async with AsyncExitStack() as settings:
            for topic, offsets in topics.items():
                await settings.enter_async_context(self.setting(request.group, topic, offsets))
            response = await self._commit_rows(request, caller)
            for each in response.refused:
                topics[each.topic].pop(each.queue_id, None)
        return response

    async def _commit_rows(
        self, request: broker_pb2.CommitOffsetsRequest, caller: Caller
    ) -> broker_pb2.CommitOffsetsResponse:
        response, rows = await self._turns.run(
            caller,
            partial(self._commit, request, caller),
            room=ROWS_BYTES,
            size_of=lambda outcome: outcome[0].ByteSize(),
        )
        repeated = rows.repeats
        if rows.set_by_hand:
            await self._set_in_log(request.group, rows.set_by_hand)
        if not request.dry_run:
            await self._coordinator.promises.wait_confirmed(request.group, repeated=repeated)
        self._activity.committed(request.group, caller.peer)
        return response

    def move_forward(
        self, group: str, topic: str, queue_id: int, queue_offset: int, caller: Caller
    ) -> bool:
        """A commit without a membership that only moves an offset on, of a client that hears no
        answer: mostly it is done at once, in the event loop. False, and nothing is done: `commit`
        it. Raises RequestRefusedError."""
        if group == BROKER_TRANSACTIONS:
            return False
        self._coordinator.lead("commit consumer offsets on", group)
        store = self._store
        dense = store.queue_table.get(topic, queue_id)
        if dense < 0 or queue_offset > store.queues.ends_of([dense])[0]:
            return False
        move = partial(store.consumer_offsets.move_forward, group, topic, queue_id, queue_offset)
        if not self._coordinator.commit_in_passing(group, move):
            return False
        self._activity.committed(group, caller.peer)
        return True

    def _commit(
        self, request: broker_pb2.CommitOffsetsRequest, caller: Caller
    ) -> tuple[broker_pb2.CommitOffsetsResponse, "_Rows"]:
        """The answer, and what became of the rows."""
        self._check_rows(request)
        response = broker_pb2.CommitOffsetsResponse()
        cut = self._not_in_log(request, response.error)
        response.refused.extend(each for index, each in enumerate(request.offsets) if index in cut)
        offsets = [each for index, each in enumerate(request.offsets) if index not in cut]
        queues = [(each.topic, each.queue_id) for each in offsets]
        row = _Rows(self._store, request, offsets, self._coordinator.promises)
        if request.member_id:
            refused = set(
                self._coordinator.commit_owned(
                    request.group, request.member_id, request.member_epoch, queues, row.commit
                )
            )
            if refused:
                response.refused.extend(
                    each for each, queue in zip(offsets, queues, strict=True) if queue in refused
                )
                response.error.CopyFrom(_not_owned(request, sorted(refused), len(queues)))
        else:
            self._coordinator.commit_by_hand(
                request.group,
                queues,
                row.commit,
                empty=request.without_members,
                dry_run=request.dry_run,
            )
        if row.begins or row.back:
            self._save()
        if row.back:
            caller.moved_back(request.group, ", ".join(row.back))
        return response, row

    def _check_rows(self, request: broker_pb2.CommitOffsetsRequest) -> None:
        """Raises RequestRefusedError for offsets that no group can have; makes the group known."""
        if request.group == BROKER_TRANSACTIONS:
            raise RequestRefusedError(
                common_pb2.INVALID_ARGUMENT,
                f"group {request.group} is the store's own: its offsets say which transactions "
                "have ended",
                field="group",
            )
        check_count("offsets", len(request.offsets), MAX_ROWS)
        for each in request.offsets:
            self._known.check_queue(each.topic, each.queue_id)
            if each.queue_offset < 0:
                raise RequestRefusedError(
                    common_pb2.INVALID_ARGUMENT,
                    f"queue_offset must not be negative: {each.queue_offset}",
                    field="queue_offset",
                    actual=each.queue_offset,
                )
        if not request.dry_run and request.group not in self._store.groups.table:
            self._store.groups.ensure(
                request.group,
                self._store.clock.now_ms(),
                has_offsets=self._store.consumer_offsets.has_group(request.group),
            )

    # ---- offsets of transactions

    def prepare(self, request: broker_pb2.CommitOffsetsRequest) -> Callable[[], None]:
        """For offsets that are to count with a transaction: what to call just before it is
        committed. It raises if a commit of these offsets would be refused then, or part of it. In
        a reader thread. Raises RequestRefusedError."""
        self._check_rows(request)
        queues = [(each.topic, each.queue_id) for each in request.offsets]
        places = [(request.group, *queue) for queue in queues]

        def admit() -> None:
            self._store.consumer_offsets.check_room(places)
            error = common_pb2.Error()
            if self._not_in_log(request, error):
                raise _refusal_of(error)
            if not request.member_id:
                self._coordinator.commit_by_hand(
                    request.group, queues, _no_commit, empty=request.without_members, dry_run=True
                )
                return
            refused = self._coordinator.commit_owned(
                request.group, request.member_id, request.member_epoch, queues, _no_commit
            )
            if refused:
                raise _refusal_of(_not_owned(request, refused, len(queues)))

        return admit

    def lead(self, group: str) -> None:
        """Raises RequestRefusedError on a node whose groups do not count, or for a group whose
        offsets come from elsewhere."""
        self._coordinator.lead("commit consumer offsets on", group)

    async def offsets_known(self, group: str) -> None:
        """Before offsets of a group are read: wait for those on their way with a transaction.
        Raises RequestRefusedError (NOT_IN_SYNC)."""
        if self._transactions is not None:
            await self._transactions.offsets_settled(group)

    async def _set_in_log(self, group: str, rows: Sequence[GroupOffset]) -> None:
        """Set offsets lower than a transaction has set them: in the log, where that stands. Raises
        RequestRefusedError."""
        work, offsets = self._transactions, self._store.consumer_offsets
        assert work is not None, "without it no transaction sets offsets"
        await work.ready()
        await work.in_thread(partial(work.desk.set_offsets, rows))
        await work.offsets_settled(group)
        self._coordinator.promises.changing(group)
        try:
            for each in rows:
                if each.queue_offset != NO_OFFSET:
                    offsets.commit(group, each.topic, each.queue_id, each.queue_offset)
        finally:
            self._coordinator.promises.changed(group)
        await asyncio.to_thread(self._save)

    async def offsets_confirmed(self, group: str) -> None:
        """Wait until the offsets of this group that were read before are not only here. Raises
        RequestRefusedError (NOT_IN_SYNC)."""
        await self._coordinator.promises.wait_confirmed(group)

    def _save(self) -> None:
        try:
            self._store.consumer_offsets.save(self._store.clock.now_ms())
        except (OSError, StoreError) as error:
            # in memory they are, and the next round of saving tells it too
            logger.warning("consumer offsets were not saved: %s", error)

    def _not_in_log(
        self, request: broker_pb2.CommitOffsetsRequest, error: common_pb2.Error
    ) -> set[int]:
        """The rows that are behind messages which this log does not have, with the error for them;
        the others may be taken."""
        rows = [(each.topic, each.queue_id, each.queue_offset) for each in request.offsets]
        ends = {
            index: end
            for index, (topic, queue_id, offset) in enumerate(rows)
            if (end := self._store.queue_end(topic, queue_id)) is not None and offset > end
        }
        history = self._store.log_identity.history
        until = history.end_of(request.log_epoch, request.term_id) if request.log_epoch else NO_CUT
        if until is None:
            cut = set(range(len(rows)))
        else:
            cut = set(self._store.cut_positions(rows, until))
        if cut:
            topic, queue_id, offset = rows[min(cut)]
            error.code = common_pb2.LOG_CUT
            error.message = (
                f"group {request.group!r}: {len(cut)} of these {len(rows)} offsets, for example "
                f"{topic}/{queue_id} {offset}, were read from a log with epoch "
                f"{request.log_epoch}, of which this one does not have these messages: compare the "
                "positions (CheckPositions)"
            )
        elif ends:
            index = min(ends)
            topic, queue_id, offset = rows[index]
            error.code = common_pb2.OFFSET_OUT_OF_RANGE
            error.message = (
                f"group {request.group!r}: {topic}/{queue_id} ends at {ends[index]}, {offset} is "
                "beyond: it was not committed, since messages that come there would be skipped"
            )
            error.field, error.limit, error.actual = "queue_offset", ends[index], offset
        return cut | ends.keys()

    async def delete(self, request: admin_pb2.DeleteGroupRequest) -> admin_pb2.DeleteGroupResponse:
        """Raises RequestRefusedError: UNKNOWN_GROUP, GROUP_HAS_MEMBERS, and as a change of
        topics."""
        coordinator = self._coordinator
        coordinator.check_deletable(request.group)
        coordinator.kinds.require_none(MemberKind.CLASSIC, request.group, MAKE_AGAIN)
        if not request.dry_run:
            with self._store.transactions.lock:
                rows = [
                    GroupOffset(*place, NO_OFFSET)
                    for place in self._store.transactions.offsets
                    if place[0] == request.group
                ]
            if rows:
                await self._set_in_log(request.group, rows)
            await coordinator.delete(request.group)
            if self._work_deleted is not None:
                await self._work_deleted(request.group)
        return admin_pb2.DeleteGroupResponse()


def _no_commit(index: int) -> None:
    """The offsets come with the transaction."""


def _refusal_of(error: common_pb2.Error) -> RequestRefusedError:
    return RequestRefusedError(
        error.code, error.message, field=error.field, limit=error.limit, actual=error.actual
    )


def _not_owned(
    request: broker_pb2.CommitOffsetsRequest, refused: Sequence[tuple[str, int]], count: int
) -> common_pb2.Error:
    topic, queue_id = min(refused)
    return common_pb2.Error(
        code=common_pb2.FENCED_MEMBER,
        message=f"group {request.group!r}: member {request.member_id} does not own {len(refused)} "
        f"of these {count} queues (any more), for example {topic}/{queue_id}: their offsets were "
        "not committed",
        field="member_id",
        limit=count,
        actual=len(refused),
    )


def _only_seen(member: broker_pb2.GroupMember, caller: Caller) -> bool:
    """Leaves in `member` the topics that the caller may know of; False if there is none."""
    topics = caller.seen(member.topics)
    member.topics[:] = topics
    for rows in (member.assigned, member.target):
        seen = set(caller.seen(row.topic for row in rows))
        shown = [row for row in rows if row.topic in seen]
        del rows[:]
        rows.extend(shown)
    return bool(topics or member.assigned or member.target)


class _Rows:
    """The rows of a commit on their way into the table; `back`: what went to a lower offset;
    `begins`: some are the first of their queue; `repeats`: some were there already; `set_by_hand`:
    what is lower than a transaction has set it, which only the log can say."""

    def __init__(
        self,
        store: MessageStore,
        request: broker_pb2.CommitOffsetsRequest,
        rows: Sequence[broker_pb2.QueuePosition],
        promises: OffsetPromises,
    ) -> None:
        self._offsets = store.consumer_offsets
        self._group = request.group
        self._rows = rows
        self._dry_run = request.dry_run
        self._promises = promises
        self.back: list[str] = []
        self.begins = False
        self.repeats = False
        self.set_by_hand: list[GroupOffset] = []
        self._by_hand = not request.member_id

    def commit(self, index: int) -> None:
        if self._dry_run:
            return
        each = self._rows[index]
        place = self._group, each.topic, each.queue_id
        before = self._offsets.offset(*place)
        floor = self._offsets.floor(*place)
        if floor is not None and each.queue_offset < floor:
            # a member has passed it; by hand, it is set where the transaction stands, in the log
            if self._by_hand:
                self.set_by_hand.append(GroupOffset(*place, each.queue_offset))
                self.back.append(f"{each.topic}/{each.queue_id} {before} -> {each.queue_offset}")
            return
        if before is not None and each.queue_offset >= before:
            self.repeats = self.repeats or each.queue_offset == before
            self._offsets.commit(*place, each.queue_offset)
            return
        if before is None:
            self.begins = True
        elif len(self.back) < MAX_SHOWN:
            self.back.append(f"{each.topic}/{each.queue_id} {before} -> {each.queue_offset}")
        self._promises.changing(self._group)
        try:
            self._offsets.commit(*place, each.queue_offset)
        finally:
            self._promises.changed(self._group)
