"""What a master does with transactions: ends them, and writes what follows from their ends.

    commit     open ──▶ appended: COMMIT, the messages, OP ──▶ ended, when dispatched
    roll back  open ──▶ appended: OP                       ──▶ ended, when dispatched
    finish     committed, a message or the OP is missing ──▶ appended ──▶ ended, when dispatched

Under the store's write lock a transaction is looked at and ended by one append: so it has one
outcome. Between the append and its dispatch this process remembers the outcome. It forgets it when
a term ends: what was not confirmed then may be cut, and the transaction is open again.

The record that decides comes first in its append. What a crash tears off behind it, and what did
not fit into one append, is written by `finish`, of this master or of the next one.

A term's first decision waits until everything that stood in the log at its begin is confirmed and
dispatched: before that a decision of the last master may lie there that the fold does not know.

Offsets of groups count once they are dispatched. Until then `offsets_known` is false for their
groups, and was so before it was checked whether they may be set: who owns a queue afterwards waits.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tandemlog.format.constants import (
    BROKER_TRANSACTIONS,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    SERVICE_TOPIC,
    UNDECIDED_TOPIC,
)
from tandemlog.format.errors import FormatError
from tandemlog.format.record.batch import RecordBatch
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.transaction.decision import (
    Commit,
    GroupOffset,
    OffsetsSet,
    Said,
    TakenOver,
    said_record,
)
from tandemlog.format.transaction.half import committed_record, given_up_record, op_record

from ..errors import OffsetOutOfRangeError, UnreadableError
from ..folds.transaction_fold import OpenHalf
from ..message_store import MessageStore
from ..metadata.topics import TopicConfig
from ..puts.put_path import PutResult
from ..reads.results import NoRecordError
from .own_records import NewRecord, Place, batch_of_records, places_of, target_fault
from .transaction_errors import (
    HalvesUnreadableError,
    TransactionDecidedError,
    TransactionsNotReadyError,
    UnknownTransactionError,
)

logger = logging.getLogger(__name__)

MOST_RECORDS: Final = 4096
"""Of one append, besides the decision and the OP record."""
DECISION_BYTES: Final = 256 << 10
"""Of an append that are kept for these two."""
RETRY_S: Final = 60.0
_OF_ONE: Final = (NoRecordError, OffsetOutOfRangeError, UnreadableError, FormatError)
"""What is wrong with one record, and not with the store."""
_UNKNOWN_END: Final = 1 << 63


def _anything() -> None:
    """Offsets may be set."""


@dataclass(frozen=True, slots=True)
class EndRequest:
    """A transaction that is to be ended. `count`: of its messages; None: as many as there are.
    `only`: the log offset of the one half that a commit means; the others of the transaction, the
    same message sent again, are rolled back by it. `admit` is called with the write lock taken,
    just before the append, and raises if the offsets may not be set."""

    transaction_id: str
    count: int | None = None
    offsets: tuple[GroupOffset, ...] = ()
    admit: Callable[[], None] = _anything
    only: int | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a transaction has ended, once the log is confirmed up to `end_offset`. `again`: it had
    ended so before. `messages`: where those of this append are."""

    committed: bool
    end_offset: int = 0
    again: bool = False
    messages: tuple[Place, ...] = ()


@dataclass(slots=True)
class TransactionCounts:
    """Since this process began: transactions, and halves that were finished."""

    committed: int = 0
    rolled_back: int = 0
    given_up: int = 0
    finished: int = 0


