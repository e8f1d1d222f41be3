"""One queue of one group on the master: what is leased, what comes again, what comes next.

    queue offset   ... floor ........... next ............... end
                   done |  ended, rows   |  not delivered     |  confirmed and dispatched
                        |  of unacked.py |  yet               |

    next ──begin, read, lease──▶ LEASED ──ack────────────────────────▶ ended
                                  │  ▲                                  ▲ copied to the dead letters
                        nack with │  │ read, lease again                │
                          a delay ▼  │                                  │
                                WAITING ─time─▶ READY ◀─lease ended─ LEASED
                                                  '── attempts exhausted, reject ──▶ GIVEN_UP

Ended messages are collected as changes for the next progress record, which makes them durable;
until it is confirmed they are forgotten with this master, and come again. So nothing is ended here
that was not acknowledged, left out by a filter, deleted by retention, or copied to the dead
letters.

Order: with QUEUE all messages of the queue have one key, with KEY those with the same sharding key.
A key is taken while one of its messages is leased, waits or is given up; a delivery may have many
messages of one key, in their order. Rows at or behind `next` come from the log or from handles of
an earlier master; where order is kept they have their turn when `next` comes to them.

Pure: times are parameters (ms of a clock that never jumps).
"""

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.lease.policy import GroupPolicy, Ordering
from tandemlog.format.lease.progress import QueueProgress

from .intervals import IntervalSet, runs_of
from .news import News
from .queue_state import MAX_ERRORS
from .row_owners import RowOwners
from .unacked import I64, NO_LEASE, NOT_KNOWN, Rows, State, Unacked

NEVER = 1 << 62
ONE_KEY = 1
"""Of all messages of a queue whose order is kept as a whole."""
_TAKING = (State.LEASED, State.WAITING, State.GIVEN_UP, State.BURYING)


