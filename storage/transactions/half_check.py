"""Which half messages may be put, checked on a master before they are appended.

    record of the half topic ──▶ says whose it is and where to ──▶ that queue may be put to
                             ──▶ its transaction is open       ──▶ within the bound, and the
                                                                   share of who sends it

A half is acted on after its put. So everything that could go wrong then, and that is known now, is
refused now: with the record, and the way out.

Who has put which half is known to the master that took it, while the half is open: by its log
offset. Halves that were there before this node was the master count for no caller.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tandemlog.format.arrays.ragged import offsets_of
from tandemlog.format.constants import HALF_TOPIC, REAL_TOPIC
from tandemlog.format.errors import FormatError
from tandemlog.format.record.batch import AppendSegment, RecordBatch
from tandemlog.format.record.record import Record, decode_record
from tandemlog.format.transaction.half import MOST_MESSAGES, half_fault, half_of
from tandemlog.format.words import quoted

from ..errors import BatchRefusedError
from ..folds.transaction_fold import TransactionFold
from ..log.record_check import bad_record
from ..shares import Shares

NO_HALVES: Final[NDArray[np.int64]] = np.empty(0, np.int64)
_NOBODY: Final = ""


class HalfCheck:
    """See the module. `refusal(topic, queue_id)` says why a queue may not be put to, None if it
    may. The caller holds the store's write lock."""

    def __init__(
        self,
        fold: TransactionFold,
        refusal: Callable[[str, int], BatchRefusedError | None],
        *,
        max_open: int,
    ) -> None:
        self._fold = fold
        self._refusal = refusal
        self._max_open = max_open
        self._lock = threading.Lock()
        self._holders: dict[int, str] = {}
        self._shares = Shares(max_open)
        fold.on_ended = self._ended
        self.begin_term()

    def begin_term(self) -> None:
        """This node takes puts from now on."""
        with self._fold.lock, self._lock:
            self._shares = Shares(self._max_open)
            self._holders = dict.fromkeys(self._fold.halves, _NOBODY)
            self._shares.take(_NOBODY, len(self._holders))

    def _ended(self, log_offset: int) -> None:
        with self._lock:
            holder = self._holders.pop(log_offset, None)
            if holder is not None:
                self._shares.give_back(holder)

    def check(self, batch: RecordBatch, first: int = 0) -> NDArray[np.int64]:
        """The rows of the halves in a valid batch, from row `first` on: those before are stored
        already. Raises BatchRefusedError for the first that may not be put."""
        rows = half_rows(batch)
        rows = rows[rows >= first]
        if not len(rows):
            return rows
        begins = offsets_of(batch.sizes.astype(np.int64))
        more: dict[str, int] = {}
        for row in rows.tolist():
            self._check(decode_record(batch.records, int(begins[row]), check_crc=False), row, more)
        return rows

    def _check(self, record: Record, row: int, more: dict[str, int]) -> None:
        fault, half = half_fault(record), half_of(record)
        if fault is not None or half is None:
            raise bad_record("properties", f"a half message: {fault}", row)
        refusal = self._refusal(half.topic, half.queue_id)
        if refusal is not None:
            refusal.record_index = row
            raise refusal
        transaction_id = half.transaction_id
        with self._fold.lock:
            decided = transaction_id in self._fold.outcomes
            count = len(self._fold.of(transaction_id))
        if decided:
            raise BatchRefusedError(
                "TRANSACTION_DECIDED",
                "transaction_id",
                f"record {row}: transaction {quoted(transaction_id)} has ended: begin another one",
                record_index=row,
                of_the_store=True,
            )
        more[transaction_id] = more.get(transaction_id, count) + 1
        if more[transaction_id] > MOST_MESSAGES:
            raise BatchRefusedError(
                "INVALID_ARGUMENT",
                "transaction_id",
                f"record {row}: transaction {quoted(transaction_id)} has {MOST_MESSAGES} messages, "
                "which is the limit: commit it, and begin another one",
                limit=MOST_MESSAGES,
                actual=more[transaction_id],
                record_index=row,
            )

    # ---- how many

    def check_room(self, count: int, holder: str) -> None:
        """Raises BatchRefusedError if `holder` may not have so many more."""
        with self._lock:
            if self._shares.may_take(holder, count):
                return
            held, most = self._shares.held, self._shares.most(holder)
        raise BatchRefusedError(
            "BUSY",
            "records",
            f"{held} messages of open transactions are here, the limit is store.max_open_halves, "
            f"{self._max_open}, of which this caller may have {most}: wait until transactions have "
            "ended, or raise it",
            limit=self._max_open,
            actual=held + count,
            of_the_store=True,
        )

    def appended(
        self,
        rows: NDArray[np.int64],
        sizes: NDArray[np.uint32],
        segments: Sequence[AppendSegment],
        holder: str,
    ) -> None:
        """The halves in these rows of a batch stand in the log."""
        halves = set(rows.tolist())
        with self._lock:
            for segment in segments:
                offset = segment.physical_offset
                for row in range(segment.first_index, segment.first_index + segment.count):
                    if row in halves:
                        self._holders[offset] = holder
                    offset += int(sizes[row]) + segment.record_extra
            self._shares.take(holder, len(rows))


def half_rows(batch: RecordBatch) -> NDArray[np.int64]:
    """The records of a batch that go to the half topic, ascending."""
    if HALF_TOPIC not in batch.topics:
        return NO_HALVES
    entries = batch.queue_topics == batch.topics.index(HALF_TOPIC)
    rows: NDArray[np.int64] = entries[batch.queue_indexes].nonzero()[0]
    return rows


def half_topics(batch: RecordBatch) -> dict[str, int]:
    """The topics that the messages of halves in this batch are for, and the first record of each:
    of whatever bytes, before anything is checked."""
    if len(batch.queue_indexes) and int(batch.queue_indexes.max()) >= len(batch.queue_ids):
        return {}
    rows = half_rows(batch)
    begins = offsets_of(batch.sizes.astype(np.int64))
    topics: dict[str, int] = {}
    for row in rows.tolist():
        try:
            record = decode_record(
                batch.records, int(begins[row]), check_crc=False, limit=int(begins[row + 1])
            )
        except FormatError:
            continue  # the store refuses it
        if topic := record.properties.get(REAL_TOPIC):
            topics.setdefault(topic, row)
    return topics