class TransactionDesk:
    """See the module. Any thread; one decision at a time."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._fold = store.transactions
        self._host = store.config.store_host
        self._deciding = threading.Lock()
        self._began_at: int | None = None
        # terms that began or ended, and how many had when the last append began
        self._term = self._append_term = 0
        self._outcomes: dict[str, Ended] = {}
        # halves whose end is appended, and groups whose offsets are: up to where in the log
        self._taken: dict[int, int] = {}
        self._offset_ends: dict[str, int] = {}
        self._set_aside: dict[int, float] = {}
        self.counts = TransactionCounts()

    # ---- terms

    def begin(self) -> None:
        """This node is the master from now on, and appends."""
        with self._fold.lock:
            self._forget()
            self._began_at = self._store.log.wrote.value

    def end(self) -> None:
        """It is no longer."""
        with self._fold.lock:
            self._began_at = None
            self._forget()

    def _forget(self) -> None:
        self._term += 1
        self._outcomes.clear()
        self._taken.clear()
        self._offset_ends.clear()
        self._set_aside.clear()

    @property
    def ready(self) -> bool:
        """Whether this node knows what was decided, and may decide."""
        return self._began_at is not None and self._fold.next_offset >= self._began_at

    def offsets_known(self, group: str) -> bool:
        """Whether the offsets of `group` that transactions have set are all in the table."""
        with self._fold.lock:
            self._forget_dispatched()
            return self.ready and group not in self._offset_ends

    # ---- decisions

    def known(self, transaction_id: str, *, committed: bool) -> Ended | None:
        """The outcome that a transaction has; None without one. Raises TransactionDecidedError for
        the other one."""
        with self._fold.lock:
            self._forget_dispatched()
            return self._outcome(transaction_id, committed=committed)

    def commit(self, request: EndRequest) -> Ended:
        """Raises TransactionDecidedError, UnknownTransactionError, HalvesUnreadableError,
        TransactionsNotReadyError, and what `admit` and MessageStore.put_own raise."""
        with self._deciding:
            with self._fold.lock:
                halves = self._undecided(request.transaction_id, request.only)
            messages = self._committed(halves)
            if len(messages) < len(halves):
                unreadable = len(halves) - len(messages)
                raise HalvesUnreadableError(request.transaction_id, unreadable, len(halves))
            rows = self._commit_rows(request, halves, messages)
            first = len(rows) - len(messages)
            rows = self._fitting(rows, first)
            count = len(rows) - first
            if count == len(halves) and halves:
                rows.append(self._op(halves))
            result, known = self._append(
                lambda: self._look_for_commit(request, halves, rows),
                halves[:count],
                request,
                frees=self._frees(halves),
            )
            if result is None:
                return known or Ended(committed=True)
            self.counts.committed += 1
            places = tuple(places_of(rows, result)[first : first + count])
            return self._remember(request, Ended(True, result.end_offset, messages=places))

    def _commit_rows(
        self, request: EndRequest, halves: Sequence[OpenHalf], messages: Sequence[NewRecord]
    ) -> list[NewRecord]:
        """A transaction of one message is decided by that alone."""
        if len(halves) == 1 and not request.offsets:
            return list(messages)
        if not halves and not request.offsets:
            return []
        offsets = tuple(each.log_offset for each in halves)
        return [
            self._said(Commit(request.transaction_id, offsets, request.offsets)), *messages
        ]  # fmt: skip

    def _look_for_commit(
        self, request: EndRequest, halves: list[OpenHalf], rows: list[NewRecord]
    ) -> list[NewRecord] | Ended:
        if (known := self._outcome(request.transaction_id, committed=True)) is not None:
            return known
        now = self._undecided(request.transaction_id, request.only)
        # of one that is not known at all there is nothing to commit
        wanted = max(len(now), not request.offsets) if request.count is None else request.count
        if wanted != len(now):
            raise UnknownTransactionError(request.transaction_id, wanted, len(now))
        if now != halves:
            raise TransactionsNotReadyError("another message of the transaction has just arrived")
        return rows

    def roll_back(self, request: EndRequest) -> Ended:
        """Raises as `commit`. Of a transaction that is not known there is nothing to roll back."""
        with self._deciding:
            return self._roll_back(request)

    def _roll_back(self, request: EndRequest) -> Ended:
        def look() -> list[NewRecord] | Ended:
            if (known := self._outcome(request.transaction_id, committed=False)) is not None:
                return known
            halves = self._undecided(request.transaction_id)
            return [self._op(halves)] if halves else []

        with self._fold.lock:
            frees = self._frees(self._fold.of(request.transaction_id))
        result, known = self._append(look, (), request, frees=frees)
        if result is None:
            return known or Ended(committed=False)
        self.counts.rolled_back += 1
        return self._remember(request, Ended(False, result.end_offset))

    def give_up(self, transaction_id: str) -> Ended:
        """Roll a transaction back that was never decided; its halves are copied to
        UNDECIDED_TOPIC, where RocketMQ's operators look for them. Raises as `commit`."""
        with self._deciding:
            with self._fold.lock:
                known = self._outcome(transaction_id, committed=False)
                halves = [] if known is not None else self._undecided(transaction_id)
            copies = [
                NewRecord(
                    UNDECIDED_TOPIC, 0,
                    given_up_record(record, UNDECIDED_TOPIC, store_host=self._host),
                )
                for half in halves
                if (record := self._read(half)) is not None
            ]  # fmt: skip
            if copies and self._store.topics.get(UNDECIDED_TOPIC) is None:
                self._store.create_topic(TopicConfig(UNDECIDED_TOPIC, 1, 1))
            while copies:
                part = self._fitting(copies, 0)
                self._append(
                    lambda part=part: part,  # type: ignore[misc]
                    (),
                    EndRequest(transaction_id),
                    frees=self._frees(halves),
                )
                copies = copies[len(part) :]
            ended = self._roll_back(EndRequest(transaction_id))
            self.counts.given_up += not ended.again
            return ended

    def set_offsets(self, rows: Sequence[GroupOffset]) -> int:
        """Offsets that were set by hand, of queues for which the log has one; returns the log
        offset from which on they count. Raises as `commit`."""
        with self._deciding:
            record = self._said(OffsetsSet(tuple(rows)))
            result, _ = self._append(lambda: [record], (), EndRequest("", offsets=tuple(rows)))
            return self._store.log.wrote.value if result is None else result.end_offset

    # ---- what follows

    def take_over(self) -> None:
        """If a broker has written this store: halves that have ended by its word alone have ended.
        Raises as `commit`."""
        offset = self._store.consumer_offsets.offset(BROKER_TRANSACTIONS, HALF_TOPIC, 0) or 0

        def look() -> list[NewRecord]:
            below = (each for each in self._fold.halves.values() if each.queue_offset < offset)
            return [self._said(TakenOver(offset))] if any(e.undecided for e in below) else []

        with self._deciding:
            result, _ = self._append(look, (), EndRequest(""))
            if result is not None:
                logger.info("half messages below %d have ended, by the last broker's word", offset)
                # until that is dispatched they look as if they were open
                self._began_at = result.end_offset

    def finish(self) -> int:
        """Write the messages and OP records that are missing of decided transactions, as many as
        one append takes; returns for how many halves. Raises as `commit`."""
        with self._deciding:
            with self._fold.lock:
                halves = self._to_finish() if self.ready else []
            rows, done = self._missing(halves)
            if not rows:
                return 0

            def look() -> list[NewRecord]:
                same = all(self._fold.halves.get(each.log_offset) == each for each in done)
                return rows if same else []

            result, _ = self._append(look, done, EndRequest(""), frees=self._frees(done))
            self.counts.finished += len(done) if result is not None else 0
            return len(done)

    def _missing(self, halves: Sequence[OpenHalf]) -> tuple[list[NewRecord], list[OpenHalf]]:
        """The records that are missing of the first of these halves, and of which."""
        rows: list[NewRecord] = []
        done: list[OpenHalf] = []
        room = self._limit
        for half in halves:
            if half.committed and not half.delivered:
                messages = self._committed([half])
                room -= sum(len(each.record) for each in messages)
                if not messages:
                    continue
                if rows and room < 0:
                    break
                rows += messages
            done.append(half)
        if unrecorded := [each for each in done if not each.recorded]:
            rows.append(self._op(unrecorded))
        return rows, done

    def _to_finish(self) -> list[OpenHalf]:
        self._forget_dispatched()
        now = self._store.clock.monotonic()
        for offset in [each for each, until in self._set_aside.items() if until <= now]:
            del self._set_aside[offset]
        left = sorted(self._fold.unfinished.difference(self._taken, self._set_aside))
        return [replace(self._fold.halves[each]) for each in left[:MOST_RECORDS]]

    # ---- how

    def _append(
        self,
        look: Callable[[], list[NewRecord] | Ended],
        ends: Sequence[OpenHalf],
        request: EndRequest,
        *,
        frees: bool = False,
    ) -> tuple[PutResult | None, Ended | None]:
        """Append what `look` gives, with the locks of store and fold taken, or nothing if it gives
        nothing, or what is known already. The halves `ends` are taken until it is dispatched.
        `frees` as in MessageStore.put_own."""
        known: Ended | None = None
        self._append_term = self._term
        groups = {each.group: self._offset_ends.get(each.group) for each in request.offsets}

        def frame() -> RecordBatch | None:
            nonlocal known
            with self._fold.lock:
                self._forget_dispatched()
                if not self.ready:
                    raise TransactionsNotReadyError(
                        "it is not known yet what the last master has decided: try again in a "
                        "moment"
                    )
                found = look()
                if isinstance(found, Ended):
                    known = found
                    return None
                if found:
                    self._offset_ends.update(dict.fromkeys(groups, _UNKNOWN_END))
            if not found:
                return None
            request.admit()
            return batch_of_records(found)

        result = None
        try:
            result = self._store.put_own(frame, frees=frees)
        finally:
            with self._fold.lock:
                if result is not None and self._append_term == self._term:
                    self._taken.update((each.log_offset, result.end_offset) for each in ends)
                    self._offset_ends.update(dict.fromkeys(groups, result.end_offset))
                else:
                    for group, end in groups.items():
                        self._offset_ends.pop(group, None)
                        if end is not None:
                            self._offset_ends[group] = end
        return result, known

    def _remember(self, request: EndRequest, ended: Ended) -> Ended:
        with self._fold.lock:
            # one of a term that is over may be cut
            if self._append_term == self._term:
                self._outcomes[request.transaction_id] = ended
        return ended

    def _forget_dispatched(self) -> None:
        reached = self._fold.next_offset
        for offset in [each for each, end in self._taken.items() if end <= reached]:
            del self._taken[offset]
        for group in [each for each, end in self._offset_ends.items() if end <= reached]:
            del self._offset_ends[group]
        for name in [each for each, how in self._outcomes.items() if how.end_offset <= reached]:
            del self._outcomes[name]

    def _outcome(self, transaction_id: str, *, committed: bool) -> Ended | None:
        """The outcome that a transaction has; None without one. Raises TransactionDecidedError for
        the other one."""
        ended = self._outcomes.get(transaction_id)
        if ended is None and (outcome := self._fold.outcomes.get(transaction_id)) is not None:
            ended = Ended(outcome)
        if ended is None:
            return None
        if ended.committed != committed:
            raise TransactionDecidedError(transaction_id, committed=ended.committed)
        return replace(ended, again=True)

    def _undecided(self, transaction_id: str, only: int | None = None) -> list[OpenHalf]:
        halves = [replace(each) for each in self._fold.of(transaction_id) if each.undecided]
        return halves if only is None else [each for each in halves if each.log_offset == only]

    def _committed(self, halves: Sequence[OpenHalf]) -> list[NewRecord]:
        """The messages of halves. One that cannot be written now is left out and set aside."""
        rows = []
        for half in halves:
            record = self._read(half)
            if record is not None:
                topic = half.half.topic
                queue_id = self._store.topics.readable_queue(topic, half.half.queue_id)
                message = committed_record(record, store_host=self._host, queue_id=queue_id)
                rows.append(NewRecord(topic, queue_id, message))
        return rows

    def _read(self, half: OpenHalf) -> Record | None:
        offset = half.log_offset
        fault = target_fault(half.half.topic)
        if fault is None:
            try:
                return decode_record(self._store.reader.record_at(offset), physical_offset=offset)
            except _OF_ONE as error:
                fault = str(error)
        logger.error(
            "the half message at log offset %d of transaction %s cannot be committed: %s; it is "
            "tried again in %.0f s",
            offset, half.half.transaction_id, fault, RETRY_S,
        )  # fmt: skip
        self._set_aside[offset] = self._store.clock.monotonic() + RETRY_S
        return None

    def _frees(self, halves: Sequence[OpenHalf]) -> bool:
        """Whether retention waits for the end of one of these."""
        end = self._store.retention_waits_for
        return end is not None and any(each.log_offset < end for each in halves)

    @property
    def _limit(self) -> int:
        """Bytes of one append, besides the decision and the OP record."""
        return int(self._store.log.limits.max_batch) - DECISION_BYTES

    def _fitting(self, rows: Sequence[NewRecord], first: int) -> list[NewRecord]:
        """As many of `rows` as one append takes; those before `first`, and one behind them, always
        go."""
        room = self._limit
        for index, row in enumerate(rows[: first + MOST_RECORDS]):
            room -= len(row.record)
            if room < 0 and index > first:
                return list(rows[:index])
        return list(rows[: first + MOST_RECORDS])

    def _op(self, halves: Sequence[OpenHalf]) -> NewRecord:
        offsets = [each.queue_offset for each in halves]
        record = op_record(offsets, now_ms=self._store.clock.now_ms(), host=self._host)
        return NewRecord(OP_HALF_TOPIC, 0, record)

    def _said(self, said: Said) -> NewRecord:
        record = said_record(said, now_ms=self._store.clock.now_ms(), host=self._host)
        return NewRecord(SERVICE_TOPIC, 0, record)