class QueueLeases:
    """See the module. `floor` and `ended` say what is done."""

    def __init__(
        self,
        group: str,
        topic: str,
        queue_id: int,
        policy: GroupPolicy,
        owners: RowOwners,
    ) -> None:
        self.group, self.topic, self.queue_id = group, topic, queue_id
        self.policy = policy
        self.owners = owners
        self.generation = 0
        self.floor = self.next = self.end = 0
        self.ended = IntervalSet()
        self.rows = Unacked()
        self.errors: dict[int, str] = {}
        self.begun = True
        """Whether the log says where the group begins, if that matters."""
        self.ready = 0
        self.reading = False
        self.listed = False
        self.forgotten = False
        """The engine does not know it any more."""
        self.armed_ms = NEVER
        self.held_until_ms = 0
        self.news = News()

    def __lt__(self, other: "QueueLeases") -> bool:
        """Some order, for a heap."""
        return id(self) < id(other)

    # ---- begin

    def begin(self, floor: int, *, sure: bool) -> None:
        """Nothing is known of the group in this queue: it begins at `floor`. Unless `sure`, nothing
        is delivered before that is in the log: another master would begin elsewhere."""
        self.floor = self.next = floor
        self.begun, self.news.floor = sure, True

    def again(self, offset: int) -> "QueueLeases":
        """The same queue, begun at `offset` whatever the log said: its next generation."""
        made = QueueLeases(self.group, self.topic, self.queue_id, self.policy, self.owners)
        made.generation = self.generation + 1
        made.begin(offset, sure=False)
        made.end = self.end
        return made

    def load(self, state: QueueProgress, again_ms: int) -> None:
        """What the log says. What was tried comes again at `again_ms`: consumers may still have it
        by an earlier master."""
        self.generation = state.generation
        self.ended.add_runs(state.ended_starts, state.ended_ends)
        self.floor = self.next = self.ended.advance(state.floor or 0)
        self.errors = dict(state.errors)
        attempts = state.attempts
        spent = attempts >= self.policy.max_attempts
        self.rows.add(
            state.offsets,
            state=np.where(spent, State.GIVEN_UP, State.WAITING),
            visible=again_ms,
            attempts=attempts,
            first_ms=state.first_ms,
            log_offset=NOT_KNOWN,
            owner=0,
            key=ONE_KEY if self.policy.ordering is Ordering.QUEUE else 0,
        )
        self.owners.take(0, len(attempts))

    def grew(self, minimum: int, maximum: int) -> None:
        """The queue holds `minimum`..`maximum`, confirmed; below it retention has deleted."""
        self.end = max(self.end, maximum)
        if minimum > self.floor:
            self.pass_over(self.floor, minimum)

    def is_done(self, offset: int) -> bool:
        return offset < self.floor or offset in self.ended

    @property
    def left(self) -> int:
        """How many messages are not done."""
        return self.left_from(self.floor)

    def left_from(self, start: int) -> int:
        """How many messages from `start` on, which is no lower than the floor, are not done."""
        done = sum(max(min(end, self.end) - max(begin, start), 0) for begin, end in self.ended)
        return max(self.end - start, 0) - done

    # ---- what can be delivered

    def may_be_read(self, limit: int, now_ms: int) -> bool:
        """Whether `choose` may find something."""
        if self.reading or now_ms < self.held_until_ms:
            return False
        if self.ready:
            return True
        return self.begun and self.next < self.end and self.rows.live < limit and not self._shut()

    def _shut(self) -> bool:
        """Whether nothing new may be delivered, because the order is kept: an earlier message is
        not done, or its key is not known yet."""
        ordering = self.policy.ordering
        if ordering is Ordering.NONE or not self.rows.live:
            return False
        earlier = self.rows.state[: self.rows.position(self.next)] != State.GONE
        if ordering is Ordering.KEY:
            earlier &= self.rows.log_offset[: len(earlier)] == NOT_KNOWN
        return bool(earlier.any())

    def skip(self) -> None:
        """`next` moves behind what is done and what has rows."""
        offsets = self.rows.offset
        self.next = max(self.next, self.floor)
        while True:
            self.next = self.ended.next_outside(self.next)
            at = self.rows.position(self.next)
            if at == len(offsets) or int(offsets[at]) != self.next:
                return
            behind = offsets[at:]
            breaks = (behind != self.next + np.arange(len(behind))).nonzero()[0]
            self.next += int(breaks[0]) if len(breaks) else len(behind)

    def choose_ready(self, count: int) -> I64:
        """At most `count` offsets that come again, ascending."""
        if not self.ready:
            return _NO_OFFSETS
        rows = self.rows.in_state(State.READY)
        if self.policy.ordering is not Ordering.NONE:
            rows = rows[self.rows.offset[rows] < min(self.next, self._first_unknown())]
            rows = rows[self.free(self.rows.key[rows])]
        return self.rows.offset[rows[:count]]

    def choose_new(self, count: int) -> tuple[int, int]:
        """Start and end of at most `count` offsets that were never delivered; the same for none.
        After `skip`."""
        if not self.begun or self._shut():
            return self.next, self.next
        bounds = (self.rows.first_from(self.next), self.ended.next_inside(self.next))
        end = min(self.end, self.next + count, *(each for each in bounds if each is not None))
        return self.next, max(end, self.next)

    def _first_unknown(self) -> int:
        """The offset of the first message that takes a key which is not known."""
        rows = self.rows.in_state(*_TAKING) if self.policy.ordering is Ordering.KEY else _NO_OFFSETS
        rows = rows[self.rows.log_offset[rows] == NOT_KNOWN]
        return int(self.rows.offset[rows[0]]) if len(rows) else NEVER

    def free(self, keys: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Which keys no message has that is leased, waits or is given up; 0 is no key."""
        taken = self.rows.key[self.rows.in_state(*_TAKING)]
        free: NDArray[np.bool_] = (keys == 0) | ~np.isin(keys, taken)
        return free

    def set_aside(self, offset: int, visible_ms: int) -> None:
        """The message cannot be read now: it comes at `visible_ms`, and those behind it before,
        where no order is kept. It was never delivered, so the log is not told."""
        self.next = max(self.next, offset + 1)
        if self.is_done(offset):
            return
        rows, found = self.rows.find(np.array([offset]))
        if found.any():
            rows = rows[self.rows.state[rows] == State.READY]
            self.leave_ready(rows)
            self.rows.state[rows], self.rows.visible[rows] = State.WAITING, visible_ms
            return
        self.rows.add(
            np.array([offset]),
            state=State.WAITING,
            visible=visible_ms,
            log_offset=NOT_KNOWN,
            key=ONE_KEY if self.policy.ordering is Ordering.QUEUE else 0,
        )
        self.owners.take(0, 1)

    # ---- what became of deliveries

    def extend(self, rows: Rows, visible_ms: int) -> None:
        """These are leased until then."""
        states = self.rows.state[rows]
        kept = rows[(states == State.LEASED) | (states == State.WAITING) | (states == State.READY)]
        self.leave_ready(kept)
        self.rows.state[kept], self.rows.visible[kept] = State.LEASED, visible_ms

    def release(self, rows: Rows) -> None:
        """These were not tried: they come again at once, and the delivery does not count. So do
        those behind them in an order."""
        rows = rows[self.rows.state[rows] == State.LEASED]
        rows = np.union1d(rows, self._behind(rows))
        self.rows.attempts[rows] -= self.rows.attempts[rows] > 0
        self.rows.state[rows], self.rows.lease[rows] = State.READY, NO_LEASE
        self.ready += len(rows)
        self.change(rows)

    def retry(self, rows: Rows, delay_ms: int | None, now_ms: int, error: str) -> None:
        """These have failed: they come again after `delay_ms`, None for that of the policy."""
        states = self.rows.state[rows]
        rows = rows[(states == State.LEASED) | (states == State.WAITING) | (states == State.READY)]
        later = self._behind(rows)
        self.release(later)
        rows = np.setdiff1d(rows, later, assume_unique=True)
        self.leave_ready(rows)
        self.rows.lease[rows] = NO_LEASE
        self._note(rows, error)
        attempts = self.rows.attempts[rows]
        spent = attempts >= self.policy.max_attempts
        self._give_up(rows[spent])
        rows, attempts = rows[~spent], attempts[~spent]
        distinct, which = np.unique(attempts, return_inverse=True)
        pauses = [
            self.policy.backoff.delay_ms(each) if delay_ms is None else delay_ms
            for each in distinct.tolist()
        ]
        self.rows.visible[rows] = now_ms + np.array(pauses, np.int64)[which]
        self.rows.state[rows] = State.WAITING

    def _behind(self, rows: Rows) -> Rows:
        """Of the same delivery, messages of the same key behind one of these: they cannot be
        handled before it."""
        behind = _NO_OFFSETS
        if self.policy.ordering is Ordering.NONE:
            return behind
        table = self.rows
        leased = table.in_state(State.LEASED)
        for row in rows.tolist():
            if key := int(table.key[row]):
                same = (table.key[leased] == key) & (table.lease[leased] == table.lease[row])
                behind = np.union1d(behind, leased[same & (leased > row)])
        return behind

    def reject(self, rows: Rows, error: str) -> None:
        """These become dead letters."""
        rows = rows[self.rows.state[rows] < State.GIVEN_UP]
        self.leave_ready(rows)
        self._note(rows, error)
        self._give_up(rows)

    def expire(self, now_ms: int) -> int:
        """What is due comes again; returns how many leases have ended."""
        table = self.rows
        due = table.in_state(State.LEASED, State.WAITING)
        due = due[table.visible[due] <= now_ms]
        leased = due[table.state[due] == State.LEASED]
        if self.policy.ordering is not Ordering.NONE and len(leased):
            # only the first of each key and delivery can have been tried
            both = table.key[leased].astype(np.uint64) << np.uint64(32) | table.lease[leased]
            later = np.ones(len(leased), np.bool_)
            later[np.unique(both, return_index=True)[1]] = False
            later &= table.key[leased] != 0
            later_ones = leased[later]
            table.attempts[later_ones] -= table.attempts[later_ones] > 0
            self.change(later_ones)
        spent = leased[table.attempts[leased] >= self.policy.max_attempts]
        table.state[due] = State.READY
        self.ready += len(due)
        self.leave_ready(spent)
        self._give_up(spent)
        return len(leased)

    def next_due_ms(self, now_ms: int) -> int:
        """When `expire` has something to do, or the queue may be read again."""
        rows = self.rows.in_state(State.LEASED, State.WAITING)
        due = int(self.rows.visible[rows].min()) if len(rows) else NEVER
        return min(due, self.held_until_ms) if self.held_until_ms > now_ms else due

    def leave_ready(self, rows: Rows) -> None:
        if self.ready:
            self.ready -= int((self.rows.state[rows] == State.READY).sum())

    def _give_up(self, rows: Rows) -> None:
        self.rows.state[rows] = State.GIVEN_UP

    def _note(self, rows: Rows, error: str) -> None:
        self.change(rows)
        if error:
            for offset in self.rows.offset[rows].tolist():
                self.errors[offset] = error
                self.news.errors.add(offset)

    def change(self, rows: Rows) -> None:
        self.rows.changed[rows] = True
        self.news.rows = True

    # ---- ends

    def end_offsets(self, offsets: I64) -> None:
        """Ascending, distinct offsets at or above the floor are done, whether they have rows or
        not."""
        if not len(offsets):
            return
        rows, found = self.rows.find(offsets)
        self._end_rows(rows[found])
        self._end(offsets)

    def end_rows(self, rows: Rows) -> None:
        """These live rows, ascending, are done."""
        offsets = self.rows.offset[rows]
        self._end_rows(rows)
        self._end(offsets)

    def _end(self, offsets: I64) -> None:
        starts, ends = runs_of(offsets)
        self.ended.add_runs(starts, ends)
        self.news.ended.add_runs(starts, ends)
        self._advance()

    def pass_over(self, start: int, end: int) -> None:
        """Everything from `start` to before `end` is done."""
        if start >= end:
            return
        inside = (self.rows.offset >= start) & (self.rows.offset < end)
        self._end_rows((inside & (self.rows.state != State.GONE)).nonzero()[0])
        self.ended.add(start, end)
        self.news.ended.add(start, end)
        self._advance()

    def _end_rows(self, rows: Rows) -> None:
        if not len(rows):
            return
        self.leave_ready(rows)
        self.owners.freed(self.rows.owner[rows])
        if self.errors:
            for offset in self.rows.offset[rows].tolist():
                self.errors.pop(offset, None)
                self.news.errors.discard(offset)
        self.rows.end(rows)
        self.rows.tidy()

    def _advance(self) -> None:
        self.floor = self.ended.advance(self.floor)
        self.next = max(self.next, self.floor)

    # ---- dead letters

    def take_given_up(self, count: int) -> I64:
        """At most `count` offsets whose copies are to be stored now."""
        rows = self.rows.in_state(State.GIVEN_UP)[:count]
        self.rows.state[rows] = State.BURYING
        return self.rows.offset[rows]

    def not_buried(self, offsets: I64) -> None:
        """Their copies were not stored: `take_given_up` returns them again."""
        rows, found = self.rows.find(offsets)
        rows = rows[found]
        self.rows.state[rows[self.rows.state[rows] == State.BURYING]] = State.GIVEN_UP

    # ---- what the next progress record says

    @property
    def has_news(self) -> bool:
        return bool(self.news)

    def collect(self) -> QueueProgress:
        """What is new since the last call."""
        news, self.news = self.news, News()
        starts, ends = news.ended.columns()
        table = self.rows
        rows = (table.changed & (table.state != State.GONE)).nonzero()[0]
        # a message that has never been delivered waits for its turn
        rows = rows[table.first_ms[rows] != 0]
        table.changed[:] = False
        return QueueProgress(
            self.group,
            self.topic,
            self.queue_id,
            self.generation,
            self.floor if news.floor else None,
            starts,
            ends,
            table.offset[rows].copy(),
            table.attempts[rows].copy(),
            table.first_ms[rows].copy(),
            {each: self.errors[each] for each in sorted(news.errors)[-MAX_ERRORS:]},
        )

    def put_back(self, news: QueueProgress) -> None:
        """The record with these was not stored."""
        self.news.put_back(news)
        rows, found = self.rows.find(news.offsets)
        self.change(rows[found])
        self.news.errors.update(each for each in news.errors if each in self.errors)


_NO_OFFSETS: I64 = np.empty(0, np.int64)
