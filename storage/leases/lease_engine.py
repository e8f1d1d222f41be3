"""The work of all groups on the master: who gets which message, and what the log is to be told.

    consumers                     engine (memory of one master)              log
    receive ──begin──▶ a queue with work ──read──▶ lease ──▶ messages, handles
    ack, nack, extend ──▶ rows of the queue
                                     collect, every 100 ms ───────────────▶ progress records
    give up ───────────────────────▶ take_dead_letters ───────────────────▶ %DLQ%group

Any number of consumers share the queues of a topic: a queue with work stands in its topic's line,
and each delivery takes the first one. One reading of a queue is under way at a time; meanwhile the
next queue is read.

What the engine knows about a queue at its begin is what the log says (progress_table.py). Leases
are known to this master alone: the next one delivers every message again that the log does not call
done. Pure: time is a parameter, reading and writing are the caller's; one thread at a time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.lease.policy import AckResult, GroupPolicy, StartAt
from tandemlog.format.lease.progress import QueueProgress

from .deliveries import Grant, adopt, lease_again, lease_new, with_another
from .due_queues import DueQueues
from .handle_operations import (
    TO_READ,
    Found,
    Kind,
    Operation,
    Results,
    ToRead,
    by_queue,
    carry_out,
    each_once,
    is_same_message,
    judge,
)
from .lease_values import Counters, DeadLetters, Leased, LeaseLimits, Now, Reading
from .open_groups import OpenGroup, OpenGroups
from .queue_leases import NEVER, QueueLeases
from .read_batch import ReadBatch
from .row_handles import handles_again, leased_rows
from .row_owners import RowOwners
from .unacked import I64, State

NO_BEGINS: Final[Mapping[int, int]] = {}
_MOST_LEASES: Final = 0xFFFF_FFFF
_FAR_APART: Final = 0x9E37_79B1
"""Masters begin to count their deliveries so far from each other that no two have one number."""


class LeaseEngine:
    """See the module. `term` (32 bits) tells this master's handles from those of others."""

    def __init__(self, limits: LeaseLimits, term: int, counters: Counters | None = None) -> None:
        self.limits = limits
        self.term = term
        self.counters = Counters() if counters is None else counters
        self.owners = RowOwners(limits.node_unacked)
        self.groups = OpenGroups()
        self._lease = term * _FAR_APART & _MOST_LEASES
        self._turn = 0
        self._due = DueQueues()
        self._with_news: dict[QueueLeases, None] = {}
        self._giving_up: dict[QueueLeases, None] = {}
        self._woken: set[tuple[str, str]] = set()
        self._throttled: set[tuple[str, str]] = set()

    # ---- groups and queues

    def open_group(self, group: str, policy: GroupPolicy) -> None:
        """The group works with this policy from now on. For another order it must be forgotten
        before: then it begins again from what the log says."""
        known = self.groups.get(group)
        if known is None:
            self.groups[group] = OpenGroup(group, policy)
            return
        known.policy = policy
        for queue in known.queues():
            queue.policy = policy

    def open_topic(
        self,
        group: str,
        topic: str,
        ranges: Sequence[tuple[int, int]],
        said: Mapping[int, QueueProgress],
        now: Now,
        begins: Mapping[int, int] = NO_BEGINS,
        start_at: StartAt | None = None,
    ) -> None:
        """Queue i of the topic holds ranges[i], minimum and end; `said`: what the log says about
        the group's queues in it; `begins`: below this everything is done, by committed offsets.
        `start_at` None: where the policy says. Queues that are open already only grow."""
        known = self.groups[group]
        place = known.topic(topic)
        start_at = known.policy.start_at if start_at is None else start_at
        # a queue that the topic got later is read from its begin
        latest = start_at is StartAt.LATEST and not (said or begins or place.queues)
        for queue_id, (minimum, end) in enumerate(ranges):
            queue = place.queues.get(queue_id)
            if queue is None:
                queue = QueueLeases(group, topic, queue_id, known.policy, self.owners)
                place.queues[queue_id] = queue
                state, begin = said.get(queue_id), min(begins.get(queue_id, -1), end)
                if state is not None:
                    self._load(queue, state, now)
                    queue.pass_over(queue.floor, begin)
                elif begin > minimum:
                    queue.begin(begin, sure=False)
                else:
                    queue.begin(end if latest else minimum, sure=not latest)
            queue.grew(minimum, end)
            self._changed(queue)

    def _load(self, queue: QueueLeases, state: QueueProgress, now: Now) -> None:
        again_ms = now.ms + self.limits.grace_ms
        queue.load(state, again_ms)
        self._giving_up[queue] = None
        self._arm(queue, now)

    def forget(self, group: str) -> list[QueueProgress]:
        """Its leases are gone. Returns what is new and was not collected."""
        known = self.groups.pop(group, None)
        if known is None:
            return []
        news = [queue.collect() for queue in known.queues() if queue.has_news]
        for queue in known.queues():
            self._let_go(queue)
        return news

    def begin_again(self, queue: QueueLeases, offset: int) -> None:
        """The group begins at `offset`, once the log has it. Nothing that went before counts."""
        if queue.forgotten:
            return
        self._let_go(queue)
        place = self.groups[queue.group].topic(queue.topic)
        if queue.listed:
            place.line.remove(queue)
        again = queue.again(offset)
        place.queues[queue.queue_id] = again
        self._changed(again)

    def _let_go(self, queue: QueueLeases) -> None:
        table = queue.rows
        self.owners.freed(table.owner[table.state != State.GONE])
        queue.armed_ms, queue.forgotten = NEVER, True
        self._with_news.pop(queue, None)
        self._giving_up.pop(queue, None)

    def pass_over(self, queue: QueueLeases, start: int, end: int) -> None:
        """Everything from `start` to before `end` is done, without a consumer."""
        if not queue.forgotten:
            queue.pass_over(start, end)
            self._changed(queue)

    def grew(self, group: str, topic: str, queue_id: int, minimum: int, end: int) -> None:
        """The queue holds `minimum`..`end` now, all of it confirmed."""
        queue = self.groups.queue(group, topic, queue_id)
        if queue is not None:
            queue.grew(minimum, end)
            self._changed(queue)

    def take_woken(self) -> set[tuple[str, str]]:
        """(group, topic) that have work since the last call: who waits for it may try again."""
        woken, self._woken = self._woken, set()
        return woken

    # ---- receive

    def begin(
        self,
        group: str,
        topics: Sequence[str],
        count: int,
        holder: str,
        now: Now,
        queue_ids: Collection[int] = (),
    ) -> tuple[Reading | None, bool]:
        """The next reading for a consumer that wants `count` messages, None if there is no work;
        and whether messages are held back because too many are not done. Every reading ends with
        `finish` or `abandon`."""
        known, throttled = self.groups[group], False
        self._turn += 1
        first = self._turn % len(topics)
        for name in (*topics[first:], *topics[:first]):
            place = known.topics[name]
            for _ in range(len(place.line)):
                queue = place.line.popleft()
                if queue_ids and queue.queue_id not in queue_ids:
                    place.line.append(queue)
                    continue
                reading, full = self._reading(queue, count, holder, now)
                if full:
                    throttled = True
                    self._throttled.add((group, name))
                    place.line.append(queue)
                    continue
                queue.listed = False
                if reading is not None:
                    queue.reading = True
                    return reading, throttled
        return None, throttled

    def _reading(
        self, queue: QueueLeases, count: int, holder: str, now: Now
    ) -> tuple[Reading | None, bool]:
        """And whether the bound of the node keeps new messages back."""
        if not queue.may_be_read(self.limits.queue_unacked, now.ms):
            return None, False
        queue.skip()
        again = queue.choose_ready(count)
        if len(again):
            return Reading(queue, again, 0, 0, holder), False
        room = min(count, self.limits.queue_unacked - queue.rows.live)
        share = self.owners.room(holder)
        start, end = queue.choose_new(max(min(room, share), 0))
        if end > start:
            return Reading(queue, again, start, end, holder), False
        return None, room > 0 >= share

    def abandon(self, reading: Reading, now: Now, pause_ms: int = 0) -> None:
        """Nothing could be read; the queue is tried again after the pause."""
        queue = reading.queue
        queue.reading = False
        if pause_ms and not queue.forgotten:
            queue.held_until_ms = now.ms + pause_ms
            self._arm(queue, now)
        self._changed(queue)

    def set_aside(self, reading: Reading, now: Now, pause_ms: int) -> None:
        """Its first message cannot be read: it is tried again after the pause."""
        queue = reading.queue
        queue.reading = False
        if queue.forgotten:
            return
        self.counters.set_aside += 1
        queue.set_aside(reading.first, now.ms + pause_ms)
        self._due.arm(queue, now.ms + pause_ms)
        self._changed(queue)

    def finish(self, reading: Reading, batch: ReadBatch, lease_ms: int, now: Now) -> Leased | None:
        """The messages of `batch` are the consumer's until `lease_ms` from now; None if none are
        left."""
        queue = reading.queue
        queue.reading = False
        if queue.forgotten:
            return None
        self._lease = self._lease % _MOST_LEASES + 1  # never NO_LEASE
        grant = Grant(self._lease, now.ms + lease_ms, now.wall_ms)
        if len(reading.again):
            looked_at = reading.again[reading.again < batch.end]
            mine = lease_again(queue, looked_at, batch, grant)
        else:
            mine = lease_new(queue, batch, grant, self.owners.number(reading.holder))
        leased = self._leased(queue, batch.take(mine)) if len(mine) else None
        if leased is not None:
            self.groups[queue.group].has_delivered = True
            self._due.arm(queue, now.ms + lease_ms)
        self._changed(queue)
        return leased

    def _leased(self, queue: QueueLeases, batch: ReadBatch) -> Leased:
        leased = leased_rows(self.groups[queue.group], queue, batch, self._lease, self.term)
        self.counters.delivered += len(leased.attempts)
        self.counters.redelivered += int((leased.attempts > 1).sum())
        return leased

    def handles_again(
        self, place: tuple[str, str, int], offsets: Sequence[int], delivery: int, mask: int
    ) -> list[bytes]:
        """See row_handles.py; `place` is group, topic and queue."""
        queue = self.groups.queue(*place)
        if queue is None:
            return [b""] * len(offsets)
        group = self.groups[place[0]]
        return handles_again(group, queue, offsets, delivery, mask, self.term)

    # ---- handles

    def operate(
        self, group: str, handles: NDArray[np.void], operation: Operation, now: Now
    ) -> tuple[Results, list[ToRead]]:
        """u1[n] AckResult of HANDLE[n], and those that must be read first: `operate_read` fills
        their places. Topics of the handles have been opened for the group."""
        known = self.groups[group]
        results = np.full(len(handles), AckResult.UNKNOWN_QUEUE, np.uint8)
        mine = (handles["group"] == known.hash) & (handles["version"] == 1)
        results[~mine] = AckResult.OTHER_GROUP
        unread = []
        for rows in by_queue(handles, mine.nonzero()[0]):
            place = known.topic_of.get(int(handles["topic"][rows[0]]))
            queue = place.queues.get(int(handles["queue_id"][rows[0]])) if place else None
            if queue is None:
                continue
            judged, at = judge(queue, handles[rows], operation.kind, self.term)
            results[rows] = judged
            accepted = each_once(at[judged == AckResult.OK])
            self._carry_out(queue, accepted, operation, now)
            to_read = rows[judged == TO_READ]
            if len(to_read):
                unread.append(ToRead(queue, to_read, handles[to_read]))
        self._count_invalid(results)
        return results, unread

    def operate_read(
        self, to_read: ToRead, found: Found, operation: Operation, now: Now
    ) -> Results:
        """u1[n] for the handles of `to_read`, whose messages were read."""
        queue, handles = to_read.queue, to_read.handles
        if queue.forgotten:
            return np.full(len(handles), AckResult.UNKNOWN_QUEUE, np.uint8)
        results, at = judge(queue, handles, operation.kind, self.term)
        self._carry_out(queue, each_once(at[results == AckResult.OK]), operation, now)
        left = (results == TO_READ).nonzero()[0]
        results[left] = AckResult.INVALID_RECEIPT_HANDLE
        left = left[self.same_message(found, handles)[left]]
        if operation.kind is Kind.EXTEND:
            left = left[~with_another(queue, handles["lease"][left], found.keys[left])]
        have = len(queue.ended) if operation.kind is Kind.ACK else queue.rows.live
        if have >= self.limits.queue_unacked:
            left = left[:0]
        if len(left):
            results[left] = AckResult.OK
            _, once = np.unique(handles["queue_offset"][left], return_index=True)
            self._take_over(queue, left[once], handles, found, operation, now)
        self._count_invalid(results)
        return results

    def same_message(self, found: Found, handles: NDArray[np.void]) -> NDArray[np.bool_]:
        """bool[n]: a message lies there, and it is that of the handle."""
        there = found.log_offsets >= 0
        return there & is_same_message(found.log_offsets, found.fingerprints, handles)

    def _take_over(
        self,
        queue: QueueLeases,
        rows: I64,
        handles: NDArray[np.void],
        found: Found,
        operation: Operation,
        now: Now,
    ) -> None:
        """Handles of an earlier master, each message once, in the order of the queue."""
        offsets = handles["queue_offset"][rows].astype(np.int64)
        if operation.kind is Kind.ACK:
            self.counters.acknowledged += len(rows)
            queue.end_offsets(offsets)
            self._changed(queue)
            return
        adopt(queue, handles[rows], found.keys[rows], now.ms, now.wall_ms)
        at, live = queue.rows.find(offsets)
        self._carry_out(queue, at[live], operation, now)

    def _carry_out(self, queue: QueueLeases, rows: I64, operation: Operation, now: Now) -> None:
        if not len(rows):
            return
        if operation.kind is Kind.ACK:
            self.counters.acknowledged += len(rows)
        elif operation.kind is Kind.RETRY:
            self.counters.retried += len(rows)
        carry_out(queue, rows, operation, now.ms)
        if operation.kind is not Kind.ACK:
            self._arm(queue, now)
            self._giving_up[queue] = None
        self._changed(queue)

    def _count_invalid(self, results: Results) -> None:
        wrong = (results >= AckResult.INVALID_RECEIPT_HANDLE) & (results != TO_READ)
        self.counters.invalid_handles += int(wrong.sum())

    # ---- time

    def tick(self, now: Now) -> int:
        """What is due comes again. Returns `next_due_ms`."""
        while (queue := self._due.take(now.ms)) is not None:
            self.counters.expired += queue.expire(now.ms)
            self._giving_up[queue] = None
            self._arm(queue, now)
            self._changed(queue)
        return self.next_due_ms

    @property
    def next_due_ms(self) -> int:
        """When `tick` has something to do (ms of Now), NEVER for never."""
        return self._due.next_ms

    def _arm(self, queue: QueueLeases, now: Now) -> None:
        self._due.arm(queue, queue.next_due_ms(now.ms))

    # ---- dead letters

    def take_dead_letters(self, count: int) -> list[DeadLetters]:
        """Up to `count` messages whose copies are to be stored; each comes back by `buried` or
        `not_buried`."""
        taken: list[DeadLetters] = []
        while self._giving_up and count > 0:
            queue = next(iter(self._giving_up))
            offsets = queue.take_given_up(count)
            count -= len(offsets)
            if not len(offsets):
                del self._giving_up[queue]
                continue
            rows, _ = queue.rows.find(offsets)
            errors = [queue.errors.get(each, "") for each in offsets.tolist()]
            table = queue.rows
            taken.append(
                DeadLetters(queue, offsets, table.attempts[rows], table.first_ms[rows], errors)
            )
        return taken

    @property
    def has_dead_letters(self) -> bool:
        """Whether `take_dead_letters` may return some."""
        return bool(self._giving_up)

    def buried(self, letters: DeadLetters) -> None:
        """The copies are in the log: the messages are done."""
        queue = letters.queue
        self.counters.dead_letters += len(letters.offsets)
        if queue.forgotten:
            return
        rows, found = queue.rows.find(letters.offsets)
        rows = rows[found]
        rows = rows[queue.rows.state[rows] == State.BURYING]
        queue.end_rows(rows)
        self._changed(queue)

    def not_buried(self, letters: DeadLetters) -> None:
        if letters.queue.forgotten:
            return
        letters.queue.not_buried(letters.offsets)
        # others first: perhaps none of this queue can be stored
        self._giving_up.pop(letters.queue, None)
        self._giving_up[letters.queue] = None

    # ---- what the log is told

    @property
    def has_news(self) -> bool:
        return bool(self._with_news)

    def collect(self, max_weight: int = 1 << 62) -> list[QueueProgress]:
        """What is new, about `max_weight` bytes of it; `confirmed` or `put_back` follow."""
        news, weight = [], 0
        while self._with_news and weight < max_weight:
            queue = next(iter(self._with_news))
            del self._with_news[queue]
            if queue.has_news:
                news.append(queue.collect())
                weight += news[-1].weight
        return news

    def confirmed(self, news: Iterable[QueueProgress]) -> None:
        """The record with these is confirmed."""
        for each in news:
            queue = self._of(each) if each.floor is not None else None
            if queue is not None and not queue.begun and queue.generation == each.generation:
                queue.begun = True
                self._changed(queue)

    def put_back(self, news: Iterable[QueueProgress]) -> list[QueueProgress]:
        """The record with these was not stored: they come with a later one. Returns those of
        queues that were forgotten meanwhile."""
        forgotten = []
        for each in news:
            queue = self._of(each)
            if queue is None or queue.generation != each.generation:
                forgotten.append(each)
            else:
                queue.put_back(each)
                self._with_news[queue] = None
        return forgotten

    def _of(self, progress: QueueProgress) -> QueueLeases | None:
        return self.groups.queue(progress.group, progress.topic, progress.queue_id)

    # ---- parts

    def _changed(self, queue: QueueLeases) -> None:
        """It may have news for the log, and work for consumers."""
        if queue.forgotten:
            return
        if queue.has_news:
            self._with_news[queue] = None
        if self.owners.freed_some:
            self.owners.freed_some = False
            self._woken |= self._throttled
            self._throttled.clear()
        if not queue.listed and queue.may_be_read(self.limits.queue_unacked, queue.held_until_ms):
            queue.listed = True
            self.groups[queue.group].topics[queue.topic].line.append(queue)
            self._woken.add((queue.group, queue.topic))
